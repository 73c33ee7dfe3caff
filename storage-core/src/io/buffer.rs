//! Buffers aligned for direct writes.

use std::{
    cell::RefCell,
    ops::{Deref, DerefMut},
    rc::Rc,
    sync::Arc,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::BLOCK_BYTES;

/// Size of a buffer in bytes.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

const _: () = assert!(BUFFER_BYTES.is_multiple_of(BLOCK_BYTES));

/// Memory for an aligned buffer: one block longer than the buffer, so that it contains an aligned
/// start without unsafe allocation.
pub(super) fn slack_memory() -> Vec<u8> {
    vec![0; BUFFER_BYTES + BLOCK_BYTES]
}

/// Offset in `memory` at which the aligned buffer begins.
pub(super) fn aligned_start(memory: &[u8]) -> usize {
    let start = memory.as_ptr().align_offset(BLOCK_BYTES);
    assert!(
        start < BLOCK_BYTES,
        "the memory of a buffer contains an aligned start"
    );
    start
}

/// A bounded pool of buffers for one thread.
#[derive(Debug, Clone)]
pub(super) struct BufferPool {
    free: Rc<RefCell<Vec<Vec<u8>>>>,
    permits: Arc<Semaphore>,
}

impl BufferPool {
    /// A pool of at most `count` buffers, each allocated when it is first needed.
    pub(super) fn new(count: usize) -> Self {
        Self {
            free: Rc::default(),
            permits: Arc::new(Semaphore::new(count)),
        }
    }

    /// Waits for a free buffer.
    pub(super) async fn take(&self) -> PooledBuffer {
        let permit = Arc::clone(&self.permits);
        let permit = permit
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let memory = self.free.borrow_mut().pop().unwrap_or_else(slack_memory);
        let start = aligned_start(&memory);
        PooledBuffer {
            memory,
            start,
            pool: Rc::clone(&self.free),
            _permit: permit,
        }
    }
}

/// A buffer of a [`BufferPool`].
#[derive(Debug)]
pub(crate) struct PooledBuffer {
    memory: Vec<u8>,
    start: usize,
    pool: Rc<RefCell<Vec<Vec<u8>>>>,
    _permit: OwnedSemaphorePermit,
}

impl PooledBuffer {
    /// Lends the memory to another thread; the second value is the offset of the aligned buffer.
    pub(super) fn lend(&mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.memory), self.start)
    }

    /// Returns lent memory.
    pub(super) fn give_back(&mut self, memory: Vec<u8>) {
        assert_eq!(
            memory.len(),
            BUFFER_BYTES + BLOCK_BYTES,
            "lent memory comes back complete"
        );
        self.memory = memory;
    }
}

impl Deref for PooledBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..][..BUFFER_BYTES]
    }
}

impl DerefMut for PooledBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..BUFFER_BYTES]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        if !memory.is_empty() {
            self.pool.borrow_mut().push(memory);
        }
    }
}
