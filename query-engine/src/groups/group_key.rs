//! Keys of groups as bytes.

use query_language::Value;

/// Bytes that are equal for the values of one group: those of the same type and spelling.
pub(crate) fn write_key(value: Option<Value<'_>>, key: &mut Vec<u8>) {
    let (tag, word) = match value {
        None => (0, [0; 8]),
        Some(Value::Str(text)) => {
            key.push(1);
            key.extend_from_slice(&text.len().to_be_bytes());
            return key.extend_from_slice(text);
        }
        Some(Value::Int(value)) if value < 0 => (2, value.to_le_bytes()),
        Some(Value::Int(value)) => (3, value.to_le_bytes()),
        Some(Value::Uint(value)) => (3, value.to_le_bytes()),
        Some(Value::Float(value)) => (4, value.to_bits().to_le_bytes()),
        Some(Value::Bool(value)) => (5, [u8::from(value); 8]),
    };
    key.push(tag);
    key.extend_from_slice(&word);
}
