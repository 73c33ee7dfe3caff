//! Admission: the bytes that may be in flight at once, and the turns of those who wait.
//!
//! A request that finds no space waits. Each agent has its own queue and the agents have turns, so
//! an agent with a thousand requests does not block an agent with one. Nobody overtakes those who
//! wait. Droppable packets are dropped before anybody waits.

mod turns;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use self::turns::Turns;
use crate::{StorageError, counters::Counters};

/// Requests that may wait at once; more are refused.
const WAITING_COUNT_MAX: usize = 16_384;

/// Bytes of the budget that can be taken back from those who have them.
pub(crate) trait Reclaim: std::fmt::Debug + Send + Sync {
    /// Frees at least `bytes` of the budget; `false` when nothing could be freed.
    fn reclaim(&self, bytes: u64) -> bool;
}

/// A limit in bytes from which permits are acquired.
#[derive(Debug, Clone)]
pub struct ByteBudget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    used: AtomicU64,
    max: u64,
    /// Number of waiting requests; while there are none, no lock is taken.
    waiting: AtomicUsize,
    turns: Mutex<Turns>,
    reclaim: Arc<dyn Reclaim>,
    counters: Arc<Counters>,
}

/// A part of a [`ByteBudget`], released when dropped.
#[derive(Debug)]
pub struct BytePermit {
    budget: ByteBudget,
    bytes: u64,
}

impl ByteBudget {
    pub(crate) fn new(max: u64, reclaim: Arc<dyn Reclaim>, counters: Arc<Counters>) -> Self {
        Self {
            shared: Arc::new(Shared {
                used: AtomicU64::new(0),
                max,
                waiting: AtomicUsize::new(0),
                turns: Mutex::default(),
                reclaim,
                counters,
            }),
        }
    }

    /// A permit of no bytes, for bytes that another permit counts.
    #[must_use]
    pub fn nothing(&self) -> BytePermit {
        self.permit(0)
    }

    fn permit(&self, bytes: u64) -> BytePermit {
        BytePermit {
            budget: self.clone(),
            bytes,
        }
    }

    fn busy(&self) -> StorageError {
        StorageError::Busy {
            max: self.shared.max,
        }
    }

    /// Counts a request that was refused because the budget is used up.
    pub fn count_refusal(&self) {
        self.shared.counters.refused_busy.add(1);
    }

    /// Acquires `bytes` of the budget, for work that tries again by itself. A request larger than
    /// the complete budget is admitted alone.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when they are not free now, or somebody waits for them.
    pub fn try_acquire(&self, bytes: u64) -> Result<BytePermit, StorageError> {
        if bytes > 0 && self.shared.waiting.load(Ordering::SeqCst) > 0 {
            return Err(self.busy());
        }
        self.try_grow(bytes)
    }

    /// Acquires `bytes` in addition to what a request has. It does not queue: those who
    /// wait may wait for this request.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when they are not free now.
    pub fn try_grow(&self, bytes: u64) -> Result<BytePermit, StorageError> {
        if self.shared.take(bytes) {
            Ok(self.permit(bytes))
        } else {
            Err(self.busy())
        }
    }

    /// Acquires `bytes` of the budget for a request of `agent`; waits for its turn when they are
    /// not free.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when they are not free within `limit`, or too many requests wait.
    pub async fn acquire(
        &self,
        agent: &str,
        bytes: u64,
        limit: Duration,
    ) -> Result<BytePermit, StorageError> {
        if let Ok(permit) = self.try_acquire(bytes) {
            return Ok(permit);
        }
        let granted = {
            let mut turns = self.shared.turns.lock();
            (turns.len() < WAITING_COUNT_MAX).then(|| {
                let granted = turns.enter(agent, bytes);
                self.shared.tell_waiting(&turns);
                granted
            })
        };
        let Some(granted) = granted else {
            self.count_refusal();
            return Err(self.busy());
        };
        // Space may have become free before this request was queued.
        self.admit();
        match tokio::time::timeout(limit, granted).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => {
                // The next request may fit.
                self.admit();
                self.count_refusal();
                Err(self.busy())
            }
        }
    }

    /// Admits the requests that wait, in their turns, as far as there is space.
    fn admit(&self) {
        let shared = &self.shared;
        let mut granted = Vec::new();
        {
            let mut turns = shared.turns.lock();
            while let Some(bytes) = turns.first() {
                if !shared.take(bytes) {
                    break;
                }
                if let Some(waiter) = turns.leave() {
                    granted.push((waiter, self.permit(bytes)));
                }
            }
            shared.tell_waiting(&turns);
        }
        for (waiter, permit) in granted {
            // A request that was cancelled meanwhile releases its permit, which admits the next.
            drop(waiter.send(permit));
        }
    }

    /// As [`Self::admit`], without cost while nobody waits.
    pub(crate) fn admit_waiting(&self) {
        if self.shared.waiting.load(Ordering::SeqCst) > 0 {
            self.admit();
        }
    }
}

impl Shared {
    /// Publishes the number of waiting requests.
    fn tell_waiting(&self, turns: &Turns) {
        self.waiting.store(turns.len(), Ordering::SeqCst);
        self.counters.waiting_for_room.set(turns.len() as u64);
    }

