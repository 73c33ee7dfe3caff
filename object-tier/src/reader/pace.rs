//! What readers learn about the store: how long it takes, how many hedges are allowed, and whether
//! it asked for a pause.

use std::{collections::VecDeque, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::clock;

/// Latencies of one size that are remembered.
const SAMPLES_MAX: usize = 128;
/// Latencies that must be known before a request can be slow.
const SAMPLES_MIN: usize = 16;
/// New latencies before the estimate is made again.
const SAMPLES_NEW: usize = 8;
/// Longest ranges of the sizes whose latencies are compared, in bytes; the last has no limit.
const SIZES: [u64; 2] = [64 << 10, 1 << 20];
/// A request is slow when it takes so many times the 95th percentile …
const SLOW_FACTOR: u32 = 4;
/// … and this long.
const SLOW_MIN: Duration = Duration::from_millis(20);
/// Requests for each hedge: 5 %.
const REQUESTS_PER_HEDGE: u32 = 20;
/// Hedges that a calm time may save for a bad one.
const HEDGES_SAVED_MAX: u32 = 8;
/// The first pause after the store asked for less; doubled each time.
const PAUSE: Duration = Duration::from_millis(200);
/// Doublings of the pause.
const DOUBLINGS_MAX: u32 = 5;
/// Those who waited for the end of a pause come back within this time.
const SPREAD: Duration = Duration::from_millis(100);

/// What is known about the store.
#[derive(Debug, Default)]
pub(super) struct Pace {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    latencies: [Latencies; SIZES.len() + 1],
    /// Requests that no hedge has used up yet.
    requests: u32,
    /// Nothing is asked before.
    paused_until: Option<Instant>,
    /// Pauses since the store last answered as usual.
    pauses: u32,
}

#[derive(Debug, Default)]
struct Latencies {
    last: VecDeque<Duration>,
    new: usize,
    slow_after: Option<Duration>,
}

impl Latencies {
    fn add(&mut self, latency: Duration) {
        if self.last.len() == SAMPLES_MAX {
            self.last.pop_front();
        }
        self.last.push_back(latency);
        self.new += 1;
        if self.new < SAMPLES_NEW || self.last.len() < SAMPLES_MIN {
            return;
        }
        self.new = 0;
        let mut sorted: Vec<_> = self.last.iter().copied().collect();
        let rank = sorted.len() * 95 / 100;
        let (_, percentile, _) = sorted.select_nth_unstable(rank);
        self.slow_after = Some(percentile.saturating_mul(SLOW_FACTOR).max(SLOW_MIN));
    }
}

fn size(length: u64) -> usize {
    let fits = SIZES.iter().position(|longest| length <= *longest);
    fits.unwrap_or(SIZES.len())
}

impl Pace {
    /// Waits while the store rests.
    pub(super) async fn pass(&self) {
        // The lock is released before it sleeps.
        let paused = || self.state.lock().paused_until;
        while let Some(until) = paused().filter(|until| *until > clock::instant()) {
            sleep_until(until + clock::jittered(SPREAD)).await;
        }
    }

    /// Counts a request that begins; returns after which time it is slow, if that is known.
    pub(super) fn begin(&self, length: u64) -> Option<Duration> {
        let mut state = self.state.lock();
        let saved_max = REQUESTS_PER_HEDGE * HEDGES_SAVED_MAX;
        state.requests = (state.requests + 1).min(saved_max);
        state.latencies[size(length)].slow_after
    }

    /// Whether one more hedge is allowed; it is counted.
    pub(super) fn may_hedge(&self) -> bool {
        let mut state = self.state.lock();
        match state.requests.checked_sub(REQUESTS_PER_HEDGE) {
            Some(rest) if state.pauses == 0 => {
                state.requests = rest;
                true
            }
            _ => false,
        }
    }

    /// Notes how long a request took that succeeded.
    pub(super) fn took(&self, length: u64, latency: Duration) {
        self.state.lock().latencies[size(length)].add(latency);
    }

    /// The store asked for fewer requests: nothing is asked for a while.
    pub(super) fn slow_down(&self) {
        let mut state = self.state.lock();
        let now = clock::instant();
        // Requests that were on their way together are one sign, not many.
        if state.paused_until.is_some_and(|until| until > now) {
            return;
        }
        let pause = PAUSE * (1 << state.pauses.min(DOUBLINGS_MAX));
        state.pauses = state.pauses.saturating_add(1);
        state.paused_until = Some(now + clock::jittered(pause));
        tracing::warn!(?pause, "the object store asked for fewer requests");
    }

    /// The store answered as usual.
    pub(super) fn succeeded(&self) {
        let mut state = self.state.lock();
        let is_over = |until: Instant| until <= clock::instant();
        // What was on its way before the pause says nothing about the time after it.
        if state.paused_until.is_none_or(is_over) {
            state.pauses = 0;
            state.paused_until = None;
        }
    }
}
