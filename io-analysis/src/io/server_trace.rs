//! Conversion of a server's I/O trace: records to accesses, and cache lookups to records of a block
//! cache trace.

use io_trace::{Block, BlockType as ServerBlock, Cause, FileClass, Operation};
use trace_kinds::io_trace::IoTraceRecord;
use trace_kinds::rocksdb::{BlockRecord, BlockType, Caller};

use super::{Direction, IoAccess};

/// Converts a record of a server's I/O trace.
pub fn server_access<'a>(record: &IoTraceRecord<'a>) -> IoAccess<'a> {
    let direction = match record.operation {
        Operation::Read => Direction::Read,
        Operation::Write => Direction::Write,
        Operation::Sync | Operation::SyncFolder => Direction::Sync,
        _ => Direction::Other,
    };
    let has_length = record.offset.is_some() || record.asked > 0;
    IoAccess {
        start_ns: record.start,
        latency_ns: record.latency,
        operation: record.operation.name().as_bytes(),
        direction,
        file: record.path,
        class: record.class.name(),
        cause: record.cause.name().as_bytes(),
        offset: record.offset,
        // The bytes that were transferred, for volumes and working sets.
        len: has_length.then_some(match direction {
            Direction::Read | Direction::Write => record.done,
            _ => record.asked,
        }),
        failed: record.errno != 0,
        request: record.request,
    }
}

/// Size of the pages in which the system caches files.
pub const PAGE_BYTES: u64 = 4096;

/// Maximum bytes per call: Linux transfers less than 2 GiB at once. Greater values in a trace are
/// damaged.
const READ_BYTES_MAX: u64 = 1 << 31;

/// Converts cache lookups to records of a block cache trace.
#[derive(Debug)]
pub struct CacheLookups {
    page_bytes: u64,
    only: Vec<ServerBlock>,
    key: Vec<u8>,
}

impl CacheLookups {
    /// Converts lookups of these types of blocks, or of all types if `only` is empty. Reads of data
    /// files are lookups of pages of `page_bytes`.
    #[must_use]
    pub fn new(page_bytes: u64, only: Vec<ServerBlock>) -> Self {
        Self {
            page_bytes: page_bytes.max(1),
            only,
            key: Vec::new(),
        }
    }

