//! The 21 columns that RocksDB's block cache analyzer writes for a block cache trace
//! (`-human_readable_trace_file_path`), byte for byte.
//!
//! There is no header row and no quoting: a comma in the name of a column family breaks the row,
//! and RocksDB's reader stops there. The columns are time (µs), block number, block type,
//! block size, column family number and name, level, SST number, caller, `no_insert`, Get number,
//! key number, referenced bytes, `is_cache_hit`, referenced key exists, keys in the block, table
//! number, snapshot sequence, length of the block key, length of the referenced key, offset.

use super::decimal::Columns;
use super::numbering::{BlockNumbers, Fingerprints};
use super::text::until_nul;
use super::{BlockRecord, Caller};

/// Writes rows. Numbers blocks and keys from 1 in the order of first occurrence.
#[derive(Debug, Default)]
pub struct BlockCsv {
    blocks: BlockNumbers,
    keys: Fingerprints,
}

impl BlockCsv {
    /// A writer without rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the row of `record` to `out`.
    #[inline]
    pub fn put_row(&mut self, out: &mut Vec<u8>, record: &BlockRecord<'_>) {
        let (_, block) = self.blocks.number(record);
        let key = if record.caller == Caller::GET && record.get_id != 0 {
            u64::from(self.keys.number(record.user_key())) + 1
        } else {
            0
        };
        let mut columns = Columns::new();
        for value in [
            record.time,
            u64::from(block) + 1,
            u64::from(record.block_type.0),
            record.block_size,
            record.cf_id,
        ] {
            columns.put(value);
        }
        out.extend_from_slice(columns.as_bytes());
        out.extend_from_slice(until_nul(record.cf_name));
        out.push(b',');
        let mut columns = Columns::new();
        for value in [
            u64::from(record.level),
            record.sst_number,
            u64::from(record.caller.0),
            u64::from(record.no_insert),
            record.get_id,
            key,
            record.referenced_data_size,
            u64::from(record.is_cache_hit),
            u64::from(record.referenced_key_exists),
            record.num_keys_in_block,
            record.table_id(),
            record.snapshot_sequence(),
            record.block_key.len() as u64,
            record.referenced_key.len() as u64,
            record.printed_offset(),
        ] {
            columns.put(value);
        }
        let row = columns.as_bytes();
        // No comma follows the last column.
        out.extend_from_slice(&row[..row.len() - 1]);
        out.push(b'\n');
    }
}
