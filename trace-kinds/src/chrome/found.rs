//! What the scanner finds.

use std::ops::Range;

/// Something that is not as JSON requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (byte {offset})")]
pub struct Damage {
    /// Its offset, from the first byte scanned.
    pub offset: u64,
    /// What is wrong.
    pub reason: &'static str,
    /// Whether scanning ends there.
    pub is_end: bool,
}

/// What the scanner found. Offsets count from the first byte scanned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// An element of the list of events.
    Record(Range<u64>),
    /// A place between events where a packet may end. It is before the records that follow it, and
    /// reported before them.
    Boundary(u64),
    /// Something that JSON forbids and trace viewers accept.
    Lenient {
        /// Where.
        offset: u64,
        /// What.
        what: &'static str,
    },
    /// Damage.
    Damage(Damage),
}
