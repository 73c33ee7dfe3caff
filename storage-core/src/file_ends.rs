//! The error of a read behind the end of a file.

/// A file that ends before the bytes that were written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the file ends at byte {length}, {expected} expected")]
pub(crate) struct FileEnds {
    /// Its length.
    pub(crate) length: u64,
    /// The length that it needs.
    pub(crate) expected: u64,
}
