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
use crate::{DecodeError, Decoded, Decoder, EachEvent, Event};

/// A field of an IO record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IoField {
    Name,
    Cat,
    Ts,
    Dur,
    End,
    Status,
    FileName,
    FileSize,
    Len,
    Offset,
    RequestId,
}

/// All fields of an IO record, in the order of `each_field`.
const IO_FIELDS: [(&str, IoField); 11] = [
    ("name", IoField::Name),
    ("cat", IoField::Cat),
    ("ts", IoField::Ts),
    ("dur", IoField::Dur),
    ("args.end", IoField::End),
    ("args.io_status", IoField::Status),
    ("args.file_name", IoField::FileName),
    ("args.file_size", IoField::FileSize),
    ("args.len", IoField::Len),
    ("args.offset", IoField::Offset),
    ("args.request_id", IoField::RequestId),
];

/// A field of a block cache record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockField {
    Name,
    Cat,
    Ts,
    Key,
    Size,
    FamilyId,
    FamilyName,
    Level,
    Sst,
    Hit,
    NoInsert,
    GetId,
    Snapshot,
    ReferencedKey,
    UserKey,
    ReferencedSize,
    KeysInBlock,
    KeyExists,
}

/// All fields of a block cache record, in the order of `each_field`.
const BLOCK_FIELDS: [(&str, BlockField); 18] = [
    ("name", BlockField::Name),
    ("cat", BlockField::Cat),
    ("ts", BlockField::Ts),
    ("args.block_key", BlockField::Key),
    ("args.block_size", BlockField::Size),
    ("args.cf_id", BlockField::FamilyId),
    ("args.cf_name", BlockField::FamilyName),
    ("args.level", BlockField::Level),
    ("args.sst_fd_number", BlockField::Sst),
    ("args.is_cache_hit", BlockField::Hit),
    ("args.no_insert", BlockField::NoInsert),
    ("args.get_id", BlockField::GetId),
    (
        "args.get_from_user_specified_snapshot",
        BlockField::Snapshot,
    ),
    ("args.referenced_key", BlockField::ReferencedKey),
    ("args.user_key", BlockField::UserKey),
    ("args.referenced_data_size", BlockField::ReferencedSize),
    ("args.num_keys_in_block", BlockField::KeysInBlock),
    ("args.referenced_key_exist_in_block", BlockField::KeyExists),
];

/// The field of the record for each field of the table, by index.
fn requested<F: Copy>(table: &FieldTable, fields: &[(&str, F)]) -> Vec<Option<F>> {
    let of_record = |path: &str| {
        fields
            .iter()
            .find(|(name, _)| *name == path)
            .map(|(_, field)| *field)
    };
    table
        .paths()
        .iter()
        .map(|path| of_record(path.as_str()))
        .collect()
}

/// Decodes packets of the kinds `rocksdb-io` and `rocksdb-block-cache`.
#[derive(Debug)]
pub struct RocksdbDecoder {
    fields: Fields,
}

#[derive(Debug)]
enum Fields {
    Io(Vec<Option<IoField>>),
    Block(Vec<Option<BlockField>>),
}

