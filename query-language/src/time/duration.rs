//! Durations: numbers with units.

use super::{TimeError, TimeErrorKind, trimmed};
use crate::value::Number;

/// Nanoseconds in each unit. `m` is a minute, as `min`.
const UNITS: [(&str, i128); 10] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Largest magnitude of a duration: far beyond all 64-bit nanoseconds, far below the end of `i128`.
const NANOS_MAX: u128 = 1 << 100;
/// Digits of a fraction are read until the number has this magnitude; times the largest unit it
/// still fits in 128 bits.
const FRACTION_LIMIT: i128 = 10_i128.pow(23);

/// Nanoseconds of a duration: `10ms`, `1.5us`, `1h30m`, `-2s`. Spaces around it are ignored. Parts
/// of a nanosecond are refused.
///
/// # Errors
/// Gives the column, the reason, and what is expected.
pub fn parse_duration(text: &str) -> Result<i64, TimeError> {
    let span = trimmed(text);
    let duration = &text[span.clone()];
    let length = duration_length(duration).unwrap_or(0);
    if length == 0 || length < duration.len() {
        let rest = span.start + length..span.end;
        return Err(TimeError::new(text, rest, TimeErrorKind::NotADuration));
    }
    let kind = match wide_duration(duration) {
        Some(Number::Float(_)) => TimeErrorKind::PartOfNanosecond,
        Some(Number::Int(nanos)) => match i64::try_from(nanos) {
            Ok(nanos) => return Ok(nanos),
            Err(_) => TimeErrorKind::DurationOutOfRange,
        },
        None => TimeErrorKind::DurationOutOfRange,
    };
    Err(TimeError::new(text, span, kind))
}

/// The number at the start of `text`: sign, digits, fraction, exponent.
pub(crate) fn number_prefix(text: &str) -> &str {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        bytes[from.min(bytes.len())..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let mut length = usize::from(text.starts_with('-'));
    length += digits(length);
    if bytes.get(length) == Some(&b'.') && digits(length + 1) > 0 {
        length += 1 + digits(length + 1);
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    &text[..length]
}

/// Length of the duration at the start of `text`, if `text` begins with one.
pub(crate) fn duration_length(text: &str) -> Option<usize> {
    let mut length = 0;
    loop {
        let rest = &text[length..];
        let number = number_prefix(rest);
        let is_signed_part = length > 0 && rest.starts_with('-');
        match unit_prefix(&rest[number.len()..]) {
            Some((unit, _)) if has_digits(number) && !is_signed_part => {
                length += number.len() + unit.len();
            }
            _ => return (length > 0).then_some(length),
        }
    }
}

/// Parts of a nanosecond that a decimal is read to. What is less is taken for none, as in a float
/// that was written with all its digits.
const NANOSECOND_PARTS: i128 = 1_000_000;
/// Units from this one on are read to nanoseconds: nobody writes a fraction of one in hours.
const COARSE_NANOS: i128 = 60_000_000_000;

/// Nanoseconds of a duration of [`duration_length`]; `None` when it is out of range.
pub(crate) fn wide_duration(text: &str) -> Option<Number> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let mut parts = 0_i128;
    while !rest.is_empty() {
        let number = number_prefix(rest);
        let (unit, nanos) = unit_prefix(&rest[number.len()..])?;
        let read = if nanos < COARSE_NANOS {
            multiply(number, nanos * NANOSECOND_PARTS)
        } else {
            multiply(number, nanos).and_then(|nanos| nanos.checked_mul(NANOSECOND_PARTS))
        };
        parts = parts.checked_add(read?)?;
        rest = &rest[number.len() + unit.len()..];
    }
    Some(of_parts(sign * parts))
}

/// A decimal without a sign times `unit` nanoseconds; `None` when it is out of range.
pub(crate) fn scaled(magnitude: &str, unit: u32) -> Option<Number> {
    multiply(magnitude, i128::from(unit) * NANOSECOND_PARTS).map(of_parts)
}

/// An integer where it can be one: large numbers are further apart as floats.
fn of_parts(parts: i128) -> Number {
    if parts % NANOSECOND_PARTS == 0 {
        Number::Int(parts / NANOSECOND_PARTS)
    } else {
        Number::Float(parts as f64 / NANOSECOND_PARTS as f64)
    }
}

fn has_digits(number: &str) -> bool {
    number.bytes().any(|byte| byte.is_ascii_digit())
}

fn unit_prefix(text: &str) -> Option<(&'static str, i128)> {
    let word = text
        .find(|c: char| !c.is_alphabetic())
        .map_or(text, |end| &text[..end]);
    UNITS.into_iter().find(|(name, _)| *name == word)
}

/// The decimal `number`, which has no sign, times `unit`, rounded to an integer; a half rounds up.
fn multiply(number: &str, unit: i128) -> Option<i128> {
    let (decimal, exponent) = match number.split_once(['e', 'E']) {
        Some((decimal, exponent)) => (decimal, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    let append =
        |value: i128, digit: u8| value.checked_mul(10)?.checked_add(i128::from(digit - b'0'));
    let mut value = whole.bytes().try_fold(0, append)?;
    let mut scale = exponent;
    for digit in fraction.bytes() {
        if value >= FRACTION_LIMIT {
            break;
        }
        value = append(value, digit)?;
        scale = scale.checked_sub(1)?;
    }
    let product = value.checked_mul(unit)?;
    let nanos = match 10_i128.checked_pow(scale.unsigned_abs()) {
        Some(power) if scale >= 0 => product.checked_mul(power)?,
        Some(power) => product.checked_add(power / 2)? / power,
        None if scale < 0 || product == 0 => 0,
        None => return None,
    };
    (nanos.unsigned_abs() <= NANOS_MAX).then_some(nanos)
}
