//! The first block of a data file of a log.
//!
//! ```text
//! offset size field
//!      0    8 magic "THITLOG\0"
//!      8    2 format version (2)
//!     10    1 0: batches; 1: arranged; 2: arranged, and replaces one file of the log
//!     11    5 zero
//!     16   16 storage id
//!     32    8 id of the file; files of a log are written in ascending order
//!     40    8 salt: random, different in each file
//!     48    8 time of creation, ns since the epoch (i64)
//!     56    8 number of the first batch
//!     64    8 id of the file before (2^64 - 1: none)
//!     72    8 length of the file before, bytes: what follows in it was never acknowledged
//!     80    4 chain: checksum of the last batch header of the file before (0: none)
//!     84    8 of a replaced file: its id
//!     92    8 its length, bytes
//!    100    8 number of the batch after its last one
//!    108    4 checksum of its last batch header
//!    112    8 length of this file, bytes
//!    120 3972 zero (from 84 on, unless it replaces a file)
//!   4092    4 CRC32C of bytes 0 to 4091
//! ```
//!
//! A file that replaces one of the log repeats what the header of the other said of the batches
//! before it (56 to 83), and says how its batches ended (84 to 111): so the chain of the log can be
//! followed through it, although it has no batches.

use super::{BLOCK_BYTES, LOG_VERSION};
use crate::{
    DataFileId, FormatError, FormatErrorKind, StorageId,
    checksum::crc32c,
    integer::u64_of,
    layout::{check_checksum, check_version, get, get_i64, get_u32, get_u64, put},
};

/// Size of the header of a file.
pub const FILE_HEADER_BYTES: usize = BLOCK_BYTES;
const MAGIC: [u8; 8] = *b"THITLOG\0";
const WHAT: &str = "log file header";
const CHECKSUM: usize = FILE_HEADER_BYTES - 4;
const NO_FILE: u64 = u64::MAX;
/// Forms of a file without batches.
const ARRANGED: u8 = 1;
const REPLACES: u8 = 2;

/// The end of the file before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreviousFile {
    /// The file.
    pub file: DataFileId,
    /// Its length in bytes.
    pub length: u64,
}

/// The file of a log whose packets an arranged file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplacedFile {
    /// The file.
    pub file: DataFileId,
    /// Its length in bytes.
    pub length: u64,
    /// Number of the batch after its last one.
    pub next_batch: u64,
    /// Checksum of its last batch header.
    pub chain: u32,
    /// Length of the arranged file in bytes.
    pub arranged_length: u64,
}

/// The header of a data file of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFileHeader {
    /// The storage.
    pub storage: StorageId,
    /// The file; also its name.
    pub file: DataFileId,
    /// Whether the file has one segment for each leaf and no batches.
    pub is_arranged: bool,
    /// The file that it replaces; only arranged files do.
    pub replaces: Option<ReplacedFile>,
    /// Distinguishes the batches of this file from those of any other.
    pub salt: u64,
    /// Time of creation, ns since the epoch.
    pub created: i64,
    /// Number of the first batch.
    pub first_batch: u64,
    /// The file before, if there is one.
    pub previous: Option<PreviousFile>,
    /// Checksum of the last batch header of the file before; 0 if there is none.
    pub chain: u32,
}

