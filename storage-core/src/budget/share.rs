//! Shares of a budget: how much of it one agent, one connection or one protocol may have.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

/// What requests that have something in common may have of a budget together.
#[derive(Debug)]
pub struct Share {
    /// What they have in common.
    of: &'static str,
    max: u64,
    used: AtomicU64,
}

impl Share {
    /// A share of `max` bytes; `of` says whose it is.
    #[must_use]
    pub fn new(of: &'static str, max: u64) -> Self {
        Self {
            of,
            max,
            used: AtomicU64::new(0),
        }
    }

    pub(super) fn of(&self) -> &'static str {
        self.of
    }

    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// Whether `bytes` more are within the share. A request may have more than the share when there
    /// is no other: `own` are the bytes that it has already.
    fn allows(&self, used: u64, bytes: u64, own: u64) -> bool {
        used <= own || used.saturating_add(bytes) <= self.max
    }

    /// As [`Self::allows`], now, for a new request.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        self.allows(self.used.load(Ordering::SeqCst), bytes, 0)
    }

    /// Takes `bytes` for a request that has `own` already; whether they are within the share.
    fn take(&self, bytes: u64, own: u64) -> bool {
        let after = |used: u64| {
            self.allows(used, bytes, own)
                .then(|| used.saturating_add(bytes))
        };
        let taken = self
            .used
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, after);
        taken.is_ok()
    }

    fn give_back(&self, bytes: u64) {
        let used = self.used.fetch_sub(bytes, Ordering::SeqCst);
        assert!(used >= bytes, "a share gets back what was taken from it");
    }
}

/// Who asks for bytes of a budget: an agent, and what its request shares with others.
#[derive(Debug, Clone, Copy)]
pub struct Holder<'a> {
    /// The agent, or whoever waits in its own queue.
    pub agent: &'a str,
    /// The shares that count its bytes, besides that of the agent: the one that most others have,
    /// too, is the last.
    pub shares: &'a [Arc<Share>],
}

impl<'a> From<&'a str> for Holder<'a> {
    fn from(agent: &'a str) -> Self {
        Self { agent, shares: &[] }
    }
}

/// The agents that have a part of a budget.
#[derive(Debug)]
pub(super) struct Shares {
    /// Bytes that one agent may have.
    max: u64,
    agents: Mutex<HashMap<Box<str>, Weak<AgentShare>>>,
}

/// The part of a budget that one agent has; all of its requests share this.
#[derive(Debug)]
struct AgentShare {
    agent: Box<str>,
    share: Share,
    shares: Arc<Shares>,
}

/// All shares that count the bytes of a request.
#[derive(Debug)]
pub(super) struct Claim {
    agent: Arc<AgentShare>,
    others: Box<[Arc<Share>]>,
}

impl Shares {
    pub(super) fn new(max: u64) -> Self {
        Self {
            max,
            agents: Mutex::default(),
        }
    }

    /// The shares of a holder.
    pub(super) fn of(self: &Arc<Self>, holder: Holder<'_>) -> Arc<Claim> {
        Arc::new(Claim {
            agent: self.of_agent(holder.agent),
            others: holder.shares.into(),
        })
    }

    fn of_agent(self: &Arc<Self>, agent: &str) -> Arc<AgentShare> {
        let mut agents = self.agents.lock();
        if let Some(share) = agents.get(agent).and_then(Weak::upgrade) {
            return share;
        }
        let share = Arc::new(AgentShare {
            agent: agent.into(),
            share: Share::new("one agent", self.max),
            shares: Arc::clone(self),
        });
        agents.insert(agent.into(), Arc::downgrade(&share));
        share
    }
}

impl Claim {
    fn all(&self) -> impl Iterator<Item = &Share> {
        let others = self.others.iter().map(|share| &**share);
        std::iter::once(&self.agent.share).chain(others)
    }

    /// The first share that has not `bytes` more.
    pub(super) fn lacking(&self, bytes: u64) -> Option<&Share> {
        self.all().find(|share| !share.fits(bytes))
    }

