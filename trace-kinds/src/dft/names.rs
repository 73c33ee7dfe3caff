//! The texts of the hashes of a trace.
//!
//! Since version 1 a DFTracer event names its host, files and commands by hash, and a metadata
//! record, written at the first use into some file of the set, declares the text of the hash.
//! Hashes are numbers of up to 64 unsigned bits in version 1 and hexadecimal text in version 2.

use std::collections::HashMap;
use std::sync::Arc;

use query_language::{Number, Value};

/// Which metadata record declares a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HashKind {
    /// `FH`: a file path.
    File,
    /// `HH`: a host name.
    Host,
    /// `SH`: any other text, such as a command line.
    Text,
}

impl HashKind {
    /// Every kind.
    pub const ALL: [HashKind; 3] = [HashKind::File, HashKind::Host, HashKind::Text];

    /// The kind of hash that a metadata record of this name declares.
    pub fn of_record(name: &[u8]) -> Option<HashKind> {
        match name {
            b"FH" => Some(HashKind::File),
            b"HH" => Some(HashKind::Host),
            b"SH" => Some(HashKind::Text),
            _ => None,
        }
    }
}

/// A field with a hash, and the field with its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashField {
    /// Canonical path of the hash.
    pub hash: &'static str,
    /// Canonical path of the text, which the oldest dialect writes into the record.
    pub text: &'static str,
    /// Which records declare it.
    pub kind: HashKind,
}

/// All fields with hashes.
pub const HASH_FIELDS: [HashField; 4] = [
    HashField {
        hash: "args.fhash",
        text: "args.fname",
        kind: HashKind::File,
    },
    HashField {
        hash: "args.hhash",
        text: "args.hostname",
        kind: HashKind::Host,
    },
    HashField {
        hash: "args.cmd_hash",
        text: "args.cmd",
        kind: HashKind::Text,
    },
    HashField {
        hash: "args.exec_hash",
        text: "args.exec",
        kind: HashKind::Text,
    },
];

/// A hash in the form of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HashValue {
    /// A number, or text with one.
    Number(u64),
    /// Any other text.
    Text(Box<[u8]>),
}

impl HashValue {
    /// The hash in a field; `None` for a value that cannot be one.
    pub fn new(value: Value<'_>) -> Option<HashValue> {
        match (value.as_number(), value) {
            (Some(Number::Int(number)), _) => u64::try_from(number).ok().map(HashValue::Number),
            (_, Value::Str(text)) => Some(HashValue::Text(text.into())),
            _ => None,
        }
    }

    /// The hash as a value to compare with.
    pub fn value(&self) -> Value<'_> {
        match self {
            HashValue::Number(number) => Value::Uint(*number),
            HashValue::Text(text) => Value::Str(text),
        }
    }
}

/// The declarations of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HashNames {
    texts: HashMap<(HashKind, HashValue), Arc<[u8]>>,
}

impl HashNames {
    /// Adds a declaration, unless the hash has one.
    pub fn insert(&mut self, kind: HashKind, hash: HashValue, text: &[u8]) {
        self.texts
            .entry((kind, hash))
            .or_insert_with(|| text.into());
    }

    /// Adds the declarations of another file, for hashes that have none.
    pub fn merge(&mut self, other: &HashNames) {
        for (key, text) in &other.texts {
            self.texts
                .entry(key.clone())
                .or_insert_with(|| Arc::clone(text));
        }
    }

    /// The text of `hash`.
    pub fn text(&self, kind: HashKind, hash: &HashValue) -> Option<&[u8]> {
        self.texts.get(&(kind, hash.clone())).map(|text| &**text)
    }

    /// All declarations, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (HashKind, &HashValue, &[u8])> {
        self.texts
            .iter()
            .map(|((kind, hash), text)| (*kind, hash, &**text))
    }

    /// Number of declarations.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether nothing was declared.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

/// The names for the events of one file: a declaration in the file precedes those of the rest of
/// its set. The order matters, because small hashes of version 1.0.5 represent different files in
/// different processes.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Declarations of the file itself.
    pub own: Arc<HashNames>,
    /// Declarations of the whole set.
    pub set: Arc<HashNames>,
}

impl Names {
    /// The text of `hash` in this file.
    #[inline]
    pub fn text(&self, kind: HashKind, hash: Value<'_>) -> Option<&[u8]> {
        // Indexing has no names and calls this for every event.
        if self.own.is_empty() && self.set.is_empty() {
            return None;
        }
        self.find(kind, hash)
    }

    fn find(&self, kind: HashKind, hash: Value<'_>) -> Option<&[u8]> {
        let hash = HashValue::new(hash)?;
        self.own
            .text(kind, &hash)
            .or_else(|| self.set.text(kind, &hash))
    }

    /// Every hash whose text in this file `matches` accepts, in order.
    pub fn hashes(&self, kind: HashKind, matches: &dyn Fn(&[u8]) -> bool) -> Vec<HashValue> {
        let own = self.own.iter();
        let of_set = self
            .set
            .iter()
            .filter(|(kind, hash, _)| self.own.text(*kind, hash).is_none());
        let mut found: Vec<HashValue> = own
            .chain(of_set)
            .filter(|(of, _, text)| *of == kind && matches(text))
            .map(|(_, hash, _)| hash.clone())
            .collect();
        found.sort();
        found
    }
}
