//! Values of fields and numbers that compare exactly.

use std::cmp::Ordering;

/// One field of one event, borrowed from it.
///
/// Adapters return values as the trace contains them: a quoted number stays a [`Value::Str`], and
/// the evaluator reads it as a number when a query compares it with one. The exceptions are `ts`
/// and `dur`, which are always numbers in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Text as written, not necessarily UTF-8.
    Str(&'a [u8]),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer, including hashes above 2^63.
    Uint(u64),
    /// A floating-point number; NaN compares with nothing.
    Float(f64),
    /// A boolean.
    Bool(bool),
}

impl Value<'_> {
    /// The value if it is an integer of 64 bits, as instants and durations in nanoseconds are.
    #[inline]
    pub fn whole(self) -> Option<i64> {
        match self {
            Value::Int(value) => Some(value),
            Value::Uint(value) => i64::try_from(value).ok(),
            Value::Float(value) => match Number::Float(value).normalize() {
                Number::Int(value) => i64::try_from(value).ok(),
                Number::Float(_) => None,
            },
            Value::Str(_) | Value::Bool(_) => None,
        }
    }

    /// The value as a number: numbers themselves, and text that spells one.
    #[inline]
    pub fn as_number(&self) -> Option<Number> {
        match *self {
            Value::Int(value) => Some(Number::Int(i128::from(value))),
            Value::Uint(value) => Some(Number::Int(i128::from(value))),
            Value::Float(value) => Some(Number::Float(value)),
            Value::Str(text) => Number::parse(text),
            Value::Bool(_) => None,
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Str(text.as_bytes())
    }
}

/// A number of a query or of a field. Integers are wide enough for every 64-bit value times a
/// billion, so that scaling a bare number to nanoseconds loses nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An integer.
    Int(i128),
    /// A fraction, or an integer too long for [`Number::Int`].
    Float(f64),
}

/// Digits that always fit in an `i128`; longer spellings are read as fractions.
const INT_DIGITS_MAX: usize = 38;
/// 2^127, the first float beyond `i128`.
const INT_LIMIT: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;

impl Number {
    /// Reads a decimal number: `-12`, `3.5`, `1e9`. Spaces, plus signs and words such as `inf` are
    /// no numbers: they stay text.
    pub fn parse(text: &[u8]) -> Option<Number> {
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        if !digits.first()?.is_ascii_digit() {
            return None;
        }
        if digits.len() <= INT_DIGITS_MAX && digits.iter().all(u8::is_ascii_digit) {
            let magnitude = match digits.len() {
                // Twice as fast as the wide loop, and nearly every number of a trace is this short.
                0..=18 => i128::from(
                    digits
                        .iter()
                        .fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0')),
                ),
                _ => digits
                    .iter()
                    .fold(0_i128, |sum, digit| sum * 10 + i128::from(digit - b'0')),
            };
            let negative = digits.len() != text.len();
            return Some(Number::Int(if negative { -magnitude } else { magnitude }));
        }
        let spelled = digits
            .iter()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
        if !spelled {
            return None;
        }
        let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        value.is_finite().then_some(Number::Float(value))
    }

    /// Compares by numeric value, exactly, whatever the spelling: `3 == 3.0`, and 2^63 + 1 is
    /// greater than the float nearest to it. `None` when either is not a number.
    #[inline]
    pub fn compare(self, other: Number) -> Option<Ordering> {
        match (self, other) {
            (Number::Int(left), Number::Int(right)) => Some(left.cmp(&right)),
            (Number::Float(left), Number::Float(right)) => left.partial_cmp(&right),
            (Number::Int(left), Number::Float(right)) => compare_int_float(left, right),
            (Number::Float(left), Number::Int(right)) => {
                compare_int_float(right, left).map(Ordering::reverse)
            }
        }
    }

    /// The number in one form for each value: a whole float becomes the equal integer.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the value is whole and in range"
    )]
    pub fn normalize(self) -> Number {
        match self {
            Number::Float(value)
                if value.fract() == 0.0 && (-INT_LIMIT..INT_LIMIT).contains(&value) =>
            {
                Number::Int(value as i128)
            }
            other => other,
        }
    }
}

fn compare_int_float(int: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float >= INT_LIMIT {
        return Some(Ordering::Less);
    }
    if float < -INT_LIMIT {
        return Some(Ordering::Greater);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the float is in range")]
    let whole = float.trunc() as i128;
    Some(int.cmp(&whole).then_with(|| {
        0.0_f64
            .partial_cmp(&float.fract())
            .unwrap_or(Ordering::Equal)
    }))
}

impl std::fmt::Display for Number {
    /// Writes a text that the parser reads back as the same number.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Number::Int(value) => write!(f, "{value}"),
            Number::Float(value) => write!(f, "{value:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Ordering::{Equal, Greater, Less};

    #[test]
    fn numbers_compare_by_value() {
        let cases = [
            ("3", "3.0", Some(Equal)),
            ("3", "3.5", Some(Less)),
            ("-3", "-3.5", Some(Greater)),
            (
                "9223372036854775809",
                "9223372036854775808.0",
                Some(Greater),
            ),
            ("18446744073709551615", "18446744073709551616.0", Some(Less)),
            ("0", "-0.0", Some(Equal)),
            ("1", "1e300", Some(Less)),
            ("1", "-1e300", Some(Greater)),
        ];
        for (left, right, expected) in cases {
            let (a, b) = (
                Number::parse(left.as_bytes()).expect(left),
                Number::parse(right.as_bytes()).expect(right),
            );
            assert_eq!(a.compare(b), expected, "{left} {right}");
            assert_eq!(
                b.compare(a),
                expected.map(Ordering::reverse),
                "{right} {left}"
            );
        }
        assert_eq!(Number::Int(1).compare(Number::Float(f64::NAN)), None);
    }

    #[test]
    fn only_decimal_spellings_are_numbers() {
        for text in [
            "", "-", "+1", " 1", "1 ", "inf", "nan", "0x10", "1_000", "--1", "1e999", ".5", "1.2.3",
        ] {
            assert_eq!(Number::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Number::parse(b"0012"), Some(Number::Int(12)));
        assert_eq!(Number::parse(b"-7"), Some(Number::Int(-7)));
        assert_eq!(
            Number::parse(b"18446744073709551615"),
            Some(Number::Int(i128::from(u64::MAX)))
        );
        assert_eq!(Number::parse(b"2.50"), Some(Number::Float(2.5)));
    }

    #[test]
    fn whole_floats_and_integers_normalize_alike() {
        assert_eq!(Number::Float(5.0).normalize(), Number::Int(5));
        assert_eq!(Number::Float(-0.0).normalize(), Number::Int(0));
        assert_eq!(Number::Float(5.5).normalize(), Number::Float(5.5));
        assert_eq!(Number::Float(1e300).normalize(), Number::Float(1e300));
    }
}
