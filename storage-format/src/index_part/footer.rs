//! The footer of an index part (one record for each leaf) and the trailer that points at it.
//!
//! ```text
//! footer: the data files of the storage, sorted by id, the position in the log up to which parts
//! describe it, and one record a leaf, sorted by leaf id; version 1 has only the latter. A merged
//! part may have several records of a leaf, which follow each other
//!   u32 data files, and for each: u64 id · u64 length · u32 CRC32C of these bytes
//!   u8 position known · u64 data file · u64 offset · u64 next batch · u32 chain
//!   u64 leaf id · u8 leaf type · u8 kind
//!   u8 length of the agent id · u8 length of the stream id · agent id · stream id
//!   i64 begin of the time bucket · u64 its length (0 = none)
//!   u64 offset of the block · u32 packets in the block · u32 CRC32C of the block
//!   u64 covered from · u64 covered to (bytes of the leaf)
//!   u32 CRC32C of the leaf from its start to `covered to`
//!   u64 packets · u64 raw bytes · u64 stored bytes · u64 events · u64 lost
//!   u8 time span known · i64 begin · i64 end
//!   u64 first number · u64 last number
//!   u64 first epoch · u64 first sequence · u64 last epoch · u64 last sequence
//!   u32 extents in the block, after the packets (not in version 1)
//!
//! trailer, the last 32 bytes
//! offset size field
//!      0    8 offset of the footer
//!      8    4 length of the footer, bytes
//!     12    4 CRC32C of the footer
//!     16    4 number of leaves
//!     20    4 CRC32C of bytes 0 to 19 and the storage id
//!     24    8 magic "THIXFOT2" (version 1: "THIXFOOT")
//! ```

use std::ops::Range;

use super::{
    HEADER_BYTES,
    bases::{TABLE_BYTES_MAX, TimeBases},
    block::ENTRY_BYTES,
    extent::{EXTENT_BYTES, Extent, decode_extents, find_extent},
};
use crate::{
    DataFileId, FormatError, FormatErrorKind, Kind, LeafId, LeafType, StorageId, StreamPosition,
    checksum::{crc32c, crc32c_append},
    data_file::{Bucket, LeafPath, id_length},
    integer::{u64_of, usize_of, usize_of_u64},
    layout::{Cursor, check_checksum, get_u32, get_u64, put},
    limits::{
        DATA_FILE_COUNT_MAX, INDEX_BLOCK_PACKET_COUNT_MAX, INDEX_EXTENT_COUNT_MAX,
        INDEX_FOOTER_BYTES_MAX,
    },
    storage_file::Totals,
};

/// Size of the trailer.
pub const TRAILER_BYTES: usize = 32;
const TRAILER_MAGIC: [u8; 8] = *b"THIXFOT2";
const TRAILER_MAGIC_1: [u8; 8] = *b"THIXFOOT";
const TRAILER: &str = "index part trailer";
const FOOTER: &str = "index part footer";
/// Shortest record of a leaf: both ids one byte long.
const LEAF_RECORD_BYTES_MIN: usize = 12 + 2 + 16 + 16 + 20 + 40 + 17 + 48;

/// First and last packet of a leaf in a part, by number and by producer sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafNumbers {
    /// Number of the first packet.
    pub first: u64,
    /// Number of the last packet.
    pub last: u64,
    /// Position of the first packet in its stream.
    pub first_position: StreamPosition,
    /// Position of the last packet in its stream.
    pub last_position: StreamPosition,
}

/// A data file of the storage, as far as the parts describe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataFileEntry {
    /// The file.
    pub file: DataFileId,
    /// Its length in bytes.
    pub length: u64,
    /// CRC32C of these bytes.
    pub checksum: u32,
}

/// A position in a log: where the next batch begins, and what its header must contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    /// The data file.
    pub file: DataFileId,
    /// Offset of the next batch.
    pub offset: u64,
    /// Number of the next batch.
    pub batch: u64,
    /// Checksum of the last batch header; 0 if there is none.
    pub chain: u32,
}

/// The record of one leaf in an index part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafEntry {
    /// The leaf.
    pub leaf: LeafId,
    /// What the index records of its packets.
    pub leaf_type: LeafType,
    /// Its path in the tree.
    pub path: LeafPath,
    /// Offset of its block in the part; the block of a plain leaf is empty.
    pub block_offset: u64,
    /// Number of entries in the block.
    pub block_packets: u32,
    /// Number of extents in the block; 0: the bytes of the leaf are the data file with its id.
    pub block_extents: u32,
    /// CRC32C of the block.
    pub block_checksum: u32,
    /// Bytes of the leaf that this part describes.
    pub covered: Range<u64>,
    /// CRC32C of the leaf from its start to the end of `covered`.
    pub covered_checksum: u32,
    /// Sums over the packets in this part.
    pub totals: Totals,
    /// First and last packet in this part.
    pub numbers: LeafNumbers,
}

