//! How writing to a storage keeps up with arrival.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

/// Seconds over which arrivals and completions are compared.
const WINDOW_SECONDS: i64 = 30;
/// Slots of the window, one for each second.
const WINDOW_SLOTS: usize = 30;

/// How writing keeps up with arrival, by the ratio of packets that arrived to packets that were
/// finished in the last 30 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum WriteStatus {
    /// Below 1.10, or nothing arrived.
    Good,
    /// Below 1.35.
    Medium,
    /// Anything else.
    Bad,
}

impl WriteStatus {
    /// The status for these numbers of packets in the window.
    #[must_use]
    pub fn of(arrived: u64, finished: u64) -> Self {
        // In whole hundredths, so that the bounds are exact.
        let (arrived, finished) = (u128::from(arrived) * 100, u128::from(finished));
        match arrived {
            0 => Self::Good,
            arrived if arrived < finished.saturating_mul(110) => Self::Good,
            arrived if arrived < finished.saturating_mul(135) => Self::Medium,
            _ => Self::Bad,
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Second {
    second: i64,
    arrived: u64,
    finished: u64,
    bytes: u64,
}

/// Counters of the writer of a storage.
#[derive(Debug, Default)]
pub(crate) struct WriteCounts {
    window: Mutex<[Second; WINDOW_SLOTS]>,
    pub(crate) arrived: AtomicU64,
    pub(crate) finished: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) queued_packets: AtomicU64,
    pub(crate) queued_bytes: AtomicU64,
}

/// Sums over the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) arrived: u64,
    pub(crate) finished: u64,
    pub(crate) bytes: u64,
}

impl WriteCounts {
    pub(crate) fn arrived(&self, packets: u64, bytes: u64, now_ns: i64) {
        self.arrived.fetch_add(packets, Ordering::Relaxed);
        self.queued_packets.fetch_add(packets, Ordering::Relaxed);
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.at(now_ns, |second| {
            second.arrived = second.arrived.saturating_add(packets)
        });
    }

    pub(crate) fn finished(&self, packets: u64, bytes: u64, now_ns: i64) {
        self.finished.fetch_add(packets, Ordering::Relaxed);
        self.leave_queue(packets, bytes);
        self.at(now_ns, |second| {
            second.finished = second.finished.saturating_add(packets);
            second.bytes = second.bytes.saturating_add(bytes);
        });
    }

    pub(crate) fn failed(&self, packets: u64, bytes: u64, now_ns: i64) {
        self.failed.fetch_add(packets, Ordering::Relaxed);
        self.leave_queue(packets, bytes);
        self.at(now_ns, |_| ());
    }

    fn leave_queue(&self, packets: u64, bytes: u64) {
        self.queued_packets.fetch_sub(packets, Ordering::Relaxed);
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn at(&self, now_ns: i64, count: impl FnOnce(&mut Second)) {
        let now = now_ns.div_euclid(1_000_000_000);
        let mut window = self.window.lock();
        let slot = usize::try_from(now.rem_euclid(WINDOW_SECONDS)).unwrap_or(0);
        if let Some(second) = window.get_mut(slot) {
            if second.second != now {
                *second = Second {
                    second: now,
                    ..Second::default()
                };
            }
            count(second);
        }
    }

    /// Sums over the last 30 s.
    pub(crate) fn window(&self, now_ns: i64) -> Window {
        let now = now_ns.div_euclid(1_000_000_000);
        let mut sums = Window {
            arrived: 0,
            finished: 0,
            bytes: 0,
        };
        for second in self.window.lock().iter() {
            if second.second > now.saturating_sub(WINDOW_SECONDS) && second.second <= now {
                sums.arrived = sums.arrived.saturating_add(second.arrived);
                sums.finished = sums.finished.saturating_add(second.finished);
                sums.bytes = sums.bytes.saturating_add(second.bytes);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_the_ratio_of_arrived_to_finished() {
        for (arrived, finished, status) in [
            (0, 0, WriteStatus::Good),
            (0, 5, WriteStatus::Good),
            (100, 100, WriteStatus::Good),
            (109, 100, WriteStatus::Good),
            (110, 100, WriteStatus::Medium),
            (134, 100, WriteStatus::Medium),
            (135, 100, WriteStatus::Bad),
            (1, 0, WriteStatus::Bad),
        ] {
            assert_eq!(
                WriteStatus::of(arrived, finished),
                status,
                "{arrived} / {finished}"
            );
        }
    }

    #[test]
    fn the_window_forgets_what_is_older_than_30_seconds() {
        let counts = WriteCounts::default();
        let second = 1_000_000_000;
        counts.arrived(10, 1000, 100 * second);
        counts.arrived(5, 500, 129 * second);
        counts.finished(5, 500, 129 * second);
        assert_eq!(
            counts.window(129 * second),
            Window {
                arrived: 15,
                finished: 5,
                bytes: 500
            }
        );
        assert_eq!(
            counts.window(130 * second),
            Window {
                arrived: 5,
                finished: 5,
                bytes: 500
            }
        );
        assert_eq!(
            counts.window(159 * second),
            Window {
                arrived: 0,
                finished: 0,
                bytes: 0
            }
        );
    }
}
