//! Records that describe the trace.

use super::arguments::{ArgumentKeys, Arguments};
use super::names::{HashKind, HashNames, HashValue};
use super::parsed::ParsedLine;
use super::scalar::{Cursor, Scalar};
use super::time::TimeUnit;

/// A metadata record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metadata {
    /// The text of a hash.
    Name {
        /// What the text is.
        kind: HashKind,
        /// The hash.
        hash: HashValue,
        /// The text.
        text: Box<[u8]>,
    },
    /// The unit of all times of the file.
    Unit(TimeUnit),
    /// A unit of all times that nobody knows.
    UnknownUnit,
    /// Anything else: names of processes and threads, and additions of later versions.
    Other,
}

impl Metadata {
    pub(super) fn is_phase(phase: Scalar<'_>) -> bool {
        matches!(phase, Scalar::UInt(4) | Scalar::Str(b"M" | b"4"))
    }

    /// Reads the arguments of a record in the known layout.
    pub(super) fn read(record: &[u8], args: &[u8]) -> Metadata {
        let mut keys = ArgumentKeys::default();
        let (name, value) = (keys.insert("name"), keys.insert("value"));
        let mut arguments = Arguments::new(&keys);
        match arguments.read(&mut Cursor::new(args, 0), None) {
            Some(()) => Metadata::new(record, arguments.get(name), arguments.get(value)),
            None => Metadata::Other,
        }
    }

    /// Reads a record that was parsed as JSON.
    pub(super) fn of_parsed(line: &ParsedLine) -> Metadata {
        let (record, name, value) = (
            line.top("name"),
            line.argument("name"),
            line.argument("value"),
        );
        match record.scalar() {
            Scalar::Str(record) => Metadata::new(record, name.scalar(), value.scalar()),
            _ => Metadata::Other,
        }
    }

    fn new(record: &[u8], name: Scalar<'_>, value: Scalar<'_>) -> Metadata {
        match (HashKind::of_record(record), name, value) {
            (Some(kind), Scalar::Str(text), hash) => match hash.value().and_then(HashValue::new) {
                Some(hash) => Metadata::Name {
                    kind,
                    hash,
                    text: text.into(),
                },
                None => Metadata::Other,
            },
            (None, Scalar::Str(b"time_metric"), unit) if record == b"CM" => match unit {
                Scalar::Str(unit) => {
                    TimeUnit::parse(unit).map_or(Metadata::UnknownUnit, Metadata::Unit)
                }
                _ => Metadata::UnknownUnit,
            },
            _ => Metadata::Other,
        }
    }

    /// Adds the declaration to `names` or `unit`. The first one of a unit counts, as of a name.
    pub fn apply(self, names: &mut HashNames, unit: &mut Option<TimeUnit>) {
        match self {
            Metadata::Name { kind, hash, text } => names.insert(kind, hash, &text),
            Metadata::Unit(declared) => {
                unit.get_or_insert(declared);
            }
            Metadata::UnknownUnit | Metadata::Other => {}
        }
    }
}
