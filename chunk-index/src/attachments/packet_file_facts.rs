//! `packets.facts`: the trace that a file of packets is a part of.
//!
//! ```text
//! version u8 (1) | kind u8 | CRC32C of the trace metadata u32 | checksum of the folder u32
//! | index among the files of the folder u32 | metadata records u64 | unreadable records u64
//! | length u8 and bytes of the header that precedes RocksDB records which are read from the middle
//! of their file (0: none) | length u32 and bytes of the reason why the file cannot be read to its
//! end (0: it can)
//! ```

use storage_format::Kind;

use super::AttachmentError;
use super::fields::{FieldReader, put_text};

const VERSION: u8 = 1;
/// Bytes of the reason that are stored.
const FAULT_BYTES_MAX: usize = 1 << 10;

/// Identifies the trace that a file is a part of. While it is unchanged and the file is, the same
/// packets are read from the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceStamp {
    /// CRC32C of the metadata of the folder; 0 for a file without a folder.
    pub metadata: u32,
    /// Checksum of the names and sizes of the folder's files; 0 for a file without a folder.
    pub folder: u32,
    /// Index of the file among those of the folder.
    pub file_index: u32,
}

/// What the index of a file of packets says about the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketFileFacts {
    /// Kind of its packets.
    pub kind: Kind,
    /// The trace.
    pub stamp: TraceStamp,
    /// Metadata records. Events are counted by the chunks.
    pub metadata: u64,
    /// Records that cannot be read.
    pub broken: u64,
    /// The header, at most 255 bytes, that precedes RocksDB records which are read from the middle
    /// of their file; empty for none.
    pub header: Box<[u8]>,
    /// Why the file cannot be read to its end.
    pub fault: Option<String>,
}

impl PacketFileFacts {
    /// Name of the attachment.
    pub const NAME: &str = "packets.facts";

    /// The bytes of the attachment. A header of more than 255 bytes is not stored, and a fault is
    /// cut after 1 KiB.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.kind.code()];
        for word in [
            self.stamp.metadata,
            self.stamp.folder,
            self.stamp.file_index,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.metadata.to_le_bytes());
        out.extend_from_slice(&self.broken.to_le_bytes());
        let length = u8::try_from(self.header.len());
        out.push(length.expect("RocksDB headers have 54 bytes"));
        out.extend_from_slice(&self.header);
        let fault = self.fault.as_deref().unwrap_or_default();
        let fault = &fault[..fault.floor_char_boundary(FAULT_BYTES_MAX)];
        put_text(&mut out, fault.as_bytes());
        out
    }

    /// Reads what [`PacketFileFacts::encode`] wrote.
    ///
    /// # Errors
    ///
    /// When the bytes are of another version or damaged. The header is not examined.
    pub fn decode(bytes: &[u8]) -> Result<PacketFileFacts, AttachmentError> {
        let mut reader = FieldReader::open(PacketFileFacts::NAME, VERSION, bytes)?;
        let kind = Kind::from_code(reader.byte()?);
        let kind = kind.ok_or_else(|| reader.damaged("unknown kind"))?;
        let stamp = TraceStamp {
            metadata: reader.u32()?,
            folder: reader.u32()?,
            file_index: reader.u32()?,
        };
        let (metadata, broken) = (reader.u64()?, reader.u64()?);
        let length = reader.byte()?;
        let header = reader.bytes(usize::from(length))?.into();
        let length = reader.length()?;
        if length > FAULT_BYTES_MAX {
            return Err(reader.damaged("a fault is too long"));
        }
        let fault = std::str::from_utf8(reader.bytes(length)?);
        let fault = fault.map_err(|_| reader.damaged("a fault is not UTF-8"))?;
        reader.end()?;
        Ok(PacketFileFacts {
            kind,
            stamp,
            metadata,
            broken,
            header,
            fault: (!fault.is_empty()).then(|| fault.to_owned()),
        })
    }
}
