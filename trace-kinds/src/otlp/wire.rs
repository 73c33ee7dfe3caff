//! The wire format of Protocol Buffers, read within bounds.
//!
//! A message is a sequence of fields, each with a key (`number << 3 | wire type`) and a value. Four
//! wire types are read; groups, which proto3 does not have, are refused. Nothing is copied and
//! nothing recurses: a field with a length is returned as a part of the packet.

use storage_format::{VarintError, read_varint};

use crate::DecodeError;

/// The name of the format in errors.
pub(super) const FORMAT: &str = "otlp";

/// A value by its wire type.
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

/// A part of a packet with its offset.
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

    /// The fields of the part, read as a message.
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
        match read_varint(&self.part.bytes[self.at..]) {
            Ok((value, length)) => {
                self.at += length;
                Ok(value)
            }
            Err(error) => Err(self.no_varint(error)),
        }
    }

    #[cold]
    fn no_varint(&self, error: VarintError) -> DecodeError {
        match error {
            VarintError::Truncated => DecodeError::Truncated {
                format: FORMAT,
                offset: (self.part.base + self.at) as u64,
            },
            VarintError::TooLong => self.damaged(self.at, "a number has more than ten bytes"),
        }
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
