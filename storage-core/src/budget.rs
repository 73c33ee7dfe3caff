//! Admission: the bytes that may be in flight at once, and the turns of those who wait.
//!
//! A request that finds no space waits. Each agent has its own queue and the agents have turns, so
//! an agent with a thousand requests does not block an agent with one. Nobody overtakes those who
//! wait for space. An agent that has its share of the budget waits until it returns some of it, and
//! the others go on; so do all requests of a connection, and of a protocol. Droppable packets are
//! dropped before anybody waits.

mod share;
mod turns;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

pub use self::share::{Holder, Share};
use self::{
    share::{Claim, Shares},
    turns::{Turns, Waiter},
};
use crate::{StorageError, counters::Counters};

/// Requests that may wait at once; more are refused.
const WAITING_COUNT_MAX: usize = 16_384;

/// Bytes of the budget that can be taken back from those who have them.
pub(crate) trait Reclaim: std::fmt::Debug + Send + Sync {
    /// Frees at least `bytes` of the budget; `false` when nothing could be freed.
    fn reclaim(&self, bytes: u64) -> bool;
}

/// A budget of which nothing can be taken back.
#[derive(Debug)]
struct Nothing;

impl Reclaim for Nothing {
    fn reclaim(&self, _bytes: u64) -> bool {
        false
    }
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
    /// Whether one of them waits for space; the others wait for their own share.
    is_short: AtomicBool,
    shares: Arc<Shares>,
    turns: Mutex<Turns>,
    reclaim: Arc<dyn Reclaim>,
    counters: Arc<Counters>,
}

/// A part of a [`ByteBudget`], released when dropped.
#[derive(Debug)]
pub struct BytePermit {
    budget: ByteBudget,
    bytes: u64,
    /// The shares that count the bytes.
    share: Option<Arc<Claim>>,
}

