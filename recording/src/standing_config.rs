//! The bounds of the standing recording, and its periods.

use query_language::time::rfc3339;

const NS: i64 = 1_000_000_000;
const DAY_SECONDS: u64 = 86_400;

/// The bounds of the standing recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandingConfig {
    /// A new storage begins after this time.
    pub period_seconds: u64,
    /// Bytes of all its storages; beyond, the oldest is deleted.
    pub bytes_max: u64,
    /// A storage is deleted this long after it was finalized.
    pub age_seconds_max: u64,
}

impl Default for StandingConfig {
    fn default() -> Self {
        Self {
            period_seconds: DAY_SECONDS,
            bytes_max: 10 << 30,
            age_seconds_max: 14 * DAY_SECONDS,
        }
    }
}

impl StandingConfig {
    /// Begin and end of the period that contains `now`, ns since the epoch.
    pub(crate) fn period_of(&self, now: i64) -> (i64, i64) {
        let seconds = i64::try_from(self.period_seconds).unwrap_or(i64::MAX);
        let period = seconds.saturating_mul(NS).max(1);
        let begin = now.saturating_sub(now.rem_euclid(period));
        (begin, begin.saturating_add(period))
    }

    /// The name of the storage of a period.
    pub(crate) fn name(&self, begin: i64) -> String {
        let text = rfc3339(begin);
        let is_days = self.period_seconds.is_multiple_of(DAY_SECONDS);
        let length = if is_days {
            "2026-01-01"
        } else {
            "2026-01-01T00:00:00"
        }
        .len();
        format!("spans-{}", text.get(..length).unwrap_or(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_begin_at_multiples_of_their_length() {
        let check = |period_seconds, now: i64, period: (i64, i64), name: &str| {
            let config = StandingConfig {
                period_seconds,
                ..StandingConfig::default()
            };
            let found = config.period_of(now * NS);
            assert_eq!(found, (period.0 * NS, period.1 * NS));
            assert_eq!(config.name(found.0), name);
        };
        check(DAY_SECONDS, 0, (0, 86_400), "spans-1970-01-01");
        check(DAY_SECONDS, 86_399, (0, 86_400), "spans-1970-01-01");
        check(DAY_SECONDS, 86_400, (86_400, 172_800), "spans-1970-01-02");
        check(3600, 7201, (7200, 10_800), "spans-1970-01-01T02:00:00");
        check(DAY_SECONDS, -1, (-86_400, 0), "spans-1969-12-31");
    }
}