impl LeafEntry {
    /// The range of the block of this leaf in the part.
    #[must_use]
    pub fn block_range(&self) -> Range<u64> {
        let end = self.block_offset.saturating_add(self.block_bytes());
        self.block_offset..end
    }

    /// Length of the block in bytes.
    fn block_bytes(&self) -> u64 {
        let extents = u64::from(self.block_extents).saturating_mul(u64_of(EXTENT_BYTES));
        self.entry_bytes().saturating_add(extents)
    }

    fn entry_bytes(&self) -> u64 {
        u64::from(self.block_packets).saturating_mul(u64_of(ENTRY_BYTES))
    }

    /// Whether `next` describes the bytes and packets of the same leaf that follow.
    #[must_use]
    pub fn is_followed_by(&self, next: &LeafEntry) -> bool {
        self.leaf == next.leaf
            && self.leaf_type == next.leaf_type
            && self.path == next.path
            && self.covered.end == next.covered.start
            && self.numbers.last < next.numbers.first
            && self.numbers.last_position < next.numbers.first_position
    }

    /// The part of a checked block with the entries of packets.
    #[must_use]
    pub fn entries_in<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        block
            .get(..usize_of_u64(self.entry_bytes()))
            .unwrap_or_default()
    }

    /// The extent in a checked block that contains the byte `offset` of the leaf.
    #[must_use]
    pub fn extent_at(&self, block: &[u8], offset: u64) -> Option<Extent> {
        if self.block_extents == 0 {
            let extent = self.leaf_file_extent();
            return self.covered.contains(&offset).then_some(extent);
        }
        let bytes = block.get(usize_of_u64(self.entry_bytes())..)?;
        find_extent(bytes, offset)
    }

    /// The only extent of a leaf that is the data file with its id.
    fn leaf_file_extent(&self) -> Extent {
        Extent {
            leaf_offset: self.covered.start,
            file: DataFileId::of_leaf(self.leaf),
            offset: self.covered.start,
            length: self.covered.end.saturating_sub(self.covered.start),
        }
    }

    /// The extents in a checked block; they cover `covered`.
    ///
    /// # Errors
    /// When they have a gap or are impossible.
    pub fn extents_in(&self, block: &[u8]) -> Result<Vec<Extent>, FormatError> {
        if self.block_extents == 0 {
            return Ok(vec![self.leaf_file_extent()]);
        }
        let start = self.entry_bytes();
        let bytes = block.get(usize_of_u64(start)..).unwrap_or_default();
        decode_extents(bytes, &self.covered)
            .map_err(|error| error.shifted(self.block_offset.saturating_add(start)))
    }

    /// Checks bytes that were read as the block of this leaf.
    ///
    /// # Errors
    /// When length or checksum differ.
    pub fn check_block(&self, bytes: &[u8]) -> Result<(), FormatError> {
        let range = self.block_range();
        let needed = usize_of_u64(self.block_bytes());
        if bytes.len() != needed {
            return Err(
                FormatError::truncated("index block", needed, bytes.len()).shifted(range.start)
            );
        }
        check_checksum(
            "index block",
            range.start,
            self.block_checksum,
            crc32c(bytes),
        )
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (agent, stream) = (self.path.agent.as_str(), self.path.stream.as_str());
        let numbers = &self.numbers;
        assert!(
            numbers.first <= numbers.last && numbers.first_position <= numbers.last_position,
            "the packets of a leaf are in order"
        );
        assert!(
            self.covered.start <= self.covered.end,
            "a part covers a range of the data file"
        );
        assert!(
            self.block_packets <= INDEX_BLOCK_PACKET_COUNT_MAX
                && self.block_extents <= INDEX_EXTENT_COUNT_MAX,
            "a part is written before its blocks exceed their limits"
        );
        assert!(
            self.block_offset >= u64_of(HEADER_BYTES),
            "blocks follow the header of a part"
        );
        out.extend_from_slice(&self.leaf.0.to_le_bytes());
        out.extend_from_slice(&[
            self.leaf_type.code(),
            self.path.kind.code(),
            id_length(agent),
            id_length(stream),
        ]);
        out.extend_from_slice(agent.as_bytes());
        out.extend_from_slice(stream.as_bytes());
        let bucket = self.path.bucket.unwrap_or(Bucket {
            begin: i64::MIN,
            length: 0,
        });
        out.extend_from_slice(&bucket.begin.to_le_bytes());
        out.extend_from_slice(&bucket.length.to_le_bytes());
        out.extend_from_slice(&self.block_offset.to_le_bytes());
        out.extend_from_slice(&self.block_packets.to_le_bytes());
        out.extend_from_slice(&self.block_checksum.to_le_bytes());
        let totals = &self.totals;
        out.extend_from_slice(&self.covered.start.to_le_bytes());
        out.extend_from_slice(&self.covered.end.to_le_bytes());
        out.extend_from_slice(&self.covered_checksum.to_le_bytes());
        for value in [
            totals.packets,
            totals.raw_bytes,
            totals.stored_bytes,
            totals.events,
            totals.lost,
        ] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        let (begin, end) = totals.time_span.unwrap_or((0, 0));
        assert!(begin <= end, "a time span does not end before it begins");
        out.push(u8::from(totals.time_span.is_some()));
        out.extend_from_slice(&begin.to_le_bytes());
        out.extend_from_slice(&end.to_le_bytes());
        for value in [
            numbers.first,
            numbers.last,
            numbers.first_position.epoch,
            numbers.first_position.sequence,
            numbers.last_position.epoch,
            numbers.last_position.sequence,
        ] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.block_extents.to_le_bytes());
    }

    fn decode(
        cursor: &mut Cursor<'_>,
        blocks: &Range<u64>,
        version: u16,
    ) -> Result<Self, FormatError> {
        let leaf = LeafId(cursor.u64()?);
        let [leaf_type, kind, agent_length, stream_length] = cursor.array()?;
        let mut text = |length: u8| -> Result<_, FormatError> {
            let bytes = cursor.take(usize::from(length))?;
            std::str::from_utf8(bytes).map_err(|_| cursor.fault("id"))
        };
        let (agent, stream) = (text(agent_length)?, text(stream_length)?);
        let (begin, length) = (cursor.i64()?, cursor.u64()?);
        let path = LeafPath {
            agent: agent.parse().map_err(|_| cursor.fault("agent id"))?,
            kind: Kind::from_code(kind).ok_or_else(|| cursor.fault("kind"))?,
            stream: stream.parse().map_err(|_| cursor.fault("stream id"))?,
            bucket: (length > 0).then_some(Bucket { begin, length }),
        };
        let (block_offset, block_packets) = (cursor.u64()?, cursor.u32()?);
        let mut entry = Self {
            leaf,
            leaf_type: LeafType::from_code(leaf_type).ok_or_else(|| cursor.fault("leaf type"))?,
            path,
            block_offset,
            block_packets,
            block_extents: 0,
            block_checksum: cursor.u32()?,
            covered: cursor.u64()?..cursor.u64()?,
            covered_checksum: cursor.u32()?,
            totals: Totals {
                packets: cursor.u64()?,
                raw_bytes: cursor.u64()?,
                stored_bytes: cursor.u64()?,
                events: cursor.u64()?,
                lost: cursor.u64()?,
                time_span: {
                    let is_known = cursor.u8()? != 0;
                    let span = (cursor.i64()?, cursor.i64()?);
                    is_known.then_some(span)
                },
            },
            numbers: LeafNumbers {
                first: cursor.u64()?,
                last: cursor.u64()?,
                first_position: StreamPosition::new(cursor.u64()?, cursor.u64()?),
                last_position: StreamPosition::new(cursor.u64()?, cursor.u64()?),
            },
        };
        if version > 1 {
            entry.block_extents = cursor.u32()?;
        }
        match entry.impossible_field(blocks) {
            Some(name) => Err(cursor.fault(name)),
            None => Ok(entry),
        }
    }

    /// A field with a value that no writer stores.
    fn impossible_field(&self, blocks: &Range<u64>) -> Option<&'static str> {
        let end = self.block_offset.checked_add(self.block_bytes());
        let is_inside = self.block_packets <= INDEX_BLOCK_PACKET_COUNT_MAX
            && self.block_extents <= INDEX_EXTENT_COUNT_MAX
            && self.block_offset >= blocks.start
            && end.is_some_and(|end| end <= blocks.end);
        let numbers = &self.numbers;
        let span = self.totals.time_span;
        // Every packet has bytes.
        let is_covered = self.covered.start < self.covered.end
            || (self.covered.start == self.covered.end && self.block_packets == 0);
        if !is_inside || !is_covered {
            Some("block range")
        } else if numbers.first > numbers.last || numbers.first_position > numbers.last_position {
            Some("packet numbers")
        } else if span.is_some_and(|(begin, end)| begin > end) {
            Some("time span")
        } else {
            None
        }
    }
}

