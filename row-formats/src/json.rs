//! Values as JSON.

use std::io::Write as _;

use query_language::Value;

/// Appends `value` as JSON. Invalid UTF-8 is replaced with U+FFFD; a number that JSON cannot
/// express is null.
pub fn write_json_value(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Str(text) => match std::str::from_utf8(text) {
            Ok(text) => write_json_string(text, out),
            Err(_) => write_json_string(&String::from_utf8_lossy(text), out),
        },
        Value::Int(value) => write_integer(value, out),
        Value::Uint(value) => write_integer(value, out),
        Value::Float(value) if value.is_finite() => {
            // Debug formatting always has a fraction, so a float remains one.
            out.extend_from_slice(format!("{value:?}").as_bytes());
        }
        Value::Float(_) => out.extend_from_slice(b"null"),
        Value::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
    }
}

/// Appends an integer; most values of most events are some.
pub(super) fn write_integer(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

pub(super) fn write_display(value: impl std::fmt::Display, out: &mut Vec<u8>) {
    write!(out, "{value}").expect("writing to memory does not fail");
}

/// Appends `text` in quotes.
pub fn write_json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut plain = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if !matches!(byte, b'"' | b'\\' | 0..0x20) {
            continue;
        }
        out.extend_from_slice(&bytes[plain..at]);
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => write_display(format_args!("\\u{control:04x}"), out),
        }
        plain = at + 1;
    }
    out.extend_from_slice(&bytes[plain..]);
    out.push(b'"');
}