impl LogFileHeader {
    /// Whether a file that begins with these bytes is a data file of a log.
    #[must_use]
    pub fn recognizes(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// The bytes of the header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.file.0 != NO_FILE && self.previous.is_none_or(|before| before.file < self.file),
            "the files of a log have ascending ids"
        );
        assert!(
            self.replaces.is_none_or(|replaced| {
                let follows = |before: PreviousFile| before.file < replaced.file;
                self.is_arranged
                    && replaced.file < self.file
                    && replaced.next_batch >= self.first_batch
                    && self.previous.is_none_or(follows)
            }),
            "an arranged file continues the log as the file did that it replaces"
        );
        let previous = self.previous.unwrap_or(PreviousFile {
            file: DataFileId(NO_FILE),
            length: 0,
        });
        let mut bytes = vec![0; FILE_HEADER_BYTES];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, LOG_VERSION.to_le_bytes());
        bytes[10] = match (self.is_arranged, self.replaces) {
            (_, Some(_)) => REPLACES,
            (true, None) => ARRANGED,
            (false, None) => 0,
        };
        put(&mut bytes, 16, *self.storage.as_bytes());
        put(&mut bytes, 32, self.file.0.to_le_bytes());
        put(&mut bytes, 40, self.salt.to_le_bytes());
        put(&mut bytes, 48, self.created.to_le_bytes());
        put(&mut bytes, 56, self.first_batch.to_le_bytes());
        put(&mut bytes, 64, previous.file.0.to_le_bytes());
        put(&mut bytes, 72, previous.length.to_le_bytes());
        put(&mut bytes, 80, self.chain.to_le_bytes());
        if let Some(replaced) = self.replaces {
            put(&mut bytes, 84, replaced.file.0.to_le_bytes());
            put(&mut bytes, 92, replaced.length.to_le_bytes());
            put(&mut bytes, 100, replaced.next_batch.to_le_bytes());
            put(&mut bytes, 108, replaced.chain.to_le_bytes());
            put(&mut bytes, 112, replaced.arranged_length.to_le_bytes());
        }
        let checksum = crc32c(&bytes[..CHECKSUM]);
        put(&mut bytes, CHECKSUM, checksum.to_le_bytes());
        bytes
    }

    /// Reads the header at the start of `bytes`, which is the file `file` of `storage`.
    ///
    /// # Errors
    /// When the bytes are too few, damaged, of another version, or of another storage or file.
    pub fn decode(bytes: &[u8], storage: StorageId, file: DataFileId) -> Result<Self, FormatError> {
        let header = Self::decode_any(bytes)?;
        if (header.storage, header.file) == (storage, file) {
            return Ok(header);
        }
        Err(FormatError::new(WHAT, 16, FormatErrorKind::Foreign))
    }

    /// Reads the header at the start of `bytes`, whatever storage and file it belongs to.
    ///
    /// # Errors
    /// When the bytes are too few, damaged, or of another version.
    pub fn decode_any(bytes: &[u8]) -> Result<Self, FormatError> {
        check_version(
            WHAT,
            bytes,
            MAGIC,
            FILE_HEADER_BYTES,
            LOG_VERSION..=LOG_VERSION,
        )?;
        let stored = get_u32(bytes, CHECKSUM);
        check_checksum(WHAT, u64_of(CHECKSUM), stored, crc32c(&bytes[..CHECKSUM]))?;
        let fault = |name, offset| FormatError::new(WHAT, offset, FormatErrorKind::Field { name });
        if bytes[10] > REPLACES {
            return Err(fault("arranged", 10));
        }
        let (file, previous) = (get_u64(bytes, 32), get_u64(bytes, 64));
        if previous != NO_FILE && previous >= file {
            return Err(fault("previous file", 64));
        }
        let replaces = (bytes[10] == REPLACES).then(|| ReplacedFile {
            file: DataFileId(get_u64(bytes, 84)),
            length: get_u64(bytes, 92),
            next_batch: get_u64(bytes, 100),
            chain: get_u32(bytes, 108),
            arranged_length: get_u64(bytes, 112),
        });
        if let Some(replaced) = replaces {
            let is_after = previous == NO_FILE || previous < replaced.file.0;
            if replaced.file.0 >= file || !is_after {
                return Err(fault("replaced file", 84));
            }
            if replaced.next_batch < get_u64(bytes, 56) {
                return Err(fault("next batch", 100));
            }
        }
        Ok(Self {
            storage: StorageId::from_bytes(get(bytes, 16)),
            file: DataFileId(file),
            is_arranged: bytes[10] != 0,
            replaces,
            salt: get_u64(bytes, 40),
            created: get_i64(bytes, 48),
            first_batch: get_u64(bytes, 56),
            previous: (previous != NO_FILE).then(|| PreviousFile {
                file: DataFileId(previous),
                length: get_u64(bytes, 72),
            }),
            chain: get_u32(bytes, 80),
        })
    }
}
