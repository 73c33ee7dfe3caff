//! Events: records in DFTracer's layout, and records parsed as JSON.

use query_language::{FieldId, FieldSource, FieldTable, Value};

use super::arguments::{ArgumentKeys, Arguments};
use super::line::Head;
use super::names::{HASH_FIELDS, HashKind, Names};
use super::parsed::{Owned, ParsedLine, flatten};
use super::scalar::{Cursor, Scalar};
use super::time::{TimeUnit, instant};
use crate::Event;

/// Where a record contains a field of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum FieldLocation {
    Id,
    Name,
    Cat,
    Type,
    Pid,
    Tid,
    Ts,
    Dur,
    Ph,
    Argument(usize),
    /// A text that the record contains itself or as a hash.
    Resolved {
        text: usize,
        hash: usize,
        kind: HashKind,
    },
    Missing,
}

/// The locations of the fields of a table.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) locations: Vec<FieldLocation>,
    pub(super) keys: ArgumentKeys,
}

impl Layout {
    pub(super) fn new(table: &FieldTable) -> Layout {
        let mut keys = ArgumentKeys::default();
        let locations = table
            .paths()
            .iter()
            .map(|path| match (path.as_str(), path.argument()) {
                ("id", _) => FieldLocation::Id,
                ("name", _) => FieldLocation::Name,
                ("cat", _) => FieldLocation::Cat,
                ("type", _) => FieldLocation::Type,
                ("pid", _) => FieldLocation::Pid,
                ("tid", _) => FieldLocation::Tid,
                ("ts", _) => FieldLocation::Ts,
                ("dur", _) => FieldLocation::Dur,
                ("ph", _) => FieldLocation::Ph,
                (path, Some(key)) => {
                    let slot = keys.insert(key);
                    match HASH_FIELDS.iter().find(|field| field.text == path) {
                        Some(field) => {
                            let hash = field.hash.strip_prefix("args.").unwrap_or(field.hash);
                            FieldLocation::Resolved {
                                text: slot,
                                hash: keys.insert(hash),
                                kind: field.kind,
                            }
                        }
                        None => FieldLocation::Argument(slot),
                    }
                }
                _ => FieldLocation::Missing,
            });
        let locations = locations.collect();
        Layout { locations, keys }
    }

    #[inline]
    fn location(&self, id: FieldId) -> FieldLocation {
        self.locations
            .get(id.index())
            .copied()
            .unwrap_or(FieldLocation::Missing)
    }
}

/// What both forms of a record need to resolve a field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'d> {
    pub(super) layout: &'d Layout,
    pub(super) names: &'d Names,
    pub(super) unit: TimeUnit,
}

/// A record in DFTracer's layout.
#[derive(Clone, Copy)]
pub(super) struct LineEvent<'l, 'd, 'a> {
    pub(super) head: &'l Head<'a>,
    pub(super) arguments: &'l Arguments<'d, 'a>,
    pub(super) frame: Frame<'d>,
}

impl FieldSource for LineEvent<'_, '_, '_> {
    #[inline(always)]
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        let head = self.head;
        match self.frame.layout.location(id) {
            FieldLocation::Id => head.id.value(),
            FieldLocation::Name => Some(Value::Str(head.name)),
            FieldLocation::Cat => Some(Value::Str(head.cat)),
            FieldLocation::Type => head.type_.value(),
            FieldLocation::Pid => head.pid.value(),
            FieldLocation::Tid => head.tid.value(),
            FieldLocation::Ts => self.frame.unit.scale(head.ts),
            FieldLocation::Dur => self.frame.unit.scale(head.dur),
            FieldLocation::Ph => head.ph.value(),
            FieldLocation::Argument(slot) => self.arguments.get(slot).value(),
            FieldLocation::Resolved { text, hash, kind } => {
                self.arguments.get(text).value().or_else(|| {
                    self.frame
                        .names
                        .text(kind, self.arguments.get(hash).value()?)
                        .map(Value::Str)
                })
            }
            FieldLocation::Missing => None,
        }
    }
}

