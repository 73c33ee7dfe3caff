//! Shares of a budget: how much of it one agent may have.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

/// The agents that have a part of a budget.
#[derive(Debug)]
pub(super) struct Shares {
    /// Bytes that one agent may have.
    max: u64,
    agents: Mutex<HashMap<Box<str>, Weak<AgentShare>>>,
}

/// The part of a budget that one agent has; all of its requests share this.
#[derive(Debug)]
pub(super) struct AgentShare {
    agent: Box<str>,
    used: AtomicU64,
    shares: Arc<Shares>,
}

impl Shares {
    pub(super) fn new(max: u64) -> Self {
        Self {
            max,
            agents: Mutex::default(),
        }
    }

    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// The share of an agent.
    pub(super) fn of(self: &Arc<Self>, agent: &str) -> Arc<AgentShare> {
        let mut agents = self.agents.lock();
        if let Some(share) = agents.get(agent).and_then(Weak::upgrade) {
            return share;
        }
        let share = Arc::new(AgentShare {
            agent: agent.into(),
            used: AtomicU64::new(0),
            shares: Arc::clone(self),
        });
        agents.insert(agent.into(), Arc::downgrade(&share));
        share
    }
}

impl AgentShare {
    /// Whether `bytes` more are within the share. A request may have more than the share when the
    /// agent has no other: `own` are the bytes that it has already.
    fn allows(&self, used: u64, bytes: u64, own: u64) -> bool {
        used <= own || used.saturating_add(bytes) <= self.shares.max
    }

    /// As [`Self::allows`], now, for a new request.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        self.allows(self.used.load(Ordering::SeqCst), bytes, 0)
    }

    /// Takes `bytes` for a request that has `own` already; whether they are within the share.
    pub(super) fn take(&self, bytes: u64, own: u64) -> bool {
        let after = |used: u64| {
            self.allows(used, bytes, own)
                .then(|| used.saturating_add(bytes))
        };
        let taken = self
            .used
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, after);
        taken.is_ok()
    }

    pub(super) fn give_back(&self, bytes: u64) {
        let used = self.used.fetch_sub(bytes, Ordering::SeqCst);
        assert!(used >= bytes, "an agent returns what it took");
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
        let first = shares.of("a");
        assert!(first.take(60, 0) && shares.of("a").take(40, 0));
        assert!(!shares.of("a").take(1, 0) && shares.of("b").take(1, 0));
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
}
