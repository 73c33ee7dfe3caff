//! RocksDB's records as events (`docs/fields.md`).
//!
//! | field | IO trace | block cache trace |
//! | --- | --- | --- |
//! | `name` | operation | block type |
//! | `cat` | file class | caller |
//! | `ts` | start, anchored | wall time |
//! | `dur` | latency | – |
//! | `args.*` | `end` (monotonic clock), `io_status`, `file_name`, `file_size`, `len`, `offset`, `request_id` | `block_key` (hexadecimal), `block_size`, `cf_id`, `cf_name`, `level`, `sst_fd_number`, `is_cache_hit`, `no_insert`; of Get and MultiGet also `get_id`, `get_from_user_specified_snapshot`, `referenced_key` (hexadecimal), `user_key`; and on data blocks `referenced_data_size`, `num_keys_in_block`, `referenced_key_exist_in_block` |

use std::cell::OnceCell;
use std::fmt::Write as _;

use query_language::{FieldId, FieldSource, FieldTable, Value};

use super::{
    BlockCacheTrace, BlockRecord, BlockType, IoRecord, IoTrace, RocksdbError, TraceKind, file_class,
};
use crate::record_fields::select_fields;
use crate::{DamagedBytes, DecodeError, Decoded, Decoder, EachEvent, Event};

/// Reads the value of one field of an IO record.
type ReadIo = for<'e> fn(&'e IoEvent<'_, '_>) -> Option<Value<'e>>;

/// All fields of an IO record, in the order of `each_field`.
const IO_FIELDS: [(&str, ReadIo); 11] = [
    ("name", |event| text(event.record.operation)),
    ("cat", |event| {
        text(file_class(event.record.file_name).as_bytes())
    }),
    ("ts", |event| Some(Value::Int(event.start_ns))),
    ("dur", |event| uint(event.record.latency)),
    ("args.end", |event| uint(event.record.end)),
    ("args.io_status", |event| text(event.record.status)),
    ("args.file_name", |event| text(event.record.file_name)),
    ("args.file_size", |event| {
        event.record.file_size.map(Value::Uint)
    }),
    ("args.len", |event| event.record.len.map(Value::Uint)),
    ("args.offset", |event| event.record.offset.map(Value::Uint)),
    ("args.request_id", |event| {
        event.record.request_id.map(Value::Str)
    }),
];

/// Reads the value of one field of a block cache record.
type ReadBlock = for<'e> fn(&'e BlockEvent<'_, '_>) -> Option<Value<'e>>;

/// All fields of a block cache record, in the order of `each_field`.
const BLOCK_FIELDS: [(&str, ReadBlock); 18] = [
    ("name", |event| {
        text(event.record.block_type.name().as_bytes())
    }),
    ("cat", |event| text(event.record.caller.name().as_bytes())),
    ("ts", |event| event.ts().map(Value::Int)),
    ("args.block_key", |event| {
        hexadecimal(&event.block_key, event.record.block_key)
    }),
    ("args.block_size", |event| uint(event.record.block_size)),
    ("args.cf_id", |event| uint(event.record.cf_id)),
    ("args.cf_name", |event| text(event.record.cf_name)),
    ("args.level", |event| uint(event.record.level)),
    ("args.sst_fd_number", |event| uint(event.record.sst_number)),
    ("args.is_cache_hit", |event| {
        boolean(event.record.is_cache_hit)
    }),
    ("args.no_insert", |event| boolean(event.record.no_insert)),
    ("args.get_id", |event| uint(event.get()?.get_id)),
    ("args.get_from_user_specified_snapshot", |event| {
        boolean(event.get()?.from_snapshot)
    }),
    ("args.referenced_key", |event| {
        hexadecimal(&event.referenced_key, event.get()?.referenced_key)
    }),
    ("args.user_key", |event| text(event.get()?.user_key())),
    ("args.referenced_data_size", |event| {
        uint(event.get_of_data()?.referenced_data_size)
    }),
    ("args.num_keys_in_block", |event| {
        uint(event.get_of_data()?.num_keys_in_block)
    }),
    ("args.referenced_key_exist_in_block", |event| {
        boolean(event.get_of_data()?.referenced_key_exists)
    }),
];

fn text(text: &[u8]) -> Option<Value<'_>> {
    Some(Value::Str(text))
}

fn uint<'e>(value: impl Into<u64>) -> Option<Value<'e>> {
    Some(Value::Uint(value.into()))
}

fn boolean<'e>(value: bool) -> Option<Value<'e>> {
    Some(Value::Bool(value))
}

/// Decodes packets of the kinds `rocksdb-io` and `rocksdb-block-cache`.
#[derive(Debug)]
pub struct RocksdbDecoder {
    fields: Fields,
}

#[derive(Debug)]
enum Fields {
    Io(Vec<Option<ReadIo>>),
    Block(Vec<Option<ReadBlock>>),
}

impl RocksdbDecoder {
    /// A decoder for the fields of `table`.
    pub fn new(kind: TraceKind, table: &FieldTable) -> Self {
        let fields = match kind {
            TraceKind::Io => Fields::Io(select_fields(table, &IO_FIELDS)),
            TraceKind::BlockCache => Fields::Block(select_fields(table, &BLOCK_FIELDS)),
        };
        Self { fields }
    }
}

