//! Times of day, and the clock of a stream.

use ctf::class::ClockClass;
use ctf::text::{nine_digits, push_two_digits, push_unsigned};

const NS_PER_SECOND: u64 = 1_000_000_000;
const NS_PER_SECOND_SIGNED: i64 = 1_000_000_000;
const NS_PER_DAY: i64 = 86_400 * NS_PER_SECOND_SIGNED;

/// The nanoseconds of a clock as Babeltrace prints them: rounded like a double, unlike
/// [`ClockClass::nanoseconds`], which is exact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BabeltraceClock {
    frequency: u64,
    /// `None` when it does not fit 64 bits.
    offset: Option<i64>,
}

impl BabeltraceClock {
    pub(crate) fn new(class: &ClockClass) -> Self {
        let seconds = class.offset_seconds.checked_mul(NS_PER_SECOND_SIGNED);
        let cycles = nanoseconds(class.frequency, class.offset_cycles);
        let offset = seconds.and_then(|seconds| seconds.checked_add_unsigned(cycles));
        Self {
            frequency: class.frequency,
            offset,
        }
    }

    /// The clock with an offset of this many more nanoseconds.
    pub(crate) fn shifted(self, nanoseconds: i64) -> Self {
        let offset = self
            .offset
            .and_then(|offset| offset.checked_add(nanoseconds));
        Self { offset, ..self }
    }

    /// Nanoseconds since the origin at `cycles`; `None` when they do not fit 64 bits.
    #[inline]
    pub(crate) fn nanoseconds(&self, cycles: u64) -> Option<i64> {
        self.offset?
            .checked_add_unsigned(nanoseconds(self.frequency, cycles))
    }

    /// The cycles at an instant; `None` before the clock starts.
    pub(crate) fn cycles(&self, instant: i64) -> Option<u64> {
        let since = instant.checked_sub(self.offset?)?;
        let since = u64::try_from(since).ok()?;
        if self.frequency == NS_PER_SECOND {
            return Some(since);
        }
        let cycles = u128::from(since) * u128::from(self.frequency) / u128::from(NS_PER_SECOND);
        u64::try_from(cycles).ok()
    }
}

#[inline]
fn nanoseconds(frequency: u64, cycles: u64) -> u64 {
    if frequency == NS_PER_SECOND {
        return cycles;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the conversion saturates, and Babeltrace computes with doubles, too"
    )]
    let nanoseconds = (1e9 * cycles as f64 / frequency as f64) as u64;
    nanoseconds
}

/// Formats times of day, and caches the text of the last second.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeText {
    second: Option<u64>,
    text: Vec<u8>,
}

impl TimeText {
    /// `HH:MM:SS.NNNNNNNNN` of the day in UTC; seconds and a sign for times before the epoch.
    pub(crate) fn push(&mut self, out: &mut Vec<u8>, nanoseconds: i64) {
        let magnitude = nanoseconds.unsigned_abs();
        let (second, fraction) = (magnitude / NS_PER_SECOND, magnitude % NS_PER_SECOND);
        if nanoseconds < 0 {
            out.push(b'-');
            push_unsigned(out, second);
            out.push(b'.');
        } else {
            if self.second != Some(second) {
                self.second = Some(second);
                self.text.clear();
                for (index, unit) in [second / 3600 % 24, second / 60 % 60, second % 60]
                    .into_iter()
                    .enumerate()
                {
                    push_two_digits(&mut self.text, unit);
                    self.text.push(if index == 2 { b'.' } else { b':' });
                }
            }
            out.extend_from_slice(&self.text);
        }
        out.extend_from_slice(&nine_digits(fraction));
    }
}

impl TimeText {
    /// The time of day in the local time zone.
    pub(super) fn push_local(
        &mut self,
        out: &mut Vec<u8>,
        nanoseconds: i64,
        local_offset: Option<fn(i64) -> i64>,
    ) {
        let shown = local(nanoseconds, local_offset);
        self.push(out, shown.map_or(nanoseconds, time_of_day));
    }

    /// Date and time of day; only seconds before the epoch.
    pub(super) fn push_date(
        &mut self,
        out: &mut Vec<u8>,
        nanoseconds: i64,
        local_offset: Option<fn(i64) -> i64>,
    ) {
        let shown = local(nanoseconds, local_offset);
        if let Some(shown) = shown {
            let (year, month, day) = date(shown.div_euclid(NS_PER_DAY));
            push_unsigned(out, year);
            for part in [month, day] {
                out.push(b'-');
                push_two_digits(out, part);
            }
            out.push(b' ');
        }
        self.push(out, shown.map_or(nanoseconds, time_of_day));
    }
}

/// A time of the same day that is not negative; the last second is cached by the whole time.
fn time_of_day(shown: i64) -> i64 {
    if shown < 0 {
        shown.rem_euclid(NS_PER_DAY)
    } else {
        shown
    }
}

