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
use crate::{DecodeError, Decoded, Decoder, EachEvent, Event};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IoField {
    Name,
    Cat,
    Ts,
    Dur,
    Tid,
    Cause,
    Path,
    FileName,
    Storage,
    Errno,
    Offset,
    Len,
    Done,
    CacheHit,
    RequestId,
    Requests,
    BlockType,
    BlockSize,
    NotInserted,
    Leaf,
    Entries,
    Immutable,
    Found,
}

/// All fields, in the order of `each_field`.
const FIELDS: [(&str, IoField); 23] = [
    ("name", IoField::Name),
    ("cat", IoField::Cat),
    ("ts", IoField::Ts),
    ("dur", IoField::Dur),
    ("tid", IoField::Tid),
    ("args.cause", IoField::Cause),
    ("args.path", IoField::Path),
    ("args.file_name", IoField::FileName),
    ("args.storage", IoField::Storage),
    ("args.errno", IoField::Errno),
    ("args.offset", IoField::Offset),
    ("args.len", IoField::Len),
    ("args.done", IoField::Done),
    ("args.is_cache_hit", IoField::CacheHit),
    ("args.request_id", IoField::RequestId),
    ("args.requests", IoField::Requests),
    ("args.block_type", IoField::BlockType),
    ("args.block_size", IoField::BlockSize),
    ("args.not_inserted", IoField::NotInserted),
    ("args.leaf", IoField::Leaf),
    ("args.entries", IoField::Entries),
    ("args.immutable", IoField::Immutable),
    ("args.found", IoField::Found),
];

/// Fields that are indexed by default, besides `name` and `cat`.
pub(crate) const DIMENSIONS: [&str; 4] = ["cause", "file_name", "storage", "errno"];

/// Decodes packets of the kind `io-trace`.
#[derive(Debug)]
pub struct IoTraceDecoder {
    /// The field of the record for each field of the table, by index.
    requested: Vec<Option<IoField>>,
}

impl IoTraceDecoder {
    /// A decoder for the fields of `table`.
    pub fn new(table: &FieldTable) -> Self {
        let of_record = |path: &str| {
            let found = FIELDS.iter().find(|(name, _)| *name == path);
            found.map(|(_, field)| *field)
        };
        Self {
            requested: table
                .paths()
                .iter()
                .map(|path| of_record(path.as_str()))
                .collect(),
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
    requested: &'r [Option<IoField>],
}

impl IoTraceEvent<'_> {
    fn value(&self, field: IoField) -> Option<Value<'_>> {
        let record = self.record;
        let text = |text: &'static str| Some(Value::Str(text.as_bytes()));
        match field {
            IoField::Name => text(record.operation.name()),
            IoField::Cat => text(record.class.name()),
            IoField::Ts => Some(Value::Int(record.start)),
            IoField::Dur => Some(Value::Uint(record.latency)),
            IoField::Tid => Some(Value::Uint(record.thread.into())),
            IoField::Cause => text(record.cause.name()),
            IoField::Path => Some(Value::Str(record.path)),
            IoField::FileName => Some(Value::Str(record.file_name())),
            IoField::Storage => record.storage().map(Value::Str),
            IoField::Errno => Some(Value::Uint(record.errno.into())),
            IoField::Offset => record.offset.map(Value::Uint),
            IoField::Len => Some(Value::Uint(record.asked)),
            IoField::Done => Some(Value::Uint(record.done)),
            IoField::CacheHit => record.cache_hit.map(Value::Bool),
            IoField::RequestId => record.request.map(Value::Str),
            IoField::Requests => Some(Value::Uint(record.requests.into())),
            IoField::BlockType => text(record.block?.block_type.name()),
            IoField::BlockSize => Some(Value::Uint(record.block?.size)),
            IoField::NotInserted => Some(Value::Bool(record.block?.not_inserted)),
            IoField::Leaf => Some(Value::Uint(record.block?.leaf)),
            IoField::Entries => Some(Value::Uint(record.block?.entries)),
            IoField::Immutable => Some(Value::Bool(record.block?.immutable)),
            IoField::Found => record.block?.found.map(Value::Bool),
        }
    }
}

impl FieldSource for IoTraceEvent<'_> {
    #[inline]
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        self.value((*self.requested.get(id.index())?)?)
    }
}

impl Event for IoTraceEvent<'_> {
    fn ts(&self) -> Option<i64> {
        Some(self.record.start)
    }

    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        for (path, field) in FIELDS {
            if let Some(value) = self.value(field) {
                visit(path, value);
            }
        }
    }
}
