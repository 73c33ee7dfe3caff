//! Writing the wire format of Protocol Buffers.
//!
//! A message is a sequence of fields, each with a key (`number << 3 | wire type`) and a value. The
//! functions without a condition write proto2 and oneof fields; those named `_nonzero` and
//! [`put_text`] omit the default value, as proto3 does.

use storage_format::{put_varint, varint_length};

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;
const FIXED32: u32 = 5;

fn key(number: u32, wire_type: u32) -> u64 {
    u64::from(number) << 3 | u64::from(wire_type)
}

/// Writes an integer, enum or truth value; a negative one as its two's complement.
pub fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, key(number, VARINT));
    put_varint(out, value);
}

/// As [`put_number`], but a zero is omitted.
pub fn put_nonzero(out: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        put_number(out, number, value);
    }
}

/// Writes 64 bits.
pub fn put_fixed64(out: &mut Vec<u8>, number: u32, bits: u64) {
    put_varint(out, key(number, FIXED64));
    out.extend_from_slice(&bits.to_le_bytes());
}

/// As [`put_fixed64`], but a zero is omitted.
pub fn put_fixed64_nonzero(out: &mut Vec<u8>, number: u32, bits: u64) {
    if bits != 0 {
        put_fixed64(out, number, bits);
    }
}

/// Writes a floating-point number.
pub fn put_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_fixed64(out, number, value.to_bits());
}

/// Writes 32 bits; a zero is omitted.
pub fn put_fixed32_nonzero(out: &mut Vec<u8>, number: u32, bits: u32) {
    if bits != 0 {
        put_varint(out, key(number, FIXED32));
        out.extend_from_slice(&bits.to_le_bytes());
    }
}

/// Writes the key and the length of text, bytes or a message of `length` bytes, which follow.
pub fn put_head(out: &mut Vec<u8>, number: u32, length: usize) {
    put_varint(out, key(number, LENGTH_DELIMITED));
    put_varint(out, length as u64);
}

/// Bytes of a field with `length` bytes of text, bytes or message.
pub fn field_length(number: u32, length: usize) -> usize {
    varint_length(key(number, LENGTH_DELIMITED)) + varint_length(length as u64) + length
}

/// Writes text, bytes or a message, even an empty one.
pub fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_head(out, number, bytes.len());
    out.extend_from_slice(bytes);
}

/// As [`put_bytes`], but an empty one is omitted.
pub fn put_text(out: &mut Vec<u8>, number: u32, text: &[u8]) {
    if !text.is_empty() {
        put_bytes(out, number, text);
    }
}