/// The local time as nanoseconds, which may be before 1970; `None` before the epoch.
fn local(nanoseconds: i64, local_offset: Option<fn(i64) -> i64>) -> Option<i64> {
    let seconds = local_offset.map_or(0, |of| of(nanoseconds / NS_PER_SECOND_SIGNED));
    let local = nanoseconds.checked_add(seconds.checked_mul(NS_PER_SECOND_SIGNED)?)?;
    (nanoseconds >= 0).then_some(local)
}

/// Year, month and day of a day since 1970-01-01, or of one shortly before.
fn date(days: i64) -> (u64, u64, u64) {
    // Years of 400 Gregorian years that begin on the first of March.
    let day = 719_468_u64.saturating_add_signed(days);
    let era = day / 146_097;
    let of_era = day % 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, of_month)
}

/// Seconds since the origin, with a sign before it.
pub(super) fn push_seconds(out: &mut Vec<u8>, nanoseconds: i64) {
    if nanoseconds < 0 {
        out.push(b'-');
    }
    push_duration(out, nanoseconds.unsigned_abs());
}

/// `S.NNNNNNNNN`
pub(crate) fn push_duration(out: &mut Vec<u8>, nanoseconds: u64) {
    push_unsigned(out, nanoseconds / NS_PER_SECOND);
    out.push(b'.');
    out.extend_from_slice(&nine_digits(nanoseconds % NS_PER_SECOND));
}

/// The same for less than ten seconds, as between most events.
#[inline]
pub(super) fn short_duration(nanoseconds: u64) -> Option<[u8; 11]> {
    let second = nanoseconds / NS_PER_SECOND;
    if second > 9 {
        return None;
    }
    let mut text = [b'.'; 11];
    text[0] = b"0123456789"[usize::try_from(second).ok()?];
    text[2..].copy_from_slice(&nine_digits(nanoseconds % NS_PER_SECOND));
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day() {
        let mut time = TimeText::default();
        let mut check = |nanoseconds: i64, expected: &str| {
            let mut out = Vec::new();
            time.push(&mut out, nanoseconds);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(0, "00:00:00.000000000");
        check(86_399_999_999_999, "23:59:59.999999999");
        check(86_400_000_000_001, "00:00:00.000000001");
        check(-1, "-0.000000001");
        check(i64::MAX, "23:47:16.854775807");
    }

    #[test]
    fn dates() {
        let check = |seconds: i64, offset: Option<fn(i64) -> i64>, expected: &str| {
            let mut out = Vec::new();
            let time = seconds.saturating_mul(NS_PER_SECOND_SIGNED);
            TimeText::default().push_date(&mut out, time, offset);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(0, None, "1970-01-01 00:00:00.000000000");
        check(951_782_400, None, "2000-02-29 00:00:00.000000000");
        check(1_795_242_148, None, "2026-11-21 06:22:28.000000000");
        check(
            1_795_242_148,
            Some(|_| -18_000),
            "2026-11-21 01:22:28.000000000",
        );
        check(4_107_542_399, None, "2100-02-28 23:59:59.000000000");
        check(4_107_542_400, None, "2100-03-01 00:00:00.000000000");
        check(-1, None, "-1.000000000");
        check(5, Some(|_| -18_000), "1969-12-31 19:00:05.000000000");
        check(18_000, Some(|_| -18_000), "1970-01-01 00:00:00.000000000");
        let mut out = Vec::new();
        TimeText::default().push_local(&mut out, 5, Some(|_| -18_000));
        assert_eq!(out, b"19:00:00.000000005");
    }

    #[test]
    fn durations() {
        let check = |nanoseconds: u64, expected: &str| {
            let mut out = Vec::new();
            push_duration(&mut out, nanoseconds);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
            let short = short_duration(nanoseconds).map(|text| text.to_vec());
            let is_short = (expected.len() == 11).then(|| expected.as_bytes().to_vec());
            assert_eq!(short, is_short);
        };
        check(0, "0.000000000");
        check(9_999_999_999, "9.999999999");
        check(10_000_000_000, "10.000000000");
        check(u64::MAX, "18446744073.709551615");
    }

    #[test]
    fn cycles_become_nanoseconds() {
        let mut class = ClockClass::new("c");
        class.frequency = 1_000;
        class.offset_seconds = -1;
        class.offset_cycles = 500;
        let clock = BabeltraceClock::new(&class);
        assert_eq!(clock.nanoseconds(500), Some(0));
        assert_eq!(clock.nanoseconds(501), Some(1_000_000));
        let nanoseconds = BabeltraceClock::new(&ClockClass::new("c"));
        let latest = i64::MAX.unsigned_abs();
        assert_eq!(nanoseconds.nanoseconds(latest), Some(i64::MAX));
        assert_eq!(nanoseconds.nanoseconds(latest + 1), None);
        class.offset_seconds = i64::MAX / 1_000;
        assert_eq!(BabeltraceClock::new(&class).nanoseconds(0), None);
    }
}
