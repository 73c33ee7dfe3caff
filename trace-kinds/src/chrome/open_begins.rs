//! The begins that wait for their ends.
//!
//! A file may have any number of begins that never end, so an end does not look through them: for
//! all that ends ask for (a name, a category, any of either), the begins that fit are in a list
//! with the innermost first. A begin is in at most four lists, an end looks at the first of four.

use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashTable;

use super::side::Side;

/// What is asked of a name or a category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// The text that the begin or the end has itself.
    Own,
    /// None: an end with a text also ends a begin without one.
    Empty,
    /// Any: an end without a text ends every begin.
    Any,
}

impl Ask {
    fn of<T: Default>(self, own: T) -> Option<T> {
        match self {
            Self::Own => Some(own),
            Self::Empty => Some(T::default()),
            Self::Any => None,
        }
    }

    /// What an end with this text asks for.
    fn by_end<T: Default + PartialEq>(text: &T) -> &'static [Self] {
        if *text == T::default() {
            &[Self::Any]
        } else {
            &[Self::Own, Self::Empty]
        }
    }
}

/// The lists that a begin is in, if an end asks for them: by name and category.
const OF_BEGIN: [[Ask; 2]; 4] = [
    [Ask::Own, Ask::Own],
    [Ask::Own, Ask::Any],
    [Ask::Any, Ask::Own],
    [Ask::Any, Ask::Any],
];

/// Begins that fit to what an end asks for.
#[derive(Debug)]
struct List {
    /// The first end that asks for them.
    end: usize,
    ask: [Ask; 2],
    innermost: usize,
}

/// A begin in a list, and where the next one of the list is.
#[derive(Debug)]
struct Link {
    begin: usize,
    next: usize,
}

/// The end of a list.
const NONE: usize = usize::MAX;

/// The open begins among `sides`, which are known by their place in the order of their times.
pub(super) struct OpenBegins<'s, S> {
    sides: &'s [S],
    order: &'s [usize],
    lists: HashTable<List>,
    hasher: RandomState,
    links: Vec<Link>,
    is_paired: Vec<bool>,
}

impl<'s, S: Side> OpenBegins<'s, S> {
    pub(super) fn new(sides: &'s [S], order: &'s [usize]) -> Self {
        let mut begins = Self {
            sides,
            order,
            lists: HashTable::new(),
            hasher: RandomState::new(),
            links: Vec::new(),
            is_paired: vec![false; sides.len()],
        };
        for end in 0..order.len() {
            if !begins.side(end).is_begin() {
                begins.ask(end);
            }
        }
        begins
    }

    /// The side at this place in the order of times.
    pub(super) fn side(&self, at: usize) -> &'s S {
        &self.sides[self.order[at]]
    }

    /// Makes lists for what an end asks for.
    fn ask(&mut self, end: usize) {
        for ask in asked(self.side(end)) {
            if self.find(end, ask).is_none() {
                let list = List {
                    end,
                    ask,
                    innermost: NONE,
                };
                let hash = hash(&self.hasher, self.side(end), ask);
                let (sides, order, hasher) = (self.sides, self.order, &self.hasher);
                let rehash = |list: &List| self::hash(hasher, &sides[order[list.end]], list.ask);
                self.lists.insert_unique(hash, list, rehash);
            }
        }
    }

    fn find(&mut self, at: usize, ask: [Ask; 2]) -> Option<&mut List> {
        let (sides, order) = (self.sides, self.order);
        let wanted = key(&sides[order[at]], ask);
        let is_same = |list: &List| key(&sides[order[list.end]], list.ask) == wanted;
        let hash = hash(&self.hasher, &sides[order[at]], ask);
        self.lists.find_mut(hash, is_same)
    }

    /// Adds a begin, which is the innermost now.
    pub(super) fn push(&mut self, begin: usize) {
        for ask in OF_BEGIN {
            let link = self.links.len();
            if let Some(list) = self.find(begin, ask) {
                let next = std::mem::replace(&mut list.innermost, link);
                self.links.push(Link { begin, next });
            }
        }
    }

    /// Takes the innermost begin that an end ends.
    pub(super) fn take(&mut self, end: usize) -> Option<usize> {
        let mut innermost = None;
        for ask in asked(self.side(end)) {
            innermost = innermost.max(self.innermost(end, ask));
        }
        let begin: usize = innermost?;
        (self.is_paired[begin], self.is_paired[end]) = (true, true);
        Some(begin)
    }

    /// The innermost open begin of a list. Those that ended are omitted, each once.
    fn innermost(&mut self, end: usize, ask: [Ask; 2]) -> Option<usize> {
        let first = self.find(end, ask)?.innermost;
        let mut at = first;
        while let Some(link) = self.links.get(at)
            && self.is_paired[link.begin]
        {
            at = link.next;
        }
        if at != first {
            self.find(end, ask)?.innermost = at;
        }
        Some(self.links.get(at)?.begin)
    }

    /// Whether each of the sides has a partner, in the order they were given.
    pub(super) fn into_paired(self) -> Vec<bool> {
        let mut is_paired = vec![false; self.sides.len()];
        for (at, place) in self.order.iter().enumerate() {
            is_paired[*place] = self.is_paired[at];
        }
        is_paired
    }
}

fn asked<S: Side>(end: &S) -> impl Iterator<Item = [Ask; 2]> + use<S> {
    let (names, cats) = (Ask::by_end(&end.name()), Ask::by_end(&end.cat()));
    names
        .iter()
        .flat_map(move |name| cats.iter().map(move |cat| [*name, *cat]))
}

type Key<S> = (
    <S as Side>::Track,
    Option<<S as Side>::Text>,
    Option<<S as Side>::Text>,
);

fn key<S: Side>(side: &S, [name, cat]: [Ask; 2]) -> Key<S> {
    (side.track(), name.of(side.name()), cat.of(side.cat()))
}

fn hash<S: Side>(hasher: &RandomState, side: &S, ask: [Ask; 2]) -> u64 {
    hasher.hash_one(key(side, ask))
}
