//! Attachments in the index of a DFTracer file.

use chunk_index::{DftFacts, DftNames, FileDictionary};
use query_language::FieldPath;

use super::hash_names::DICTIONARY_FIELD;
use crate::ReadError;
use crate::open_sidecar::OpenSidecar;

/// The texts that the hashes of a file represent, as its index stores them.
pub(super) struct PackedNames {
    pub(super) packed: Vec<u8>,
    /// The hashes that are in the dictionary of the file instead.
    pub(super) dictionary: Option<FileDictionary>,
}

impl OpenSidecar {
    /// What every reader of the file needs; `None` if another version wrote it.
    pub(super) fn dft_facts(&self) -> Result<Option<DftFacts>, ReadError> {
        let bytes = self.attachment(DftFacts::NAME)?;
        Ok(bytes.and_then(|bytes| DftFacts::decode(&bytes).ok()))
    }

    /// The texts of the hashes in the file; `None` if they are damaged.
    pub(super) fn packed_names(&self) -> Result<Option<PackedNames>, ReadError> {
        let Some(packed) = self.undamaged_attachment(DftNames::NAME)? else {
            return Ok(None);
        };
        match self.file_dictionary(&FieldPath::new(DICTIONARY_FIELD)) {
            Ok(dictionary) => Ok(Some(PackedNames { packed, dictionary })),
            Err(error) if error.is_of_index() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
