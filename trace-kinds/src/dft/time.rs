//! The unit of the times of a trace.

use query_language::{Number, Value};
use storage_format::TimeBasis;

use super::scalar::Scalar;

/// The unit of `ts` and `dur`. A `CM` metadata record named `time_metric` declares it; the default
/// is a microsecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    /// `NS`
    Nanosecond,
    /// `US`
    #[default]
    Microsecond,
    /// `MS`
    Millisecond,
    /// `S`
    Second,
}

impl TimeUnit {
    /// Reads the value of a `time_metric` record.
    pub fn parse(text: &[u8]) -> Option<TimeUnit> {
        const UNITS: [(&[u8], TimeUnit); 4] = [
            (b"NS", TimeUnit::Nanosecond),
            (b"US", TimeUnit::Microsecond),
            (b"MS", TimeUnit::Millisecond),
            (b"S", TimeUnit::Second),
        ];
        // DFTracer writes capitals; other writers of the format are not as careful.
        let known = UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text));
        known.map(|(_, unit)| *unit)
    }

    /// Nanoseconds in one unit.
    pub const fn nanoseconds(self) -> u64 {
        match self {
            TimeUnit::Nanosecond => 1,
            TimeUnit::Microsecond => 1_000,
            TimeUnit::Millisecond => 1_000_000,
            TimeUnit::Second => 1_000_000_000,
        }
    }

    /// The time basis of packets that are read with this unit.
    pub fn time_basis(self) -> TimeBasis {
        u32::try_from(self.nanoseconds()).map_or(TimeBasis::Unknown, TimeBasis::Number)
    }

    /// A time of a record in nanoseconds; `None` for a value that is not a number.
    #[inline]
    pub(super) fn scale(self, time: Scalar<'_>) -> Option<Value<'static>> {
        let factor = self.nanoseconds();
        match time {
            Scalar::UInt(value) => Some(match value.checked_mul(factor) {
                Some(scaled) => Value::Uint(scaled),
                None => Value::Float(value as f64 * factor as f64),
            }),
            other => self.scale_other(other),
        }
    }

    fn scale_other(self, time: Scalar<'_>) -> Option<Value<'static>> {
        let factor = self.nanoseconds();
        match time {
            Scalar::Int(value) => Some(match value.checked_mul(factor.cast_signed()) {
                Some(scaled) => Value::Int(scaled),
                None => Value::Float(value as f64 * factor as f64),
            }),
            Scalar::Float(value) => Some(scale_fraction(value, factor)),
            // The oldest dialect writes every number in quotes.
            Scalar::Str(text) => match Number::parse(text)? {
                Number::Int(value) => match (u64::try_from(value), i64::try_from(value)) {
                    (Ok(value), _) => self.scale(Scalar::UInt(value)),
                    (_, Ok(value)) => self.scale_other(Scalar::Int(value)),
                    _ => Some(Value::Float(value as f64 * factor as f64)),
                },
                Number::Float(value) => Some(scale_fraction(value, factor)),
            },
            Scalar::UInt(_) | Scalar::True | Scalar::False | Scalar::Null | Scalar::Nested(_) => {
                None
            }
        }
    }
}

/// A time with a fraction, which is a number of whole nanoseconds if it can be one: a product of
/// floats would have fewer digits than the time, since nanoseconds since 1970 are multiples of 256
/// there.
fn scale_fraction(value: f64, factor: u64) -> Value<'static> {
    let scaled = value * factor as f64;
    let part = value.fract() * factor as f64;
    // What the float may lack of the number that was written.
    let unknown = value.abs() * f64::EPSILON * factor as f64;
    let is_whole = (part - part.round()).abs() <= unknown;
    if !is_whole || scaled.abs() >= 9.2e18 {
        return Value::Float(scaled);
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the product fits in 64 bits"
    )]
    let (whole, part) = (value.trunc() as i64, part.round() as i64);
    let whole = whole.checked_mul(factor.cast_signed());
    match whole.and_then(|whole| whole.checked_add(part)) {
        Some(exact) => match u64::try_from(exact) {
            Ok(exact) => Value::Uint(exact),
            Err(_) => Value::Int(exact),
        },
        None => Value::Float(scaled),
    }
}

/// A scaled time as nanoseconds since the epoch.
#[inline]
pub(super) fn instant(time: Value<'_>) -> Option<i64> {
    match time {
        Value::Uint(value) => i64::try_from(value).ok(),
        Value::Int(value) => Some(value),
        #[expect(clippy::cast_possible_truncation, reason = "its integer part fits")]
        Value::Float(value) if value.abs() < 9.2e18 => Some(value as i64),
        Value::Float(_) | Value::Str(_) | Value::Bool(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_times_are_whole_nanoseconds() {
        let (us, s) = (TimeUnit::Microsecond, TimeUnit::Second);
        let cases = [
            (
                us,
                1_700_000_000_001_339.5,
                Value::Uint(1_700_000_000_001_339_500),
            ),
            (us, 1_700_000_000_341.25, Value::Uint(1_700_000_000_341_250)),
            (us, 123.456, Value::Uint(123_456)),
            (us, -1.5, Value::Int(-1_500)),
            (us, 0.0004, Value::Float(0.4)),
            (s, 1_700_000_000.25, Value::Uint(1_700_000_000_250_000_000)),
            (us, 1.7e15, Value::Uint(1_700_000_000_000_000_000)),
            (us, 1e16, Value::Float(1e19)),
            (us, -1e300, Value::Float(-1e303)),
        ];
        for (unit, time, expected) in cases {
            assert_eq!(unit.scale(Scalar::Float(time)), Some(expected), "{time}");
            let text = format!("{time:?}");
            let quoted = Scalar::Str(text.as_bytes());
            assert_eq!(unit.scale(quoted), Some(expected), "{text}");
        }
    }
}
