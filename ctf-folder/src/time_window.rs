//! A window of time.

use super::stream::PacketEntry;

/// A half-open window of time, in nanoseconds since the epoch. Events without a time are in every
/// window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeWindow {
    /// The first instant in the window; `None` for no limit.
    pub from: Option<i64>,
    /// The first instant after the window; `None` for no limit.
    pub to: Option<i64>,
}

impl TimeWindow {
    /// Whether an event is in the window.
    pub fn contains(&self, time: Option<i64>) -> bool {
        let Some(time) = time else { return true };
        self.from.is_none_or(|from| from <= time) && self.to.is_none_or(|to| time < to)
    }

    /// The instants in both windows.
    pub(super) fn and(&self, other: &Self) -> Self {
        let both = |a: Option<i64>, b: Option<i64>, choose: fn(i64, i64) -> i64| match (a, b) {
            (Some(a), Some(b)) => Some(choose(a, b)),
            (a, b) => a.or(b),
        };
        Self {
            from: both(self.from, other.from, i64::max),
            to: both(self.to, other.to, i64::min),
        }
    }

    pub(super) fn overlaps(&self, packet: &PacketEntry) -> bool {
        let too_late = self
            .to
            .is_some_and(|to| packet.begin.is_some_and(|begin| begin >= to));
        let too_early = self
            .from
            .is_some_and(|from| packet.end.is_some_and(|end| end < from));
        !too_late && !too_early
    }
}
