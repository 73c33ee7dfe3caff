//! The storage file (`.storage`): the description of a storage. Replacing it by a rename publishes
//! a state. A finalized storage has a second copy of it (`.storage-copy`) with the same bytes.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{FORMAT_VERSION, FormatError, FormatErrorKind, StorageId, envelope, paths::FileRole};

const MAGIC: [u8; 8] = *b"THSTORAG";
const WHAT: &str = "storage file";
/// Version of a storage file that lists piece checksums, which readers of version 1 do not know.
const VERSION_WITH_CHECKSUMS: u16 = 2;
/// Version of a storage file that lists a repair file, or that names arranged files while the
/// storage is not finalized. Readers of version 2 do not know repair files, and would remove the
/// arranged files.
const VERSION_WITH_REPAIRS_OR_REPLACED_FILES: u16 = 3;
/// Version of a storage file that lists a seal, which readers of version 3 do not know.
const VERSION_WITH_SEAL: u16 = 4;

/// State of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum StorageState {
    /// Created, not yet opened for writing.
    Created,
    /// Accepts packets.
    Open,
    /// Accepts packets, and a recording writes to it.
    Recording,
    /// Accepts nothing more; its files are being completed.
    Finalizing,
    /// Immutable.
    Finalized,
    /// Read-only after a disk error.
    Failed,
}

/// The name in the HTTP API and in the storage file.
impl fmt::Display for StorageState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "CREATED",
            Self::Open => "OPEN",
            Self::Recording => "RECORDING",
            Self::Finalizing => "FINALIZING",
            Self::Finalized => "FINALIZED",
            Self::Failed => "FAILED",
        })
    }
}

/// The content of a storage file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageFile {
    /// The storage.
    pub id: StorageId,
    /// Name for people; not unique.
    pub name: String,
    /// Description for people.
    pub description: String,
    /// State at the time of writing.
    pub state: StorageState,
    /// Labels: key and value.
    pub labels: BTreeMap<String, String>,
    /// Time of creation, ns since the epoch.
    pub created: i64,
    /// Time of the last opening, ns since the epoch.
    pub opened: Option<i64>,
    /// Time of finalization, ns since the epoch.
    pub finalized: Option<i64>,
    /// Version of the server that wrote the file.
    pub server_version: String,
    /// Key of the client that makes the creation idempotent.
    pub idempotency_key: Option<String>,
    /// Why the storage is FAILED.
    pub failure: Option<String>,
    /// Totals; exact once the storage is finalized.
    pub totals: Totals,
    /// Every other file of the storage once it is finalized; before, only the arranged files that
    /// replaced files of its log.
    pub files: Vec<FileEntry>,
}

/// Sums over the packets of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Packets.
    pub packets: u64,
    /// Bytes as the agents sent them.
    pub raw_bytes: u64,
    /// Bytes of the payloads as stored.
    pub stored_bytes: u64,
    /// Events, where packets give a number, without those of derived streams.
    pub events: u64,
    /// Events that the producers lost, where packets give a number.
    pub lost: u64,
    /// First and last instant over all packets that have a time span, ns since the epoch.
    pub time_span: Option<(i64, i64)>,
}

impl Totals {
    /// Adds the sums of `other`. They saturate: the sums of damaged files must not cause a panic.
    pub fn add(&mut self, other: &Self) {
        for (sum, added) in [
            (&mut self.packets, other.packets),
            (&mut self.raw_bytes, other.raw_bytes),
            (&mut self.stored_bytes, other.stored_bytes),
            (&mut self.events, other.events),
            (&mut self.lost, other.lost),
        ] {
            *sum = sum.saturating_add(added);
        }
        self.time_span = match (self.time_span, other.time_span) {
            (Some((b1, e1)), Some((b2, e2))) => Some((b1.min(b2), e1.max(e2))),
            (one, other) => one.or(other),
        };
    }
}

/// A file of a finalized storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Name within the folder of the storage.
    pub name: String,
    /// What the file is.
    pub role: FileRole,
    /// Length in bytes.
    pub length: u64,
    /// CRC32C of the complete file.
    pub checksum: u32,
}

impl StorageFile {
    /// The bytes of the file.
    ///
    /// # Errors
    /// When the content exceeds the limits of an envelope.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let is_finalized = self.state == StorageState::Finalized;
        let names_arranged = !is_finalized && self.lists(FileRole::Data);
        let version = if self.lists(FileRole::Seal) {
            VERSION_WITH_SEAL
        } else if names_arranged || self.lists(FileRole::Repairs) {
            VERSION_WITH_REPAIRS_OR_REPLACED_FILES
        } else if self.lists(FileRole::Checksums) {
            VERSION_WITH_CHECKSUMS
        } else {
            FORMAT_VERSION
        };
        envelope::encode_version(WHAT, MAGIC, version, self)
    }

    /// Decodes a storage file.
    ///
    /// # Errors
    /// When the bytes are damaged, of another version or something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        envelope::decode_version(WHAT, MAGIC, VERSION_WITH_SEAL, bytes)
    }

    /// Whether the storage has a file of this role.
    #[must_use]
    pub fn lists(&self, role: FileRole) -> bool {
        self.files.iter().any(|file| file.role == role)
    }

    /// Checks that the file belongs to the storage `id`, in whose folder it is.
    ///
    /// # Errors
    /// When it belongs to another storage.
    pub fn check_id(&self, id: StorageId) -> Result<(), FormatError> {
        if self.id == id {
            return Ok(());
        }
        Err(FormatError::new(WHAT, 0, FormatErrorKind::Foreign))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_shown_under_the_name_that_programs_read() {
        use StorageState::{Created, Failed, Finalized, Finalizing, Open, Recording};
        for state in [Created, Open, Recording, Finalizing, Finalized, Failed] {
            let read = serde_json::to_value(state).expect("a name");
            assert_eq!(read.as_str(), Some(state.to_string().as_str()));
        }
    }
}
