//! Memory for file bytes sent to readers: reused and limited.
//!
//! A buffer is filled by a read and passed to hyper as it is, so the kernel makes the only copy. A
//! dropped buffer returns to a list of the dropping thread, because fresh memory would have to be
//! zeroed and its pages faulted in for every response.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::available_parallelism;

use bytes::Bytes;

use crate::metrics::Metrics;

/// Sizes of buffers: for a piece when memory is short; for a range of 64 KiB, also in sixteen
/// parts; for a piece of a long response.
pub(super) const SMALL: usize = 16 << 10;
const MIDDLE: usize = 80 << 10;
pub(super) const LARGE: usize = 288 << 10;

/// Number of idle buffers of each size that a thread retains.
const CLASSES: [(usize, usize); 3] = [(SMALL, 16), (MIDDLE, 16), (LARGE, 4)];

thread_local! {
    static IDLE: RefCell<[Vec<Box<[u8]>>; 3]> = const { RefCell::new([const { Vec::new() }; 3]) };
}

/// Hands out buffers and counts their bytes.
pub(crate) struct Buffers {
    out_bytes: AtomicU64,
    out_bytes_max: u64,
    /// Long bodies that are being sent.
    long_bodies: AtomicUsize,
    /// Up to so many of them are copied.
    copied_max: usize,
    metrics: Arc<Metrics>,
}

impl Buffers {
    /// Buffers of at most `out_bytes_max` bytes in total; beyond that only small ones are handed
    /// out.
    pub(crate) fn new(out_bytes_max: u64, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            out_bytes: AtomicU64::new(0),
            out_bytes_max,
            long_bodies: AtomicUsize::new(0),
            copied_max: available_parallelism().map_or(1, |count| count.get().div_ceil(2)),
            metrics,
        })
    }

    /// The server's counters.
    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// A buffer of at least `wanted` bytes; `None` if `wanted` exceeds `LARGE` or memory is short.
    pub(super) fn of_size(self: &Arc<Self>, wanted: usize) -> Option<Buffer> {
        let class = CLASSES.iter().position(|(size, _)| wanted <= *size)?;
        let size = CLASSES[class].0 as u64;
        if size > SMALL as u64 {
            let within_limit = |out: u64| Some(out + size).filter(|out| *out <= self.out_bytes_max);
            self.out_bytes
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, within_limit)
                .ok()?;
        } else {
            self.out_bytes.fetch_add(size, Ordering::AcqRel);
        }
        Some(self.take(class))
    }

    /// A buffer for the next piece of a long response: a large one, or a small one if memory is
    /// short. A small one is always available, so many slow readers slow down the others but never
    /// block them.
    pub(super) fn piece(self: &Arc<Self>) -> Buffer {
        self.of_size(LARGE).unwrap_or_else(|| {
            self.out_bytes.fetch_add(SMALL as u64, Ordering::AcqRel);
            self.take(0)
        })
    }

    fn take(self: &Arc<Self>, class: usize) -> Buffer {
        let (size, _) = CLASSES[class];
        self.metrics
            .range_buffer_bytes
            .add(i64::try_from(size).unwrap_or(0));
        let idle = IDLE.with_borrow_mut(|idle| idle[class].pop());
        let bytes = idle.unwrap_or_else(|| vec![0; size].into());
        Buffer {
            bytes,
            filled: 0,
            class,
            pool: Arc::clone(self),
        }
    }
}

/// A body of many pieces, while it is sent.
pub(super) struct LongBody(Arc<Buffers>);

impl LongBody {
    pub(super) fn begin(buffers: &Arc<Buffers>) -> Self {
        buffers.long_bodies.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(buffers))
    }

    /// Whether its bytes are copied into buffers rather than sent by the kernel. A client takes
    /// bytes that the server has read a moment ago faster than pages of the file. That costs the
    /// server time on another processor, so it is done while there are enough of them.
    pub(super) fn is_copied(&self) -> bool {
        self.0.long_bodies.load(Ordering::Relaxed) <= self.0.copied_max
    }
}

impl Drop for LongBody {
    fn drop(&mut self) {
        self.0.long_bodies.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A buffer whose first `filled` bytes are in use.
pub(super) struct Buffer {
    bytes: Box<[u8]>,
    filled: usize,
    class: usize,
    pool: Arc<Buffers>,
}

impl Buffer {
    /// The unused part.
    pub(super) fn free(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Marks the next `count` bytes of `free` as used.
    pub(super) fn advance(&mut self, count: usize) {
        self.filled += count;
        assert!(
            self.filled <= self.bytes.len(),
            "a read exceeded its buffer"
        );
    }

    /// Marks everything as unused.
    pub(super) fn clear(&mut self) {
        self.filled = 0;
    }

    /// The server's counters.
    pub(super) fn metrics(&self) -> &Metrics {
        self.pool.metrics()
    }

    /// Appends `text`.
    pub(super) fn put(&mut self, text: &[u8]) {
        self.free()[..text.len()].copy_from_slice(text);
        self.advance(text.len());
    }

    /// The used part, without a copy; the memory is returned when the last reader drops it.
    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let (size, idle_max) = CLASSES[self.class];
        self.pool.out_bytes.fetch_sub(size as u64, Ordering::AcqRel);
        self.pool
            .metrics
            .range_buffer_bytes
            .sub(i64::try_from(size).unwrap_or(0));
        let bytes = std::mem::take(&mut self.bytes);
        // The list may already be destroyed on a thread that is exiting; the memory is freed then.
        IDLE.try_with(|idle| {
            let mut idle = idle.borrow_mut();
            if idle[self.class].len() < idle_max {
                idle[self.class].push(bytes);
            }
        })
        .unwrap_or(());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Buffers, LARGE, LongBody, SMALL};
    use crate::metrics::Metrics;

    #[test]
    fn memory_is_limited_and_returned() {
        let buffers = Buffers::new((2 * LARGE + SMALL) as u64, Arc::new(Metrics::default()));
        let (first, second) = (buffers.of_size(LARGE).unwrap(), buffers.piece());
        assert!(
            buffers.of_size(SMALL + 1).is_none(),
            "more than the bound was given"
        );
        let mut third = buffers.piece();
        assert_eq!(third.free().len(), SMALL);
        drop(first);
        assert_eq!(buffers.piece().free().len(), LARGE);
        assert!(buffers.of_size(LARGE + 1).is_none());
        drop((second, third));
        assert_eq!(buffers.metrics().range_buffer_bytes.get(), 0);
    }

    #[test]
    fn long_bodies_are_copied_while_they_are_few() {
        let buffers = Buffers::new(0, Arc::new(Metrics::default()));
        let mut bodies: Vec<_> = (0..buffers.copied_max)
            .map(|_| LongBody::begin(&buffers))
            .collect();
        assert!(bodies[0].is_copied());
        bodies.push(LongBody::begin(&buffers));
        assert!(!bodies[0].is_copied());
        bodies.pop();
        assert!(bodies[0].is_copied());
    }

    #[test]
    fn only_filled_bytes_are_sent() {
        let buffers = Buffers::new(1 << 20, Arc::new(Metrics::default()));
        for round in ["first", "2nd"] {
            let mut buffer = buffers.of_size(100).unwrap();
            buffer.put(round.as_bytes());
            assert_eq!(buffer.into_bytes(), round);
        }
    }
}
