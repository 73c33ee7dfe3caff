//! Events with the requested fields (`docs/fields.md`).

use std::cell::OnceCell;

use query_language::{FieldId, FieldSource, FieldTable, Value};

use super::json::{Cursor, Json, Known, unescape};
use super::pairs::Pairs;
use super::record::Timed;
use super::unpaired::OutsideDurations;
use crate::Event;

/// How a field is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Name,
    Cat,
    Phase,
    Ts,
    Dur,
    Pid,
    Tid,
    Id,
    /// The argument with this index.
    Argument(usize),
    Absent,
}

/// The fields that a decoder needs.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Of each field of the table.
    sources: Vec<Source>,
    /// Paths below `args`, without this prefix.
    arguments: Vec<Box<[u8]>>,
}

impl Wanted {
    pub(super) fn new(table: &FieldTable) -> Self {
        let mut arguments = Vec::new();
        let source = |path: &query_language::FieldPath| match path.as_str() {
            "name" => Source::Name,
            "cat" => Source::Cat,
            "ph" => Source::Phase,
            "ts" => Source::Ts,
            "dur" => Source::Dur,
            "pid" => Source::Pid,
            "tid" => Source::Tid,
            "id" => Source::Id,
            _ => match path.argument() {
                Some(argument) => {
                    arguments.push(argument.as_bytes().into());
                    Source::Argument(arguments.len() - 1)
                }
                None => Source::Absent,
            },
        };
        let sources = table.paths().iter().map(source).collect();
        Self { sources, arguments }
    }

    pub(super) fn has_duration(&self) -> bool {
        self.sources.contains(&Source::Dur)
    }
}

/// The requested values of one event; reused for the next.
#[derive(Debug, Default)]
pub(super) struct Values {
    /// Text of strings with escapes.
    text: Vec<u8>,
}

/// The packet that an event is in.
pub(super) struct InPacket<'p> {
    pub(super) packet: &'p [u8],
    /// Where it is in its stream, and the durations that end outside of it.
    pub(super) outside: Option<(u64, &'p dyn OutsideDurations)>,
    pub(super) pairs: OnceCell<Pairs>,
}

impl InPacket<'_> {
    pub(super) fn pairs(&self) -> &Pairs {
        self.pairs.get_or_init(|| {
            Pairs::of(self.packet, |offset| {
                let (position, outside) = self.outside?;
                outside.get(position, offset)
            })
        })
    }
}

/// One event.
pub(super) struct ChromeEvent<'e, 'p> {
    event: &'e Timed<'p>,
    /// Where its record is in the packet.
    offset: u64,
    context: &'e InPacket<'p>,
    wanted: &'e Wanted,
    /// Values of name, category, phase, process, thread and id, if they are requested.
    fixed: [Option<Known<'p>>; 6],
    arguments: &'e [Option<Known<'p>>],
    text: &'e [u8],
}

impl<'e, 'p> ChromeEvent<'e, 'p> {
    /// `slots` has an element for each requested argument.
    pub(super) fn new(
        event: &'e Timed<'p>,
        offset: u64,
        context: &'e InPacket<'p>,
        wanted: &'e Wanted,
        slots: &'e mut Vec<Option<Known<'p>>>,
        values: &'e mut Values,
    ) -> Self {
        let text = &mut values.text;
        text.clear();
        slots.clear();
        slots.resize(wanted.arguments.len(), None);
        if !slots.is_empty() {
            read_arguments(event, wanted, slots, text);
        }
        let record = &event.record;
        let mut fixed = [None; 6];
        let members = [
            (Source::Name, record.name),
            (Source::Cat, record.cat),
            (Source::Phase, record.phase_value()),
            (Source::Pid, record.pid),
            (Source::Tid, record.tid),
            (Source::Id, record.id),
        ];
        for (known, (source, value)) in fixed.iter_mut().zip(members) {
            if wanted.sources.contains(&source) {
                *known = value.and_then(|value| value.known(text));
            }
        }
        Self {
            event,
            offset,
            context,
            wanted,
            fixed,
            arguments: slots,
            text,
        }
    }

