use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// How requests are retried when the server is busy or unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Wait before the first retry if the server requests none; doubles each time.
    pub delay_first: Duration,
    /// Longest single wait, even if the server requests a longer one.
    pub delay_max: Duration,
    /// Limit on the sum of all waits of one request.
    pub wait_max: Duration,
    /// The same limit while no connection can be made.
    pub wait_max_unreachable: Duration,
}

/// Why a request may be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryReason {
    /// The server is busy; it may have requested a delay.
    Busy(Option<Duration>),
    /// The connection broke.
    Broken,
    /// No connection could be made.
    Unreachable,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            delay_first: Duration::from_millis(100),
            delay_max: Duration::from_secs(10),
            wait_max: Duration::from_secs(120),
            wait_max_unreachable: Duration::ZERO,
        }
    }
}

impl Retry {
    /// No retries.
    pub const NEVER: Self = Self {
        delay_first: Duration::ZERO,
        delay_max: Duration::ZERO,
        wait_max: Duration::ZERO,
        wait_max_unreachable: Duration::ZERO,
    };

    /// For long transfers that must survive a restart of the server.
    pub fn persistent() -> Self {
        Self {
            wait_max_unreachable: Duration::from_secs(60),
            ..Self::default()
        }
    }

    /// The wait before the next attempt, or `None` to give up.
    ///
    /// `attempt` counts from 0; `waited` is the sum of the waits so far.
    pub fn delay(&self, attempt: u32, reason: RetryReason, waited: Duration) -> Option<Duration> {
        let doubled = self.delay_first.saturating_mul(1 << attempt.min(20));
        let (requested, wait_max) = match reason {
            RetryReason::Busy(requested) => (requested, self.wait_max),
            RetryReason::Broken => (None, self.wait_max),
            RetryReason::Unreachable => (None, self.wait_max_unreachable),
        };
        let delay = requested.unwrap_or(doubled).max(self.delay_first);
        let delay = delay.min(self.delay_max);
        let fits = waited.saturating_add(delay) <= wait_max && !delay.is_zero();
        fits.then_some(delay)
    }
}

/// Whether a status says that the request may succeed later.
pub(super) fn is_temporary(status: u16) -> bool {
    matches!(status, 429 | 502 | 503 | 504 | 507)
}

/// The wait in a `Retry-After` value: seconds, or a date that is compared with `now`.
pub(super) fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    // RFC 9110 dates end in "GMT", an obsolete zone name that RFC 2822 parsers still know.
    let date = rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    let seconds = date.duration_since(now).as_secs();
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_after(value: &str, expected: Option<u64>) {
        let now: Timestamp = "2026-11-21T06:00:00Z".parse().unwrap();
        let expected = expected.map(Duration::from_secs);
        assert_eq!(retry_after(value, now), expected, "{value}");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        check_after("0", Some(0));
        check_after(" 17 ", Some(17));
        check_after("Sat, 21 Nov 2026 06:01:30 GMT", Some(90));
        check_after("Sat, 21 Nov 2026 05:00:00 GMT", Some(0));
        check_after("soon", None);
        check_after("-1", None);
        check_after("99999999999999999999999", None);
    }

    fn check_delay(attempt: u32, reason: RetryReason, waited: u64, expected: Option<u64>) {
        let retry = Retry {
            delay_first: Duration::from_millis(100),
            delay_max: Duration::from_secs(1),
            wait_max: Duration::from_secs(3),
            wait_max_unreachable: Duration::from_millis(500),
        };
        let delay = retry.delay(attempt, reason, Duration::from_millis(waited));
        assert_eq!(
            delay,
            expected.map(Duration::from_millis),
            "{attempt} {reason:?} {waited}"
        );
    }

    #[test]
    fn waits_grow_and_end() {
        check_delay(0, RetryReason::Broken, 0, Some(100));
        check_delay(1, RetryReason::Broken, 0, Some(200));
        check_delay(30, RetryReason::Broken, 2000, Some(1000));
        check_delay(30, RetryReason::Broken, 2001, None);
        check_delay(2, RetryReason::Unreachable, 100, Some(400));
        check_delay(2, RetryReason::Unreachable, 101, None);
    }

    #[test]
    fn requested_delays_are_bounded() {
        let busy = |millis| RetryReason::Busy(Some(Duration::from_millis(millis)));
        check_delay(0, busy(700), 0, Some(700));
        check_delay(0, busy(0), 0, Some(100));
        check_delay(0, busy(60_000), 0, Some(1000));
        check_delay(3, RetryReason::Busy(None), 0, Some(800));
        let never = Retry::NEVER.delay(0, busy(700), Duration::ZERO);
        assert_eq!(never, None);
    }
}
