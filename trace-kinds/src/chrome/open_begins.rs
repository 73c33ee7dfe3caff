//! The begins that wait for their ends.
//!
//! A file may have any number of begins that never end, so an end does not look through them: for
//! all that ends ask for (a name, a category, any of either), the begins that fit are in a list
//! with the innermost first. A begin is in at most four lists, an end looks at the first of four.
//!
//! A list that no begin is in is not made: otherwise a trace of ends alone would take more memory
//! for lists than for its text.

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
    end: u32,
    innermost: u32,
    ask: [Ask; 2],
}

/// A begin in a list, and where the next one of the list is.
#[derive(Debug)]
struct Link {
    begin: u32,
    next: u32,
}

/// The end of a list.
const NONE: u32 = u32::MAX;

/// There is one list for each ask of each end, and one link for each list of a begin, so packets
/// and marks decide how much memory pairing takes.
const _: () = assert!(size_of::<List>() == 12 && size_of::<Link>() == 8);

/// Sides that are paired at most: links are counted in 32 bits, of which a begin has four.
pub(super) const SIDES_MAX: usize = (u32::MAX / 4) as usize;

/// Bits of [`Answers`] for each side: a begin sets four of them.
const BITS_OF_SIDE: usize = 16;

/// What begins can answer, as a set of hashes: whatever is not in it needs no list.
struct Answers {
    bits: Vec<u64>,
}

impl Answers {
    fn new(sides: usize) -> Self {
        let bits = (sides * BITS_OF_SIDE).next_power_of_two().max(64);
        Self {
            bits: vec![0; bits / 64],
        }
    }

    fn place(&self, hash: u64) -> (usize, u64) {
        let mask = self.bits.len() as u64 * 64 - 1;
        // The number of a bit is below that of all of them, which fit in memory.
        let bit = (hash >> 7) & mask;
        (usize::try_from(bit / 64).unwrap_or(0), 1 << (bit % 64))
    }

    fn insert(&mut self, hash: u64) {
        let (at, bit) = self.place(hash);
        self.bits[at] |= bit;
    }

    fn may_have(&self, hash: u64) -> bool {
        let (at, bit) = self.place(hash);
        self.bits[at] & bit != 0
    }
}

/// The open begins among `sides`, which are known by their place in the order of their times.
pub(super) struct OpenBegins<'s, S> {
    sides: &'s [S],
    order: &'s [u32],
    lists: HashTable<List>,
    hasher: RandomState,
    links: Vec<Link>,
    is_paired: Vec<bool>,
}

impl<'s, S: Side> OpenBegins<'s, S> {
    pub(super) fn new(sides: &'s [S], order: &'s [u32]) -> Self {
        let mut begins = Self {
            sides,
            order,
            lists: HashTable::new(),
            hasher: RandomState::new(),
            links: Vec::new(),
            is_paired: vec![false; sides.len()],
        };
        let mut answers = Answers::new(sides.len());
        for begin in sides.iter().filter(|side| side.is_begin()) {
            for ask in OF_BEGIN {
                answers.insert(hash(&begins.hasher, begin, ask));
            }
        }
        for end in (0..).take(order.len()) {
            if !begins.side(end).is_begin() {
                begins.ask(end, &answers);
            }
        }
        begins
    }

    /// How many lists there are.
    #[cfg(test)]
    pub(super) fn lists(&self) -> usize {
        self.lists.len()
    }

    /// The side at this place in the order of times.
    pub(super) fn side(&self, at: u32) -> &'s S {
        &self.sides[self.order[at as usize] as usize]
    }

    /// Makes lists for what an end asks for and begins can answer.
    fn ask(&mut self, end: u32, answers: &Answers) {
        for ask in asked(self.side(end)) {
            let hash = hash(&self.hasher, self.side(end), ask);
            if answers.may_have(hash) && self.find(end, ask).is_none() {
                let list = List {
                    end,
                    ask,
                    innermost: NONE,
                };
                let (sides, order, hasher) = (self.sides, self.order, &self.hasher);
                let rehash = |list: &List| {
                    let end = &sides[order[list.end as usize] as usize];
                    self::hash(hasher, end, list.ask)
                };
                self.lists.insert_unique(hash, list, rehash);
            }
        }
    }

    fn find(&mut self, at: u32, ask: [Ask; 2]) -> Option<&mut List> {
        let (sides, order) = (self.sides, self.order);
        let side = |at: u32| &sides[order[at as usize] as usize];
        let wanted = key(side(at), ask);
        let is_same = |list: &List| key(side(list.end), list.ask) == wanted;
        let hash = hash(&self.hasher, side(at), ask);
        self.lists.find_mut(hash, is_same)
    }

    /// Adds a begin, which is the innermost now.
    pub(super) fn push(&mut self, begin: u32) {
        for ask in OF_BEGIN {
            // A begin has at most four, of at most `SIDES_MAX` sides.
            let link = u32::try_from(self.links.len()).unwrap_or(NONE);
            if let Some(list) = self.find(begin, ask) {
                let next = std::mem::replace(&mut list.innermost, link);
                self.links.push(Link { begin, next });
            }
        }
    }

    /// Takes the innermost begin that an end ends.
    pub(super) fn take(&mut self, end: u32) -> Option<u32> {
        let mut innermost = None;
        for ask in asked(self.side(end)) {
            innermost = innermost.max(self.innermost(end, ask));
        }
        let begin: u32 = innermost?;
        self.is_paired[begin as usize] = true;
        self.is_paired[end as usize] = true;
        Some(begin)
    }

    /// The innermost open begin of a list. Those that ended are omitted, each once.
    fn innermost(&mut self, end: u32, ask: [Ask; 2]) -> Option<u32> {
        let first = self.find(end, ask)?.innermost;
        let mut at = first;
        while let Some(link) = self.links.get(at as usize)
            && self.is_paired[link.begin as usize]
        {
            at = link.next;
        }
        if at != first {
            self.find(end, ask)?.innermost = at;
        }
        Some(self.links.get(at as usize)?.begin)
    }

    /// Whether each of the sides has a partner, in the order they were given.
    pub(super) fn into_paired(self) -> Vec<bool> {
        let mut is_paired = vec![false; self.sides.len()];
        for (at, place) in self.order.iter().enumerate() {
            is_paired[*place as usize] = self.is_paired[at];
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
