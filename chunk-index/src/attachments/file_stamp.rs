//! `file.stamp`: the inode of the indexed file and the time of its last change. While both are the
//! same, nobody has written to the file, not even to restore the time of its last modification.
//!
//! ```text
//! version u8 (1) | inode u64 | time of the last change in nanoseconds since the epoch i64
//! ```

use super::AttachmentError;
use super::fields::FieldReader;

const VERSION: u8 = 1;

/// What a file system says of a file that changes with every write to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// Number of the inode.
    pub inode: u64,
    /// Time of the last change of content or metadata (`ctime`), in nanoseconds since the epoch.
    pub changed: i64,
}

impl FileStamp {
    /// Name of the attachment.
    pub const NAME: &str = "file.stamp";

    /// The bytes of the attachment.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.inode.to_le_bytes());
        out.extend_from_slice(&self.changed.to_le_bytes());
        out
    }

    /// Reads what [`FileStamp::encode`] wrote.
    ///
    /// # Errors
    ///
    /// When the bytes are of another version or damaged.
    pub fn decode(bytes: &[u8]) -> Result<FileStamp, AttachmentError> {
        let mut reader = FieldReader::open(FileStamp::NAME, VERSION, bytes)?;
        let stamp = FileStamp {
            inode: reader.u64()?,
            changed: i64::from_le_bytes(reader.array()?),
        };
        reader.end()?;
        Ok(stamp)
    }
}
