//! The local storage file (`.local`): facts about a mount or a download of a storage that only the
//! local machine has.

use serde::{Deserialize, Serialize};

use crate::{FormatError, StorageId, envelope};

const MAGIC: [u8; 8] = *b"THLOCAL\0";
const WHAT: &str = "local storage file";

/// The content of a local storage file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalFile {
    /// The storage.
    pub storage: StorageId,
    /// URL of the storage: `http://HOST:PORT/storage/ID`.
    pub origin: String,
    /// When it was mounted or downloaded, ns since the epoch.
    pub fetched: i64,
    /// Names of the files that are completely downloaded, sorted.
    pub complete: Vec<String>,
}

impl LocalFile {
    /// The bytes of the file.
    ///
    /// # Errors
    /// When the content exceeds the limits of an envelope.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        envelope::encode(WHAT, MAGIC, self)
    }

    /// Decodes a local storage file.
    ///
    /// # Errors
    /// When the bytes are damaged, of another version or something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        envelope::decode(WHAT, MAGIC, bytes)
    }
}
