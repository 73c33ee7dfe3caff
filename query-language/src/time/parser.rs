//! Parses times.
//!
//! ```text
//! time   = date [("T" | "t" | " ") clock [offset]] | clock | number
//! date   = YYYY "-" MM "-" DD
//! clock  = hh ":" mm [":" ss ["." fraction]]
//! offset = "Z" | "z" | ("+" | "-") hh ":" mm
//! number = ["-"] digits ["." fraction] | digits unit | digits "." fraction "s"
//! unit   = "ns" | "us" | "ms" | "s"
//! ```

use std::ops::Range;

use jiff::civil::Date;

use super::{IntegerUnit, NANOS_PER_SECOND, Time, TimeError, TimeErrorKind, trimmed};

/// Digits of a fraction of a second: nanoseconds are the finest unit.
const FRACTION_DIGITS_MAX: usize = 9;
const DATE_PATTERN: &[u8] = b"dddd-dd-dd";
/// Nanoseconds in the units that a number since 1970 may have.
const UNITS: [(&str, i64); 4] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", NANOS_PER_SECOND),
];

/// Whether `text` begins like `2026-11-21`.
pub(crate) fn begins_date(text: &str) -> bool {
    begins_like(text, DATE_PATTERN)
}

/// Whether `text` begins like `12:30`.
pub(crate) fn begins_clock(text: &str) -> bool {
    begins_like(text, b"dd:")
}

/// Whether `text` begins like `pattern`, in which `d` is any digit.
fn begins_like(text: &str, pattern: &[u8]) -> bool {
    let matches = |(byte, like): (u8, &u8)| match like {
        b'd' => byte.is_ascii_digit(),
        like => byte == *like,
    };
    text.len() >= pattern.len() && text.bytes().zip(pattern).all(matches)
}

/// The date at the start of `text`, with or without a time of day and an offset, in nanoseconds
/// since 1970-01-01 UTC, and its length in bytes.
pub(crate) fn date_time_prefix(text: &str) -> Result<(i64, usize), TimeError> {
    let mut parser = Parser { text, at: 0 };
    let nanos = parser.date_time()?;
    Ok((nanos, parser.at))
}