    /// The share that most other requests have, too: that of the protocol.
    fn common(&self) -> Option<&Arc<Share>> {
        self.others.last()
    }

    /// Whether [`Self::common`] is the same share.
    pub(super) fn has_common(&self, other: &Self) -> bool {
        match (self.common(), other.common()) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }

    /// Whether a new request of `bytes` is within [`Self::common`], now.
    pub(super) fn fits_common(&self, bytes: u64) -> bool {
        self.common().is_none_or(|share| share.fits(bytes))
    }

    /// Whether the agent and [`Self::common`] have `bytes` more, so that it is the connection that
    /// has not.
    pub(super) fn lacks_only_connection(&self, bytes: u64) -> bool {
        self.agent.share.fits(bytes) && self.fits_common(bytes)
    }

    /// Whether a new request of `bytes` is within all shares, now.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        self.lacking(bytes).is_none()
    }

    /// Takes `bytes` of every share for a request that has `own` already; nothing if one of them
    /// does not have them.
    pub(super) fn take(&self, bytes: u64, own: u64) -> bool {
        let mut taken: usize = 0;
        for share in self.all() {
            if !share.take(bytes, own) {
                self.all()
                    .take(taken)
                    .for_each(|share| share.give_back(bytes));
                return false;
            }
            taken = taken.saturating_add(1);
        }
        true
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.all().for_each(|share| share.give_back(bytes));
    }

    /// Whether the same shares count both.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let others = || self.others.iter().zip(&other.others);
        Arc::ptr_eq(&self.agent, &other.agent)
            && self.others.len() == other.others.len()
            && others().all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

impl Drop for AgentShare {
    fn drop(&mut self) {
        let mut agents = self.shares.agents.lock();
        // Another one may have taken the place since the last holder went away.
        let is_this = |listed: &Weak<Self>| std::ptr::eq(listed.as_ptr(), self);
        if agents.get(&self.agent).is_some_and(is_this) {
            agents.remove(&self.agent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_has_one_share_as_long_as_it_has_bytes() {
        let shares = Arc::new(Shares::new(100));
        let first = shares.of("a".into());
        assert!(first.take(60, 0) && shares.of("a".into()).take(40, 0));
        assert!(!shares.of("a".into()).take(1, 0) && shares.of("b".into()).take(1, 0));
        assert!(
            !first.take(1, 60) && first.take(1, 100),
            "alone, it may grow"
        );
        first.give_back(101);
        assert!(
            first.take(1000, 0),
            "a request of any size is admitted alone"
        );
        assert!(!first.fits(1));
        first.give_back(1000);
        drop(first);
        assert_eq!(shares.agents.lock().len(), 0);
    }

    #[test]
    fn every_share_of_a_request_counts_its_bytes() {
        let shares = Arc::new(Shares::new(100));
        let connection = Arc::new(Share::new("one connection", 30));
        let protocol = Arc::new(Share::new("this protocol", 50));
        let (both, one) = ([Arc::clone(&connection), Arc::clone(&protocol)], [protocol]);
        let holder = |agent, shares| Holder { agent, shares };
        let first = shares.of(holder("a", &both));
        assert!(first.take(30, 0));
        let second = shares.of(holder("b", &both));
        assert_eq!(second.lacking(1).map(Share::of), Some("one connection"));
        assert!(!second.take(1, 0), "the connection has its share");
        let elsewhere = shares.of(holder("b", &one));
        assert_eq!(elsewhere.lacking(21).map(Share::of), Some("this protocol"));
        assert!(!elsewhere.take(21, 0) && elsewhere.take(20, 0));
        assert!(
            shares.of("b".into()).take(80, 0),
            "nothing was taken in vain"
        );
        first.give_back(30);
        assert!(!second.take(30, 0), "agent b has its share");
        assert!(!first.is_same(&second) && first.is_same(&shares.of(holder("a", &both))));
    }
}
