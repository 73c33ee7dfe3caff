//! Lists of a JSON request, in memory that is bounded by its length: a list of empty objects takes
//! three bytes an element as text, and hundreds in memory.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

thread_local! {
    /// Bytes that elements of lists may still take while a request is read on this thread.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A list whose elements are counted.
pub(super) struct Counted<T>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Counted<T> {
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
                    if !count(size_of::<T>()) {
                        return Err(A::Error::custom("it takes more memory than it may"));
                    }
                    items.push(item);
                }
                Ok(items)
            }
        }
        input.deserialize_seq(Elements(PhantomData)).map(Self)
    }
}

fn count(bytes: usize) -> bool {
    let left = LEFT.get().and_then(|left| left.checked_sub(bytes));
    LEFT.set(left);
    left.is_some()
}

/// Reads with `bytes` for the elements of lists; `None` when they were not enough.
pub(super) fn within<T, E>(
    bytes: usize,
    read: impl FnOnce() -> Result<T, E>,
) -> Option<Result<T, E>> {
    LEFT.set(Some(bytes));
    let outcome = read();
    let was_enough = LEFT.take().is_some();
    (outcome.is_ok() || was_enough).then_some(outcome)
}
