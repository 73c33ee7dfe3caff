//! The open connections: whether one more is admitted, and which one is closed for it.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::readers::Readers;
use crate::metrics::{ConnectionState, StateGauges};

/// Connections above `http.connections_max`: for connections that are being closed, and for
/// requests for health and metrics while every other connection is in use.
pub(crate) const RESERVE: usize = 64;

/// One search for idle connections finds this many, so that a flood of new connections does not
/// search all open ones each time.
const CANDIDATES: usize = 64;

/// What a connection is doing, shared with its task.
#[derive(Debug)]
pub(super) struct Activity {
    opened: Instant,
    /// Milliseconds from `opened` to the last byte received or sent.
    last_milliseconds: AtomicU64,
    /// Requests that have arrived whose responses have not begun; on HTTP/2, not ended.
    answering: AtomicUsize,
    /// Responses on HTTP/2 of which something waits for the client.
    unsent_responses: AtomicUsize,
    /// Whether the client is in the middle of a request.
    is_reading: AtomicBool,
    /// Whether the last response is sent, and what the client still sends is thrown away.
    is_lingering: AtomicBool,
    close: Notify,
    drop: Notify,
    /// The state that `gauges` count.
    counted: Mutex<ConnectionState>,
    gauges: StateGauges,
    readers: Readers,
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.gauges.moved(Some(*self.counted.lock()), None);
        if self.is_reading.load(Ordering::Relaxed) {
            self.readers.change(false);
        }
    }
}

impl Activity {
    /// Of a connection that was just opened.
    pub(super) fn new(gauges: StateGauges, readers: Readers) -> Self {
        gauges.moved(None, Some(ConnectionState::Idle));
        Self {
            opened: Instant::now(),
            last_milliseconds: AtomicU64::new(0),
            answering: AtomicUsize::new(0),
            unsent_responses: AtomicUsize::new(0),
            is_reading: AtomicBool::new(false),
            is_lingering: AtomicBool::new(false),
            close: Notify::new(),
            drop: Notify::new(),
            counted: Mutex::new(ConnectionState::Idle),
            gauges,
            readers,
        }
    }

    /// Counts the connection in the state in which it is now.
    fn count(&self) {
        let mut counted = self.counted.lock();
        let state = if self.is_reading.load(Ordering::Relaxed) {
            ConnectionState::Reading
        } else if self.answering.load(Ordering::Relaxed) > 0 {
            ConnectionState::Answering
        } else {
            ConnectionState::Idle
        };
        if *counted != state {
            self.gauges.moved(Some(*counted), Some(state));
            *counted = state;
        }
    }

    /// Bytes were received, and the client is in the middle of a request or not.
    pub(super) fn received(&self, is_within_request: bool) {
        self.touch();
        if self.is_reading.swap(is_within_request, Ordering::Relaxed) != is_within_request {
            self.readers.change(is_within_request);
            self.count();
        }
    }

    /// How many bytes the connection may read at once.
    pub(super) fn read_bytes_max(&self) -> usize {
        self.readers.read_bytes_max()
    }

    /// Bytes were received or sent.
    pub(super) fn touch(&self) {
        let elapsed = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_milliseconds.store(elapsed, Ordering::Relaxed);
    }

    pub(super) fn set_unsent_responses(&self, count: usize) {
        self.unsent_responses.store(count, Ordering::Relaxed);
    }

    /// Whether something of a response waits for the client, on HTTP/2.
    pub(super) fn has_unsent_responses(&self) -> bool {
        self.unsent_responses.load(Ordering::Relaxed) > 0
    }

    /// A request arrived; its response begins when the guard is dropped.
    pub(super) fn answering(self: &Arc<Self>) -> Answering {
        self.answering.fetch_add(1, Ordering::Relaxed);
        self.count();
        Answering(Arc::clone(self))
    }

    /// Closes the connection after its current responses.
    pub(super) fn request_close(&self) {
        self.close.notify_one();
    }

    /// Completes when the connection is to be closed because another one needs its place.
    pub(super) async fn closing(&self) {
        self.close.notified().await;
    }

    /// The last response is sent; from now on the connection only waits for its client.
    pub(super) fn lingers(&self) {
        self.is_lingering.store(true, Ordering::Relaxed);
    }

    /// Completes when the connection is to be ended without further waiting, because another one
    /// needs its place.
    pub(super) async fn dropping(&self) {
        self.drop.notified().await;
    }

