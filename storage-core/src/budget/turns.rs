//! The requests that wait for admission: a queue for each agent, and the agents in turn.
//!
//! Agents whose requests have the same protocol are a ring. When all of the protocol's share is
//! taken, none of them is looked at, so that any number of them keeps nobody else waiting.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use tokio::sync::oneshot;

use super::share::Claim;
use crate::BytePermit;

/// Agents of a ring that are passed over at once, because they or their connection have their
/// share.
const PASSED_OVER_MAX: usize = 64;
/// Requests of one agent that are passed over at once, because their connection has its share.
const OF_AGENT_PASSED_OVER_MAX: usize = 8;

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
    /// Those that have somebody who waits. There are as many as protocols at most.
    rings: Vec<Ring>,
    /// The ring whose turn it is.
    chosen: Option<usize>,
    /// The next place in line.
    next: u64,
    len: usize,
}

/// The agents that wait for a share that all of them have.
#[derive(Debug, Default)]
struct Ring {
    lines: HashMap<Box<str>, Line>,
    /// Agents whose queue is not empty, by their places in the line of all rings.
    agents: VecDeque<(u64, Box<str>)>,
    /// The place in the queue of the first agent of the request whose turn it is.
    chosen: usize,
}

/// The requests of an agent, in the order of their arrival.
type Line = VecDeque<Waiter>;

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
        let place = self.place();
        let is_with = |ring: &&mut Ring| {
            let first = ring.lines.values().next().and_then(VecDeque::front);
            first.is_some_and(|first| first.share.has_common(share))
        };
        match self.rings.iter_mut().find(is_with) {
            Some(ring) => ring.enter((place, agent), waiter),
            None => {
                let mut ring = Ring::default();
                ring.enter((place, agent), waiter);
                self.rings.push(ring);
            }
        }
        self.len = self.len.saturating_add(1);
        answer
    }

    fn place(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// The request whose turn it is: of the first agent that has not its share. Cancelled requests
    /// are removed.
    pub(super) fn first(&mut self) -> Option<&Waiter> {
        let mut cancelled = 0;
        let places = self
            .rings
            .iter_mut()
            .map(|ring| ring.choose(&mut cancelled));
        let places: Vec<Option<u64>> = places.collect();
        assert!(
            self.len >= cancelled,
            "the length counts every waiting request"
        );
        self.len = self.len.saturating_sub(cancelled);
        let ready = places.into_iter().enumerate();
        let ready = ready.filter_map(|(ring, place)| Some((place?, ring)));
        self.chosen = ready.min().map(|(_, ring)| ring);
        // Only while none is chosen: that would get another number.
        if self.chosen.is_none() {
            self.rings.retain(|ring| !ring.agents.is_empty());
        }
        self.rings.get(self.chosen?)?.first()
    }

    /// Removes the request whose turn it is; the next turn is another agent's.
    pub(super) fn leave(&mut self) -> Option<Waiter> {
        let place = self.place();
        let chosen = self.chosen.take()?;
        let ring = self.rings.get_mut(chosen)?;
        let waiter = ring.leave(Some(place))?;
        if ring.agents.is_empty() {
            self.rings.swap_remove(chosen);
        }
        assert!(self.len > 0, "the length counts every waiting request");
        self.len = self.len.saturating_sub(1);
        Some(waiter)
    }
}

impl Ring {
    fn enter(&mut self, (place, agent): (u64, &str), waiter: Waiter) {
        match self.lines.get_mut(agent) {
            Some(line) => line.push_back(waiter),
            None => {
                self.lines.insert(agent.into(), VecDeque::from([waiter]));
                self.agents.push_back((place, agent.into()));
            }
        }
    }

    /// Brings the first agent that has not its share to the front, and returns its place. Removes
    /// cancelled requests, and counts them.
    fn choose(&mut self, cancelled: &mut usize) -> Option<u64> {
        let mut at: usize = 0;
        while at < PASSED_OVER_MAX {
            let (place, agent) = self.agents.get(at)?;
            let place = *place;
            let line = self.lines.get(agent)?;
            let Some(chosen) = first_that_fits(line) else {
                let first = line.front()?;
                if !first.share.fits_common(first.bytes) {
                    return None;
                }
                at = at.saturating_add(1);
                continue;
            };
            let is_cancelled = line.get(chosen)?.granted.is_closed();
            self.chosen = chosen;
            if let Some(agent) = self.agents.remove(at) {
                self.agents.push_front(agent);
            }
            if !is_cancelled {
                return Some(place);
            }
            self.leave(None)?;
            *cancelled = cancelled.saturating_add(1);
        }
        None
    }

    fn first(&self) -> Option<&Waiter> {
        let (_, agent) = self.agents.front()?;
        self.lines.get(agent)?.get(self.chosen)
    }

    /// Removes the chosen request of the agent in front, which gets a new place if it had its turn.
    fn leave(&mut self, place: Option<u64>) -> Option<Waiter> {
        let (_, agent) = self.agents.front()?;
        let line = self.lines.get_mut(agent)?;
        let waiter = line.remove(self.chosen)?;
        if line.is_empty() {
            self.lines.remove(agent);
            self.agents.pop_front();
        } else if let Some(place) = place
            && let Some((_, agent)) = self.agents.pop_front()
        {
            self.agents.push_back((place, agent));
        }
        Some(waiter)
    }
}

/// The first request of an agent that has its shares, or is cancelled. One that its connection
/// keeps waiting does not keep those of other connections waiting.
fn first_that_fits(line: &Line) -> Option<usize> {
    for (at, waiter) in line.iter().take(OF_AGENT_PASSED_OVER_MAX).enumerate() {
        if waiter.granted.is_closed() || waiter.share.fits(waiter.bytes) {
            return Some(at);
        }
        if !waiter.share.lacks_only_connection(waiter.bytes) {
            return None;
        }
    }
    None
}
