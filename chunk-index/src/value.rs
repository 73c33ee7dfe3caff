//! Owned values, and the hash functions of Bloom filters.

use std::cmp::Ordering;

use query_language::{Number, Value};

/// A value of a dimension, independent of its event.
#[derive(Debug, Clone, PartialEq)]
pub enum OwnedValue {
    /// Text.
    Str(Box<[u8]>),
    /// A negative integer.
    Int(i64),
    /// An integer from zero.
    Uint(u64),
    /// A fraction.
    Float(f64),
    /// A boolean.
    Bool(bool),
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> OwnedValue {
        match value {
            Value::Str(text) => OwnedValue::Str(text.into()),
            Value::Int(value) => match u64::try_from(value) {
                Ok(value) => OwnedValue::Uint(value),
                Err(_) => OwnedValue::Int(value),
            },
            Value::Uint(value) => OwnedValue::Uint(value),
            Value::Float(value) => OwnedValue::Float(value),
            Value::Bool(value) => OwnedValue::Bool(value),
        }
    }
}

impl OwnedValue {
    /// The value as a field of an event.
    #[inline]
    pub fn as_value(&self) -> Value<'_> {
        match self {
            OwnedValue::Str(text) => Value::Str(text),
            OwnedValue::Int(value) => Value::Int(*value),
            OwnedValue::Uint(value) => Value::Uint(*value),
            OwnedValue::Float(value) => Value::Float(*value),
            OwnedValue::Bool(value) => Value::Bool(*value),
        }
    }

    /// A total order for dictionaries: by type, then by value.
    pub(crate) fn order(&self, other: &OwnedValue) -> Ordering {
        let rank = |value: &OwnedValue| match value {
            OwnedValue::Int(_) => 0,
            OwnedValue::Uint(_) => 1,
            OwnedValue::Float(_) => 2,
            OwnedValue::Bool(_) => 3,
            OwnedValue::Str(_) => 4,
        };
        match (self, other) {
            (OwnedValue::Str(left), OwnedValue::Str(right)) => left.cmp(right),
            (OwnedValue::Int(left), OwnedValue::Int(right)) => left.cmp(right),
            (OwnedValue::Uint(left), OwnedValue::Uint(right)) => left.cmp(right),
            (OwnedValue::Float(left), OwnedValue::Float(right)) => left.total_cmp(right),
            (OwnedValue::Bool(left), OwnedValue::Bool(right)) => left.cmp(right),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

/// The types of the values of a dimension in a chunk, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ValueTypes(pub(crate) u8);

impl ValueTypes {
    /// Text that is not a number.
    pub const TEXT: ValueTypes = ValueTypes(1);
    /// Text that spells a number.
    pub const NUMERIC_TEXT: ValueTypes = ValueTypes(2);
    /// Integers below zero.
    pub const INT: ValueTypes = ValueTypes(4);
    /// Integers from zero.
    pub const UINT: ValueTypes = ValueTypes(8);
    /// Fractions.
    pub const FLOAT: ValueTypes = ValueTypes(16);
    /// Booleans.
    pub const BOOL: ValueTypes = ValueTypes(32);
    /// Floats that are not a number (NaN), which no comparison matches.
    pub const NAN: ValueTypes = ValueTypes(64);

    /// Whether any of `others` is in the set.
    pub fn has(self, others: ValueTypes) -> bool {
        self.0 & others.0 != 0
    }

    /// The union.
    pub fn with(self, others: ValueTypes) -> ValueTypes {
        ValueTypes(self.0 | others.0)
    }

    pub(crate) fn of(value: Value<'_>) -> ValueTypes {
        match value {
            Value::Str(_) if value.as_number().is_some() => ValueTypes::NUMERIC_TEXT,
            Value::Str(_) => ValueTypes::TEXT,
            Value::Int(value) if value < 0 => ValueTypes::INT,
            Value::Int(_) | Value::Uint(_) => ValueTypes::UINT,
            Value::Float(value) if value.is_nan() => ValueTypes::NAN,
            Value::Float(_) => ValueTypes::FLOAT,
            Value::Bool(_) => ValueTypes::BOOL,
        }
    }
}

/// Hash of a text in Bloom filters: FNV-1a (Fowler, Noll, Vo) over a type byte and the text,
/// finished by the mixer of SplitMix64 (Steele, Lea, Flood). Part of the sidecar format.
pub(crate) fn hash_text(text: &[u8]) -> u64 {
    mix(text
        .iter()
        .fold(fnv(FNV_OFFSET, b's'), |hash, byte| fnv(hash, *byte)))
}

/// Hash of a number in Bloom filters. Equal numbers have equal hashes, whatever their type.
pub(crate) fn hash_number(number: Number) -> u64 {
    match number.normalize() {
        Number::Int(value) => mix(value
            .to_le_bytes()
            .iter()
            .fold(fnv(FNV_OFFSET, b'n'), |hash, byte| fnv(hash, *byte))),
        Number::Float(value) => mix(value
            .to_bits()
            .to_le_bytes()
            .iter()
            .fold(fnv(FNV_OFFSET, b'f'), |hash, byte| fnv(hash, *byte))),
    }
}

/// Hash of a boolean in Bloom filters.
pub(crate) fn hash_bool(value: bool) -> u64 {
    mix(fnv(fnv(FNV_OFFSET, b'b'), u8::from(value)))
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

fn fnv(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
}

pub(crate) fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 30;
    hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash ^= hash >> 27;
    hash = hash.wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_have_equal_hashes_and_texts_others() {
        assert_eq!(hash_number(Number::Int(5)), hash_number(Number::Float(5.0)));
        assert_eq!(
            hash_number(Number::Int(0)),
            hash_number(Number::Float(-0.0))
        );
        assert_ne!(hash_number(Number::Int(5)), hash_text(b"5"));
        // The hashes are part of the format: changing them makes existing filters wrong.
        assert_eq!(hash_text(b"read"), 0xdc35_5c35_a7ff_821e);
        assert_eq!(hash_number(Number::Int(-1)), 0x4322_f8bc_54db_fb83);
    }
}