    fn known(&self, known: Option<Known<'p>>) -> Option<Value<'_>> {
        Some(match known? {
            Known::Value(value) => value,
            Known::Range(start, end) => Value::Str(self.text.get(start..end)?),
        })
    }

    fn duration(&self) -> Option<i64> {
        match self.event.record.phase() {
            b"X" => self.event.dur,
            b"B" | b"b" | b"S" => self.context.pairs().duration(self.offset),
            _ => None,
        }
    }
}

/// Reads the requested arguments. A key of `args` takes precedence over a path into a nested
/// object, and that over a member of the event.
fn read_arguments<'p>(
    event: &Timed<'p>,
    wanted: &Wanted,
    slots: &mut [Option<Known<'p>>],
    text: &mut Vec<u8>,
) {
    let mut ranks = vec![0_u8; slots.len()];
    let mut put = |path: &[u8], rank: u8, value: Json<'p>| {
        for ((argument, slot), old) in wanted.arguments.iter().zip(&mut *slots).zip(&mut ranks) {
            if **argument == *path && rank >= *old {
                *slot = value.known(text);
                *old = rank;
            }
        }
    };
    let has_paths = wanted.arguments.iter().any(|path| path.contains(&b'.'));
    for (key, escaped, value) in &event.record.others {
        put(&plain_key(key, *escaped), 1, *value);
    }
    let Some(Json::Object(args)) = event.record.args else {
        return;
    };
    each_member(args, &mut |key, value| {
        put(key, 3, value);
        if has_paths && let Json::Object(object) = value {
            nested(object, key, wanted, &mut |path, value| put(path, 2, value));
        }
    });
}

/// Calls `each` with the paths and values below `prefix` that may be requested.
fn nested<'p>(
    object: &'p [u8],
    prefix: &[u8],
    wanted: &Wanted,
    each: &mut dyn FnMut(&[u8], Json<'p>),
) {
    let prefix = [prefix, b"."].concat();
    let is_wanted = wanted
        .arguments
        .iter()
        .any(|path| path.starts_with(&prefix));
    if !is_wanted {
        return;
    }
    each_member(object, &mut |key, value| {
        let path = [&prefix, key].concat();
        each(&path, value);
        if let Json::Object(object) = value {
            nested(object, &path, wanted, each);
        }
    });
}

fn each_member<'p>(object: &'p [u8], each: &mut dyn FnMut(&[u8], Json<'p>)) {
    // The object is part of an event that was read, so it is valid.
    let read = Cursor::new(object).object(1, &mut |key, escaped, value| {
        each(&plain_key(key, escaped), value);
    });
    debug_assert!(read.is_some(), "the object was read before");
}

fn plain_key(key: &[u8], escaped: bool) -> std::borrow::Cow<'_, [u8]> {
    if escaped {
        let mut text = Vec::new();
        unescape(key, &mut text);
        text.into()
    } else {
        key.into()
    }
}

impl FieldSource for ChromeEvent<'_, '_> {
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        let [name, cat, phase, pid, tid, own_id] = self.fixed;
        self.known(match self.wanted.sources.get(id.index())? {
            Source::Ts => return Some(Value::Int(self.event.ts)),
            Source::Dur => return self.duration().map(Value::Int),
            Source::Name => name,
            Source::Cat => cat,
            Source::Phase => phase,
            Source::Pid => pid,
            Source::Tid => tid,
            Source::Id => own_id,
            Source::Argument(slot) => *self.arguments.get(*slot)?,
            Source::Absent => None,
        })
    }
}

impl Event for ChromeEvent<'_, '_> {
    fn ts(&self) -> Option<i64> {
        Some(self.event.ts)
    }

    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        let mut text = Vec::new();
        let mut visit_json = |path: &str, value: Option<Json<'_>>| {
            text.clear();
            match value.and_then(|value| value.known(&mut text)) {
                Some(Known::Value(value)) => visit(path, value),
                Some(Known::Range(..)) => visit(path, Value::Str(&text)),
                None => {}
            }
        };
        self.each_json(&mut visit_json);
        visit("ts", Value::Int(self.event.ts));
        if let Some(duration) = self.duration() {
            visit("dur", Value::Int(duration));
        }
    }

    fn each_nested(&self, visit: &mut dyn FnMut(&str)) {
        self.each_json(&mut |path, value| {
            if matches!(value, Some(Json::Object(_) | Json::List(_))) {
                visit(path);
            }
        });
    }
}

impl ChromeEvent<'_, '_> {
    /// Calls `visit` with the members of the record other than its times, as they are written.
    fn each_json(&self, visit: &mut dyn FnMut(&str, Option<Json<'_>>)) {
        let record = &self.event.record;
        visit("name", record.name);
        visit("cat", record.cat);
        visit("ph", record.phase_value());
        visit("pid", record.pid);
        visit("tid", record.tid);
        visit("id", record.id);
        let mut names: Vec<Vec<u8>> = Vec::new();
        let path = |key: &[u8]| format!("args.{}", String::from_utf8_lossy(key));
        if let Some(Json::Object(args)) = record.args {
            each_member(args, &mut |key, value| {
                visit(&path(key), Some(value));
                names.push(key.to_vec());
            });
        }
        for (key, escaped, value) in &record.others {
            let key = plain_key(key, *escaped);
            if !names.iter().any(|name| **name == *key) {
                visit(&path(&key), Some(*value));
            }
        }
    }
}
