//! The requests that wait for admission: a queue for each agent, and the agents in turn.

use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot;

use crate::BytePermit;

#[derive(Debug)]
struct Waiter {
    bytes: u64,
    granted: oneshot::Sender<BytePermit>,
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
    pub(super) fn enter(&mut self, agent: &str, bytes: u64) -> oneshot::Receiver<BytePermit> {
        let (granted, answer) = oneshot::channel();
        let waiter = Waiter { bytes, granted };
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

    /// Bytes of the request whose turn it is. Cancelled requests are removed.
    pub(super) fn first(&mut self) -> Option<u64> {
        loop {
            let agent = self.agents.front()?;
            let first = self.lines.get(agent)?.front()?;
            if !first.granted.is_closed() {
                return Some(first.bytes);
            }
            self.take_first(false);
        }
    }

    /// Removes the request whose turn it is; the next turn is another agent's.
    pub(super) fn leave(&mut self) -> Option<oneshot::Sender<BytePermit>> {
        self.take_first(true).map(|waiter| waiter.granted)
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