/// Reads a time; `not_a_time` is the error for a text that has none of the forms.
pub(super) fn time(
    text: &str,
    unit: IntegerUnit,
    not_a_time: TimeErrorKind,
) -> Result<Time, TimeError> {
    let Range { start, end } = trimmed(text);
    let mut parser = Parser {
        text: &text[..end],
        at: start,
    };
    let rest = parser.rest();
    let (time, trailing) = if begins_date(rest) {
        (Time::Instant(parser.date_time()?), TimeErrorKind::TRAILING)
    } else if begins_clock(rest) {
        (Time::TimeOfDay(parser.clock()?), TimeErrorKind::TRAILING)
    } else {
        (Time::Instant(parser.number(unit, &not_a_time)?), not_a_time)
    };
    if parser.at == end {
        Ok(time)
    } else {
        Err(parser.error(trailing))
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// An error at the next character.
    fn error(&self, kind: TimeErrorKind) -> TimeError {
        let length = self.rest().chars().next().map_or(0, char::len_utf8);
        TimeError::new(self.text, self.at..self.at + length, kind)
    }

    fn expected(&self, what: &'static str) -> TimeError {
        self.error(TimeErrorKind::Expected(what))
    }

    /// The error for what was read since `start`.
    fn out_of_range(&self, start: usize) -> TimeError {
        TimeError::new(self.text, start..self.at, TimeErrorKind::OutOfRange)
    }

    fn accept(&mut self, wanted: &[char]) -> bool {
        let found = self.rest().starts_with(wanted);
        self.at += usize::from(found);
        found
    }

    fn digits(&mut self) -> &'a str {
        let rest = self.rest();
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        self.at += length;
        &rest[..length]
    }

    /// The number of two digits, in `range`.
    fn pair(
        &mut self,
        part: &'static str,
        digits: &'static str,
        range: (i8, i8),
    ) -> Result<i8, TimeError> {
        let found = self
            .rest()
            .get(..2)
            .filter(|_| begins_like(self.rest(), b"dd"));
        let value: i8 = found
            .and_then(|found| found.parse().ok())
            .ok_or_else(|| self.expected(digits))?;
        let (first, last) = range;
        if !(first..=last).contains(&value) {
            let kind = TimeErrorKind::NoSuch { part, first, last };
            return Err(TimeError::new(self.text, self.at..self.at + 2, kind));
        }
        self.at += 2;
        Ok(value)
    }

    /// A date, with or without a time of day and an offset. The text begins like one.
    fn date_time(&mut self) -> Result<i64, TimeError> {
        let start = self.at;
        let days = self.date()?;
        let has_clock = match self.rest().as_bytes() {
            [b'T' | b't', ..] => true,
            [b' ', ..] => begins_clock(&self.rest()[1..]),
            _ => false,
        };
        let (mut nanos, mut offset) = (0, 0);
        if has_clock {
            self.at += 1;
            nanos = self.clock()?;
            offset = self.offset()?;
        }
        let seconds = i128::from(days) * 86_400 - i128::from(offset);
        let nanos = seconds * i128::from(NANOS_PER_SECOND) + i128::from(nanos);
        narrow(nanos).ok_or_else(|| self.out_of_range(start))
    }

    /// Days since 1970-01-01. The text begins like a date.
    fn date(&mut self) -> Result<i64, TimeError> {
        let year: i16 = self.digits().parse().map_err(|_| self.expected("a year"))?;
        self.at += 1;
        let month = self.pair("month", "two digits of the month", (1, 12))?;
        self.at += 1;
        let first = Date::new(year, month, 1).map_err(|_| self.expected("a year"))?;
        let day = self.pair("day", "two digits of the day", (1, first.days_in_month()))?;
        let since = first.duration_since(Date::constant(1970, 1, 1));
        Ok(since.as_secs() / 86_400 + i64::from(day) - 1)
    }

    /// Nanoseconds since midnight.
    fn clock(&mut self) -> Result<i64, TimeError> {
        let hour = self.pair("hour", "two digits of the hour", (0, 23))?;
        if !self.accept(&[':']) {
            return Err(self.expected("a colon and the minute"));
        }
        let minute = self.pair("minute", "two digits of the minute", (0, 59))?;
        let mut seconds = i64::from(hour) * 3600 + i64::from(minute) * 60;
        let mut nanos = 0;
        if self.accept(&[':']) {
            seconds += i64::from(self.pair("second", "two digits of the second", (0, 59))?);
            if self.accept(&['.']) {
                nanos = self.fraction()?;
            }
        }
        Ok(seconds * NANOS_PER_SECOND + nanos)
    }

    /// Seconds east of UTC; 0 without an offset.
    fn offset(&mut self) -> Result<i64, TimeError> {
        let sign = match self.rest().chars().next() {
            Some('+') => 1,
            Some('-') => -1,
            Some(' ') if begins_clock(&self.rest()[1..]) => {
                return Err(self.error(TimeErrorKind::SpaceForPlus));
            }
            Some('Z' | 'z') => 0,
            _ => return Ok(0),
        };
        self.at += 1;
        if sign == 0 {
            return Ok(0);
        }
        let hours = self.pair("offset hour", "an offset such as +01:00", (0, 23))?;
        if !self.accept(&[':']) {
            return Err(self.expected("a colon and the minutes of the offset"));
        }
        let minutes = self.pair(
            "offset minute",
            "two digits of minutes of the offset",
            (0, 59),
        )?;
        Ok(sign * (i64::from(hours) * 3600 + i64::from(minutes) * 60))
    }

    /// Nanoseconds of the digits after a decimal point.
    fn fraction(&mut self) -> Result<i64, TimeError> {
        let start = self.at;
        let digits = self.digits();
        if digits.len() > FRACTION_DIGITS_MAX {
            let span = start + FRACTION_DIGITS_MAX..self.at;
            return Err(TimeError::new(
                self.text,
                span,
                TimeErrorKind::TooManyDigits,
            ));
        }
        format!("{digits:0<FRACTION_DIGITS_MAX$}")
            .parse()
            .ok()
            .filter(|_| !digits.is_empty())
            .ok_or_else(|| self.expected("digits of the fraction"))
    }

    /// The nanoseconds of a unit that is the rest of the text. What is negative has none: it reads
    /// like a time before now.
    fn unit(&mut self, is_negative: bool) -> Option<i64> {
        let rest = self.rest();
        let named = UNITS.iter().find(|(name, _)| !is_negative && rest == *name);
        let (name, nanos) = named?;
        self.at += name.len();
        Some(*nanos)
    }

    /// Nanoseconds of an integer in `unit` or its own, or of seconds with a fraction.
    fn number(&mut self, unit: IntegerUnit, not_a_time: &TimeErrorKind) -> Result<i64, TimeError> {
        let start = self.at;
        let is_negative = self.accept(&['-']);
        let digits = self.digits();
        if digits.is_empty() {
            self.at = start;
            return Err(self.error(not_a_time.clone()));
        }
        let whole = digits.parse::<u64>();
        let (unit, part) = if self.accept(&['.']) {
            let part = self.fraction()?;
            // The unit of a fraction can only be this one.
            if !is_negative && self.rest() == "s" {
                self.at += 1;
            }
            (NANOS_PER_SECOND, part)
        } else {
            (self.unit(is_negative).unwrap_or(unit.nanos()), 0)
        };
        let nanos = whole.ok().and_then(|whole| {
            let nanos = i128::from(whole) * i128::from(unit) + i128::from(part);
            narrow(if is_negative { -nanos } else { nanos })
        });
        nanos.ok_or_else(|| self.out_of_range(start))
    }
}

fn narrow(nanos: i128) -> Option<i64> {
    i64::try_from(nanos).ok()
}
