//! The one parser of times and durations.
//!
//! # Times
//!
//! | text | meaning |
//! | --- | --- |
//! | `1795222800000000000` | an integer, in the [`IntegerUnit`] that the caller chooses |
//! | `1795222800000000us`, `1795222800s` | a number since 1970-01-01 UTC in `ns`, `us`, `ms` or `s` |
//! | `1795222800.5`, `-0.25` | seconds since 1970-01-01 UTC, up to nine digits of fraction |
//! | `2026-11-21T01:00:00Z`, `2026-11-21T02:00:00.5+01:00` | RFC 3339, without leap seconds |
//! | `2026-11-21 01:00`, `2026-11-21T01:00:00.5` | date and time without an offset: UTC |
//! | `2026-11-21` | the first moment of that day in UTC |
//! | `01:00`, `01:00:00.5` | a time of day; [`Time::on_day_of`] supplies the day |
//! | `-1h`, `-90s` | so long before now; [`parse_bound`] only |
//!
//! These include all that `babeltrace2` accepts for `--begin` and `--end`.
//!
//! # Ranges
//!
//! A range includes its begin and excludes its end, everywhere in Tracehold.
//!
//! # Durations
//!
//! Numbers with units: `5ms`, `1.5us`, `1h30m`. See [`parse_duration`].
//!
//! ```
//! use query_language::time::{IntegerUnit, parse_instant};
//!
//! let hour = 3_600_000_000_000;
//! assert_eq!(parse_instant("1970-01-01 01:00", IntegerUnit::Nanoseconds)?, hour);
//! assert_eq!(parse_instant("3600", IntegerUnit::Seconds)?, hour);
//! # Ok::<(), query_language::time::TimeError>(())
//! ```

mod bound;
mod duration;
mod error;
mod parser;
#[cfg(test)]
mod tests;

use std::ops::Range;

use jiff::Timestamp;

pub use bound::{Bound, parse_bound};
pub use duration::parse_duration;
pub use error::{TimeError, TimeErrorKind};

pub(crate) use duration::{duration_length, number_prefix, scaled, wide_duration};
pub(crate) use parser::{begins_clock, begins_date, date_time_prefix};

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const NANOS_PER_DAY: i64 = 86_400 * NANOS_PER_SECOND;

/// The unit of an integer that means a time. A number with a fraction is always in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntegerUnit {
    /// As in the HTTP API and on the command line of Tracehold.
    Nanoseconds,
    /// As in `babeltrace2`.
    Seconds,
}

/// A time as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Nanoseconds since 1970-01-01 UTC.
    Instant(i64),
    /// Nanoseconds since midnight, less than a day.
    TimeOfDay(i64),
}

impl Time {
    /// The instant, with the day of `reference` in UTC for a time of day.
    ///
    /// # Errors
    /// [`TimeErrorKind::OutOfRange`] when the result exceeds 64 bits.
    pub fn on_day_of(self, reference: i64) -> Result<i64, TimeErrorKind> {
        match self {
            Time::Instant(instant) => Ok(instant),
            Time::TimeOfDay(nanos) => reference
                .div_euclid(NANOS_PER_DAY)
                .checked_mul(NANOS_PER_DAY)
                .and_then(|midnight| midnight.checked_add(nanos))
                .ok_or(TimeErrorKind::OutOfRange),
        }
    }
}

/// Reads a time. Spaces around it are ignored.
///
/// # Errors
/// Gives the column, the reason, and what is expected.
pub fn parse_time(text: &str, unit: IntegerUnit) -> Result<Time, TimeError> {
    let expected = TimeErrorKind::NotATime {
        unit,
        takes_time_of_day: true,
    };
    parser::time(text, unit, expected)
}

/// Reads a time that needs no context: nanoseconds since 1970-01-01 UTC.
///
/// # Errors
/// As [`parse_time`], and [`TimeErrorKind::NoDate`] for a time of day.
pub fn parse_instant(text: &str, unit: IntegerUnit) -> Result<i64, TimeError> {
    let expected = TimeErrorKind::NotATime {
        unit,
        takes_time_of_day: false,
    };
    match parser::time(text, unit, expected)? {
        Time::Instant(instant) => Ok(instant),
        Time::TimeOfDay(_) => Err(TimeError::new(text, trimmed(text), TimeErrorKind::NoDate)),
    }
}

/// Nanoseconds since 1970-01-01 UTC as RFC 3339 text, in UTC.
#[must_use]
pub fn rfc3339(nanos: i64) -> String {
    Timestamp::from_nanosecond(i128::from(nanos))
        .map_or_else(|_| nanos.to_string(), |time| time.to_string())
}

/// Bytes of `text` without the spaces around it.
fn trimmed(text: &str) -> Range<usize> {
    let start = text.len() - text.trim_start().len();
    start..start + text.trim().len()
}
