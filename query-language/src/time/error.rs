//! Errors in times, ranges of times and durations.

use std::ops::Range;

use super::{IntegerUnit, NANOS_PER_SECOND};

/// Why a text is not a time, a range or a duration, where, and what is expected instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {kind}")]
pub struct TimeError {
    column: usize,
    span: Range<usize>,
    kind: TimeErrorKind,
}

/// The reasons for refusing a time, a range or a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeErrorKind {
    /// The text has none of the forms of a time.
    #[error("not a time; expected {}", forms(*unit, *takes_time_of_day))]
    NotATime {
        /// The unit of integers.
        unit: IntegerUnit,
        /// Whether a time of day is accepted.
        takes_time_of_day: bool,
    },
    /// The text has none of the forms of a limit on a command line.
    #[error(
        "not a time; expected {}, or a duration before now such as -1h",
        forms(IntegerUnit::Nanoseconds, false)
    )]
    NotABound,
    /// A part of a date or of a time of day is missing or malformed.
    #[error("expected {0}")]
    Expected(&'static str),
    /// The calendar or the clock does not have this.
    #[error("no such {part}; expected {first:02} to {last:02}")]
    NoSuch {
        /// The part of the time.
        part: &'static str,
        /// The first that exists.
        first: i8,
        /// The last that exists.
        last: i8,
    },
    /// The fraction is finer than nanoseconds.
    #[error("too many digits; expected a fraction of a second with one to nine")]
    TooManyDigits,
    /// In a URL, a plus sign means a space.
    #[error("a space before the offset; expected a sign such as in +01:00 (in a URL: %2B01:00)")]
    SpaceForPlus,
    /// The time needs more than 64 bits of nanoseconds.
    #[error(
        "out of range; expected a time from {} to {}",
        super::rfc3339(i64::MIN),
        super::rfc3339(i64::MAX)
    )]
    OutOfRange,
    /// A time of day where no day is known.
    #[error("a time of day without a date; expected a date and time such as 2026-11-21 12:30")]
    NoDate,
    /// The text is not a number with a unit, or a sequence of these.
    #[error("not a duration; expected a number with a unit such as 10ms, 1.5s or 1h30m")]
    NotADuration,
    /// The duration has a fraction of a nanosecond, where only whole ones have a meaning.
    #[error("not a whole number of nanoseconds")]
    PartOfNanosecond,
    /// The duration needs more than 64 bits of nanoseconds.
    #[error("duration out of range; expected at most 106751d")]
    DurationOutOfRange,
}

impl TimeError {
    /// An error at the bytes `span` of `text`.
    pub(super) fn new(text: &str, span: Range<usize>, kind: TimeErrorKind) -> TimeError {
        TimeError {
            column: text[..span.start].chars().count() + 1,
            span,
            kind,
        }
    }

    /// The error of a text that could also have had the forms of a limit.
    pub(super) fn of_bound(mut self) -> TimeError {
        if matches!(self.kind, TimeErrorKind::NotATime { .. }) {
            self.kind = TimeErrorKind::NotABound;
        }
        self
    }

    /// The reason without the position.
    pub fn kind(&self) -> &TimeErrorKind {
        &self.kind
    }

    /// Bytes of the text that are wrong, half-open.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }
}

impl TimeErrorKind {
    pub(crate) const TRAILING: TimeErrorKind = TimeErrorKind::Expected(
        "nothing more; the longest form of a time is 2026-11-21T01:00:00.000000001+01:00",
    );
}

impl IntegerUnit {
    pub(super) fn nanos(self) -> i64 {
        match self {
            IntegerUnit::Nanoseconds => 1,
            IntegerUnit::Seconds => NANOS_PER_SECOND,
        }
    }
}

fn forms(unit: IntegerUnit, takes_time_of_day: bool) -> String {
    let time_of_day = if takes_time_of_day {
        "a time of day such as 12:30, "
    } else {
        ""
    };
    let numbers = match unit {
        IntegerUnit::Nanoseconds => {
            "nanoseconds since 1970, another unit since then such as 1795222800000000us, or seconds \
             with a fraction such as 1795222800.5"
        }
        IntegerUnit::Seconds => "or seconds since 1970 such as 1795222800 or 1795222800.5",
    };
    format!(
        "RFC 3339 such as 2026-11-21T01:00:00Z, a date such as 2026-11-21 or 2026-11-21 12:30, \
         {time_of_day}{numbers}"
    )
}
