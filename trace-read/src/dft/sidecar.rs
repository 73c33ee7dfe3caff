//! What the sidecar of a DFTracer file says besides its index.

use super::attachment::{self, FileFacts};
use crate::ReadError;
use crate::sidecar::OpenSidecar;

impl OpenSidecar {
    /// What the file says about itself; `None` where another version wrote it.
    pub(super) fn facts(&self) -> Result<Option<FileFacts>, ReadError> {
        let bytes = self.attachment(attachment::FACTS)?;
        Ok(bytes.and_then(|bytes| attachment::decode_facts(&bytes)))
    }

    /// What the hashes of the file stand for, packed; `None` where it is damaged.
    pub(super) fn names(&self) -> Result<Option<Vec<u8>>, ReadError> {
        self.sound_attachment(attachment::NAMES)
    }
}
