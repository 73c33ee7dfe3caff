//! Attributes and their values.

use super::field::{any_value, key_value, list};
use super::wire::{FORMAT, Part, Wire};
use crate::DecodeError;

/// Values nest at most this deep; deeper ones are refused on arrival, and are missing where they
/// are read.
pub(super) const VALUE_DEPTH_MAX: usize = 32;

/// A key and its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attribute<'a> {
    part: Part<'a>,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: AnyValue<'a>,
}

impl<'a> Attribute<'a> {
    #[inline]
    pub(super) fn read(part: Part<'a>) -> Result<Self, DecodeError> {
        let (mut key, mut found) = (&b""[..], AnyValue::Empty);
        let mut fields = part.fields();
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (key_value::KEY, Wire::Bytes(text)) => key = text.bytes,
                (key_value::VALUE, Wire::Bytes(message)) => found = AnyValue::read(message)?,
                _ => {}
            }
        }
        Ok(Attribute {
            part,
            key,
            value: found,
        })
    }

    /// The message `KeyValue`, as it was sent.
    pub fn message(&self) -> &'a [u8] {
        self.part.bytes
    }
}

/// A value of any of the types that OTLP has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AnyValue<'a> {
    /// No value.
    Empty,
    /// Text.
    Text(&'a [u8]),
    /// A truth value.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// The message of a list of values.
    Array(List<'a>),
    /// The message of a list of attributes.
    Map(List<'a>),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// Values or attributes within a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List<'a>(Part<'a>);

impl<'a> List<'a> {
    /// Whether it has neither values nor attributes.
    pub(super) fn is_empty(self) -> bool {
        let mut fields = self.0.fields();
        // Damage is reported where the entries are read.
        while let Ok(Some((number, value))) = fields.next() {
            if let (list::VALUES, Wire::Bytes(_)) = (number, value) {
                return false;
            }
        }
        true
    }

    /// The list as the values of an array.
    pub(super) fn each_value(self, each: &mut dyn FnMut(AnyValue<'a>)) -> Result<(), DecodeError> {
        let mut fields = self.0.fields();
        while let Some((number, value)) = fields.next()? {
            if let (list::VALUES, Wire::Bytes(part)) = (number, value) {
                each(AnyValue::read(part)?);
            }
        }
        Ok(())
    }

    /// The list as the attributes of a map.
    pub(super) fn each_attribute(
        self,
        each: &mut dyn FnMut(Attribute<'a>),
    ) -> Result<(), DecodeError> {
        each_attribute(self.0, list::VALUES, each)
    }
}

impl<'a> AnyValue<'a> {
    #[inline]
    fn read(part: Part<'a>) -> Result<Self, DecodeError> {
        let mut found = AnyValue::Empty;
        let mut fields = part.fields();
        while let Some((number, value)) = fields.next()? {
            found = match (number, value) {
                (any_value::STRING, Wire::Bytes(text)) => AnyValue::Text(text.bytes),
                (any_value::BOOL, Wire::Varint(value)) => AnyValue::Bool(value != 0),
                (any_value::INT, Wire::Varint(value)) => AnyValue::Int(value.cast_signed()),
                (any_value::DOUBLE, Wire::Fixed64(bits)) => AnyValue::Double(f64::from_bits(bits)),
                (any_value::ARRAY, Wire::Bytes(list)) => AnyValue::Array(List(list)),
                (any_value::KEY_VALUE_LIST, Wire::Bytes(list)) => AnyValue::Map(List(list)),
                (any_value::BYTES, Wire::Bytes(bytes)) => AnyValue::Bytes(bytes.bytes),
                _ => found,
            };
        }
        Ok(found)
    }
}

/// Checks that a text is UTF-8, as Protocol Buffers requires.
pub(super) fn check_text(text: &[u8], part: Part<'_>) -> Result<(), DecodeError> {
    match std::str::from_utf8(text) {
        Ok(_) => Ok(()),
        Err(_) => Err(DecodeError::Damaged {
            format: FORMAT,
            offset: part.base as u64,
            reason: "the text is not UTF-8".to_owned(),
        }),
    }
}

/// Calls `each` for the attributes in the fields `number` of a message.
///
/// # Errors
///
/// When one of them is damaged.
pub(super) fn each_attribute<'a>(
    part: Part<'a>,
    number: u32,
    each: &mut dyn FnMut(Attribute<'a>),
) -> Result<(), DecodeError> {
    let mut fields = part.fields();
    while let Some((of_field, value)) = fields.next()? {
        if let Wire::Bytes(attribute) = value
            && of_field == number
        {
            each(Attribute::read(attribute)?);
        }
    }
    Ok(())
}
