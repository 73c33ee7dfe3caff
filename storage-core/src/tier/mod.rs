//! Files of finalized storages whose bytes are in an object store, and may be absent here.
//!
//! Such a file has its full length and holes: a *granule* of 64 KiB that is absent is fetched,
//! compared with its checksum, and written where it belongs, so that whatever reads the file
//! afterwards reads a local file (decision 0221). Nothing else says which granules are there: after
//! a start, what is in the file counts if its checksum does.
//!
//! A reader that did not know of this would read zeros from a hole. So the table of such files is
//! one for the process, and [`ReadFile`](crate::read::ReadFile), through which every file of a
//! storage is read, asks it; no reader can forget to.

mod ahead;
mod facts;
mod granules;
mod holes;
mod known;
mod lost;
mod pieces;
mod resident;
mod scanning;
mod slots;
mod window;

use std::{fmt, future::Future, io, ops::Range, pin::Pin};

use bytes::Bytes;

pub(crate) use holes::has_holes;
pub(crate) use known::evictable;
pub(crate) use resident::Resident;
pub use scanning::{RangeScan, Scanned};
pub(crate) use slots::{Slots, forget_file, forget_folder, has_slot, resident_at};

/// Bytes that arrive later, in the slices in which they came: a copy of them into one would cost as
/// much as sending them.
pub type Fetching = Pin<Box<dyn Future<Output = io::Result<Vec<Bytes>>> + Send>>;

/// Fetches bytes of objects. What it fetches is compared with checksums by the caller.
pub trait BlockSource: fmt::Debug + Send + Sync {
    /// The bytes `range` of the object `key`.
    fn fetch(&self, key: &str, range: Range<u64>) -> Fetching;
}

/// What the files of evicted storages take here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CachedBytes {
    /// Bytes of them that are here.
    pub here: u64,
    /// Granules that readers found here.
    pub hits: u64,
    /// Granules that had to be fetched.
    pub misses: u64,
}
