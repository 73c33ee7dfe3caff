//! Limits of a window of time as people write them.

use super::duration::{duration_length, wide_duration};
use super::{IntegerUnit, TimeError, TimeErrorKind, parse_instant, trimmed};
use crate::{Number, Value};

/// Begin or end of a window of time, as written on a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Nanoseconds since 1970-01-01 UTC.
    Instant(i64),
    /// Nanoseconds since then, written as an integer without a unit: it may have been meant in the
    /// unit of a trace.
    Bare(i64),
    /// Nanoseconds before now.
    Ago(i64),
}

impl Bound {
    /// Nanoseconds since 1970-01-01 UTC. A time before all times is the earliest one.
    #[must_use]
    pub fn nanos(self, now: i64) -> i64 {
        match self {
            Bound::Instant(nanos) | Bound::Bare(nanos) => nanos,
            Bound::Ago(nanos) => now.saturating_sub(nanos),
        }
    }

    /// Whether it is an integer without a unit.
    #[must_use]
    pub fn is_bare(self) -> bool {
        matches!(self, Bound::Bare(_))
    }
}

/// Reads a limit: every form of [`parse_instant`], in which integers are nanoseconds, and a
/// duration before now such as `-1h` or `now-1h`, and `now` itself.
///
/// # Errors
/// As [`parse_instant`].
pub fn parse_bound(text: &str) -> Result<Bound, TimeError> {
    let span = trimmed(text);
    let written = &text[span.clone()];
    let written = match written.strip_prefix("now") {
        Some("") => return Ok(Bound::Ago(0)),
        Some(ago) if ago.starts_with('-') => ago,
        _ => written,
    };
    if let Some(ago) = written.strip_prefix('-')
        && !ago.starts_with('-')
        && duration_length(ago) == Some(ago.len())
    {
        let nanos = wide_duration(ago).and_then(|nanos| match nanos {
            Number::Int(nanos) => i64::try_from(nanos).ok(),
            // Nobody knows what time it is now to the nanosecond.
            Number::Float(nanos) => Value::Float(nanos.round()).whole(),
        });
        let out_of_range = || TimeError::new(text, span, TimeErrorKind::DurationOutOfRange);
        return nanos.map(Bound::Ago).ok_or_else(out_of_range);
    }
    let nanos = parse_instant(text, IntegerUnit::Nanoseconds).map_err(TimeError::of_bound)?;
    let digits = written.strip_prefix('-').unwrap_or(written);
    Ok(if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        Bound::Bare(nanos)
    } else {
        Bound::Instant(nanos)
    })
}
