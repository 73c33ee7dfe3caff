//! How much connections read at once.
//!
//! A packet is a part of the buffer that it was read into, and keeps all of it until it is durable.
//! Where few clients send much, large reads save calls; where many do, their buffers together are
//! more than the packets in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Largest read of a connection; hyper's buffers grow up to this for clients that send as much.
pub(super) const READ_BYTES_MAX: usize = 256 << 10;
/// Largest read of each of many connections.
const READ_BYTES_MIN: usize = 64 << 10;
/// The largest reads of all connections together, as long as that leaves each the minimum.
const ALL_READ_BYTES: usize = 8 << 20;

/// The number of connections that are in the middle of a request; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Readers(Arc<AtomicUsize>);

impl Readers {
    /// A connection is in the middle of a request now, or is not any more.
    pub(super) fn change(&self, is_reading: bool) {
        if is_reading {
            self.0.fetch_add(1, Ordering::Relaxed);
        } else {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// How many bytes a connection may read at once.
    pub(super) fn read_bytes_max(&self) -> usize {
        let readers = self.0.load(Ordering::Relaxed).max(1);
        let share = (ALL_READ_BYTES / readers).clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        if share == READ_BYTES_MAX {
            return share;
        }
        // hyper doubles a buffer that a read has filled, and halves one of which two reads have
        // left a half. With one byte less than a power of two its buffers end at that power.
        (1 << share.ilog2()) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_smaller_where_more_connections_read() {
        let readers = Readers::default();
        let mut count = 0;
        for (wanted_count, wanted) in [
            (0, 256 << 10),
            (1, 256 << 10),
            (32, 256 << 10),
            (33, (128 << 10) - 1),
            (64, (128 << 10) - 1),
            (65, (64 << 10) - 1),
            (5000, (64 << 10) - 1),
        ] {
            while count < wanted_count {
                readers.clone().change(true);
                count += 1;
            }
            assert_eq!(readers.read_bytes_max(), wanted, "{count}");
        }
        for _ in 0..count {
            readers.change(false);
        }
        assert_eq!(readers.read_bytes_max(), 256 << 10);
    }
}
