//! Recognizes files of this crate by their first bytes.

use crate::{bundle, columns, provenance, sidecar};

/// A file that this crate reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileType {
    /// A chunk index, `.idx`.
    Index,
    /// Columns of events, `.cidx`.
    Columns,
    /// Provenance of chunks, `.pidx`.
    Provenance,
    /// The chunk indexes or the provenance of the leaves of a data file, `.idx` or `.pidx`.
    Bundle,
}

impl FileType {
    /// The type of a file with these first bytes, in any version; `None` for other files. Eight
    /// bytes are enough.
    pub fn of(head: &[u8]) -> Option<FileType> {
        let types = [
            (sidecar::SIGNATURE, FileType::Index),
            (columns::SIGNATURE, FileType::Columns),
            (provenance::SIGNATURE, FileType::Provenance),
            (bundle::SIGNATURE, FileType::Bundle),
        ];
        let known = types.iter().find(|(form, _)| head.starts_with(&form.magic));
        known.map(|(_, file_type)| *file_type)
    }
}
