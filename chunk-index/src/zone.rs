//! The limits of a dimension in a chunk: how often it occurs, its types, its smallest and largest
//! values.

use std::cmp::Ordering;

use query_language::{Number, Value};

use crate::value::ValueTypes;

/// What is known about a dimension in a chunk without its values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Zone {
    /// Events that have the field.
    pub present: u64,
    /// Distinct values.
    pub distinct: u64,
    /// Whether `distinct` is exact, or an estimate within about 10 %.
    pub distinct_exact: bool,
    /// The types of the values.
    pub types: ValueTypes,
    /// Smallest and largest number, including text that spells a number.
    pub numbers: Option<(Number, Number)>,
    /// Limits of the text, in byte order.
    pub texts: Option<TextRange>,
}

/// Limits of all text. Long limits are shortened outwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextRange {
    /// No text is less.
    pub min: Box<[u8]>,
    /// No text is greater; `None` if there is no short upper limit.
    pub max: Option<Box<[u8]>>,
}

/// Bytes of a text limit.
pub(crate) const TEXT_LIMIT_BYTES: usize = 32;

impl Zone {
    /// Extends the types and the limits by a value.
    pub(crate) fn widen(&mut self, value: Value<'_>) {
        self.types = self.types.with(ValueTypes::of(value));
        if let Some(number) = value.as_number() {
            self.widen_numbers(number);
        }
        if let Value::Str(text) = value {
            self.widen_texts(text);
        }
    }

    #[inline]
    fn widen_numbers(&mut self, number: Number) {
        match &mut self.numbers {
            Some((min, max)) => {
                if number.compare(*min) == Some(Ordering::Less) {
                    *min = number;
                }
                if number.compare(*max) == Some(Ordering::Greater) {
                    *max = number;
                }
            }
            // NaN compares with nothing and has no influence on limits.
            none => {
                if number.compare(number).is_some() {
                    *none = Some((number, number));
                }
            }
        }
    }

    fn widen_texts(&mut self, text: &[u8]) {
        match &mut self.texts {
            Some(range) => {
                if *text < *range.min {
                    range.min = lower_limit(text);
                }
                if range.max.as_ref().is_some_and(|max| *text > **max) {
                    range.max = upper_limit(text);
                }
            }
            none => {
                *none = Some(TextRange {
                    min: lower_limit(text),
                    max: upper_limit(text),
                });
            }
        }
    }
}

fn lower_limit(text: &[u8]) -> Box<[u8]> {
    text[..text.len().min(TEXT_LIMIT_BYTES)].into()
}

/// The shortest text of limited length that is not less than `text`.
fn upper_limit(text: &[u8]) -> Option<Box<[u8]>> {
    if text.len() <= TEXT_LIMIT_BYTES {
        return Some(text.into());
    }
    let mut limit = text[..TEXT_LIMIT_BYTES].to_vec();
    while let Some(last) = limit.pop() {
        if let Some(next) = last.checked_add(1) {
            limit.push(next);
            return Some(limit.into());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_limited_as_numbers() {
        let mut zone = Zone::default();
        for value in [
            Value::Str(b"99"),
            Value::Int(-3),
            Value::Float(100.5),
            Value::Str(b"x"),
        ] {
            zone.widen(value);
        }
        assert_eq!(zone.numbers, Some((Number::Int(-3), Number::Float(100.5))));
        assert!(zone.types.has(ValueTypes::NUMERIC_TEXT));
        assert!(!zone.types.has(ValueTypes::BOOL));
        zone.widen(Value::Float(f64::NAN));
        assert_eq!(zone.numbers, Some((Number::Int(-3), Number::Float(100.5))));
    }

    proptest! {
        #[test]
        fn text_limits_contain_all_text(
            texts in proptest::collection::vec(
                proptest::collection::vec(prop_oneof![Just(255_u8), Just(97), any::<u8>()], 0..40),
                1..10),
        ) {
            let mut zone = Zone::default();
            texts.iter().for_each(|text| zone.widen(Value::Str(text)));
            let range = zone.texts.unwrap();
            for text in &texts {
                prop_assert!(*range.min <= **text);
                prop_assert!(range.max.as_ref().is_none_or(|max| **max >= **text));
            }
        }
    }
}
