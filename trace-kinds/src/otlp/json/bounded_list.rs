//! Lists of a JSON request in bounded memory: an empty object takes three bytes as an element of a
//! list in text, and hundreds in memory.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

/// What a request may still take.
#[derive(Debug, Clone, Copy)]
struct Left {
    /// Bytes of list elements.
    bytes: usize,
    /// Levels of maps and arrays.
    levels: u32,
    exceeded: Option<Exceeded>,
}

/// Which bound a request exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exceeded {
    Memory,
    Depth,
}

thread_local! {
    /// Of the request that this thread reads.
    static LEFT: Cell<Left> = const {
        Cell::new(Left { bytes: 0, levels: 0, exceeded: None })
    };
}

/// A list whose elements count against the limit.
pub(super) struct BoundedList<T>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for BoundedList<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Elements<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Elements<T> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    if items.len() == items.capacity() {
                        // What the list has room for takes memory, not only its elements.
                        let more = items.capacity().max(1);
                        if !take(more.saturating_mul(size_of::<T>())) {
                            return Err(A::Error::custom("it exceeds the limit on memory"));
                        }
                        items.reserve_exact(more);
                    }
                    items.push(item);
                }
                Ok(items)
            }
        }
        input.deserialize_seq(Elements(PhantomData)).map(Self)
    }
}

/// The elements; none if the list is null or missing.
pub(super) fn items<T>(list: Option<BoundedList<T>>) -> Vec<T> {
    list.map(|list| list.0).unwrap_or_default()
}

fn take(bytes: usize) -> bool {
    let mut left = LEFT.get();
    match left.bytes.checked_sub(bytes) {
        Some(bytes) => left.bytes = bytes,
        None => left.exceeded = Some(Exceeded::Memory),
    }
    LEFT.set(left);
    left.exceeded.is_none()
}

/// Reads something that is one level deeper than what contains it.
pub(super) fn deeper<T, E: Error>(read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let mut left = LEFT.get();
    let Some(levels) = left.levels.checked_sub(1) else {
        left.exceeded = Some(Exceeded::Depth);
        LEFT.set(left);
        return Err(E::custom("it exceeds the limit on levels"));
    };
    LEFT.set(Left { levels, ..left });
    let outcome = read();
    let after = LEFT.get();
    LEFT.set(Left {
        levels: left.levels,
        ..after
    });
    outcome
}

/// Calls `read` with a limit of `bytes` on the elements of all lists, and of `levels` on their
/// depth.
pub(super) fn with_limits<T, E>(
    bytes: usize,
    levels: u32,
    read: impl FnOnce() -> Result<T, E>,
) -> Result<Result<T, E>, Exceeded> {
    LEFT.set(Left {
        bytes,
        levels,
        exceeded: None,
    });
    let outcome = read();
    match (&outcome, LEFT.get().exceeded) {
        (Err(_), Some(exceeded)) => Err(exceeded),
        _ => Ok(outcome),
    }
}
