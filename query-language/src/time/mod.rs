//! The one parser of times, time ranges and durations.
//!
//! # Times
//!
//! | text | meaning |
//! | --- | --- |
//! | `1795222800000000000` | an integer, in the [`IntegerUnit`] that the caller chooses |
//! | `1795222800.5`, `-0.25` | seconds since 1970-01-01 UTC, up to nine digits of fraction |
//! | `2026-11-21T01:00:00Z`, `2026-11-21T02:00:00.5+01:00` | RFC 3339 |
//! | `2026-11-21 01:00`, `2026-11-21T01:00:00.5` | date and time without an offset: UTC |
//! | `2026-11-21` | the first moment of that day in UTC |
//! | `01:00`, `01:00:00.5` | a time of day; [`Time::on_day_of`] supplies the day |
//!
//! These include all that `babeltrace2` accepts for `--begin`, `--end` and `--timerange`.
//!
//! # Ranges
//!
//! [`parse_range`] reads `BEGIN,END` and `[BEGIN,END]`. A range includes its begin and excludes
//! its end, everywhere in Tracehold.
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

mod duration;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use jiff::civil;
use jiff::tz::TimeZone;

pub use duration::parse_duration;
pub(crate) use duration::{duration_length, number_prefix, wide_duration};

const NANOS_PER_SECOND: i64 = 1_000_000_000;
const NANOS_PER_DAY: i64 = 86_400 * NANOS_PER_SECOND;
/// Digits of a fraction of a second: nanoseconds are the finest unit.
const FRACTION_DIGITS_MAX: usize = 9;
/// Bytes of `2026-11-21`.
const DATE_BYTES: usize = 10;

/// The unit of an integer that stands for a time. A number with a fraction is always in seconds.
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
    /// [`TimeError::OutOfRange`] when the result exceeds 64 bits.
    pub fn on_day_of(self, reference: i64) -> Result<i64, TimeError> {
        match self {
            Time::Instant(instant) => Ok(instant),
            Time::TimeOfDay(nanos) => reference
                .div_euclid(NANOS_PER_DAY)
                .checked_mul(NANOS_PER_DAY)
                .and_then(|midnight| midnight.checked_add(nanos))
                .ok_or(TimeError::OutOfRange),
        }
    }
}

/// Why a text is not a time, a range or a duration, and what is expected instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// The text has none of the forms of a time.
    #[error(
        "not a time; expected RFC 3339 such as 2026-11-21T01:00:00Z, a date such as 2026-11-21, \
         or {} since 1970", .0.expected()
    )]
    NotATime(IntegerUnit),
    /// The text has the form of a date and time, but the calendar or the clock does not have it.
    #[error("no such date or time of day; expected a time such as 2026-11-21T01:00:00Z")]
    NoSuchTime,
    /// The time needs more than 64 bits of nanoseconds.
    #[error("out of range; expected a time from 1677-09-22 to 2262-04-11")]
    OutOfRange,
    /// A time of day where no day is known.
    #[error("a time of day without a date; expected a date and time such as 2026-11-21 12:30")]
    NoDate,
    /// The text is not two times with a comma between.
    #[error("not a range of times; expected BEGIN,END such as 2026-11-21 12:30,2026-11-21 12:45")]
    NotARange,
    /// The text is not a number with a unit, or a sequence of these.
    #[error("not a duration; expected a number with a unit such as 10ms, 1.5s or 1h30m")]
    NotADuration,
    /// The duration needs more than 64 bits of nanoseconds.
    #[error("duration out of range; expected at most 106751d")]
    DurationOutOfRange,
}

impl IntegerUnit {
    fn nanos(self) -> i64 {
        match self {
            IntegerUnit::Nanoseconds => 1,
            IntegerUnit::Seconds => NANOS_PER_SECOND,
        }
    }

    fn expected(self) -> &'static str {
        match self {
            IntegerUnit::Nanoseconds => "nanoseconds",
            IntegerUnit::Seconds => "seconds",
        }
    }
}

/// Reads a time. Spaces around it are ignored.
///
/// # Errors
/// Says what is expected, with an example.
pub fn parse_time(text: &str, unit: IntegerUnit) -> Result<Time, TimeError> {
    let text = text.trim();
    if begins_date(text) {
        let nanos = parse_date_time(text)?;
        return narrow(nanos).map(Time::Instant);
    }
    if let Some(time_of_day) = parse_time_of_day(text) {
        return time_of_day.map(Time::TimeOfDay);
    }
    if let Some((seconds, fraction)) = text.split_once('.') {
        let nanos = parse_seconds(seconds, fraction).ok_or(TimeError::NotATime(unit))?;
        return narrow(nanos).map(Time::Instant);
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(TimeError::NotATime(unit));
    }
    let count: i64 = text.parse().map_err(|_| TimeError::OutOfRange)?;
    count
        .checked_mul(unit.nanos())
        .map(Time::Instant)
        .ok_or(TimeError::OutOfRange)
}

