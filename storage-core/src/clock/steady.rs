//! A clock that follows the wall clock and does not jump with it.
//!
//! A time that is set to 1970, to 2106 or back by an hour would end recordings, bring tokens that
//! expired back and end others, and keep spans waiting. How much time has passed is known without
//! the wall clock, from the time since boot; the wall clock is followed as long as it agrees.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;

use super::CLOCKS_SET_NS;

const SECOND: i64 = 1_000_000_000;
/// The wall clock is corrected by less than this at a time; more is a jump.
const CORRECTION_MAX: i64 = 60 * SECOND;
/// The clocks of a machine drift by less than this between two readings that matter.
const DRIFT: i64 = SECOND / 10;
/// A jump that has lasted for this long is followed.
const DISTRUST: i64 = 86_400 * SECOND;
/// No reading yet.
const UNSET: i64 = i64::MIN;

/// The clock.
#[derive(Debug)]
pub(super) struct SteadyClock {
    /// The wall clock minus the time since boot, ns, when both agreed the last time.
    offset: AtomicI64,
    has_jumped: AtomicBool,
    jump: Mutex<Option<Jump>>,
}

/// A wall clock that has left the time since boot.
#[derive(Debug, Clone, Copy)]
struct Jump {
    /// As [`SteadyClock::offset`], since the jump.
    offset: i64,
    /// The time since boot at which it was noticed.
    noticed: i64,
}

impl SteadyClock {
    pub(super) const fn new() -> Self {
        Self {
            offset: AtomicI64::new(UNSET),
            has_jumped: AtomicBool::new(false),
            jump: Mutex::new(None),
        }
    }

    /// The time, given what the wall clock and the time since boot say, all in ns.
    pub(super) fn now(&self, wall: i64, since_boot: i64) -> i64 {
        let offset = self.offset.load(Ordering::Relaxed);
        let seen = wall.saturating_sub(since_boot);
        let off = seen.saturating_sub(offset).saturating_abs();
        if offset == UNSET || off > DRIFT {
            return self.corrected(wall, since_boot);
        }
        if self.has_jumped.load(Ordering::Relaxed) {
            *self.jump.lock() = None;
            self.has_jumped.store(false, Ordering::Relaxed);
        }
        wall
    }

    /// As [`Self::now`], when the wall clock was corrected or has jumped.
    #[cold]
    fn corrected(&self, wall: i64, since_boot: i64) -> i64 {
        let mut jump = self.jump.lock();
        let seen = wall.saturating_sub(since_boot);
        let offset = self.offset.load(Ordering::Relaxed);
        let expected = offset.saturating_add(since_boot);
        let is_correction = seen.saturating_sub(offset).saturating_abs() <= CORRECTION_MAX;
        // The clock of this machine was not set, and is now.
        let is_first_set = expected < CLOCKS_SET_NS && wall >= CLOCKS_SET_NS;
        if offset == UNSET || is_correction || is_first_set {
            *jump = None;
            self.has_jumped.store(false, Ordering::Relaxed);
            self.offset.store(seen, Ordering::Relaxed);
            return wall;
        }
        let known = jump
            .filter(|known| known.offset.saturating_sub(seen).saturating_abs() <= CORRECTION_MAX);
        let Some(known) = known else {
            *jump = Some(Jump {
                offset: seen,
                noticed: since_boot,
            });
            self.has_jumped.store(true, Ordering::Relaxed);
            tracing::warn!(
                seconds = seen.saturating_sub(offset) / SECOND,
                "the wall clock has jumped; durations, expiries and arrivals follow the time since \
                 boot until it has stayed there for a day, or the server is restarted"
            );
            return expected;
        };
        // No server runs before 2020.
        let has_lasted = since_boot.saturating_sub(known.noticed) >= DISTRUST;
        if has_lasted && wall >= CLOCKS_SET_NS {
            *jump = None;
            self.has_jumped.store(false, Ordering::Relaxed);
            self.offset.store(seen, Ordering::Relaxed);
            return wall;
        }
        expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = CLOCKS_SET_NS + 1_000_000 * SECOND;
    const HOUR: i64 = 3600 * SECOND;
    const YEAR: i64 = 31_536_000 * SECOND;

    /// A clock that has run for a minute, and what it shows after each number of seconds, when the
    /// wall clock is off by as many ns.
    fn shown(steps: &[(i64, i64)]) -> Vec<i64> {
        let clock = SteadyClock::new();
        assert_eq!(clock.now(START, 50), START);
        assert_eq!(
            clock.now(START + 60 * SECOND, 50 + 60 * SECOND),
            START + 60 * SECOND
        );
        let at = |(seconds, off): &(i64, i64)| {
            let passed = seconds * SECOND;
            clock.now(START + passed + off, 50 + passed) - START
        };
        steps.iter().map(at).collect()
    }

    #[test]
    fn corrections_are_followed_and_jumps_are_not() {
        for (off, is_followed) in [
            (0, true),
            (SECOND, true),
            (-SECOND, true),
            (59 * SECOND, true),
            (-59 * SECOND, true),
            (HOUR, false),
            (-HOUR, false),
            (80 * YEAR, false),
            (-START, false),
        ] {
            let followed = if is_followed { off } else { 0 };
            let wanted = [100 * SECOND + followed, 200 * SECOND + followed];
            assert_eq!(shown(&[(100, off), (200, off)]), wanted, "{off}");
        }
    }

    #[test]
    fn a_jump_that_lasts_a_day_is_followed() {
        let day = 86_400;
        let early = (100 + day - 1) * SECOND;
        let late = (100 + day) * SECOND;
        assert_eq!(
            shown(&[(100, HOUR), (100 + day - 1, HOUR), (100 + day, HOUR)]),
            [100 * SECOND, early, late + HOUR]
        );
        // Another jump begins another day, and one that is taken back is forgotten.
        for between in [2 * HOUR, 0] {
            assert_eq!(
                shown(&[(100, HOUR), (200, between), (300, HOUR), (100 + day, HOUR)]).last(),
                Some(&late)
            );
        }
        assert_eq!(
            shown(&[(100, -START), (100 + 2 * day, -START)]).last(),
            Some(&(late + day * SECOND))
        );
    }

    #[test]
    fn a_clock_that_was_not_set_at_boot_is_followed_when_it_is() {
        let clock = SteadyClock::new();
        assert_eq!(clock.now(7 * SECOND, 7 * SECOND), 7 * SECOND);
        assert_eq!(clock.now(START, 8 * SECOND), START);
        assert_eq!(clock.now(8 * SECOND, 9 * SECOND), START + SECOND);
    }
}