    /// Whether no byte was received or sent for this long, and no request is being answered.
    pub(super) fn is_quiet(&self, limit: Duration) -> bool {
        self.idle_since()
            .is_some_and(|since| since.elapsed() >= limit)
    }

    /// When the last byte was received or sent; `None` while a request is being answered.
    fn idle_since(&self) -> Option<Instant> {
        if self.answering.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let milliseconds = self.last_milliseconds.load(Ordering::Relaxed);
        let idle_since = self.opened.checked_add(Duration::from_millis(milliseconds));
        Some(idle_since.unwrap_or(self.opened))
    }
}

/// A request is being answered.
pub(crate) struct Answering(Arc<Activity>);

/// The connection of a request on HTTP/1, where a response counts as begun once its head is ready.
#[derive(Clone)]
pub(crate) struct InUse(Arc<Activity>);

impl InUse {
    pub(super) fn new(activity: &Arc<Activity>) -> Self {
        Self(Arc::clone(activity))
    }

    /// Keeps the connection from being closed as idle: its body has no end that it could wait for.
    pub(crate) fn hold(&self) -> Answering {
        self.0.answering()
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
        self.0.count();
        self.0.touch();
    }
}

/// What a new connection may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// Any request.
    Any,
    /// Health and metrics; other requests are refused, and the connection is closed.
    HealthOnly,
    /// No connection can be opened until another one ends.
    Full,
}

struct Entry {
    activity: Arc<Activity>,
    peer: IpAddr,
    /// Told to close, but still open.
    is_closing: bool,
    /// Told to end at once.
    is_dropped: bool,
}

/// The open connections by the id of their task.
pub(super) struct Registry<Id> {
    connections_max: usize,
    per_peer_max: usize,
    entries: HashMap<Id, Entry>,
    by_peer: HashMap<IpAddr, usize>,
    /// The connections that were idle longest at the last search, the longest last.
    candidates: Vec<(Instant, Id)>,
    /// The connections that lingered at the last search.
    lingering: Vec<Id>,
}

impl<Id: Copy + Eq + Hash> Registry<Id> {
    /// No connections; `per_peer_max` limits those of one address other than loopback.
    pub(super) fn new(connections_max: usize, per_peer_max: usize) -> Self {
        Self {
            connections_max,
            per_peer_max,
            entries: HashMap::new(),
            by_peer: HashMap::new(),
            candidates: Vec::new(),
            lingering: Vec::new(),
        }
    }

    /// Decides about a new connection of `peer`, and closes the connection that is idle longest
    /// if there are too many. The flag says whether one was closed.
    pub(super) fn admit(&mut self, peer: IpAddr) -> (Admission, bool) {
        let of_peer = self.by_peer.get(&peer).copied().unwrap_or(0);
        // A proxy on the same machine connects for many clients.
        let is_peer_full = !peer.is_loopback() && of_peer >= self.per_peer_max;
        if self.entries.len() < self.connections_max && !is_peer_full {
            return (Admission::Any, false);
        }
        let has_closed = if is_peer_full {
            self.close_idle_of(peer)
        } else {
            self.close_idle()
        };
        let excess = self.entries.len().saturating_sub(self.connections_max);
        let admission = if excess >= RESERVE {
            // Clients that keep sending after a refusal must not hold the places for health.
            self.drop_lingering();
            Admission::Full
        } else if has_closed && excess < RESERVE / 2 {
            Admission::Any
        } else {
            // Those that were told to close may take their time: a part of the reserve is not for
            // their successors.
            Admission::HealthOnly
        };
        (admission, has_closed)
    }

    /// A connection was opened.
    pub(super) fn opened(&mut self, id: Id, peer: IpAddr, activity: Arc<Activity>) {
        *self.by_peer.entry(peer).or_default() += 1;
        let entry = Entry {
            activity,
            peer,
            is_closing: false,
            is_dropped: false,
        };
        let replaced = self.entries.insert(id, entry);
        debug_assert!(replaced.is_none(), "the id of an open connection is unique");
    }

    /// A connection ended.
    pub(super) fn ended(&mut self, id: Id) {
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        if let Some(count) = self.by_peer.get_mut(&entry.peer) {
            *count -= 1;
            if *count == 0 {
                self.by_peer.remove(&entry.peer);
            }
        }
    }

