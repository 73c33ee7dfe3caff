//! Field paths, their ids, and the trait by which the evaluator reads values from events.

use std::collections::HashMap;
use std::fmt;

use crate::Value;

/// Top-level fields of events of every kind (`docs/fields.md`) or of a DFTracer line. Every other
/// bare name is an argument.
const TOP_LEVEL: [&str; 13] = [
    "name", "cat", "ts", "dur", "pid", "tid", "agent", "stream", "storage", "kind", "id", "ph",
    "type",
];
/// First parts of paths that are complete.
const ROOTS: [&str; 3] = ["args.", "ctx.", "packet."];

/// A dotted field path in its canonical spelling.
///
/// `epoch` and `args.epoch` are the same field in the evaluator, in the index and in output
/// columns. An adapter whose records have other top-level names shows them as `args.NAME`, unless
/// the arguments have that name already.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath(Box<str>);

impl FieldPath {
    /// The field that `text` names: a bare name that is not one of the common fields is an
    /// argument.
    ///
    /// Text that begins with a bracket is arithmetic, such as `(dur / 1000)`: a computed field.
    pub fn new(text: &str) -> FieldPath {
        let complete = is_arithmetic(text)
            || TOP_LEVEL.contains(&text)
            || ROOTS.iter().any(|root| text.starts_with(root));
        FieldPath(if complete {
            text.into()
        } else {
            format!("args.{text}").into_boxed_str()
        })
    }

    /// A field that is computed from others.
    pub(crate) fn computed(arithmetic: &str) -> FieldPath {
        FieldPath(if is_arithmetic(arithmetic) {
            arithmetic.into()
        } else {
            format!("({arithmetic})").into_boxed_str()
        })
    }

    /// Whether the field is computed from others, so that no event has it.
    pub fn is_computed(&self) -> bool {
        is_arithmetic(&self.0)
    }

    /// The canonical spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part after `args.`, for adapters that look up arguments by key.
    pub fn argument(&self) -> Option<&str> {
        self.0.strip_prefix("args.")
    }

    /// Whether this is `ts`, the start of an event.
    pub fn is_time(&self) -> bool {
        &*self.0 == "ts"
    }

    /// Whether this is `dur`, the duration of an event.
    pub fn is_duration(&self) -> bool {
        &*self.0 == "dur"
    }
}

/// Names of fields begin with a letter, or with `args.` and its relatives.
fn is_arithmetic(text: &str) -> bool {
    text.starts_with('(')
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_computed() {
            return f.write_str(&self.0);
        }
        let plain = self
            .0
            .starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && self
                .0
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if plain {
            f.write_str(&self.0)
        } else {
            write!(f, "`{}`", self.0)
        }
    }
}

/// The index of a field in a [`FieldTable`]; an adapter resolves it once and then reads by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldId(u32);

impl FieldId {
    /// The index of the field in [`FieldTable::paths`].
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The fields that a reader needs from every event, for filters, output and indexes. Adapters
/// decode these and skip the rest.
#[derive(Debug, Clone, Default)]
pub struct FieldTable {
    paths: Vec<FieldPath>,
    ids: HashMap<FieldPath, FieldId>,
}

impl FieldTable {
    /// An empty table.
    pub fn new() -> FieldTable {
        FieldTable::default()
    }

    /// The id of `path`, which is added if necessary.
    pub fn insert(&mut self, path: &FieldPath) -> FieldId {
        if let Some(id) = self.ids.get(path) {
            return *id;
        }
        let id = FieldId(u32::try_from(self.paths.len()).expect("fewer than 2^32 fields"));
        self.paths.push(path.clone());
        self.ids.insert(path.clone(), id);
        id
    }

    /// The id of `path`, if it has one.
    pub fn get(&self, path: &FieldPath) -> Option<FieldId> {
        self.ids.get(path).copied()
    }

    /// All paths, in the order of their ids.
    pub fn paths(&self) -> &[FieldPath] {
        &self.paths
    }

    /// All ids with their paths.
    pub fn iter(&self) -> impl Iterator<Item = (FieldId, &FieldPath)> {
        (0..).map(FieldId).zip(&self.paths)
    }

    /// The number of fields.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }
}

/// An event as a source of the fields of the table it was decoded with.
pub trait FieldSource {
    /// The value of the field; `None` if the event does not have it, or has a null there.
    fn field(&self, id: FieldId) -> Option<Value<'_>>;
}

impl<S: FieldSource + ?Sized> FieldSource for &S {
    #[inline]
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        (**self).field(id)
    }
}

/// An event in the order of the table.
impl FieldSource for [Option<Value<'_>>] {
    #[inline]
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        self.get(id.index()).copied().flatten()
    }
}

impl FieldSource for Vec<Option<Value<'_>>> {
    #[inline]
    fn field(&self, id: FieldId) -> Option<Value<'_>> {
        self.as_slice().field(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_for_each_field() {
        let cases = [
            ("name", "name"),
            ("epoch", "args.epoch"),
            ("args.epoch", "args.epoch"),
            ("fhash", "args.fhash"),
            ("http.method", "args.http.method"),
            ("ctx.vpid", "ctx.vpid"),
            ("packet.cpu_id", "packet.cpu_id"),
            ("type", "type"),
            ("ts", "ts"),
        ];
        for (written, canonical) in cases {
            assert_eq!(FieldPath::new(written).as_str(), canonical);
            assert_eq!(FieldPath::new(canonical).as_str(), canonical);
        }
    }

    #[test]
    fn a_table_gives_each_field_one_id() {
        let mut table = FieldTable::new();
        let name = table.insert(&FieldPath::new("name"));
        let epoch = table.insert(&FieldPath::new("epoch"));
        assert_eq!(table.insert(&FieldPath::new("args.epoch")), epoch);
        assert_eq!((name.index(), epoch.index(), table.len()), (0, 1, 2));
        assert_eq!(table.get(&FieldPath::new("cat")), None);
    }
}
