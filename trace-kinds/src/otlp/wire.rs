//! The wire format of Protocol Buffers: reading within bounds, and writing.
//!
//! A message is a row of fields, each with a key (`number << 3 | type`) and a value. Four types are
//! read; groups, which proto3 does not have, are refused. Nothing is copied and nothing recurses
//! here: a field with a length is handed out as the part of the packet it is.

use crate::DecodeError;

/// As the kind is named.
pub(super) const FORMAT: &str = "otlp";

/// A value as it lies on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    /// Type 0: integers, enums, truth values.
    Varint(u64),
    /// Type 1: 64 bits, little-endian.
    Fixed64(u64),
    /// Type 2: text, bytes, messages.
    Bytes(Part<'a>),
    /// Type 5: 32 bits, little-endian.
    Fixed32(u32),
}

/// A part of a packet that knows where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) bytes: &'a [u8],
    /// Offset in the packet of the first byte.
    pub(super) base: usize,
}

impl<'a> Part<'a> {
    pub(super) fn whole(bytes: &'a [u8]) -> Self {
        Part { bytes, base: 0 }
    }

    /// The fields of the part, as the message that it is.
    pub(super) fn fields(self) -> Fields<'a> {
        Fields { part: self, at: 0 }
    }
}

/// Reads the fields of a message one after another.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    part: Part<'a>,
    at: usize,
}

impl<'a> Fields<'a> {
    /// The next field: number and value; `None` at the end of the message.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<(u32, Wire<'a>)>, DecodeError> {
        if self.at >= self.part.bytes.len() {
            return Ok(None);
        }
        let begin = self.at;
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).unwrap_or(0);
        if number == 0 {
            return Err(self.damaged(begin, "a field has no number"));
        }
        let value = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                let rest = self.part.bytes.len() - self.at;
                let Some(length) = usize::try_from(length).ok().filter(|l| *l <= rest) else {
                    return Err(self.damaged(begin, "a field is longer than its message"));
                };
                let bytes = &self.part.bytes[self.at..self.at + length];
                let base = self.part.base + self.at;
                self.at += length;
                Wire::Bytes(Part { bytes, base })
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(self.damaged(begin, "a field has a type that proto3 does not have")),
        };
        Ok(Some((number, value)))
    }

    /// Offset in the message of the next field.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, DecodeError> {
        if let Some(&byte) = self.part.bytes.get(self.at)
            && byte < 0x80
        {
            self.at += 1;
            return Ok(u64::from(byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let begin = self.at;
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let Some(&byte) = self.part.bytes.get(self.at) else {
                return Err(DecodeError::Truncated {
                    format: FORMAT,
                    offset: (self.part.base + begin) as u64,
                });
            };
            self.at += 1;
            // Of the tenth byte one bit has room; the rest is cut off, as other readers do.
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.damaged(begin, "a number has more than ten bytes"))
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let begin = self.at;
        let bytes = self.part.bytes.get(begin..).and_then(<[u8]>::first_chunk);
        match bytes {
            Some(bytes) => {
                self.at += N;
                Ok(*bytes)
            }
            None => Err(DecodeError::Truncated {
                format: FORMAT,
                offset: (self.part.base + begin) as u64,
            }),
        }
    }

    #[cold]
    fn damaged(&self, at: usize, reason: &str) -> DecodeError {
        DecodeError::Damaged {
            format: FORMAT,
            offset: (self.part.base + at) as u64,
            reason: reason.to_owned(),
        }
    }
}

/// Writes a varint.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes of a varint.
pub(super) fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Writes a field of type 0; a zero is not written, as proto3 wants it.
pub(super) fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        put_varint(out, u64::from(number) << 3);
        put_varint(out, value);
    }
}

/// Writes a field of type 1; a zero is not written.
pub(super) fn put_fixed64(out: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        put_varint(out, u64::from(number) << 3 | 1);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Writes a field of type 5; a zero is not written.
pub(super) fn put_fixed32(out: &mut Vec<u8>, number: u32, value: u32) {
    if value != 0 {
        put_varint(out, u64::from(number) << 3 | 5);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Writes the key and the length of a field of type 2, whose bytes follow.
pub(super) fn put_head(out: &mut Vec<u8>, number: u32, length: usize) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, length as u64);
}

/// Bytes of a field of type 2 with `length` bytes.
pub(super) fn field_length(number: u32, length: usize) -> usize {
    varint_length(u64::from(number) << 3) + varint_length(length as u64) + length
}

/// Writes a field of type 2, also when it is empty.
pub(super) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_head(out, number, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes a text; an empty one is not written.
pub(super) fn put_text(out: &mut Vec<u8>, number: u32, text: &[u8]) {
    if !text.is_empty() {
        put_bytes(out, number, text);
    }
}