    /// Calls `each` with the block cache records for `record`: one for a lookup; one per page for a
    /// read of a data file, if the trace records whether it was in the page cache; none for others.
    ///
    /// | RocksDB | a lookup | a page of a read |
    /// | --- | --- | --- |
    /// | time | `start` | the same |
    /// | block type | `block_type`; answers are data blocks | data |
    /// | block key | `path` and `offset` of the block | `path` and offset of the page |
    /// | block size | `block_size` | bytes of a page |
    /// | column family, id and name | 0, and the storage of `path` | the same |
    /// | level | number of `file_class` (index parts 2, chunk indexes 5, …): files have no levels | 1 |
    /// | SST number | hash of `path` | the same |
    /// | caller | `cause`: query → Get, range → Iterator, verify → VerifyChecksum, recovery → Repair, flush and finalize → Flush, ingest and import → ExternalSSTIngestion, index → Compaction, else Uncategorized | the same |
    /// | hit | `cache` | that of the read |
    /// | no insert | `not_inserted` | no: the system caches what it reads |
    /// | get id | hash of `request_id` | the same |
    /// | from snapshot | `immutable` | no: the file may grow |
    /// | referenced key | `leaf`, and 8 bytes as in RocksDB's internal keys | the leaf of the file, and the same |
    /// | referenced data size | `done` | bytes of the read in the page |
    /// | keys in block | `entries` | 0 |
    /// | key exists | `found` | yes |
    ///
    /// # Errors
    /// The first error of `each`.
    pub fn each<E>(
        &mut self,
        record: &IoTraceRecord<'_>,
        each: impl FnMut(&BlockRecord<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match record.block {
            Some(block) if self.includes(block.block_type) => self.block(record, &block, each),
            None if is_page_read(record) && self.includes(ServerBlock::Data) => {
                self.pages(record, each)
            }
            _ => Ok(()),
        }
    }

    fn includes(&self, block_type: ServerBlock) -> bool {
        self.only.is_empty() || self.only.contains(&block_type)
    }

    fn block<E>(
        &mut self,
        record: &IoTraceRecord<'_>,
        block: &Block,
        mut each: impl FnMut(&BlockRecord<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let keys = self.keys(record, record.offset.unwrap_or(0), block.leaf);
        each(&BlockRecord {
            block_type: match block.block_type {
                ServerBlock::Index => BlockType::INDEX,
                ServerBlock::Filter => BlockType::FILTER,
                ServerBlock::Data | ServerBlock::Answer => BlockType::DATA,
                ServerBlock::Dictionary => BlockType::UNCOMPRESSION_DICT,
            },
            block_size: block.size,
            no_insert: block.not_inserted,
            from_snapshot: block.immutable,
            referenced_data_size: record.done,
            num_keys_in_block: block.entries,
            referenced_key_exists: block.found.unwrap_or(false),
            ..common(record, keys)
        })
    }

    fn pages<E>(
        &mut self,
        record: &IoTraceRecord<'_>,
        mut each: impl FnMut(&BlockRecord<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let page = self.page_bytes;
        let (first, leaf) = (record.offset.unwrap_or(0), leaf_of(record));
        let end = first.saturating_add(record.done.min(READ_BYTES_MAX));
        let mut at = first;
        while at < end {
            let start = at - at % page;
            let next = start.saturating_add(page).min(end);
            let keys = self.keys(record, start, leaf);
            each(&BlockRecord {
                block_type: BlockType::DATA,
                block_size: page,
                referenced_data_size: next - at,
                referenced_key_exists: true,
                ..common(record, keys)
            })?;
            at = next;
        }
        Ok(())
    }

    /// Block key and referenced key.
    fn keys(&mut self, record: &IoTraceRecord<'_>, offset: u64, leaf: u64) -> (&[u8], &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(record.path);
        self.key.extend_from_slice(&offset.to_le_bytes());
        let block_end = self.key.len();
        self.key.extend_from_slice(&leaf.to_be_bytes());
        self.key.extend_from_slice(&[0; 8]);
        self.key.split_at(block_end)
    }
}

/// Whether this is a read through the page cache. Index parts and chunk indexes are looked up by
/// block.
fn is_page_read(record: &IoTraceRecord<'_>) -> bool {
    record.operation == Operation::Read
        && record.class == FileClass::Data
        && record.cache_hit.is_some()
}

/// The fields that all block cache records for `record` share.
fn common<'k>(
    record: &IoTraceRecord<'k>,
    (block_key, referenced_key): (&'k [u8], &'k [u8]),
) -> BlockRecord<'k> {
    BlockRecord {
        time: u64::try_from(record.start).unwrap_or(0) / 1000,
        block_type: BlockType::DATA,
        block_key,
        block_size: 0,
        cf_id: 0,
        cf_name: record.storage().unwrap_or_default(),
        level: record.class as u32,
        sst_number: number(record.path),
        caller: caller(record.cause),
        is_cache_hit: record.cache_hit.unwrap_or(false),
        no_insert: false,
        get_id: record.request.map_or(0, number),
        from_snapshot: false,
        referenced_key,
        referenced_data_size: 0,
        num_keys_in_block: 0,
        referenced_key_exists: false,
    }
}

/// The leaf of the data file, from its name.
fn leaf_of(record: &IoTraceRecord<'_>) -> u64 {
    let digits = record.file_name().get(..16);
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    digits.map_or(0, |digits| u64::from_str_radix(digits, 16).unwrap_or(0))
}

fn caller(cause: Cause) -> Caller {
    let name = match cause {
        Cause::Query => "Get",
        Cause::Range => "Iterator",
        Cause::Verify => "VerifyChecksum",
        Cause::Recovery => "Repair",
        Cause::Flush | Cause::Finalize => "Flush",
        Cause::Ingest | Cause::Import => "ExternalSSTIngestion",
        Cause::Index => "Compaction",
        Cause::Unknown | Cause::Manage | Cause::Export => "Uncategorized",
    };
    Caller::from_name(name).unwrap_or(Caller::NONE)
}

/// FNV-1a: a hash that is the same in every run.
fn number(name: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    name.iter().fold(start, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
