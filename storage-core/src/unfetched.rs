//! Why bytes that are in an object store cannot be had.

use std::io;

/// Bytes that cannot be had from the object store now. Inside an [`io::Error`] it lets that be told
/// from one of the disk.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unfetched(String);

impl Unfetched {
    pub(crate) fn error(why: impl ToString) -> io::Error {
        io::Error::other(Self(why.to_string()))
    }
}

/// Whether bytes of an evicted storage cannot be had from the object store, now.
#[must_use]
pub fn is_unfetched(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner.is_some_and(|inner| inner.downcast_ref::<Unfetched>().is_some())
}
