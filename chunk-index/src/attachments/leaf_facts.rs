//! `leaf.facts`: the leaf that an index belongs to, so that it is not used for another.
//!
//! ```text
//! version u8 (3) | storage 16 bytes | leaf u64 | unit of times u8 (0 ns, 1 µs, 2 ms, 3 s)
//! | CRC32C of the trace metadata u32 | metadata records u64 | unreadable records u64
//! | flags u8 (1: bytes were damaged; 2: the unit of times may be lost;
//! 4: the first packets of the stream are not in the storage)
//! | cuts u32
//! ```
//!
//! Version 1 has no flags, and versions 1 and 2 have no cuts.

use storage_format::{LeafId, StorageId};

use super::fields::FieldReader;
use super::{AttachmentError, StoredUnit};

const VERSION: u8 = 3;

const DAMAGED: u8 = 1;
const UNIT_LOST: u8 = 2;
const LACKS_HEAD: u8 = 4;

/// The leaf that an index belongs to, and how its packets were decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafFacts {
    /// The storage.
    pub storage: StorageId,
    /// The leaf.
    pub leaf: LeafId,
    /// Unit of the times of DFTracer packets.
    pub unit: StoredUnit,
    /// CRC32C of the trace metadata of the agent; 0 without metadata.
    pub metadata_checksum: u32,
    /// Metadata records. Events are counted by the chunks.
    pub metadata: u64,
    /// Records that cannot be read.
    pub broken: u64,
    /// Whether the bytes that were indexed were not those that were written: the index has their
    /// checksum, and lacks what could not be read.
    pub is_damaged: bool,
    /// Whether no packet declares the unit, but one that cannot be read may have.
    pub is_unit_lost: bool,
    /// Whether no packet declares the unit, but one before the first of the stream may have.
    pub lacks_head: bool,
    /// Identifies the repairs that had cut the log of the storage; 0 if none had. A leaf has other
    /// bytes at the same offsets behind a cut.
    pub cuts: u32,
}

impl LeafFacts {
    /// Name of the attachment.
    pub const NAME: &str = "leaf.facts";

    /// The bytes of the attachment.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(self.storage.as_bytes());
        out.extend_from_slice(&self.leaf.0.to_le_bytes());
        out.push(self.unit.code());
        out.extend_from_slice(&self.metadata_checksum.to_le_bytes());
        out.extend_from_slice(&self.metadata.to_le_bytes());
        out.extend_from_slice(&self.broken.to_le_bytes());
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        out.push(
            flag(self.is_damaged, DAMAGED)
                | flag(self.is_unit_lost, UNIT_LOST)
                | flag(self.lacks_head, LACKS_HEAD),
        );
        out.extend_from_slice(&self.cuts.to_le_bytes());
        out
    }

    /// Reads what [`LeafFacts::encode`] wrote.
    ///
    /// # Errors
    ///
    /// When the bytes are of another version or damaged.
    pub fn decode(bytes: &[u8]) -> Result<LeafFacts, AttachmentError> {
        let (version, mut reader) = FieldReader::open_any(LeafFacts::NAME, VERSION, bytes)?;
        let storage = StorageId::from_bytes(reader.array()?);
        let leaf = LeafId(reader.u64()?);
        let unit = StoredUnit::from_code(reader.byte()?);
        let unit = unit.ok_or_else(|| reader.damaged("unknown unit of times"))?;
        let (metadata_checksum, metadata, broken) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let flags = if version == 1 { 0 } else { reader.byte()? };
        if flags & !(DAMAGED | UNIT_LOST | LACKS_HEAD) != 0 {
            return Err(reader.damaged("unknown flags"));
        }
        let cuts = if version < 3 { 0 } else { reader.u32()? };
        reader.end()?;
        Ok(LeafFacts {
            storage,
            leaf,
            unit,
            metadata_checksum,
            metadata,
            broken,
            is_damaged: flags & DAMAGED != 0,
            is_unit_lost: flags & UNIT_LOST != 0,
            lacks_head: flags & LACKS_HEAD != 0,
            cuts,
        })
    }
}