impl RocksdbDecoder {
    /// A decoder for the fields of `table`.
    pub fn new(kind: TraceKind, table: &FieldTable) -> Self {
        let fields = match kind {
            TraceKind::Io => Fields::Io(requested(table, &IO_FIELDS)),
            TraceKind::BlockCache => Fields::Block(requested(table, &BLOCK_FIELDS)),
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
                let mut trace = IoTrace::open(packet).map_err(in_packet)?;
                while let Some(record) = trace.next_record().map_err(in_packet)? {
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
                let mut trace = BlockCacheTrace::open(packet).map_err(in_packet)?;
                while let Some(record) = trace.next_record().map_err(in_packet)? {
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
    fields: &'d [Option<IoField>],
}

impl IoEvent<'_, '_> {
    #[inline]
    fn value(&self, field: IoField) -> Option<Value<'_>> {
        let record = self.record;
        match field {
            IoField::Name => Some(Value::Str(record.operation)),
            IoField::Cat => Some(Value::Str(file_class(record.file_name).as_bytes())),
            IoField::Ts => Some(Value::Int(self.start_ns)),
            IoField::Dur => Some(Value::Uint(record.latency)),
            IoField::End => Some(Value::Uint(record.end)),
            IoField::Status => Some(Value::Str(record.status)),
            IoField::FileName => Some(Value::Str(record.file_name)),
            IoField::FileSize => record.file_size.map(Value::Uint),
            IoField::Len => record.len.map(Value::Uint),
            IoField::Offset => record.offset.map(Value::Uint),
            IoField::RequestId => record.request_id.map(Value::Str),
        }
    }
}

impl FieldSource for IoEvent<'_, '_> {
    #[inline]
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        self.value((*self.fields.get(id.index())?)?)
    }
}

impl Event for IoEvent<'_, '_> {
    fn ts(&self) -> Option<i64> {
        Some(self.start_ns)
    }

    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        for (path, field) in IO_FIELDS {
            if let Some(value) = self.value(field) {
                visit(path, value);
            }
        }
    }
}

/// A block cache record as an event.
struct BlockEvent<'r, 'd> {
    record: &'r BlockRecord<'r>,
    fields: &'d [Option<BlockField>],
    block_key: OnceCell<String>,
    referenced_key: OnceCell<String>,
}

impl BlockEvent<'_, '_> {
    #[inline]
    fn value(&self, field: BlockField) -> Option<Value<'_>> {
        let record = self.record;
        let of_get = record.caller.is_get();
        let on_data = of_get && record.block_type == BlockType::DATA;
        let uint = |value| Some(Value::Uint(value));
        match field {
            BlockField::Name => Some(Value::Str(record.block_type.name().as_bytes())),
            BlockField::Cat => Some(Value::Str(record.caller.name().as_bytes())),
            BlockField::Ts => self.ts().map(Value::Int),
            BlockField::Key => Some(hexadecimal(&self.block_key, record.block_key)),
            BlockField::Size => uint(record.block_size),
            BlockField::FamilyId => uint(record.cf_id),
            BlockField::FamilyName => Some(Value::Str(record.cf_name)),
            BlockField::Level => uint(u64::from(record.level)),
            BlockField::Sst => uint(record.sst_number),
            BlockField::Hit => Some(Value::Bool(record.is_cache_hit)),
            BlockField::NoInsert => Some(Value::Bool(record.no_insert)),
            BlockField::GetId if of_get => uint(record.get_id),
            BlockField::Snapshot if of_get => Some(Value::Bool(record.from_snapshot)),
            BlockField::ReferencedKey if of_get => {
                Some(hexadecimal(&self.referenced_key, record.referenced_key))
            }
            BlockField::UserKey if of_get => Some(Value::Str(record.user_key())),
            BlockField::ReferencedSize if on_data => uint(record.referenced_data_size),
            BlockField::KeysInBlock if on_data => uint(record.num_keys_in_block),
            BlockField::KeyExists if on_data => Some(Value::Bool(record.referenced_key_exists)),
            _ => None,
        }
    }
}

/// `bytes` in hexadecimal, written on first use.
fn hexadecimal<'c>(cell: &'c OnceCell<String>, bytes: &[u8]) -> Value<'c> {
    let text = cell.get_or_init(|| {
        bytes
            .iter()
            .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
                write!(text, "{byte:02x}").expect("writing to a string cannot fail");
                text
            })
    });
    Value::Str(text.as_bytes())
}

impl FieldSource for BlockEvent<'_, '_> {
    #[inline]
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        self.value((*self.fields.get(id.index())?)?)
    }
}

impl Event for BlockEvent<'_, '_> {
    #[inline]
    fn ts(&self) -> Option<i64> {
        i64::try_from(self.record.time).ok()?.checked_mul(1000)
    }

    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        for (path, field) in BLOCK_FIELDS {
            if let Some(value) = self.value(field) {
                visit(path, value);
            }
        }
    }
}