/// Reads a time that needs no context: nanoseconds since 1970-01-01 UTC.
///
/// # Errors
/// As [`parse_time`], and [`TimeError::NoDate`] for a time of day.
pub fn parse_instant(text: &str, unit: IntegerUnit) -> Result<i64, TimeError> {
    match parse_time(text, unit)? {
        Time::Instant(instant) => Ok(instant),
        Time::TimeOfDay(_) => Err(TimeError::NoDate),
    }
}

/// Reads `BEGIN,END` or `[BEGIN,END]`.
///
/// # Errors
/// As [`parse_time`], and [`TimeError::NotARange`] for another number of times.
pub fn parse_range(text: &str, unit: IntegerUnit) -> Result<(Time, Time), TimeError> {
    let text = text.trim();
    let inner = match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').ok_or(TimeError::NotARange)?,
        None => text,
    };
    let (begin, end) = inner.split_once(',').ok_or(TimeError::NotARange)?;
    if end.contains(',') {
        return Err(TimeError::NotARange);
    }
    Ok((parse_time(begin, unit)?, parse_time(end, unit)?))
}

/// Nanoseconds since 1970-01-01 UTC as RFC 3339 text, in UTC.
#[must_use]
pub fn rfc3339(nanos: i64) -> String {
    wide_rfc3339(i128::from(nanos)).unwrap_or_else(|| nanos.to_string())
}

/// The same for times beyond 64 bits; `None` outside of the years -9999 to 9999.
pub(crate) fn wide_rfc3339(nanos: i128) -> Option<String> {
    let time = Timestamp::from_nanosecond(nanos).ok()?;
    Some(time.to_string())
}

/// Whether `text` begins like `2026-11-21`.
pub(crate) fn begins_date(text: &str) -> bool {
    text.len() >= DATE_BYTES
        && text
            .bytes()
            .take(DATE_BYTES)
            .enumerate()
            .all(|(index, byte)| match index {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            })
}

/// Nanoseconds since 1970-01-01 UTC of a date, with or without a time of day and an offset.
pub(crate) fn parse_date_time(text: &str) -> Result<i128, TimeError> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.as_nanosecond());
    }
    if !begins_date(text) {
        return Err(TimeError::NoSuchTime);
    }
    // `DateTime` ignores an offset instead of applying it, so only texts without one reach it.
    let clock = &text[DATE_BYTES..];
    let has_clock = match clock.strip_prefix([' ', 'T', 't']) {
        Some(clock) => is_clock(clock),
        None => clock.is_empty(),
    };
    if !has_clock {
        return Err(TimeError::NoSuchTime);
    }
    let time: civil::DateTime = text.parse().map_err(|_| TimeError::NoSuchTime)?;
    let time = time
        .to_zoned(TimeZone::UTC)
        .map_err(|_| TimeError::NoSuchTime)?;
    Ok(time.timestamp().as_nanosecond())
}

/// Whether `text` has the form `hh:mm[:ss[.fraction]]`.
fn is_clock(text: &str) -> bool {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let parts: Vec<&str> = whole.split(':').collect();
    let is_number = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    let has_seconds = parts.len() == 3;
    (has_seconds || parts.len() == 2)
        && parts.iter().all(is_number)
        && fraction.is_none_or(|digits| has_seconds && is_fraction(digits))
}

fn is_fraction(digits: &str) -> bool {
    (1..=FRACTION_DIGITS_MAX).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Nanoseconds since midnight; `None` when `text` does not have the form of a time of day.
fn parse_time_of_day(text: &str) -> Option<Result<i64, TimeError>> {
    if !is_clock(text) {
        return None;
    }
    let since_midnight = |time: civil::Time| {
        let seconds = i64::from(time.hour()) * 3600
            + i64::from(time.minute()) * 60
            + i64::from(time.second());
        seconds * NANOS_PER_SECOND + i64::from(time.subsec_nanosecond())
    };
    let time = text.parse().map_err(|_| TimeError::NoSuchTime);
    Some(time.map(since_midnight))
}

/// Nanoseconds of `[-]SECONDS.FRACTION`.
fn parse_seconds(seconds: &str, fraction: &str) -> Option<i128> {
    let (is_negative, digits) = match seconds.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, seconds.strip_prefix('+').unwrap_or(seconds)),
    };
    let has_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !has_digits || !is_fraction(fraction) {
        return None;
    }
    let whole: i128 = digits.parse().ok()?;
    let part: i128 = format!("{fraction:0<FRACTION_DIGITS_MAX$}").parse().ok()?;
    let nanos = whole
        .checked_mul(i128::from(NANOS_PER_SECOND))?
        .checked_add(part)?;
    Some(if is_negative { -nanos } else { nanos })
}

fn narrow(nanos: i128) -> Result<i64, TimeError> {
    i64::try_from(nanos).map_err(|_| TimeError::OutOfRange)
}
