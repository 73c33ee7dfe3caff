//! Events as JSON objects that keep every value.

use std::collections::{BTreeMap, BTreeSet};

use query_language::Value;
use row_formats::{write_json_string, write_json_value};
use serde::de::IgnoredAny;
use trace_kinds::Event;

/// The text of JSON values by name.
type Members = BTreeMap<String, Vec<u8>>;

/// Appends an event as a JSON object on one line.
pub(super) fn put_object(text: &mut Vec<u8>, event: &dyn Event) {
    let mut nested = BTreeSet::new();
    event.each_nested(&mut |path| {
        nested.insert(path.to_owned());
    });
    let (mut object, mut arguments) = (Members::new(), Members::new());
    event.each_field(&mut |path, value| {
        let value = json(value, nested.contains(path));
        match path.strip_prefix("args.") {
            Some(argument) => arguments.insert(argument.to_owned(), value),
            None => object.insert(path.to_owned(), value),
        };
    });
    // A record of DFTracer may have something else than an object there.
    if object.contains_key("args") {
        let dotted = |(name, value)| (format!("args.{name}"), value);
        object.extend(arguments.into_iter().map(dotted));
    } else {
        let mut members = Vec::new();
        put_members(&mut members, &arguments);
        object.insert("args".to_owned(), members);
    }
    put_members(text, &object);
    text.push(b'\n');
}

fn put_members(text: &mut Vec<u8>, members: &Members) {
    text.push(b'{');
    for (at, (name, value)) in members.iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        write_json_string(name, text);
        text.push(b':');
        text.extend_from_slice(value);
    }
    text.push(b'}');
}

/// A value as JSON without loss, as values of CTF are written (`docs/fields.md`).
fn json(value: Value<'_>, is_nested: bool) -> Vec<u8> {
    let mut text = Vec::new();
    match value {
        // A newline is only between the tokens.
        Value::Str(nested) if is_nested && is_json(nested) => {
            text.extend(nested.iter().filter(|byte| !matches!(byte, b'\n' | b'\r')));
        }
        Value::Str(bytes) if std::str::from_utf8(bytes).is_err() => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            text.extend_from_slice(format!("{{\"hex\":\"{digits}\"}}").as_bytes());
        }
        Value::Float(value) if value.is_nan() => text.extend_from_slice(b"\"NaN\""),
        Value::Float(f64::INFINITY) => text.extend_from_slice(b"\"Infinity\""),
        Value::Float(f64::NEG_INFINITY) => text.extend_from_slice(b"\"-Infinity\""),
        value => write_json_value(value, &mut text),
    }
    text
}

/// Chrome traces may have lists that are no JSON.
fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(text).is_ok()
}
