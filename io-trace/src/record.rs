//! The record of one operation.

use crate::{BlockType, Cause, FileName, Operation};

/// A block of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// What it holds.
    pub block_type: BlockType,
    /// Bytes it takes in the cache.
    pub size: u64,
    /// It was not kept although it was missing, because the cache has no room for it.
    pub not_inserted: bool,
    /// The leaf it belongs to.
    pub leaf: u64,
    /// Entries in it.
    pub entries: u64,
    /// Whether the block can no longer change.
    pub immutable: bool,
    /// Whether the one entry that was wanted is in it; `None` when several may be.
    pub found: Option<bool>,
}

impl Block {
    /// A block of `block_type` that takes `size` bytes, of the file of `tag`: kept by its cache,
    /// and of nothing that can change.
    #[must_use]
    pub fn of(tag: &FileName, block_type: BlockType, size: u64) -> Self {
        Self {
            block_type,
            size,
            not_inserted: false,
            leaf: tag.leaf(),
            entries: 0,
            immutable: true,
            found: None,
        }
    }
}

/// What an operation touched and how it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// Where in the file; `None` for an operation without a place.
    pub offset: Option<u64>,
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes done.
    pub done: u64,
    /// The system's error number, 0 for none.
    pub errno: u16,
    /// Whether a cache had it: for a read, that of the system.
    pub cache_hit: Option<bool>,
    /// The block, when it is one of a cache.
    pub block: Option<Block>,
}

/// One operation.
#[derive(Debug, Clone, Copy)]
pub struct Record<'r> {
    /// When it began, ns since the tracer was made.
    pub start: u64,
    /// How long it took, ns.
    pub latency: u64,
    /// What was done.
    pub operation: Operation,
    /// Why.
    pub cause: Cause,
    /// The system's number of the thread that ended it.
    pub thread: u32,
    /// The file.
    pub file: &'r FileName,
    /// What was touched.
    pub access: Access,
    /// The request it was done for; the first one, when there were several.
    pub request: Option<&'r str>,
    /// How many requests it was done for: 0 for none that is known.
    pub requests: u32,
}

impl Record<'_> {
    /// When it ended, ns since the tracer was made.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.latency)
    }
}

/// The error number of a result; 5 (`EIO`) for an error that did not come from the system.
pub fn errno<T>(result: &std::io::Result<T>) -> u16 {
    const EIO: i32 = 5;
    match result {
        Ok(_) => 0,
        Err(error) => u16::try_from(error.raw_os_error().unwrap_or(EIO)).unwrap_or(u16::MAX),
    }
}
