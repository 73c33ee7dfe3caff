//! What changed on the server, for those who follow it
//! (`docs/decisions/0112-followers-skip-states.md`).
//!
//! The table has the number of the last change of each thing. It holds no documents and no queues:
//! a follower asks which things changed after the last number that it knows, and reads them as
//! they are then. One that is slow skips states, and the server keeps nothing for it.
//!
//! Nobody reports changes to it. While somebody follows, one of the followers looks at everything
//! from time to time, for all of them.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use storage_format::{AgentId, StorageId};
use uuid::Uuid;

use crate::clock;

/// Followers at once. Each holds a connection, or a stream of one.
pub(crate) const FOLLOWERS_MAX: usize = 256;

/// Followers at once of one token, user, share, or address without any: one of them cannot take
/// all places.
pub(crate) const FOLLOWERS_OF_ONE_MAX: usize = 32;

/// Things that are gone and are remembered, for followers that were away.
const GONE_MAX: usize = 10_000;

/// Time between two looks at everything.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Looking takes at most this part of the time of one thread.
const LOOK_SHARE: u32 = 20;

/// What can change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Thing {
    /// The buffer of packets without a storage.
    Buffer,
    /// A storage, and how writing to it keeps up.
    Storage(StorageId),
    /// A recording.
    Recording(Uuid),
    /// A job.
    Job(Uuid),
    /// An agent, and what arrives in its streams.
    Agent(AgentId),
    /// The servers that share an object store.
    Nodes,
}

/// A change of a thing: the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) number: u64,
    pub(crate) thing: Thing,
    pub(crate) is_gone: bool,
}

#[derive(Debug)]
struct Known {
    /// `None`: it is gone.
    digest: Option<u64>,
    number: u64,
    /// The look that saw it last.
    look: u64,
}

/// The last change of each thing.
#[derive(Debug, Default)]
struct Table {
    things: HashMap<Thing, Known>,
    by_number: BTreeMap<u64, Thing>,
    gone: usize,
    /// The last change of all.
    number: u64,
    /// Changes up to this one may be forgotten.
    forgotten: u64,
    look: u64,
}

impl Table {
    fn change(&mut self, thing: Thing, digest: Option<u64>) {
        self.number += 1;
        let (number, look) = (self.number, self.look);
        let now = Known {
            digest,
            number,
            look,
        };
        self.gone += usize::from(digest.is_none());
        if let Some(before) = self.things.insert(thing.clone(), now) {
            self.by_number.remove(&before.number);
            self.gone -= usize::from(before.digest.is_none());
        }
        self.by_number.insert(number, thing);
    }

    /// Notes what all things are now; those that are not among them are gone.
    fn note(&mut self, seen: impl IntoIterator<Item = (Thing, u64)>) {
        self.look += 1;
        for (thing, digest) in seen {
            match self.things.get_mut(&thing) {
                Some(known) if known.digest == Some(digest) => known.look = self.look,
                _ => self.change(thing, Some(digest)),
            }
        }
        let look = self.look;
        let unseen = self.things.iter().filter(|(_, known)| known.look != look);
        let gone = unseen.filter(|(_, known)| known.digest.is_some());
        for thing in gone.map(|(thing, _)| thing.clone()).collect::<Vec<_>>() {
            self.change(thing, None);
        }
        self.forget();
    }

    fn forget(&mut self) {
        if self.gone <= GONE_MAX {
            return;
        }
        let of_gone = |thing: &Thing| self.things[thing].digest.is_none();
        let gone = self.by_number.iter().filter(|(_, thing)| of_gone(thing));
        let gone = gone.map(|(number, thing)| (*number, thing.clone()));
        for (number, thing) in gone.take(self.gone - GONE_MAX).collect::<Vec<_>>() {
            self.by_number.remove(&number);
            self.things.remove(&thing);
            self.gone -= 1;
            self.forgotten = number;
        }
    }

    fn since(&self, number: u64, max: usize) -> Option<Vec<Change>> {
        if number < self.forgotten || number > self.number {
            return None;
        }
        let later = self.by_number.range(number + 1..).take(max);
        let changes = later.map(|(&number, thing)| Change {
            number,
            is_gone: self.things[thing].digest.is_none(),
            thing: thing.clone(),
        });
        Some(changes.collect())
    }
}

/// The changes of a server, from its start.
pub(crate) struct ChangeFeed {
    /// Tells the numbers of this process from those of others.
    run: Uuid,
    digests: RandomState,
    table: Mutex<Table>,
    /// When the next look is due; held while somebody looks.
    next_look: Mutex<Option<Instant>>,
    places: Arc<Places>,
}

/// Who follows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// The token with this id; a share is one.
    Token(String),
    /// The user with this name.
    User(String),
    /// Somebody at this address, if it is known.
    Peer(Option<IpAddr>),
}

/// The places that are taken.
#[derive(Debug, Default)]
struct Places(Mutex<HashMap<Who, usize>>);

/// A place of a follower, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    who: Who,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock();
        if let Some(count) = taken.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.who);
            }
        }
    }
}

/// There is no place for one more follower, when so many are there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// All places are taken.
    All(usize),
    /// One has all it may have.
    OfOne(usize),
}

impl Default for ChangeFeed {
    fn default() -> Self {
        Self {
            run: clock::new_id(),
            digests: RandomState::new(),
            table: Mutex::default(),
            next_look: Mutex::default(),
            places: Arc::default(),
        }
    }
}

