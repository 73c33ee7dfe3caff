//! How the records of our own I/O become accesses, and look-ups records of a block cache.

use io_trace::{BlockType as OwnBlock, Cause, Operation};
use trace_events::io_trace::IoTraceRecord;
use trace_events::rocksdb::{BlockRecord, BlockType, Caller};

use super::{Direction, IoAccess};

/// The access that `record` tells of.
pub fn own_access<'a>(record: &IoTraceRecord<'a>) -> IoAccess<'a> {
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
        // What was moved, which is what volumes and working sets are made of.
        len: has_length.then_some(match direction {
            Direction::Read | Direction::Write => record.done,
            _ => record.asked,
        }),
        failed: record.errno != 0,
        request: record.request,
    }
}

/// Scratch space of [`own_look_up`].
#[derive(Debug, Default)]
pub struct LookUpKey(Vec<u8>);

/// The record of a block cache that a look-up is; `None` for other operations.
///
/// | RocksDB | ours |
/// | --- | --- |
/// | time | start of the look-up |
/// | block type | block type |
/// | block key | path and offset of the block |
/// | block size | bytes it takes in the cache |
/// | column family, id and name | 0, and the id of the storage |
/// | level | 0: our files have no levels |
/// | SST number | a number made of the path |
/// | caller | cause: query → Get, range → Iterator, verify → VerifyChecksum, recovery → Repair, flush and finalize → Flush, ingest → ExternalSSTIngestion, else Uncategorized |
/// | hit, no insert | hit, not inserted |
/// | get id | a number made of the request id |
/// | from snapshot | the block can no longer change |
/// | referenced key | the leaf, and the 8 bytes that RocksDB has behind a key |
/// | referenced data size, keys in block, key exists | bytes of the block, entries, found |
pub fn own_look_up<'k>(
    record: &IoTraceRecord<'k>,
    key: &'k mut LookUpKey,
) -> Option<BlockRecord<'k>> {
    let block = record.block?;
    key.0.clear();
    key.0.extend_from_slice(record.path);
    key.0
        .extend_from_slice(&record.offset.unwrap_or(0).to_le_bytes());
    let block_end = key.0.len();
    key.0.extend_from_slice(&block.leaf.to_be_bytes());
    key.0.extend_from_slice(&[0; 8]);
    let (block_key, referenced_key) = key.0.split_at(block_end);
    Some(BlockRecord {
        time: u64::try_from(record.start).unwrap_or(0) / 1000,
        block_type: match block.block_type {
            OwnBlock::Index => BlockType::INDEX,
            OwnBlock::Filter => BlockType::FILTER,
            OwnBlock::Data => BlockType::DATA,
            OwnBlock::Dictionary => BlockType::UNCOMPRESSION_DICT,
        },
        block_key,
        block_size: block.size,
        cf_id: 0,
        cf_name: record.storage().unwrap_or_default(),
        level: 0,
        sst_number: number(record.path),
        caller: caller(record.cause),
        is_cache_hit: record.cache_hit.unwrap_or(false),
        no_insert: block.not_inserted,
        get_id: record.request.map_or(0, number),
        from_snapshot: block.immutable,
        referenced_key,
        referenced_data_size: record.done,
        num_keys_in_block: block.entries,
        referenced_key_exists: block.found.unwrap_or(false),
    })
}

fn caller(cause: Cause) -> Caller {
    let name = match cause {
        Cause::Query => "Get",
        Cause::Range => "Iterator",
        Cause::Verify => "VerifyChecksum",
        Cause::Recovery => "Repair",
        Cause::Flush | Cause::Finalize => "Flush",
        Cause::Ingest => "ExternalSSTIngestion",
        Cause::Unknown | Cause::Manage | Cause::Export | Cause::Import => "Uncategorized",
    };
    Caller::from_name(name).unwrap_or(Caller::NONE)
}

/// FNV-1a: a number for a name, the same in every run.
fn number(name: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    name.iter().fold(start, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