    /// Acquires bytes if they are free or can be freed by dropping packets.
    fn take(&self, bytes: u64) -> bool {
        let fits = |used: u64| {
            let after = used.checked_add(bytes)?;
            (after <= self.max || used == 0).then_some(after)
        };
        loop {
            let used = match self
                .used
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits)
            {
                Ok(used) => {
                    self.counters
                        .in_flight_bytes
                        .set(used.saturating_add(bytes));
                    return true;
                }
                Err(used) => used,
            };
            let lacking = used.saturating_add(bytes).saturating_sub(self.max);
            if !self.reclaim.reclaim(lacking.min(used)) {
                return false;
            }
        }
    }

    fn give_back(&self, bytes: u64) {
        let used = self.used.fetch_sub(bytes, Ordering::SeqCst);
        assert!(
            used >= bytes,
            "no more bytes are released than were acquired"
        );
        self.counters
            .in_flight_bytes
            .set(used.saturating_sub(bytes));
    }
}

impl BytePermit {
    /// Splits `bytes` off into another permit; all remaining bytes when there are fewer.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> BytePermit {
        let bytes = bytes.min(self.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.budget.permit(bytes)
    }

    /// Adds the bytes of another permit of the same budget.
    pub fn merge(&mut self, mut other: BytePermit) {
        self.bytes = self.bytes.saturating_add(std::mem::take(&mut other.bytes));
    }

    /// Size of the permit in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Releases the bytes without admitting anybody: the caller that freed them uses them.
    pub(crate) fn give_back_quietly(mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.budget.shared.give_back(bytes);
    }
}

impl Drop for BytePermit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.shared.give_back(self.bytes);
            self.budget.admit_waiting();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};

    use super::*;
    use crate::droppable::Droppable;

    fn budget(max: u64) -> ByteBudget {
        let counters = Arc::<Counters>::default();
        let droppable = Arc::new(Droppable::new(max, Arc::clone(&counters)));
        ByteBudget::new(max, droppable, counters)
    }

    /// Whether the request has to wait.
    fn waits<F: Future + Unpin>(asking: &mut F) -> bool {
        asking.now_or_never().is_none()
    }

    const LONG: Duration = Duration::from_secs(600);

    /// The order in which agents are admitted when bytes are released packet by packet and the
    /// agents queue as `arriving` says.
    async fn order(arriving: &[(&'static str, u64)]) -> Vec<&'static str> {
        let budget = budget(100);
        let mut held = budget.try_acquire(100).unwrap();
        let mut waiting = FuturesUnordered::new();
        for &(agent, bytes) in arriving {
            let budget = budget.clone();
            let mut asking = Box::pin(async move {
                let permit = budget.acquire(agent, bytes, LONG).await;
                (agent, permit)
            });
            // Each request is queued before the next one arrives.
            assert!(waits(&mut asking));
            waiting.push(asking);
        }
        let mut order = Vec::new();
        let mut kept = Vec::new();
        while !waiting.is_empty() {
            drop(held.split(10));
            while let Some(Some((agent, permit))) = waiting.next().now_or_never() {
                order.push(agent);
                kept.push(permit.unwrap());
            }
        }
        order
    }

    #[tokio::test]
    async fn agents_have_turns_whatever_they_request() {
        let greedy = [("a", 10); 5];
        let modest = [("b", 10), ("c", 10), ("b", 10)];
        let arriving = [&greedy[..], &modest[..]].concat();
        let wanted = ["a", "b", "c", "a", "b", "a", "a", "a"];
        assert_eq!(order(&arriving).await, wanted);
    }

    #[tokio::test]
    async fn a_large_request_is_not_overtaken() {
        let arriving = [("large", 40), ("small", 10), ("small", 10)];
        assert_eq!(order(&arriving).await, ["large", "small", "small"]);
        let budget = budget(100);
        let held = budget.try_acquire(70).unwrap();
        let mut large = Box::pin(budget.acquire("large", 40, LONG));
        assert!(waits(&mut large));
        assert!(
            budget.try_acquire(10).is_err(),
            "it waits for the large one"
        );
        drop(held);
        assert_eq!(large.await.unwrap().bytes(), 40);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_too_long_is_refused_and_blocks_nobody() {
        let budget = budget(100);
        let held = budget.try_acquire(60).unwrap();
        let mut large = Box::pin(budget.acquire("a", 90, Duration::from_secs(1)));
        assert!(waits(&mut large));
        let mut small = Box::pin(budget.acquire("b", 40, LONG));
        assert!(waits(&mut small));
        assert!(matches!(large.await, Err(StorageError::Busy { .. })));
        let small = small.await.unwrap();
        drop((held, small));
        assert_eq!(budget.shared.used.load(Ordering::SeqCst), 0);
        assert_eq!(budget.shared.waiting.load(Ordering::SeqCst), 0);
        assert_eq!(budget.shared.counters.refused_busy.get(), 1);
    }

    #[tokio::test]
    async fn a_cancelled_request_passes_its_turn_on() {
        let budget = budget(100);
        let held = budget.try_acquire(100).unwrap();
        let mut first = Box::pin(budget.acquire("a", 100, LONG));
        assert!(waits(&mut first));
        let mut second = Box::pin(budget.acquire("b", 100, LONG));
        assert!(waits(&mut second));
        drop(held);
        // The first request is admitted already, and is cancelled before it sees that.
        drop(first);
        assert_eq!(second.await.unwrap().bytes(), 100);
    }
}
