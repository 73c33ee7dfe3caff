//! Records of I/O traces as events (`docs/fields.md`).
//!
//! | field | what |
//! | --- | --- |
//! | `name`, `cat` | operation, class of the file |
//! | `ts`, `dur` | start and latency, ns |
//! | `tid` | thread |
//! | `args.*` | `cause`, `path`, `file_name`, `storage`, `errno`, `offset`, `len` (requested), `done`, `is_cache_hit`, `request_id`, `requests`; of lookups also `block_type`, `block_size`, `not_inserted`, `leaf`, `entries`, `immutable`, `found` |

use std::ops::ControlFlow;

use query_language::{FieldId, FieldSource, FieldTable, Value};

use super::{IoTraceRecord, Item, each_item};
use crate::record_fields::select_fields;
use crate::{DecodeError, Decoded, Decoder, EachEvent, Event};

/// Reads the value of one field.
type ReadField = for<'e> fn(&'e IoTraceEvent<'_>) -> Option<Value<'e>>;

/// All fields, in the order of `each_field`.
const FIELDS: [(&str, ReadField); 23] = [
    ("name", |event| text(event.record.operation.name())),
    ("cat", |event| text(event.record.class.name())),
    ("ts", |event| Some(Value::Int(event.record.start))),
    ("dur", |event| uint(event.record.latency)),
    ("tid", |event| uint(event.record.thread)),
    ("args.cause", |event| text(event.record.cause.name())),
    ("args.path", |event| Some(Value::Str(event.record.path))),
    ("args.file_name", |event| {
        Some(Value::Str(event.record.file_name()))
    }),
    ("args.storage", |event| {
        event.record.storage().map(Value::Str)
    }),
    ("args.errno", |event| uint(event.record.errno)),
    ("args.offset", |event| event.record.offset.map(Value::Uint)),
    ("args.len", |event| uint(event.record.asked)),
    ("args.done", |event| uint(event.record.done)),
    ("args.is_cache_hit", |event| {
        event.record.cache_hit.map(Value::Bool)
    }),
    ("args.request_id", |event| {
        event.record.request.map(Value::Str)
    }),
    ("args.requests", |event| uint(event.record.requests)),
    ("args.block_type", |event| {
        text(event.record.block?.block_type.name())
    }),
    ("args.block_size", |event| uint(event.record.block?.size)),
    ("args.not_inserted", |event| {
        Some(Value::Bool(event.record.block?.not_inserted))
    }),
    ("args.leaf", |event| uint(event.record.block?.leaf)),
    ("args.entries", |event| uint(event.record.block?.entries)),
    ("args.immutable", |event| {
        Some(Value::Bool(event.record.block?.immutable))
    }),
    ("args.found", |event| {
        event.record.block?.found.map(Value::Bool)
    }),
];

fn text<'e>(text: &'static str) -> Option<Value<'e>> {
    Some(Value::Str(text.as_bytes()))
}

fn uint<'e>(value: impl Into<u64>) -> Option<Value<'e>> {
    Some(Value::Uint(value.into()))
}

/// Fields that are indexed by default, in addition to `name` and `cat`.
pub(crate) const DIMENSIONS: [&str; 4] = ["cause", "file_name", "storage", "errno"];

/// Decodes packets of the kind `io-trace`.
#[derive(Debug)]
pub struct IoTraceDecoder {
    /// How each field of the table is read, by index.
    requested: Vec<Option<ReadField>>,
}

impl IoTraceDecoder {
    /// A decoder for the fields of `table`.
    pub fn new(table: &FieldTable) -> Self {
        Self {
            requested: select_fields(table, &FIELDS),
        }
    }
}

impl Decoder for IoTraceDecoder {
    fn decode(&mut self, packet: &[u8], each: &mut EachEvent<'_>) -> Result<Decoded, DecodeError> {
        let mut decoded = Decoded::default();
        each_item(packet, |item| match item {
            Item::Record(record) => {
                decoded.events += 1;
                each(&IoTraceEvent {
                    record: &record,
                    requested: &self.requested,
                })
            }
            Item::Begin | Item::End { .. } => {
                decoded.metadata += 1;
                ControlFlow::Continue(())
            }
        })?;
        Ok(decoded)
    }
}

struct IoTraceEvent<'r> {
    record: &'r IoTraceRecord<'r>,
    requested: &'r [Option<ReadField>],
}

impl FieldSource for IoTraceEvent<'_> {
    #[inline]
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        self.requested.get(id.index())?.as_ref()?(self)
    }
}

impl Event for IoTraceEvent<'_> {
    fn ts(&self) -> Option<i64> {
        Some(self.record.start)
    }

    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        for (path, read) in FIELDS {
            if let Some(value) = read(self) {
                visit(path, value);
            }
        }
    }
}