impl Event for LineEvent<'_, '_, '_> {
    #[inline]
    fn ts(&self) -> Option<i64> {
        self.frame.unit.scale(self.head.ts).and_then(instant)
    }

    #[inline]
    fn shape(&self) -> Option<u32> {
        self.head.shape
    }

    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        let (head, unit) = (self.head, self.frame.unit);
        let fields = [
            ("id", head.id.value()),
            ("name", Some(Value::Str(head.name))),
            ("cat", Some(Value::Str(head.cat))),
            ("type", head.type_.value()),
            ("pid", head.pid.value()),
            ("tid", head.tid.value()),
            ("ts", unit.scale(head.ts)),
            ("dur", unit.scale(head.dur)),
            ("ph", head.ph.value()),
        ];
        for (path, value) in fields {
            if let Some(value) = value {
                visit(path, value);
            }
        }
        each_argument(head.args, &mut |path, value| {
            if let Some(value) = value.value() {
                visit(path, value);
            }
        });
    }

    fn each_nested(&self, visit: &mut dyn FnMut(&str)) {
        each_argument(self.head.args, &mut |path, value| {
            if matches!(value, Scalar::Nested(_)) {
                visit(path);
            }
        });
    }
}

/// Calls `visit` for the arguments of an object that was validated when its line was read.
fn each_argument(args: &[u8], visit: &mut dyn FnMut(&str, Scalar<'_>)) {
    let mut cursor = Cursor::new(args, 1);
    let mut path = String::from("args.");
    while cursor.eat(b"\"") {
        let Some(key) = cursor.string_body() else {
            return;
        };
        if !cursor.eat(b":") {
            return;
        }
        let Some(value) = cursor.value() else { return };
        path.truncate("args.".len());
        path.push_str(&String::from_utf8_lossy(key));
        match value {
            Scalar::Nested(text) => {
                if let Ok(json) = serde_json::from_slice(text) {
                    flatten(&path, &json, visit);
                }
            }
            plain => visit(&path, plain),
        }
        cursor.eat(b",");
    }
}

/// A record parsed as JSON.
pub(super) struct ParsedEvent<'d> {
    line: ParsedLine,
    frame: Frame<'d>,
    /// Values by the index of the field.
    values: Vec<Owned>,
    ts: Option<Value<'static>>,
    dur: Option<Value<'static>>,
}

impl<'d> ParsedEvent<'d> {
    pub(super) fn new(line: ParsedLine, frame: Frame<'d>) -> Self {
        let arguments: Vec<Owned> = frame
            .layout
            .keys
            .iter()
            .map(|(_, key)| std::str::from_utf8(key).map_or(Owned::NULL, |key| line.argument(key)))
            .collect();
        let value = |location: &FieldLocation| match *location {
            FieldLocation::Id => line.top("id"),
            FieldLocation::Name => line.top("name"),
            FieldLocation::Cat => line.top("cat"),
            FieldLocation::Type => line.top("type"),
            FieldLocation::Pid => line.top("pid"),
            FieldLocation::Tid => line.top("tid"),
            FieldLocation::Ph => line.top("ph"),
            FieldLocation::Argument(slot) => arguments[slot].clone(),
            FieldLocation::Resolved { text, hash, kind } => match &arguments[text] {
                &Owned::NULL => {
                    let hash = arguments[hash].scalar().value();
                    let text = hash.and_then(|hash| frame.names.text(kind, hash));
                    text.map_or(Owned::NULL, |text| Owned::Text(text.to_vec()))
                }
                text => text.clone(),
            },
            FieldLocation::Ts | FieldLocation::Dur | FieldLocation::Missing => Owned::NULL,
        };
        let values = frame.layout.locations.iter().map(value).collect();
        let (ts, dur) = (
            frame.unit.scale(line.top("ts").scalar()),
            frame.unit.scale(line.top("dur").scalar()),
        );
        ParsedEvent {
            line,
            frame,
            values,
            ts,
            dur,
        }
    }
}

impl FieldSource for ParsedEvent<'_> {
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        match self.frame.layout.location(id) {
            FieldLocation::Ts => self.ts,
            FieldLocation::Dur => self.dur,
            _ => self.values.get(id.index())?.scalar().value(),
        }
    }
}

impl Event for ParsedEvent<'_> {
    fn ts(&self) -> Option<i64> {
        self.ts.and_then(instant)
    }

    fn each_field(&self, visit: &mut dyn FnMut(&str, Value<'_>)) {
        self.line.each(&mut |path, value| {
            let value = match path {
                "ts" => self.ts,
                "dur" => self.dur,
                _ => value.value(),
            };
            if let Some(value) = value {
                visit(path, value);
            }
        });
    }

    fn each_nested(&self, visit: &mut dyn FnMut(&str)) {
        self.line.each(&mut |path, value| {
            if matches!(value, Scalar::Nested(_)) {
                visit(path);
            }
        });
    }
}
