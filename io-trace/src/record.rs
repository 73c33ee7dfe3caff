//! The record of one operation.

use crate::{BlockType, Cause, FileName, Operation};

/// A block of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Its contents.
    pub block_type: BlockType,
    /// Bytes that it takes in the cache.
    pub size: u64,
    /// It was missing and not inserted, because the cache has no space for it.
    pub not_inserted: bool,
    /// The leaf that it belongs to.
    pub leaf: u64,
    /// Number of its entries.
    pub entries: u64,
    /// Whether the block can no longer change.
    pub immutable: bool,
    /// Whether the block contains the one requested entry; `None` if several may be requested.
    pub found: Option<bool>,
}

impl Block {
    /// A block of `block_type` that takes `size` bytes and belongs to the file of `tag`; it is in
    /// its cache, and may change.
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

/// The target of an operation, and its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// Offset in the file; `None` for an operation without one.
    pub offset: Option<u64>,
    /// Requested bytes.
    pub asked: u64,
    /// Bytes read or written.
    pub done: u64,
    /// The error number of the system, 0 for none.
    pub errno: u16,
    /// Whether it was a cache hit; for a read, in the page cache of the system.
    pub cache_hit: Option<bool>,
    /// The block, for a look-up in a cache.
    pub block: Option<Block>,
}

/// One operation.
#[derive(Debug, Clone, Copy)]
pub struct Record<'r> {
    /// When it began, ns since the creation of the tracer.
    pub start: u64,
    /// How long it took, ns.
    pub latency: u64,
    /// The operation.
    pub operation: Operation,
    /// Its cause.
    pub cause: Cause,
    /// The system's number of the thread in which it ended.
    pub thread: u32,
    /// The file.
    pub file: &'r FileName,
    /// Its target and outcome.
    pub access: Access,
    /// The request it was done for; the first one if there were several.
    pub request: Option<&'r str>,
    /// The number of requests it was done for; 0 if none is known.
    pub requests: u32,
}

impl Record<'_> {
    /// When it ended, ns since the creation of the tracer.
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