impl ChangeFeed {
    /// A place for one more follower, if there is one.
    pub(crate) fn enter(&self, who: Who) -> Result<Place, NoPlace> {
        let mut taken = self.places.0.lock();
        let of_one = taken.get(&who).copied().unwrap_or(0);
        if of_one >= FOLLOWERS_OF_ONE_MAX {
            return Err(NoPlace::OfOne(FOLLOWERS_OF_ONE_MAX));
        }
        if taken.values().sum::<usize>() >= FOLLOWERS_MAX {
            return Err(NoPlace::All(FOLLOWERS_MAX));
        }
        taken.insert(who.clone(), of_one + 1);
        let places = Arc::clone(&self.places);
        Ok(Place { places, who })
    }

    /// The digest of a document.
    pub(crate) fn digest(&self, document: &[u8]) -> u64 {
        self.digests.hash_one(document)
    }

    /// Whether a look is due, and nobody has begun it.
    pub(crate) fn is_look_due(&self) -> bool {
        let next = self.next_look.try_lock();
        next.is_some_and(|next| next.is_none_or(|next| Instant::now() >= next))
    }

    /// Looks at everything, if it is time to and nobody else does: `all` returns each thing with a
    /// digest of what it is.
    pub(crate) fn look(&self, all: impl FnOnce() -> Vec<(Thing, u64)>) {
        let Some(mut next) = self.next_look.try_lock() else {
            return;
        };
        let began = Instant::now();
        if next.is_some_and(|next| began < next) {
            return;
        }
        let seen = all();
        self.table.lock().note(seen);
        let took = began.elapsed();
        *next = Some(Instant::now() + LOOK_EVERY.max(took * LOOK_SHARE));
    }

    /// The number of the last change.
    pub(crate) fn last(&self) -> u64 {
        self.table.lock().number
    }

    /// The things that changed after the change with this number, at most `max` of them, in the
    /// order of their changes; `None` if that is not known any more.
    pub(crate) fn since(&self, number: u64, max: usize) -> Option<Vec<Change>> {
        self.table.lock().since(number, max)
    }

    /// How followers name a change.
    pub(crate) fn id_of(&self, number: u64) -> String {
        format!("{}-{number}", self.run.simple())
    }

    /// The change that an id of this process names.
    pub(crate) fn number_of(&self, id: &str) -> Option<u64> {
        let (run, number) = id.split_once('-')?;
        let is_own = run == self.run.simple().to_string();
        number.parse().ok().filter(|_| is_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(number: u128) -> Thing {
        Thing::Job(Uuid::from_u128(number))
    }

    fn told(table: &Table, number: u64) -> Vec<(Thing, bool)> {
        let changes = table.since(number, usize::MAX).unwrap();
        let pairs = changes.into_iter();
        pairs.map(|change| (change.thing, change.is_gone)).collect()
    }

    #[test]
    fn each_thing_is_told_once_as_it_is_last() {
        let mut table = Table::default();
        table.note([(job(1), 7), (job(2), 7)]);
        let began = table.number;
        assert_eq!(told(&table, began), []);
        for digest in 8..20 {
            table.note([(job(1), digest), (job(2), 7)]);
        }
        assert_eq!(told(&table, began), [(job(1), false)]);
        table.note([(job(1), 19), (job(3), 1)]);
        let all = [(job(1), false), (job(3), false), (job(2), true)];
        assert_eq!(told(&table, began), all);
        // It is back.
        table.note([(job(1), 19), (job(2), 7), (job(3), 1)]);
        assert_eq!(told(&table, began)[2], (job(2), false));
        assert_eq!((table.gone, table.by_number.len()), (0, 3));
        let first = table.since(began, 1).unwrap();
        assert_eq!((first.len(), &first[0].thing), (1, &job(1)));
    }

    #[test]
    fn what_is_gone_is_forgotten_in_the_end_and_that_is_known() {
        let mut table = Table::default();
        let many = GONE_MAX as u128 + 5;
        table.note((0..many).map(|number| (job(number), 1)));
        let began = table.number;
        table.note([(job(0), 1)]);
        assert_eq!((table.gone, table.things.len()), (GONE_MAX, GONE_MAX + 1));
        assert_eq!(table.since(began, 10), None);
        assert!(table.since(table.forgotten, 10).is_some());
        assert_eq!(table.since(table.number + 1, 10), None);
    }

    #[test]
    fn ids_name_changes_of_one_run() {
        let (feed, other) = (ChangeFeed::default(), ChangeFeed::default());
        assert_eq!(feed.number_of(&feed.id_of(12)), Some(12));
        assert_eq!(other.number_of(&feed.id_of(12)), None);
        for id in ["", "-", "12", "x-12", &format!("{}x", feed.id_of(1))] {
            assert_eq!(feed.number_of(id), None, "{id}");
        }
    }

    #[test]
    fn looks_and_followers_are_limited() {
        let feed = ChangeFeed::default();
        feed.look(|| vec![(Thing::Buffer, 1)]);
        feed.look(|| panic!("it is too early"));
        assert_eq!(feed.last(), 1);
        let one = || Who::Token("one".to_owned());
        let mut places = Vec::new();
        for _ in 0..FOLLOWERS_OF_ONE_MAX {
            places.push(feed.enter(one()).unwrap());
        }
        let full = NoPlace::OfOne(FOLLOWERS_OF_ONE_MAX);
        assert_eq!(feed.enter(one()).unwrap_err(), full);
        for number in places.len()..FOLLOWERS_MAX {
            places.push(feed.enter(Who::User(number.to_string())).unwrap());
        }
        let full = NoPlace::All(FOLLOWERS_MAX);
        assert_eq!(feed.enter(Who::Peer(None)).unwrap_err(), full);
        drop(places.pop());
        drop(feed.enter(Who::Peer(None)).unwrap());
        drop(places);
        assert!(feed.places.0.lock().is_empty());
    }
}
