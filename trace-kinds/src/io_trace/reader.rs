//! The reader of packets.

use std::ops::ControlFlow;

use ::io_trace::{Block, BlockType, Cause, FileClass, Operation};
use ctf::class::Scope;
use ctf::{Event, EventReader, Fields, Value};

use super::schema::{BEGIN, PLAN, is_schema};
use crate::DecodeError;

const FORMAT: &str = "io-trace";

/// An operation in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoTraceRecord<'a> {
    /// What was done.
    pub operation: Operation,
    /// When it began, ns since the epoch.
    pub start: i64,
    /// How long it took, ns.
    pub latency: u64,
    /// What the file is.
    pub class: FileClass,
    /// Why it was done.
    pub cause: Cause,
    /// The file, relative to the data folder: the id of its storage, a slash and its name, or
    /// another path.
    pub path: &'a [u8],
    /// The thread's id in the operating system.
    pub thread: u32,
    /// The operating system's error number, 0 for none.
    pub errno: u16,
    /// Offset in the file.
    pub offset: Option<u64>,
    /// Bytes requested.
    pub asked: u64,
    /// Bytes read or written.
    pub done: u64,
    /// Whether a cache contained the data.
    pub cache_hit: Option<bool>,
    /// The request that it served; the first, if there were several.
    pub request: Option<&'a [u8]>,
    /// How many requests it served.
    pub requests: u32,
    /// The block that was looked up.
    pub block: Option<Block>,
}

impl<'a> IoTraceRecord<'a> {
    /// The id of the storage in the path; `None` for a file outside of storages.
    pub fn storage(&self) -> Option<&'a [u8]> {
        const ID_BYTES: usize = 36;
        let (id, rest) = self.path.split_at_checked(ID_BYTES)?;
        (rest.is_empty() || rest[0] == b'/').then_some(id)
    }

    /// The name of the file without its folder.
    pub fn file_name(&self) -> &'a [u8] {
        let start = memchr::memrchr(b'/', self.path).map_or(0, |slash| slash + 1);
        &self.path[start..]
    }
}

/// One item of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// An operation.
    Record(IoTraceRecord<'a>),
    /// How the trace was started.
    Begin,
    /// How it ended.
    End {
        /// Why: `stopped`, `limit`, `shutdown` or `failed`.
        reason: &'a [u8],
        /// Operations that were recorded.
        recorded: u64,
        /// Operations for which there was no space.
        dropped: u64,
        /// Operations that were recorded and then overwritten.
        overwritten: u64,
    },
}

/// Calls `each` for every item of `packets`, which are concatenated, until it breaks.
///
/// # Errors
///
/// [`DecodeError::Truncated`] if the bytes end inside a packet, after all items before;
/// [`DecodeError::Unsupported`] for packets of another schema; [`DecodeError::Damaged`] for
/// anything else.
pub fn each_item(
    packets: &[u8],
    mut each: impl FnMut(Item<'_>) -> ControlFlow<()>,
) -> Result<(), DecodeError> {
    let mut reader = EventReader::new(&PLAN, packets);
    while let Some(facts) = reader.next_packet().map_err(fault)? {
        if !facts.uuid.is_some_and(is_schema) {
            return Err(DecodeError::Unsupported {
                format: FORMAT,
                reason: "its schema is unknown to this version; read it with the version that \
                         wrote it"
                    .to_owned(),
            });
        }
        while let Some(event) = reader.next_event().map_err(fault)? {
            if each(item(&event)?).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn fault(error: ctf::DecodeError) -> DecodeError {
    let offset = error.offset / 8;
    match error.fault {
        ctf::DecodeFault::EndOfData { .. } => DecodeError::Truncated {
            format: FORMAT,
            offset,
        },
        _ => DecodeError::Damaged {
            format: FORMAT,
            offset,
            reason: error.fault.to_string(),
        },
    }
}

/// The values of an event record in the order of its schema.
struct Values<'a> {
    fields: Fields<'a>,
    at: u64,
}

impl<'a> Values<'a> {
    fn next(&mut self) -> Result<Value<'a>, DecodeError> {
        let next = self.fields.next().map(|datum| datum.value);
        next.ok_or_else(|| DecodeError::Damaged {
            format: FORMAT,
            offset: self.at,
            reason: "an event record lacks fields".to_owned(),
        })
    }

    fn unsigned(&mut self) -> Result<u64, DecodeError> {
        Ok(match self.next()? {
            Value::Unsigned(value) => value,
            Value::Signed(value) => value.cast_unsigned(),
            Value::Bool(value) => u64::from(value),
            _ => 0,
        })
    }

    fn flag(&mut self) -> Result<bool, DecodeError> {
        self.unsigned().map(|value| value != 0)
    }

    fn tristate(&mut self) -> Result<Option<bool>, DecodeError> {
        Ok(match self.unsigned()? {
            1 => Some(true),
            2 => Some(false),
            _ => None,
        })
    }

    fn text(&mut self) -> Result<&'a [u8], DecodeError> {
        Ok(match self.next()? {
            Value::Text(text) => text,
            _ => &[],
        })
    }
}

/// The variant with a number; the first one for an unknown number.
fn variant<T: Copy>(all: &[T], number: u64) -> T {
    let at = usize::try_from(number).unwrap_or(usize::MAX);
    *all.get(at).unwrap_or(&all[0])
}

fn item<'a>(event: &Event<'a>) -> Result<Item<'a>, DecodeError> {
    let mut values = Values {
        fields: event.fields(Scope::EventPayload),
        at: event.offset() / 8,
    };
    let class = event.class().id;
    let class = usize::try_from(class).unwrap_or(usize::MAX);
    match Operation::ALL.get(class) {
        Some(operation) => record(*operation, &mut values).map(Item::Record),
        None if class == BEGIN => Ok(Item::Begin),
        // The schema has no other class.
        None => {
            let reason = values.text()?;
            let (recorded, dropped) = (values.unsigned()?, values.unsigned()?);
            values.text()?;
            Ok(Item::End {
                reason,
                recorded,
                dropped,
                overwritten: values.unsigned()?,
            })
        }
    }
}

fn record<'a>(
    operation: Operation,
    values: &mut Values<'a>,
) -> Result<IoTraceRecord<'a>, DecodeError> {
    let start = values.unsigned()?.cast_signed();
    let latency = values.unsigned()?;
    let class = variant(FileClass::ALL, values.unsigned()?);
    let cause = variant(Cause::ALL, values.unsigned()?);
    let path = values.text()?;
    let thread = u32::try_from(values.unsigned()?).unwrap_or(u32::MAX);
    let errno = u16::try_from(values.unsigned()?).unwrap_or(u16::MAX);
    let has_offset = values.flag()?;
    let offset = Some(values.unsigned()?).filter(|_| has_offset);
    let (asked, done) = (values.unsigned()?, values.unsigned()?);
    let cache_hit = values.tristate()?;
    let request = Some(values.text()?).filter(|text| !text.is_empty());
    let requests = u32::try_from(values.unsigned()?).unwrap_or(u32::MAX);
    let block = match operation {
        Operation::Lookup => Some(Block {
            block_type: variant(BlockType::ALL, values.unsigned()?),
            size: values.unsigned()?,
            not_inserted: values.flag()?,
            leaf: values.unsigned()?,
            entries: values.unsigned()?,
            immutable: values.flag()?,
            found: values.tristate()?,
        }),
        _ => None,
    };
    Ok(IoTraceRecord {
        operation,
        start,
        latency,
        class,
        cause,
        path,
        thread,
        errno,
        offset,
        asked,
        done,
        cache_hit,
        request,
        requests,
        block,
    })
}
