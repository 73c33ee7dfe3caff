//! Records of a block cache trace.
//!
//! A record describes one lookup in the block cache. Its time is the wall clock in µs; with several
//! threads, records are not ordered by time. Two flags are easily confused: `is_cache_hit` 1 is a
//! *hit*, `no_insert` 1 means that the block was *not* inserted into the cache after a miss.

use super::cursor::{Cursor, last_varint64};
use super::envelope::{Envelope, Envelopes};
use super::{RocksdbError, TraceHeader, TraceKind};

/// The type of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockType(pub u8);

impl BlockType {
    /// An index block.
    pub const INDEX: Self = Self(7);
    /// A filter block.
    pub const FILTER: Self = Self(8);
    /// A data block.
    pub const DATA: Self = Self(9);
    /// A dictionary for decompression.
    pub const UNCOMPRESSION_DICT: Self = Self(10);
    /// A range deletion block.
    pub const RANGE_DELETION: Self = Self(11);
    /// Written by releases before 8.2 for the data blocks of a MultiGet. Such a record has an empty
    /// key, size 0 and no hit, so nothing is known about the block.
    pub const UNKNOWN: Self = Self(14);

    /// The name that RocksDB's analyzer prints.
    pub fn name(self) -> &'static str {
        match self {
            Self::INDEX => "Index",
            Self::FILTER => "Filter",
            Self::DATA => "Data",
            Self::UNCOMPRESSION_DICT => "UncompressionDict",
            Self::RANGE_DELETION => "RangeDeletion",
            _ => "InvalidType",
        }
    }
}

/// The operation that looked a block up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Caller(pub u8);

/// The callers by number, as RocksDB's analyzer prints them.
const CALLER_NAMES: [&str; 15] = [
    "InvalidCaller",
    "Get",
    "MultiGet",
    "Iterator",
    "ApproximateSize",
    "VerifyChecksum",
    "SSTDumpTool",
    "ExternalSSTIngestion",
    "Repair",
    "Prefetch",
    "Compaction",
    "CompactionRefill",
    "Flush",
    "SSTFileReader",
    "Uncategorized",
];

impl Caller {
    /// `Get` of a user.
    pub const GET: Self = Self(1);
    /// `MultiGet` of a user.
    pub const MULTI_GET: Self = Self(2);
    /// An iterator of a user.
    pub const ITERATOR: Self = Self(3);
    /// No caller; the number of unknown names.
    pub const NONE: Self = Self(15);

    /// The name that RocksDB's analyzer prints.
    pub fn name(self) -> &'static str {
        CALLER_NAMES
            .get(usize::from(self.0))
            .copied()
            .unwrap_or("InvalidCaller")
    }

    /// The caller with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let number = CALLER_NAMES
            .iter()
            .skip(1)
            .position(|&known| known == name)?;
        u8::try_from(number + 1).ok().map(Self)
    }

    /// Whether a user's request made the lookup, rather than background work.
    pub fn is_user(self) -> bool {
        (1..=5).contains(&self.0)
    }

    /// Whether records of this caller contain the requested key.
    pub fn is_get(self) -> bool {
        self == Self::GET || self == Self::MULTI_GET
    }
}

/// One lookup in the block cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRecord<'a> {
    /// When, µs since the epoch.
    pub time: u64,
    /// The type of the block.
    pub block_type: BlockType,
    /// The block's key in the cache; 16 bytes since 6.29, empty for unknown blocks.
    pub block_key: &'a [u8],
    /// The block's size in memory in bytes, 0 if it was not loaded.
    pub block_size: u64,
    /// Column family number.
    pub cf_id: u64,
    /// Column family name.
    pub cf_name: &'a [u8],
    /// The level of the file.
    pub level: u32,
    /// The number of the SST file.
    pub sst_number: u64,
    /// The operation.
    pub caller: Caller,
    /// The block was in the cache.
    pub is_cache_hit: bool,
    /// The block is not inserted into the cache if it is missing.
    pub no_insert: bool,
    /// The id of the Get, 0 if there is none.
    pub get_id: u64,
    /// The user read from a snapshot.
    pub from_snapshot: bool,
    /// The requested internal key: user key and 8 bytes of sequence and type. May be empty even if
    /// `from_snapshot` is set.
    pub referenced_key: &'a [u8],
    /// Bytes of the requested key and value.
    pub referenced_data_size: u64,
    /// Keys in the data block.
    pub num_keys_in_block: u64,
    /// The requested key is in the data block.
    pub referenced_key_exists: bool,
}

