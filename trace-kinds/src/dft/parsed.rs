//! A line of JSON in another layout than DFTracer's.

use serde_json::{Map, Value as Json};

use super::scalar::Scalar;

/// A value that borrows nothing from its line.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Owned {
    Text(Vec<u8>),
    Nested(Vec<u8>),
    Plain(Scalar<'static>),
}

impl Owned {
    pub(super) const NULL: Owned = Owned::Plain(Scalar::Null);

    pub(super) fn scalar(&self) -> Scalar<'_> {
        match self {
            Owned::Text(text) => Scalar::Str(text),
            Owned::Nested(text) => Scalar::Nested(text),
            Owned::Plain(scalar) => *scalar,
        }
    }

    fn new(json: &Json) -> Owned {
        Owned::Plain(match json {
            Json::Null => Scalar::Null,
            Json::Bool(true) => Scalar::True,
            Json::Bool(false) => Scalar::False,
            Json::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), _, _) => Scalar::UInt(value),
                (_, Some(value), _) => Scalar::Int(value),
                (_, _, Some(value)) => Scalar::Float(value),
                _ => Scalar::Null,
            },
            Json::String(text) => return Owned::Text(text.as_bytes().to_vec()),
            Json::Array(_) | Json::Object(_) => {
                return Owned::Nested(json.to_string().into_bytes());
            }
        })
    }
}

/// The JSON object of one line.
#[derive(Debug)]
pub(super) struct ParsedLine {
    object: Map<String, Json>,
}

/// Top-level keys that are fields with the same name.
const TOP: [&str; 10] = [
    "id", "name", "cat", "type", "pid", "tid", "ts", "dur", "ph", "args",
];

impl ParsedLine {
    /// Parses a line without its frame. `None` if it is not an object.
    pub(super) fn new(line: &[u8]) -> Option<ParsedLine> {
        match serde_json::from_slice(line).ok()? {
            Json::Object(object) => Some(ParsedLine { object }),
            _ => None,
        }
    }

    /// A top-level field.
    pub(super) fn top(&self, name: &str) -> Owned {
        self.object.get(name).map_or(Owned::NULL, Owned::new)
    }

    /// An argument, by its key or its dotted path into nested objects. Other top-level keys are
    /// arguments as well, unless the arguments contain the same key.
    pub(super) fn argument(&self, path: &str) -> Owned {
        let in_args = self.object.get("args").and_then(Json::as_object);
        let at_top = || match self.object.get_key_value(first_part(path)) {
            Some((name, _)) if !TOP.contains(&name.as_str()) => lookup(&self.object, path),
            _ => None,
        };
        in_args
            .and_then(|args| lookup(args, path))
            .or_else(at_top)
            .map_or(Owned::NULL, Owned::new)
    }

    /// Calls `visit` for every field with its canonical path; nested objects are flattened.
    pub(super) fn each(&self, visit: &mut dyn FnMut(&str, Scalar<'_>)) {
        for name in TOP.iter().filter(|name| **name != "args") {
            visit(name, self.top(name).scalar());
        }
        let args = self.object.get("args").and_then(Json::as_object);
        let shadowed = |name: &String| args.is_some_and(|args| args.contains_key(name));
        let others = self
            .object
            .iter()
            .filter(|(name, _)| !TOP.contains(&name.as_str()));
        for (name, json) in others.filter(|(name, _)| !shadowed(name)) {
            flatten(&format!("args.{name}"), json, visit);
        }
        match self.object.get("args") {
            Some(Json::Object(args)) => {
                for (name, json) in args {
                    flatten(&format!("args.{name}"), json, visit);
                }
            }
            Some(other) => visit("args", Owned::new(other).scalar()),
            None => {}
        }
    }
}

fn first_part(path: &str) -> &str {
    path.split_once('.').map_or(path, |(first, _)| first)
}

/// The value at `path`. Keys may contain dots, so the longest key is tried first.
fn lookup<'j>(object: &'j Map<String, Json>, path: &str) -> Option<&'j Json> {
    if let Some(json) = object.get(path) {
        return Some(json);
    }
    path.match_indices('.').find_map(|(dot, _)| {
        let inner = object.get(&path[..dot])?.as_object()?;
        lookup(inner, &path[dot + 1..])
    })
}

/// Calls `visit` for `json` at `path`; for an object, for its members instead.
pub(super) fn flatten(path: &str, json: &Json, visit: &mut dyn FnMut(&str, Scalar<'_>)) {
    match json {
        Json::Object(object) if !object.is_empty() => {
            for (name, inner) in object {
                flatten(&format!("{path}.{name}"), inner, visit);
            }
        }
        _ => visit(path, Owned::new(json).scalar()),
    }
}