impl ByteBudget {
    /// A budget of `max` bytes, of which one agent may have `agent_max`.
    pub(crate) fn new(
        max: u64,
        agent_max: u64,
        reclaim: Arc<dyn Reclaim>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                used: AtomicU64::new(0),
                max,
                waiting: AtomicUsize::new(0),
                is_short: AtomicBool::new(false),
                shares: Arc::new(Shares::new(agent_max)),
                turns: Mutex::default(),
                reclaim,
                counters,
            }),
        }
    }

    /// A budget without a limit, for bytes that need no permit.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(u64::MAX, u64::MAX, Arc::new(Nothing), Arc::default())
    }

    /// A permit of no bytes, for bytes that another permit counts.
    #[must_use]
    pub fn nothing(&self) -> BytePermit {
        self.permit(0, None)
    }

    fn permit(&self, bytes: u64, share: Option<Arc<Claim>>) -> BytePermit {
        BytePermit {
            budget: self.clone(),
            bytes,
            share,
        }
    }

    fn busy(&self) -> StorageError {
        StorageError::Busy {
            max: self.shared.max,
        }
    }

    /// The error of a request that is too large for what one of its shares has left, or else for
    /// the budget.
    fn refusal(&self, share: &Claim, bytes: u64) -> StorageError {
        match share.lacking(bytes) {
            None => self.busy(),
            Some(lacking) => StorageError::ShareUsed {
                of: lacking.of(),
                max: lacking.max(),
            },
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
        if bytes > 0 && self.shared.is_short.load(Ordering::SeqCst) {
            return Err(self.busy());
        }
        self.try_grow(bytes)
    }

    /// Acquires `bytes` of the budget for a request of `holder`.
    ///
    /// # Errors
    /// As [`Self::try_acquire`], and [`StorageError::ShareUsed`] when one of its shares is used up.
    pub fn try_acquire_for<'a>(
        &self,
        holder: impl Into<Holder<'a>>,
        bytes: u64,
    ) -> Result<BytePermit, StorageError> {
        self.try_take(&self.shared.shares.of(holder.into()), bytes)
    }

    fn try_take(&self, share: &Arc<Claim>, bytes: u64) -> Result<BytePermit, StorageError> {
        if bytes > 0 && self.shared.is_short.load(Ordering::SeqCst) {
            return Err(self.refusal(share, bytes));
        }
        if self.shared.take_of(share, bytes, 0) {
            Ok(self.permit(bytes, Some(Arc::clone(share))))
        } else {
            Err(self.refusal(share, bytes))
        }
    }

    /// Acquires `bytes` in addition to what a request has. It does not queue: those who
    /// wait may wait for this request.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when they are not free now.
    pub fn try_grow(&self, bytes: u64) -> Result<BytePermit, StorageError> {
        if self.shared.take(bytes, 0) {
            Ok(self.permit(bytes, None))
        } else {
            Err(self.busy())
        }
    }

    /// Acquires `bytes` of the budget for a request of `holder`; waits for the turn of its agent
    /// when they are not free.
    ///
    /// # Errors
    /// [`StorageError::Busy`] when they are not free within `limit`, or too many requests wait;
    /// [`StorageError::ShareUsed`] when one of its shares is used up all the time.
    pub async fn acquire<'a>(
        &self,
        holder: impl Into<Holder<'a>>,
        bytes: u64,
        limit: Duration,
    ) -> Result<BytePermit, StorageError> {
        let holder = holder.into();
        let (agent, share) = (holder.agent, self.shared.shares.of(holder));
        if let Ok(permit) = self.try_take(&share, bytes) {
            return Ok(permit);
        }
        let granted = {
            let mut turns = self.shared.turns.lock();
            (turns.len() < WAITING_COUNT_MAX).then(|| {
                let granted = turns.enter(agent, &share, bytes);
                // Until it is known what it waits for.
                self.shared.tell_waiting(&turns, true);
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
                Err(self.refusal(&share, bytes))
            }
        }
    }

    /// Admits the requests that wait, in their turns, as far as there is space.
    fn admit(&self) {
        let shared = &self.shared;
        let mut granted = Vec::new();
        {
            let mut turns = shared.turns.lock();
            let mut is_short = false;
            while let Some(first) = turns.first() {
                if !shared.take_of(&first.share, first.bytes, 0) {
                    // When the share is used since, another release of the agent admits it.
                    is_short = true;
                    break;
                }
                if let Some(waiter) = turns.leave() {
                    granted.push(waiter);
                }
            }
            shared.tell_waiting(&turns, is_short);
        }
        for waiter in granted {
            let Waiter {
                bytes,
                share,
                granted,
            } = waiter;
            let permit = self.permit(bytes, Some(share));
            // A request that was cancelled meanwhile releases its permit, which admits the next.
            drop(granted.send(permit));
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
    /// Publishes the number of waiting requests, and whether one waits for space.
    fn tell_waiting(&self, turns: &Turns, is_short: bool) {
        self.waiting.store(turns.len(), Ordering::SeqCst);
        self.is_short.store(is_short, Ordering::SeqCst);
        self.counters.waiting_for_room.set(turns.len() as u64);
    }

    /// Acquires bytes within all shares of a request, which has `own` already.
    fn take_of(&self, share: &Claim, bytes: u64, own: u64) -> bool {
        if !share.take(bytes, own) {
            return false;
        }
        let is_free = self.take(bytes, own);
        if !is_free {
            share.give_back(bytes);
        }
        is_free
    }

    /// Acquires bytes if they are free or can be freed by dropping packets. A request that has all
    /// that is used, `own`, is admitted beyond the budget, as one is that begins alone.
    fn take(&self, bytes: u64, own: u64) -> bool {
        let fits = |used: u64| {
            let after = used.checked_add(bytes)?;
            (after <= self.max || used <= own).then_some(after)
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
        self.budget.permit(bytes, self.share.clone())
    }

    /// Acquires `bytes` in addition, of the share of the same agent. It does not queue: those who
    /// wait may wait for this request, which has `own` bytes in all.
    ///
    /// # Errors
    /// [`StorageError::Busy`] or [`StorageError::ShareUsed`] when they are not free now.
    pub fn try_grow(&mut self, bytes: u64, own: u64) -> Result<(), StorageError> {
        let shared = &self.budget.shared;
        match &self.share {
            Some(share) if !shared.take_of(share, bytes, own) => {
                return Err(self.budget.refusal(share, bytes));
            }
            None if !shared.take(bytes, own) => return Err(self.budget.busy()),
            _ => {}
        }
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(())
    }

    /// Adds the bytes of another permit of the same budget and the same agent.
    pub fn merge(&mut self, mut other: BytePermit) {
        if self.bytes == 0 {
            self.share = other.share.take();
        } else if other.bytes > 0 {
            let is_same = match (&self.share, &other.share) {
                (Some(share), Some(other)) => share.is_same(other),
                (None, None) => true,
                _ => false,
            };
            assert!(is_same, "permits of one holder are merged");
        }
        self.bytes = self.bytes.saturating_add(std::mem::take(&mut other.bytes));
    }

    /// Returns the bytes to the shares; they are still of the budget. For packets that
    /// make room for others.
    pub(crate) fn leave_share(&mut self) {
        if let Some(share) = self.share.take() {
            share.give_back(self.bytes);
        }
    }

    /// Size of the permit in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Releases the bytes without admitting anybody: the caller that freed them uses them.
    pub(crate) fn give_back_quietly(mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.give_back(bytes);
    }

    fn give_back(&self, bytes: u64) {
        if let Some(share) = &self.share {
            share.give_back(bytes);
        }
        self.budget.shared.give_back(bytes);
    }
}

impl Drop for BytePermit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.give_back(self.bytes);
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
        with_shares(max, max)
    }

    fn with_shares(max: u64, agent_max: u64) -> ByteBudget {
        let counters = Arc::<Counters>::default();
        let droppable = Arc::new(Droppable::new(max, Arc::clone(&counters)));
        ByteBudget::new(max, agent_max, droppable, counters)
    }

    #[tokio::test(start_paused = true)]
    async fn a_greedy_agent_waits_for_its_share_and_a_modest_one_goes_on() {
        let budget = with_shares(100, 50);
        let mut greedy: Vec<_> = (0..5)
            .map(|_| budget.try_acquire_for("greedy", 10).unwrap())
            .collect();
        let refused = budget.try_acquire_for("greedy", 10).unwrap_err();
        assert!(matches!(refused, StorageError::ShareUsed { max: 50, .. }));
        let mut waiting = Box::pin(budget.acquire("greedy", 10, LONG));
        assert!(waits(&mut waiting));
        // It is first, and nobody waits for it.
        for _ in 0..20 {
            let modest = budget.acquire("modest", 10, LONG).now_or_never();
            assert!(modest.unwrap().is_ok());
            assert!(budget.try_acquire_for("other", 40).is_ok());
            assert!(budget.try_acquire(50).is_ok());
        }
        drop(greedy.pop());
        greedy.push(waiting.await.unwrap());
        // Those who wait for space have turns, and the greedy agent none.
        let modest = budget.try_acquire_for("modest", 50).unwrap();
        let wait = Duration::from_secs(1);
        let mut late = Box::pin(budget.acquire("greedy", 10, wait));
        assert!(waits(&mut late));
        let mut next = Box::pin(budget.acquire("next", 50, LONG));
        assert!(waits(&mut next));
        assert!(budget.try_acquire(1).is_err(), "it waits for the next one");
        drop(modest);
        assert!(next.await.is_ok());
        let refused = late.await.unwrap_err();
        assert!(matches!(refused, StorageError::ShareUsed { max: 50, .. }));
        drop(greedy);
        assert_eq!(budget.shared.used.load(Ordering::SeqCst), 0);
        assert_eq!(budget.shared.waiting.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_packet_above_the_share_is_admitted_alone() {
        let budget = with_shares(100, 20);
        let mut large = budget.try_acquire_for("a", 15).unwrap();
        large.try_grow(40, 15).unwrap();
        assert!(budget.try_acquire_for("a", 1).is_err());
        large.try_grow(1, 15).unwrap_err();
        let part = large.split(30);
        large.merge(part);
        assert_eq!(large.bytes(), 55);
        large.leave_share();
        assert!(budget.try_acquire_for("a", 20).is_ok());
        assert!(
            budget.try_acquire(46).is_err(),
            "the bytes are still in use"
        );
        drop(large);
        assert!(budget.try_acquire(100).is_ok());
    }

    #[test]
    fn a_packet_above_the_budget_grows_alone() {
        let budget = budget(100);
        let mut large = budget.try_acquire_for("a", 90).unwrap();
        let other = budget.try_acquire_for("b", 5).unwrap();
        large.try_grow(20, 90).unwrap_err();
        drop(other);
        large.try_grow(20, 90).unwrap();
        assert!(budget.try_acquire_for("b", 1).is_err());
        drop(large);
        assert_eq!(budget.shared.used.load(Ordering::SeqCst), 0);
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
    async fn any_number_of_waiting_connections_of_a_protocol_leaves_others_their_turn() {
        let budget = budget(100);
        let spans = [Arc::new(Share::new("spans", 75))];
        let of_spans = |agent| Holder {
            agent,
            shares: &spans,
        };
        let pushes = [Arc::new(Share::new("pushes", 75))];
        let of_pushes = Holder {
            agent: "pusher",
            shares: &pushes,
        };
        let slow = budget.acquire(of_spans("slow"), 75, LONG).await.unwrap();
        let other = budget.acquire("other", 25, LONG).await.unwrap();
        let connections: Vec<String> = (0..200).map(|number| number.to_string()).collect();
        let connections = connections.iter();
        let mut waiting: Vec<_> = connections
            .map(|connection| Box::pin(budget.acquire(of_spans(connection.as_str()), 10, LONG)))
            .collect();
        for connection in &mut waiting {
            assert!(waits(connection));
        }
        let mut push = Box::pin(budget.acquire(of_pushes, 20, LONG));
        assert!(waits(&mut push));
        drop(other);
        assert!(
            !waits(&mut push),
            "the share of spans is not that of pushes"
        );
        drop(slow);
        assert!(!waits(&mut waiting[0]));
    }

    #[tokio::test]
    async fn a_full_connection_of_an_agent_leaves_its_others_their_turn() {
        let budget = budget(100);
        let protocol = Arc::new(Share::new("pushes", 100));
        let of = |share: &Arc<Share>| [Arc::clone(share), Arc::clone(&protocol)];
        let full = of(&Arc::new(Share::new("one connection", 20)));
        let free = of(&Arc::new(Share::new("one connection", 20)));
        let agent = |shares| Holder { agent: "a", shares };
        let held = budget.acquire(agent(&full), 20, LONG).await.unwrap();
        let other = budget.acquire("b", 80, LONG).await.unwrap();
        let mut first = Box::pin(budget.acquire(agent(&full), 10, LONG));
        assert!(waits(&mut first));
        let mut second = Box::pin(budget.acquire(agent(&free), 10, LONG));
        assert!(waits(&mut second));
        drop(other);
        assert!(waits(&mut first), "its connection has its share");
        assert!(!waits(&mut second));
        drop(held);
        assert!(!waits(&mut first));
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
