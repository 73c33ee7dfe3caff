//! Why bytes that are in an object store cannot be had.

use std::io;

/// Bytes that cannot be had from the object store. Inside an [`io::Error`] it lets that be told
/// from an error of the disk.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct Unfetched {
    why: String,
    /// Whether the object is gone or damaged: the same request fails again.
    is_lost: bool,
}

impl Unfetched {
    /// Bytes that may come later.
    pub(crate) fn error(why: impl ToString) -> io::Error {
        Self::of(why, false)
    }

    /// Bytes that the object store does not have.
    pub(crate) fn lost(why: impl ToString) -> io::Error {
        Self::of(why, true)
    }

    /// What a source of bytes said.
    pub(crate) fn from_source(error: &io::Error) -> io::Error {
        use io::ErrorKind::{InvalidData, NotFound};
        Self::of(error, matches!(error.kind(), InvalidData | NotFound))
    }

    /// The same for another reader.
    pub(crate) fn again(error: &io::Error) -> io::Error {
        Self::of(error, is_lost_object(error))
    }

    fn of(why: impl ToString, is_lost: bool) -> io::Error {
        let why = why.to_string();
        io::Error::other(Self { why, is_lost })
    }
}

fn found(error: &io::Error) -> Option<&Unfetched> {
    error.get_ref()?.downcast_ref()
}

/// Whether bytes of an evicted storage cannot be had from the object store.
#[must_use]
pub fn is_unfetched(error: &io::Error) -> bool {
    found(error).is_some()
}

/// Whether the object store does not have such bytes any more: the object is gone or damaged.
#[must_use]
pub fn is_lost_object(error: &io::Error) -> bool {
    found(error).is_some_and(|unfetched| unfetched.is_lost)
}
