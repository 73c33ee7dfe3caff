//! The position of a packet in its stream: producer epoch and sequence.
//!
//! A producer counts the packets of a stream from 0 and begins a new epoch with every run, so
//! positions of a stream grow. [`StreamPosition::follows`] is the only rule that decides whether a
//! packet is new, a duplicate, or follows a gap.

use std::fmt;

/// Position of a packet in its stream, ordered by epoch and then by sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamPosition {
    /// Producer epoch.
    pub epoch: u64,
    /// Producer sequence, counted from 0 in each epoch.
    pub sequence: u64,
}

/// What a packet is to its stream, if it is in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The next packet of the epoch, or the first packet of a later one.
    Next,
    /// A packet of the current epoch that the next position has passed.
    Duplicate,
}

/// Why a packet is out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutOfOrder {
    /// Packets between this one and the expected one are missing.
    #[error("sequence {found} of epoch {epoch} leaves a gap, {expected} is expected")]
    Gap {
        /// Epoch of the packet.
        epoch: u64,
        /// The sequence that is expected in this epoch.
        expected: u64,
        /// Sequence of the packet.
        found: u64,
    },
    /// A later epoch has begun.
    #[error("epoch {found} is older than the current epoch {current}")]
    StaleEpoch {
        /// The newest epoch of the stream.
        current: u64,
        /// Epoch of the packet.
        found: u64,
    },
}

impl StreamPosition {
    /// A position from its parts.
    #[must_use]
    pub const fn new(epoch: u64, sequence: u64) -> Self {
        Self { epoch, sequence }
    }

    /// The position that follows this one in the same epoch.
    #[must_use]
    pub const fn next(self) -> Self {
        Self {
            epoch: self.epoch,
            sequence: self.sequence.saturating_add(1),
        }
    }

    /// What a packet at this position is to a stream whose next position is `next`.
    ///
    /// # Errors
    /// When packets before it are missing, or a later epoch has begun.
    pub fn follows(self, next: Self) -> Result<Arrival, OutOfOrder> {
        if self.epoch < next.epoch {
            return Err(OutOfOrder::StaleEpoch {
                current: next.epoch,
                found: self.epoch,
            });
        }
        let expected = if self.epoch == next.epoch {
            next.sequence
        } else {
            0
        };
        match self.sequence.cmp(&expected) {
            std::cmp::Ordering::Less => Ok(Arrival::Duplicate),
            std::cmp::Ordering::Equal => Ok(Arrival::Next),
            std::cmp::Ordering::Greater => Err(OutOfOrder::Gap {
                epoch: self.epoch,
                expected,
                found: self.sequence,
            }),
        }
    }
}

impl fmt::Display for StreamPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, sequence {}", self.epoch, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_next_or_a_duplicate_or_follows_a_gap_or_is_stale() {
        let check = |(epoch, sequence), verdict| {
            let next = StreamPosition::new(3, 5);
            let position = StreamPosition::new(epoch, sequence);
            assert_eq!(position.follows(next), verdict, "{position}");
        };
        check((3, 5), Ok(Arrival::Next));
        check((3, 4), Ok(Arrival::Duplicate));
        check((3, 0), Ok(Arrival::Duplicate));
        let gap = |epoch, expected, found| {
            Err(OutOfOrder::Gap {
                epoch,
                expected,
                found,
            })
        };
        check((3, 6), gap(3, 5, 6));
        check((4, 0), Ok(Arrival::Next));
        check((4, 1), gap(4, 0, 1));
        let stale = Err(OutOfOrder::StaleEpoch {
            current: 3,
            found: 2,
        });
        check((2, 5), stale);
        check((2, 9), stale);
    }

    #[test]
    fn the_last_sequence_has_no_next_one() {
        let last = StreamPosition::new(1, u64::MAX);
        assert_eq!(last.next(), last);
        assert_eq!(StreamPosition::new(1, 7).next(), StreamPosition::new(1, 8));
    }
}