    /// Closes the connection that is idle longest. `false` if all are in use.
    pub(super) fn close_idle(&mut self) -> bool {
        if self.close_candidate() {
            return true;
        }
        let mut idle: Vec<(Instant, Id)> = self
            .entries
            .iter()
            .filter(|(_, entry)| !entry.is_closing)
            .filter_map(|(id, entry)| Some((entry.activity.idle_since()?, *id)))
            .collect();
        if idle.len() > CANDIDATES {
            idle.select_nth_unstable_by_key(CANDIDATES, |(since, _)| *since);
            idle.truncate(CANDIDATES);
        }
        idle.sort_unstable_by_key(|(since, _)| std::cmp::Reverse(*since));
        self.candidates = idle;
        self.close_candidate()
    }

    /// Closes the candidate that is idle longest, if it still is idle.
    fn close_candidate(&mut self) -> bool {
        while let Some((since, id)) = self.candidates.pop() {
            let Some(entry) = self.entries.get_mut(&id) else {
                continue;
            };
            if !entry.is_closing && entry.activity.idle_since() == Some(since) {
                entry.is_closing = true;
                entry.activity.request_close();
                return true;
            }
        }
        false
    }

    /// Ends a connection that has its last response, if there is one.
    fn drop_lingering(&mut self) {
        if self.lingering.is_empty() {
            let is_free = |entry: &Entry| {
                !entry.is_dropped && entry.activity.is_lingering.load(Ordering::Relaxed)
            };
            let entries = self.entries.iter().filter(|(_, entry)| is_free(entry));
            self.lingering = entries.map(|(id, _)| *id).take(CANDIDATES).collect();
        }
        while let Some(id) = self.lingering.pop() {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.is_dropped = true;
                entry.activity.drop.notify_one();
                return;
            }
        }
    }

    fn close_idle_of(&mut self, peer: IpAddr) -> bool {
        let longest = self
            .entries
            .values_mut()
            .filter(|entry| entry.peer == peer && !entry.is_closing)
            .filter_map(|entry| Some((entry.activity.idle_since()?, entry)))
            .min_by_key(|(since, _)| *since);
        let Some((_, entry)) = longest else {
            return false;
        };
        entry.is_closing = true;
        entry.activity.request_close();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Metrics, Port};

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn remote(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// Opens connection `id`, whose last byte came `milliseconds` after it was opened.
    fn open(
        registry: &mut Registry<u32>,
        id: u32,
        peer: IpAddr,
        milliseconds: u64,
    ) -> Arc<Activity> {
        let gauges = Metrics::default().connections.states(Port::Main);
        let activity = Arc::new(Activity::new(gauges, Readers::default()));
        activity
            .last_milliseconds
            .store(milliseconds, Ordering::Relaxed);
        registry.opened(id, peer, Arc::clone(&activity));
        activity
    }

    async fn is_closed(activity: &Activity) -> bool {
        tokio::time::timeout(Duration::ZERO, activity.closing())
            .await
            .is_ok()
    }

    #[test]
    fn a_connection_is_counted_in_the_state_in_which_it_is() {
        let metrics = Metrics::default();
        let counted = || {
            let text = String::from_utf8(metrics.render()).unwrap();
            ["idle", "reading", "answering"].map(|state| {
                let name = format!(
                    "tracehold_http_connections_by_state{{port=\"otlp\",state=\"{state}\"}} "
                );
                let line = text.lines().find_map(|line| line.strip_prefix(&name));
                line.unwrap().to_owned()
            })
        };
        let gauges = metrics.connections.states(Port::Otlp);
        let activity = Arc::new(Activity::new(gauges, Readers::default()));
        assert_eq!(counted(), ["1", "0", "0"]);
        activity.received(true);
        assert_eq!(counted(), ["0", "1", "0"]);
        let answering = activity.answering();
        assert_eq!(counted(), ["0", "1", "0"], "its body has yet to arrive");
        activity.received(false);
        let second = activity.answering();
        assert_eq!(counted(), ["0", "0", "1"]);
        drop(answering);
        assert_eq!(counted(), ["0", "0", "1"]);
        drop(second);
        assert_eq!(counted(), ["1", "0", "0"]);
        drop(activity);
        assert_eq!(counted(), ["0", "0", "0"]);
    }

    #[tokio::test]
    async fn the_connection_that_is_idle_longest_is_closed() {
        let mut registry = Registry::new(3, 100);
        let young = open(&mut registry, 1, LOCAL, 9_000_000);
        let answering = open(&mut registry, 2, LOCAL, 0);
        let _answer = answering.answering();
        let old = open(&mut registry, 3, LOCAL, 5_000_000);
        assert_eq!(registry.admit(LOCAL), (Admission::Any, true));
        assert!(is_closed(&old).await);
        assert!(!is_closed(&young).await && !is_closed(&answering).await);

        // It is still open, so that the next one takes its turn.
        assert_eq!(registry.admit(LOCAL), (Admission::Any, true));
        assert!(is_closed(&young).await);

        // All that is left is in use.
        assert_eq!(registry.admit(LOCAL), (Admission::HealthOnly, false));
        registry.ended(1);
        assert_eq!(registry.admit(LOCAL), (Admission::Any, false));
    }

    #[tokio::test]
    async fn a_candidate_that_was_used_meanwhile_is_not_closed() {
        let mut registry = Registry::new(2, 100);
        let first = open(&mut registry, 1, LOCAL, 1_000_000);
        let second = open(&mut registry, 2, LOCAL, 2_000_000);
        let third = open(&mut registry, 3, LOCAL, 3_000_000);
        assert_eq!(registry.admit(LOCAL), (Admission::Any, true));
        assert!(is_closed(&first).await);
        second.last_milliseconds.store(4_000_000, Ordering::Relaxed);
        assert_eq!(registry.admit(LOCAL), (Admission::Any, true));
        assert!(is_closed(&third).await && !is_closed(&second).await);
    }

    #[test]
    fn the_reserve_is_bounded() {
        let mut registry = Registry::new(1, 100);
        let mut activities = Vec::new();
        for id in 0..=u32::try_from(RESERVE).unwrap() {
            activities.push(open(&mut registry, id, LOCAL, 0));
        }
        let answers: Vec<_> = activities
            .iter()
            .map(|activity| activity.answering())
            .collect();
        assert_eq!(registry.admit(LOCAL), (Admission::Full, false));
        registry.ended(0);
        assert_eq!(registry.admit(LOCAL), (Admission::HealthOnly, false));
        drop(answers);
    }

    #[tokio::test]
    async fn connections_that_linger_end_when_the_reserve_is_used_up() {
        let mut registry = Registry::new(1, 100);
        let count = u32::try_from(RESERVE).unwrap() + 1;
        let activities: Vec<_> = (0..count)
            .map(|id| open(&mut registry, id, LOCAL, 0))
            .collect();
        let answers: Vec<_> = activities
            .iter()
            .map(|activity| activity.answering())
            .collect();
        let (lingering, answered) = (&activities[7], &activities[8]);
        lingering.lingers();
        answered.lingers();
        assert_eq!(registry.admit(LOCAL), (Admission::Full, false));
        assert_eq!(registry.admit(LOCAL), (Admission::Full, false));
        for (id, activity) in activities.iter().enumerate() {
            let dropped = tokio::time::timeout(Duration::ZERO, activity.dropping()).await;
            assert_eq!(dropped.is_ok(), matches!(id, 7 | 8), "connection {id}");
        }
        registry.ended(7);
        assert_eq!(registry.admit(LOCAL), (Admission::HealthOnly, false));
        drop(answers);
    }

    #[test]
    fn connections_that_are_slow_to_close_leave_places_for_health() {
        let mut registry = Registry::new(4, 100);
        let mut admitted = Vec::new();
        let mut kept = Vec::new();
        for id in 0..u32::try_from(4 + RESERVE).unwrap() {
            admitted.push(registry.admit(LOCAL).0);
            kept.push(open(&mut registry, id, LOCAL, 0));
        }
        let (any, health) = admitted.split_at(4 + RESERVE / 2);
        assert!(any.iter().all(|each| *each == Admission::Any));
        assert!(health.iter().all(|each| *each == Admission::HealthOnly));
        assert_eq!(registry.admit(LOCAL).0, Admission::Full);
    }

    #[tokio::test]
    async fn one_peer_cannot_take_all_connections() {
        let mut registry = Registry::new(100, 2);
        let other = open(&mut registry, 1, remote(1), 0);
        let old = open(&mut registry, 2, remote(2), 1_000_000);
        let young = open(&mut registry, 3, remote(2), 2_000_000);
        assert_eq!(registry.admit(remote(1)), (Admission::Any, false));
        assert_eq!(registry.admit(LOCAL), (Admission::Any, false));
        assert_eq!(registry.admit(remote(2)), (Admission::Any, true));
        assert!(is_closed(&old).await);
        let _answer = young.answering();
        assert_eq!(registry.admit(remote(2)), (Admission::HealthOnly, false));
        assert!(!is_closed(&other).await);
        registry.ended(2);
        assert_eq!(registry.admit(remote(2)), (Admission::Any, false));
    }
}