/// Points at the footer; the last bytes of an index part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// Offset of the footer.
    pub footer_offset: u64,
    /// Length of the footer in bytes.
    pub footer_length: u32,
    /// CRC32C of the footer.
    pub footer_checksum: u32,
    /// Number of leaves in the footer.
    pub leaf_count: u32,
    /// Format version of the footer.
    pub version: u16,
}

impl Trailer {
    /// The bytes of the trailer of a part of `storage`.
    #[must_use]
    pub fn encode(&self, storage: StorageId) -> [u8; TRAILER_BYTES] {
        assert!(
            self.footer_offset >= u64_of(HEADER_BYTES)
                && self.footer_length <= INDEX_FOOTER_BYTES_MAX,
            "a footer follows the header of its part and has a limited length"
        );
        let mut bytes = [0; TRAILER_BYTES];
        put(&mut bytes, 0, self.footer_offset.to_le_bytes());
        put(&mut bytes, 8, self.footer_length.to_le_bytes());
        put(&mut bytes, 12, self.footer_checksum.to_le_bytes());
        put(&mut bytes, 16, self.leaf_count.to_le_bytes());
        let checksum = crc32c_append(crc32c(&bytes[..20]), storage.as_bytes());
        put(&mut bytes, 20, checksum.to_le_bytes());
        let magic = if self.version == 1 {
            TRAILER_MAGIC_1
        } else {
            TRAILER_MAGIC
        };
        put(&mut bytes, 24, magic);
        bytes
    }

