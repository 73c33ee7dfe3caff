//! Times of day, and the clock of a stream.

use ctf::class::ClockClass;
use ctf::text::{nine_digits, push_two_digits, push_unsigned};

const NS_PER_SECOND: u64 = 1_000_000_000;
const NS_PER_SECOND_SIGNED: i64 = 1_000_000_000;

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

    /// Nanoseconds since the origin at `cycles`; `None` when they do not fit 64 bits.
    #[inline]
    pub(crate) fn nanoseconds(&self, cycles: u64) -> Option<i64> {
        self.offset?
            .checked_add_unsigned(nanoseconds(self.frequency, cycles))
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
