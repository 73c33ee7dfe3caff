//! The wall clock and random numbers: only this module gets them from the system.

mod steady;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

use self::steady::SteadyClock;

static CLOCK: SteadyClock = SteadyClock::new();

/// Now, in ns since the epoch: the wall clock, except that it does not follow one that jumps until
/// a day has shown that it stays. Arrivals, durations and expiries are measured with it.
#[must_use]
pub fn now_ns() -> i64 {
    CLOCK.now(wall_ns(), nanos(since_boot()))
}

/// What the wall clock shows, in ns since the epoch, even if it has just jumped.
#[must_use]
pub fn wall_ns() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    #[cfg(test)]
    return nanos(now).saturating_add(JUMPED_NS.load(std::sync::atomic::Ordering::Relaxed));
    #[cfg(not(test))]
    nanos(now)
}

/// By how much the wall clock of a test is off.
#[cfg(test)]
pub(crate) static JUMPED_NS: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// How long the machine has been on, and suspended, when the wall clock goes on, too.
#[must_use]
pub fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}

/// The begin of 2020, in ns since the epoch. What is dated before was dated by a machine whose
/// clock was not set yet, as many are until they reach a time server.
pub const CLOCKS_SET_NS: i64 = 1_577_836_800 * 1_000_000_000;

/// Eight random bytes.
pub(crate) fn random_u64() -> u64 {
    // The version and variant bits of a UUID are in its middle; fold them away.
    let (high, low) = Uuid::new_v4().as_u64_pair();
    high.rotate_left(32) ^ low
}

/// Ten random bytes for a storage id.
pub(crate) fn random_10() -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&random_u64().to_le_bytes());
    bytes[8..].copy_from_slice(&random_u64().to_le_bytes()[..2]);
    bytes
}

/// The wall clock is corrected by less than this; more is a jump.
const JUMP: Duration = Duration::from_secs(3600);
/// After a jump, ages are not trusted for this long.
const DISTRUST: Duration = Duration::from_secs(86_400);

/// Notices jumps of the wall clock: a clock that is set to a later year makes everything look old.
#[derive(Debug)]
pub struct ClockWatch {
    wall: i64,
    since_boot: Duration,
    jumped: Option<Duration>,
}

impl ClockWatch {
    /// A watch that begins with these readings of the wall clock, ns, and of [`since_boot`].
    #[must_use]
    pub fn new(wall: i64, since_boot: Duration) -> Self {
        Self {
            wall,
            since_boot,
            jumped: None,
        }
    }

    /// Whether the wall clock has not jumped for long.
    pub fn is_trusted(&mut self, wall: i64, since_boot: Duration) -> bool {
        let passed = since_boot.saturating_sub(self.since_boot);
        let passed = i64::try_from(passed.as_nanos()).unwrap_or(i64::MAX);
        let off = wall.saturating_sub(self.wall).abs_diff(passed);
        (self.wall, self.since_boot) = (wall, since_boot);
        if u128::from(off) > JUMP.as_nanos() {
            self.jumped = Some(since_boot);
            tracing::warn!(
                seconds = off / 1_000_000_000,
                "the wall clock has jumped; for a day no storage is deleted because of its age"
            );
        }
        self.jumped
            .is_none_or(|jumped| since_boot.saturating_sub(jumped) >= DISTRUST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS: i64 = 1_000_000_000;

    #[test]
    fn ages_are_not_trusted_after_a_jump_of_the_clock() {
        let start = since_boot();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let year = 31_536_000 * NS;
        for (jump, is_trusted) in [
            (0, true),
            (60 * NS, true),
            (80 * year, false),
            (-year, false),
        ] {
            let mut watch = ClockWatch::new(0, start);
            assert!(watch.is_trusted(60 * NS, after(60)));
            assert_eq!(watch.is_trusted(120 * NS + jump, after(120)), is_trusted);
            assert_eq!(watch.is_trusted(180 * NS + jump, after(180)), is_trusted);
            let later = jump + 90_000 * NS;
            assert!(watch.is_trusted(later, after(90_000)), "{jump}");
        }
    }

    #[test]
    fn the_time_since_boot_goes_on() {
        let before = since_boot();
        while since_boot() <= before {
            std::thread::yield_now();
        }
    }
}