    /// Reads the trailer from the last bytes of a part of `storage` that is `file_length` long.
    ///
    /// # Errors
    /// When the bytes are too few, damaged, of another storage, or point outside of the file.
    pub fn decode(bytes: &[u8], file_length: u64, storage: StorageId) -> Result<Self, FormatError> {
        if bytes.len() < TRAILER_BYTES {
            return Err(FormatError::truncated(TRAILER, TRAILER_BYTES, bytes.len()));
        }
        let bytes = &bytes[bytes.len().saturating_sub(TRAILER_BYTES)..];
        let start = file_length.saturating_sub(u64_of(TRAILER_BYTES));
        let version = match &bytes[24..] {
            magic if *magic == TRAILER_MAGIC => 2,
            magic if *magic == TRAILER_MAGIC_1 => 1,
            _ => {
                let at = start.saturating_add(24);
                return Err(FormatError::new(TRAILER, at, FormatErrorKind::Magic));
            }
        };
        let computed = crc32c_append(crc32c(&bytes[..20]), storage.as_bytes());
        check_checksum(
            TRAILER,
            start.saturating_add(20),
            get_u32(bytes, 20),
            computed,
        )?;
        let trailer = Self {
            footer_offset: get_u64(bytes, 0),
            footer_length: get_u32(bytes, 8),
            footer_checksum: get_u32(bytes, 12),
            leaf_count: get_u32(bytes, 16),
            version,
        };
        let ends = trailer
            .footer_offset
            .checked_add(u64::from(trailer.footer_length));
        let is_right = trailer.footer_offset >= u64_of(HEADER_BYTES)
            && ends == Some(start)
            && trailer.footer_length <= INDEX_FOOTER_BYTES_MAX;
        if is_right {
            return Ok(trailer);
        }
        Err(FormatError::new(
            TRAILER,
            start,
            FormatErrorKind::Field {
                name: "footer range",
            },
        ))
    }
}

/// The footer of an index part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footer {
    /// The data files of the storage when the part was written, sorted by id; empty in version 1.
    pub files: Vec<DataFileEntry>,
    /// Where the bytes of the log begin that neither this part nor one before it describes.
    pub position: Option<LogPosition>,
    /// The leaves, sorted by id; the records of one leaf follow each other.
    pub leaves: Vec<LeafEntry>,
    /// Range of the [`TimeBases`] in the part: the bytes between blocks and footer.
    pub bases: Range<u64>,
}