impl<'a> BlockRecord<'a> {
    /// The record in `envelope`, in the layout of the release in `header`.
    ///
    /// Bytes after the last field are ignored, as in RocksDB's reader.
    ///
    /// # Errors
    ///
    /// [`RocksdbError::UnexpectedType`] or [`RocksdbError::MissingField`].
    #[inline]
    pub fn decode(envelope: &Envelope<'a>, header: &TraceHeader) -> Result<Self, RocksdbError> {
        if !matches!(envelope.record_type, 7..=11 | 14) {
            return Err(RocksdbError::UnexpectedType {
                offset: envelope.offset,
                found: envelope.record_type,
                expected: TraceKind::BlockCache.describe(),
            });
        }
        let missing = |field| RocksdbError::MissingField {
            offset: envelope.offset,
            field,
        };
        let mut fields = Cursor::new(envelope.payload);
        let mut record = Self {
            time: envelope.time,
            block_type: BlockType(envelope.record_type),
            block_key: fields.prefixed().ok_or(missing("block_key"))?,
            block_size: fields.fixed64().ok_or(missing("block_size"))?,
            cf_id: fields.fixed64().ok_or(missing("cf_id"))?,
            cf_name: fields.prefixed().ok_or(missing("cf_name"))?,
            level: fields.fixed32().ok_or(missing("level"))?,
            sst_number: fields.fixed64().ok_or(missing("sst_fd_number"))?,
            caller: Caller(fields.byte().ok_or(missing("caller"))?),
            is_cache_hit: fields.byte().ok_or(missing("is_cache_hit"))? != 0,
            no_insert: fields.byte().ok_or(missing("no_insert"))? != 0,
            get_id: 0,
            from_snapshot: false,
            referenced_key: &[],
            referenced_data_size: 0,
            num_keys_in_block: 0,
            referenced_key_exists: false,
        };
        let of_get = record.caller.is_get();
        let of_get_on_data = of_get && record.block_type == BlockType::DATA;
        let old = header.writes_old_blocks();
        if of_get && !old {
            record.get_id = fields.fixed64().ok_or(missing("get_id"))?;
            record.from_snapshot = fields
                .byte()
                .ok_or(missing("get_from_user_specified_snapshot"))?
                != 0;
        }
        if of_get_on_data || (of_get && !old) {
            record.referenced_key = fields.prefixed().ok_or(missing("referenced_key"))?;
        }
        if of_get_on_data {
            record.referenced_data_size =
                fields.fixed64().ok_or(missing("referenced_data_size"))?;
            record.num_keys_in_block = fields.fixed64().ok_or(missing("num_keys_in_block"))?;
            record.referenced_key_exists = fields
                .byte()
                .ok_or(missing("referenced_key_exist_in_block"))?
                != 0;
        }
        Ok(record)
    }

    /// The requested key without sequence and type; empty if there is none.
    #[inline]
    pub fn user_key(&self) -> &'a [u8] {
        let length = self.referenced_key.len().saturating_sub(8);
        &self.referenced_key[..length]
    }

    /// One more than the first four bytes of the key as a number, which is a table's id in the keys
    /// of some users; 0 if there is no such key.
    pub fn table_id(&self) -> u64 {
        match self.referenced_key.first_chunk::<4>() {
            Some(prefix) if self.caller.is_get() => u64::from(u32::from_le_bytes(*prefix)) + 1,
            _ => 0,
        }
    }

    /// One more than the sequence number of the snapshot, 0 if there is none.
    pub fn snapshot_sequence(&self) -> u64 {
        match self.referenced_key.last_chunk::<8>() {
            Some(footer) if self.from_snapshot && self.caller.is_get() => {
                1 + (u64::from_le_bytes(*footer) >> 8)
            }
            _ => 0,
        }
    }

    /// What RocksDB prints as the block's offset in its file. It is the offset only in traces of
    /// releases before 6.29: see `last_varint64` in the module `cursor`.
    pub fn printed_offset(&self) -> u64 {
        last_varint64(self.block_key)
    }
}

/// An iterator over the records of a block cache trace, or of one packet of it.
#[derive(Debug, Clone)]
pub struct BlockCacheTrace<'a> {
    header: TraceHeader,
    envelopes: Envelopes<'a>,
}

impl<'a> BlockCacheTrace<'a> {
    /// Reads the header of `bytes`.
    ///
    /// # Errors
    ///
    /// As [`TraceHeader::read`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, RocksdbError> {
        let (header, length) = TraceHeader::read(bytes)?;
        Ok(Self {
            header,
            envelopes: Envelopes::new(&bytes[length..], header.records_at()),
        })
    }

    /// The header.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Where the next record starts in the trace file.
    pub fn offset(&self) -> u64 {
        self.envelopes.offset()
    }

    /// The next record; `None` at the end of the trace.
    ///
    /// # Errors
    ///
    /// [`RocksdbError::Torn`] at a torn end; as [`BlockRecord::decode`] otherwise.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<BlockRecord<'a>>, RocksdbError> {
        match self.envelopes.next_envelope()? {
            Some(envelope) => BlockRecord::decode(&envelope, &self.header).map(Some),
            None => Ok(None),
        }
    }
}
