//! Lists of a JSON request in bounded memory: an empty object takes three bytes as an element of a
//! list in text, and hundreds in memory.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

thread_local! {
    /// Bytes that list elements may still take while this thread reads a request; `None` once they
    /// are exceeded.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
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
                    if !take(size_of::<T>()) {
                        return Err(A::Error::custom("it exceeds the limit on memory"));
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
    let left = LEFT.get().and_then(|left| left.checked_sub(bytes));
    LEFT.set(left);
    left.is_some()
}

/// Calls `read` with a limit of `bytes` on the elements of all lists; `None` if it was exceeded.
pub(super) fn with_limit<T, E>(
    bytes: usize,
    read: impl FnOnce() -> Result<T, E>,
) -> Option<Result<T, E>> {
    LEFT.set(Some(bytes));
    let outcome = read();
    let was_enough = LEFT.take().is_some();
    (outcome.is_ok() || was_enough).then_some(outcome)
}
