//! Values: text, numbers, ids and attributes.

use std::any::type_name;
use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::base64::base64;
use super::bounded_list::{BoundedList, deeper, items};

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct KeyValue<'a> {
    pub(super) key: Option<Text<'a>>,
    pub(super) value: Option<AnyValue<'a>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Values<'a> {
    values: Option<BoundedList<AnyValue<'a>>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct KeyValues<'a> {
    values: Option<BoundedList<KeyValue<'a>>>,
}

/// A map or an array, which is one level deeper than what contains it.
struct Deeper<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Deeper<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        deeper(|| T::deserialize(input)).map(Self)
    }
}

/// Text, borrowed unless it contains escapes.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// An integer of a type of Protocol Buffers, as text or number.
pub(super) struct Integer<T>(pub(super) T);

impl<'de, T: TryFrom<i128>> Deserialize<'de> for Integer<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let value = input.deserialize_any(AnyInteger)?;
        let beyond = |_| {
            let (kind, bits) = (type_name::<T>(), size_of::<T>() * 8);
            let sign = if kind.starts_with('u') {
                "without a sign"
            } else {
                "with a sign"
            };
            D::Error::custom(format_args!(
                "{value} is not an integer of {bits} bits {sign}"
            ))
        };
        T::try_from(value).map(Self).map_err(beyond)
    }
}

struct AnyInteger;

impl Visitor<'_> for AnyInteger {
    type Value = i128;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an integer of 64 bits, as a number or in quotes")
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<i128, E> {
        Ok(value.into())
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<i128, E> {
        Ok(value.into())
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<i128, E> {
        // 1e3 and 5.0 are integers, too.
        let integer = integer_of(value).map(i128::from);
        integer.ok_or_else(|| E::custom("a fraction where an integer is expected"))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<i128, E> {
        text.parse()
            .map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}

/// Bytes of an id, in hexadecimal digits.
pub(super) struct Hex(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(input)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let pair = |pair: &[u8]| match pair {
            [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.0.as_bytes().chunks(2).map(pair).collect();
        bytes
            .map(Hex)
            .ok_or_else(|| D::Error::custom("an id is written in pairs of hexadecimal digits"))
    }
}

/// A floating-point number; infinities and NaN are text.
pub(super) struct Double(pub(super) f64);

impl<'de> Deserialize<'de> for Double {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Float;
        impl Visitor<'_> for Float {
            type Value = f64;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number, \"NaN\", \"Infinity\" or \"-Infinity\"")
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
                Ok(value as f64)
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
                Ok(value as f64)
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
                Ok(value)
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
                text.parse()
                    .map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        input.deserialize_any(Float).map(Double)
    }
}

/// A value: an object with one field, named by the type.
pub(super) enum AnyValue<'a> {
    Empty,
    Text(Text<'a>),
    Bool(bool),
    Int(Integer<i64>),
    Double(Double),
    Array(Vec<AnyValue<'a>>),
    Map(Vec<KeyValue<'a>>),
    Bytes(Vec<u8>),
}

impl<'de: 'a, 'a> Deserialize<'de> for AnyValue<'a> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct OneOf;
        impl<'de> Visitor<'de> for OneOf {
            type Value = AnyValue<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object with one of the fields of AnyValue")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyValue<'de>, A::Error> {
                let mut found = AnyValue::Empty;
                while let Some(Text(key)) = map.next_key()? {
                    let value = match &*key {
                        "stringValue" => map.next_value::<Option<_>>()?.map(AnyValue::Text),
                        "boolValue" => map.next_value::<Option<_>>()?.map(AnyValue::Bool),
                        "intValue" => map.next_value::<Option<_>>()?.map(AnyValue::Int),
                        "doubleValue" => map.next_value::<Option<_>>()?.map(AnyValue::Double),
                        "arrayValue" => map
                            .next_value::<Option<Deeper<Values<'de>>>>()?
                            .map(|array| AnyValue::Array(items(array.0.values))),
                        "kvlistValue" => map
                            .next_value::<Option<Deeper<KeyValues<'de>>>>()?
                            .map(|map| AnyValue::Map(items(map.0.values))),
                        "bytesValue" => match map.next_value::<Option<Text<'de>>>()? {
                            Some(text) => Some(AnyValue::Bytes(
                                base64(text.0.as_bytes())
                                    .ok_or_else(|| A::Error::custom("bytesValue is not base64"))?,
                            )),
                            None => None,
                        },
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            None
                        }
                    };
                    found = value.unwrap_or(found);
                }
                Ok(found)
            }
        }
        input.deserialize_map(OneOf)
    }
}

/// The integer that a floating-point number spells exactly.
fn integer_of(value: f64) -> Option<i64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let is_exact = value.fract() == 0.0 && value.abs() <= EXACT_MAX;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "an integer of at most 2^53"
    )]
    is_exact.then_some(value as i64)
}
