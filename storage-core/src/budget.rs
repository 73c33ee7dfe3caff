//! Bytes that may be under way at once, and who has them next.
//!
//! Who finds no room waits in line. Each agent has a line of its own, and the agents have turns, so
//! that one with a thousand requests does not keep out one with a single request. Nobody passes
//! those who wait. Packets that may be dropped give way before anybody waits.

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

/// Requests that may wait for room at once; beyond it they are refused.
const WAITING_COUNT_MAX: usize = 16_384;

/// Bytes of the budget that can be taken back from those who have them.
pub(crate) trait Reclaim: std::fmt::Debug + Send + Sync {
    /// Frees at least `bytes` of the budget; `false` when nothing could be freed.
    fn reclaim(&self, bytes: u64) -> bool;
}

/// A bound in bytes from which permits are taken.
#[derive(Debug, Clone)]
pub struct ByteBudget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    used: AtomicU64,
    max: u64,
    /// How many wait; while nobody does, no lock is taken.
    waiting: AtomicUsize,
    turns: Mutex<Turns>,
    reclaim: Arc<dyn Reclaim>,
    counters: Arc<Counters>,
}

/// A part of a [`ByteBudget`], given back when dropped.
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

    /// A permit of no bytes, for what is counted elsewhere.
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

    /// Counts a request that was refused for want of room.
    pub fn count_refusal(&self) {
        self.shared.counters.refused_busy.add(1);
    }

    /// Takes `bytes` of the budget, for work that tries again by itself. What is larger than the
    /// whole budget is let in alone.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when they are not there now, or somebody waits for them.
    pub fn try_acquire(&self, bytes: u64) -> Result<BytePermit, StorageError> {
        if bytes > 0 && self.shared.waiting.load(Ordering::SeqCst) > 0 {
            return Err(self.busy());
        }
        self.try_grow(bytes)
    }

    /// Takes `bytes` on top of what a request has already. It does not stand in line: those who
    /// wait could wait for this very request.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when they are not there now.
    pub fn try_grow(&self, bytes: u64) -> Result<BytePermit, StorageError> {
        match self.shared.take(bytes) {
            true => Ok(self.permit(bytes)),
            false => Err(self.busy()),
        }
    }

    /// Takes `bytes` of the budget for a request of `agent`; waits for its turn when they are not
    /// there.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when they are not there within `limit`, or too many wait.
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
        // Room may have come between the first look and standing in line.
        self.admit();
        match tokio::time::timeout(limit, granted).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => {
                // Who was behind this one may fit.
                self.admit();
                self.count_refusal();
                Err(self.busy())
            }
        }
    }

    /// Gives room to those who wait, in their turns, as far as there is any.
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
            // Who has gone meanwhile gives its room back, and that admits the next.
            drop(waiter.send(permit));
        }
    }

    /// As [`Self::admit`], at no cost while nobody waits.
    pub(crate) fn admit_waiting(&self) {
        if self.shared.waiting.load(Ordering::SeqCst) > 0 {
            self.admit();
        }
    }
}

impl Shared {
    /// Makes known how many wait.
    fn tell_waiting(&self, turns: &Turns) {
        self.waiting.store(turns.len(), Ordering::SeqCst);
        self.counters.waiting_for_room.set(turns.len() as u64);
    }

    /// Takes room if it is there, or can be made by dropping.
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
                    self.counters.in_flight_bytes.set(used + bytes);
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
        self.counters
            .in_flight_bytes
            .set(used.saturating_sub(bytes));
    }
}

impl BytePermit {
    /// Splits `bytes` off into a permit of its own; all that is left when there are fewer.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> BytePermit {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.budget.permit(bytes)
    }

    /// Size of the permit in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the bytes back without letting anybody in: who makes room takes it itself.
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

    /// Whether what is asked for is not there at once.
    fn waits<F: Future + Unpin>(asking: &mut F) -> bool {
        asking.now_or_never().is_none()
    }

    const LONG: Duration = Duration::from_secs(600);

    /// In which order agents get room that comes back packet by packet, when they stand in line as
    /// `arriving` says.
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
            // Each stands in line before the next one comes.
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
    async fn agents_have_turns_whatever_they_ask_for() {
        let greedy = [("a", 10); 5];
        let modest = [("b", 10), ("c", 10), ("b", 10)];
        let arriving = [&greedy[..], &modest[..]].concat();
        let wanted = ["a", "b", "c", "a", "b", "a", "a", "a"];
        assert_eq!(order(&arriving).await, wanted);
    }

    #[tokio::test]
    async fn nobody_passes_one_who_waits_for_much() {
        let arriving = [("large", 40), ("small", 10), ("small", 10)];
        assert_eq!(order(&arriving).await, ["large", "small", "small"]);
        let budget = budget(100);
        let held = budget.try_acquire(70).unwrap();
        let mut large = Box::pin(budget.acquire("large", 40, LONG));
        assert!(waits(&mut large));
        assert!(budget.try_acquire(10).is_err(), "it stands behind");
        drop(held);
        assert_eq!(large.await.unwrap().bytes(), 40);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_refused_and_holds_up_nobody() {
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
    async fn who_goes_away_gives_its_turn_on() {
        let budget = budget(100);
        let held = budget.try_acquire(100).unwrap();
        let mut first = Box::pin(budget.acquire("a", 100, LONG));
        assert!(waits(&mut first));
        let mut second = Box::pin(budget.acquire("b", 100, LONG));
        assert!(waits(&mut second));
        drop(held);
        // The first has room already, and goes away without having seen it.
        drop(first);
        assert_eq!(second.await.unwrap().bytes(), 100);
    }
}