impl Footer {
    /// Decodes the footer to which `trailer` points; offsets in errors count from the start of the
    /// file.
    ///
    /// # Errors
    /// When the bytes are damaged or impossible.
    pub fn decode(bytes: &[u8], trailer: &Trailer) -> Result<Self, FormatError> {
        let start = trailer.footer_offset;
        let needed = usize_of(trailer.footer_length);
        if bytes.len() != needed {
            return Err(FormatError::truncated(FOOTER, needed, bytes.len()).shifted(start));
        }
        check_checksum(FOOTER, start, trailer.footer_checksum, crc32c(bytes))?;
        let mut cursor = Cursor::new(FOOTER, bytes);
        let (files, position) = if trailer.version > 1 {
            decode_log(&mut cursor).map_err(|error| error.shifted(start))?
        } else {
            (Vec::new(), None)
        };
        let count = usize_of(trailer.leaf_count);
        let mut leaves = Vec::with_capacity(count.min(bytes.len() / LEAF_RECORD_BYTES_MIN));
        let blocks = u64_of(HEADER_BYTES)..start;
        for _ in 0..count {
            let leaf = LeafEntry::decode(&mut cursor, &blocks, trailer.version);
            let leaf = leaf.map_err(|error| error.shifted(start))?;
            leaves.push(leaf);
        }
        let ends = leaves.iter().map(|leaf| leaf.block_range().end);
        let bases = ends.max().unwrap_or(blocks.start)..blocks.end;
        if bases.end.saturating_sub(bases.start) > TABLE_BYTES_MAX {
            return Err(cursor.fault("time bases").shifted(start));
        }
        if cursor.is_at_end() && are_in_order(&leaves) {
            return Ok(Self {
                files,
                position,
                leaves,
                bases,
            });
        }
        Err(cursor.fault("leaves").shifted(start))
    }

    /// Decodes the time bases of the part with these bytes.
    ///
    /// # Errors
    /// As [`TimeBases::decode`].
    pub fn time_bases(&self, part: &[u8]) -> Result<TimeBases, FormatError> {
        let Range { start, end } = self.bases;
        let bytes = part.get(usize_of_u64(start)..usize_of_u64(end));
        TimeBases::decode(bytes.unwrap_or_default(), start)
    }

    /// The first record of the leaf with this id.
    #[must_use]
    pub fn leaf(&self, leaf: LeafId) -> Option<&LeafEntry> {
        let at = self.leaves.partition_point(|entry| entry.leaf < leaf);
        self.leaves.get(at).filter(|entry| entry.leaf == leaf)
    }
}

/// Whether records are sorted by leaf, and those of one leaf follow each other.
pub(super) fn are_in_order(leaves: &[LeafEntry]) -> bool {
    leaves.is_sorted_by(|a, b| a.leaf < b.leaf || a.is_followed_by(b))
}

/// Encodes what a footer says of the log.
pub(super) fn encode_log(
    files: &[DataFileEntry],
    position: Option<LogPosition>,
    out: &mut Vec<u8>,
) {
    assert!(
        files.is_sorted_by(|a, b| a.file < b.file),
        "a footer lists a data file once"
    );
    let count = u32::try_from(files.len()).expect("the number of data files is bounded");
    assert!(
        count <= DATA_FILE_COUNT_MAX,
        "a storage has no more data files than a reader accepts"
    );
    out.extend_from_slice(&count.to_le_bytes());
    for entry in files {
        out.extend_from_slice(&entry.file.0.to_le_bytes());
        out.extend_from_slice(&entry.length.to_le_bytes());
        out.extend_from_slice(&entry.checksum.to_le_bytes());
    }
    out.push(u8::from(position.is_some()));
    let position = position.unwrap_or(LogPosition {
        file: DataFileId(0),
        offset: 0,
        batch: 0,
        chain: 0,
    });
    for value in [position.file.0, position.offset, position.batch] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    out.extend_from_slice(&position.chain.to_le_bytes());
}

fn decode_log(
    cursor: &mut Cursor<'_>,
) -> Result<(Vec<DataFileEntry>, Option<LogPosition>), FormatError> {
    let count = cursor.u32()?;
    if count > DATA_FILE_COUNT_MAX {
        return Err(cursor.fault("data files"));
    }
    let mut files: Vec<DataFileEntry> = Vec::new();
    for _ in 0..count {
        files.push(DataFileEntry {
            file: DataFileId(cursor.u64()?),
            length: cursor.u64()?,
            checksum: cursor.u32()?,
        });
    }
    if !files.is_sorted_by(|a, b| a.file < b.file) {
        return Err(cursor.fault("data files"));
    }
    let is_known = cursor.u8()? != 0;
    let position = LogPosition {
        file: DataFileId(cursor.u64()?),
        offset: cursor.u64()?,
        batch: cursor.u64()?,
        chain: cursor.u32()?,
    };
    Ok((files, is_known.then_some(position)))
}
