//! The slowest operations.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Serialize;

use super::IoAccess;

/// One of the slowest operations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SlowOperation {
    /// Latency, ns.
    pub latency_ns: u64,
    /// Start time, ns since the epoch.
    pub start_ns: i64,
    /// The operation.
    pub operation: String,
    /// The file.
    pub file: String,
    /// Offset in the file.
    pub offset: Option<u64>,
    /// Number of bytes.
    pub len: Option<u64>,
    /// The cause; empty if the trace does not record it.
    pub cause: String,
    /// The request, if the trace records it.
    pub request: Option<String>,
}

/// A bounded heap of the slowest operations.
#[derive(Debug)]
pub(super) struct Slowest {
    limit: usize,
    heap: BinaryHeap<Reverse<SlowOperation>>,
}

impl Slowest {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            heap: BinaryHeap::new(),
        }
    }

    #[inline]
    pub(super) fn add(&mut self, access: &IoAccess<'_>) {
        let full = self.heap.len() >= self.limit;
        let bar = self.heap.peek().map_or(0, |slow| slow.0.latency_ns);
        if self.limit == 0 || (full && access.latency_ns <= bar) {
            return;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.heap.push(Reverse(SlowOperation {
            latency_ns: access.latency_ns,
            start_ns: access.start_ns,
            operation: text(access.operation),
            file: text(access.file),
            offset: access.offset,
            len: access.len,
            cause: text(access.cause),
            request: access.request.map(text),
        }));
        if full {
            self.heap.pop();
        }
    }

    /// The operations in descending order of latency.
    pub(super) fn rows(&self) -> Vec<SlowOperation> {
        let mut rows: Vec<_> = self.heap.iter().map(|slow| slow.0.clone()).collect();
        rows.sort_unstable_by(|a, b| b.cmp(a));
        rows
    }
}
