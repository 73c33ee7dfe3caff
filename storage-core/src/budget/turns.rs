//! The requests that wait for admission: a queue for each agent, and the agents in turn.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use tokio::sync::oneshot;

use super::share::Claim;
use crate::BytePermit;

/// Agents that are passed over at once, because they have their share.
const PASSED_OVER_MAX: usize = 64;

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) bytes: u64,
    pub(super) share: Arc<Claim>,
    pub(super) granted: oneshot::Sender<BytePermit>,
}

/// All waiting requests.
#[derive(Debug, Default)]
pub(super) struct Turns {
    lines: HashMap<Box<str>, VecDeque<Waiter>>,
    /// Agents whose queue is not empty; it is the turn of the first one.
    agents: VecDeque<Box<str>>,
    len: usize,
}

impl Turns {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a request to the queue of its agent.
    pub(super) fn enter(
        &mut self,
        agent: &str,
        share: &Arc<Claim>,
        bytes: u64,
    ) -> oneshot::Receiver<BytePermit> {
        let (granted, answer) = oneshot::channel();
        let waiter = Waiter {
            bytes,
            share: Arc::clone(share),
            granted,
        };
        match self.lines.get_mut(agent) {
            Some(line) => line.push_back(waiter),
            None => {
                self.lines.insert(agent.into(), VecDeque::from([waiter]));
                self.agents.push_back(agent.into());
            }
        }
        self.len = self.len.saturating_add(1);
        answer
    }

    /// The request whose turn it is: of the first agent that has not its share. Cancelled requests
    /// are removed.
    pub(super) fn first(&mut self) -> Option<&Waiter> {
        let mut at: usize = 0;
        loop {
            let agent = self.agents.get(at)?;
            let first = self.lines.get(agent)?.front()?;
            let is_cancelled = first.granted.is_closed();
            if !is_cancelled && !first.share.fits(first.bytes) {
                at = at.saturating_add(1);
                if at >= PASSED_OVER_MAX {
                    return None;
                }
                continue;
            }
            if let Some(agent) = self.agents.remove(at) {
                self.agents.push_front(agent);
            }
            if !is_cancelled {
                break;
            }
            self.take_first(false);
        }
        self.lines.get(self.agents.front()?)?.front()
    }

    /// Removes the request whose turn it is; the next turn is another agent's.
    pub(super) fn leave(&mut self) -> Option<Waiter> {
        self.take_first(true)
    }

    fn take_first(&mut self, was_its_turn: bool) -> Option<Waiter> {
        let agent = self.agents.front()?;
        let line = self.lines.get_mut(agent)?;
        let waiter = line.pop_front()?;
        assert!(self.len > 0, "the length counts every waiting request");
        self.len = self.len.saturating_sub(1);
        if line.is_empty() {
            self.lines.remove(agent);
            self.agents.pop_front();
        } else if was_its_turn {
            self.agents.rotate_left(1);
        }
        Some(waiter)
    }
}
