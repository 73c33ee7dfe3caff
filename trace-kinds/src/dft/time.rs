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
        match text {
            b"NS" => Some(TimeUnit::Nanosecond),
            b"US" => Some(TimeUnit::Microsecond),
            b"MS" => Some(TimeUnit::Millisecond),
            b"S" => Some(TimeUnit::Second),
            _ => None,
        }
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
            Scalar::Float(value) => Some(Value::Float(value * factor as f64)),
            // The oldest dialect writes every number in quotes.
            Scalar::Str(text) => match Number::parse(text)? {
                Number::Int(value) => match (u64::try_from(value), i64::try_from(value)) {
                    (Ok(value), _) => self.scale(Scalar::UInt(value)),
                    (_, Ok(value)) => self.scale_other(Scalar::Int(value)),
                    _ => Some(Value::Float(value as f64 * factor as f64)),
                },
                Number::Float(value) => Some(Value::Float(value * factor as f64)),
            },
            Scalar::UInt(_) | Scalar::True | Scalar::False | Scalar::Null | Scalar::Nested(_) => {
                None
            }
        }
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
