//! What the sidecar of a DFTracer file says besides its index.

use chunk_index::Lexicon;
use query_language::FieldPath;

use super::attachment::{self, FileFacts};
use crate::ReadError;
use crate::open_sidecar::OpenSidecar;

/// What the hashes of a file stand for, as its sidecar has it.
pub(super) struct PackedNames {
    pub(super) packed: Vec<u8>,
    /// The hashes that lie in the index instead.
    pub(super) lexicon: Option<Lexicon>,
}

impl OpenSidecar {
    /// What the file says about itself; `None` where another version wrote it.
    pub(super) fn facts(&self) -> Result<Option<FileFacts>, ReadError> {
        let bytes = self.attachment(attachment::FACTS)?;
        Ok(bytes.and_then(|bytes| attachment::decode_facts(&bytes)))
    }

    /// What the hashes of the file stand for; `None` where it is damaged.
    pub(super) fn names(&self) -> Result<Option<PackedNames>, ReadError> {
        let Some(packed) = self.sound_attachment(attachment::NAMES)? else {
            return Ok(None);
        };
        match self.lexicon(&FieldPath::new(attachment::LEXICON_FIELD)) {
            Ok(lexicon) => Ok(Some(PackedNames { packed, lexicon })),
            Err(error) if error.is_of_index() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