impl Decoder for RocksdbDecoder {
    fn decode(&mut self, packet: &[u8], each: &mut EachEvent<'_>) -> Result<Decoded, DecodeError> {
        let mut decoded = Decoded {
            metadata: 1,
            ..Decoded::default()
        };
        match &self.fields {
            Fields::Io(fields) => {
                let format = "rocksdb-io";
                let in_packet = |error| in_packet(error, packet, format);
                DamagedBytes::refuse(packet, format)?;
                let mut trace = IoTrace::open(packet).map_err(in_packet)?;
                while let Some(record) =
                    next_intact(&mut decoded.broken, || trace.next_record()).map_err(in_packet)?
                {
                    decoded.events += 1;
                    let start_ns = trace.start_ns(&record);
                    if each(&IoEvent {
                        record: &record,
                        start_ns,
                        fields,
                    })
                    .is_break()
                    {
                        break;
                    }
                }
            }
            Fields::Block(fields) => {
                let format = "rocksdb-block-cache";
                let in_packet = |error| in_packet(error, packet, format);
                DamagedBytes::refuse(packet, format)?;
                let mut trace = BlockCacheTrace::open(packet).map_err(in_packet)?;
                while let Some(record) =
                    next_intact(&mut decoded.broken, || trace.next_record()).map_err(in_packet)?
                {
                    decoded.events += 1;
                    let (block_key, referenced_key) = (OnceCell::new(), OnceCell::new());
                    let event = BlockEvent {
                        record: &record,
                        fields,
                        block_key,
                        referenced_key,
                    };
                    if each(&event).is_break() {
                        break;
                    }
                }
            }
        }
        Ok(decoded)
    }
}

/// The next record that can be read. Each says where the next one begins, so one that is damaged
/// costs no other, however long the packet is.
fn next_intact<R>(
    broken: &mut u64,
    mut next: impl FnMut() -> Result<Option<R>, RocksdbError>,
) -> Result<Option<R>, RocksdbError> {
    loop {
        match next() {
            Err(error) if error.is_of_record() => *broken += 1,
            record => return record,
        }
    }
}

/// Converts an error: offsets count from the start of the packet instead of the file.
fn in_packet(error: RocksdbError, packet: &[u8], format: &'static str) -> DecodeError {
    let records_at = super::TraceHeader::read(packet).map_or((0, 0), |(header, length)| {
        (header.records_at(), length as u64)
    });
    let in_packet = |offset: u64| match offset.checked_sub(records_at.0) {
        Some(after_header) => after_header.saturating_add(records_at.1),
        None => offset,
    };
    let reason = error.to_string();
    match error {
        RocksdbError::Torn { offset, .. } => DecodeError::Truncated {
            format,
            offset: in_packet(offset),
        },
        RocksdbError::NotATrace { offset, .. }
        | RocksdbError::TooLong { offset, .. }
        | RocksdbError::UnexpectedType { offset, .. }
        | RocksdbError::MissingField { offset, .. }
        | RocksdbError::TrailingBytes { offset, .. } => DecodeError::Damaged {
            format,
            offset: in_packet(offset),
            reason,
        },
        RocksdbError::Gap { .. } => DecodeError::Damaged {
            format,
            offset: 0,
            reason,
        },
    }
}

/// An IO record as an event.
struct IoEvent<'r, 'd> {
    record: &'r IoRecord<'r>,
    start_ns: i64,
    fields: &'d [Option<ReadIo>],
}

impl FieldSource for IoEvent<'_, '_> {
    #[inline]
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        self.fields.get(id.index())?.as_ref()?(self)
    }
}

impl Event for IoEvent<'_, '_> {
    fn ts(&self) -> Option<i64> {
        Some(self.start_ns)
    }

    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        for (path, read) in IO_FIELDS {
            if let Some(value) = read(self) {
                visit(path, value);
            }
        }
    }
}

/// A block cache record as an event.
struct BlockEvent<'r, 'd> {
    record: &'r BlockRecord<'r>,
    fields: &'d [Option<ReadBlock>],
    block_key: OnceCell<String>,
    referenced_key: OnceCell<String>,
}

impl<'r> BlockEvent<'r, '_> {
    /// The record, if the caller is a Get or MultiGet.
    fn get(&self) -> Option<&'r BlockRecord<'r>> {
        self.record.caller.is_get().then_some(self.record)
    }

    /// The record, if a Get or MultiGet accessed a data block.
    fn get_of_data(&self) -> Option<&'r BlockRecord<'r>> {
        self.get()
            .filter(|record| record.block_type == BlockType::DATA)
    }
}

/// `bytes` in hexadecimal, written on first use.
fn hexadecimal<'c>(cell: &'c OnceCell<String>, bytes: &[u8]) -> Option<Value<'c>> {
    let text = cell.get_or_init(|| {
        bytes
            .iter()
            .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
                write!(text, "{byte:02x}").expect("writing to a string cannot fail");
                text
            })
    });
    Some(Value::Str(text.as_bytes()))
}

impl FieldSource for BlockEvent<'_, '_> {
    #[inline]
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        self.fields.get(id.index())?.as_ref()?(self)
    }
}

impl Event for BlockEvent<'_, '_> {
    #[inline]
    fn ts(&self) -> Option<i64> {
        i64::try_from(self.record.time).ok()?.checked_mul(1000)
    }

    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        for (path, read) in BLOCK_FIELDS {
            if let Some(value) = read(self) {
                visit(path, value);
            }
        }
    }
}
