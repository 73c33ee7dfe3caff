//! The operations that took longest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Serialize;

use super::IoAccess;

/// One operation among the slowest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SlowOperation {
    /// How long it took.
    pub latency_ns: u64,
    /// When it started, ns since the epoch.
    pub start_ns: i64,
    /// The operation.
    pub operation: String,
    /// The file.
    pub file: String,
    /// Where in the file.
    pub offset: Option<u64>,
    /// Bytes.
    pub len: Option<u64>,
    /// The cause, empty where the trace does not say.
    pub cause: String,
    /// The request, where the trace says so.
    pub request: Option<String>,
}

/// Keeps the slowest few.
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

    /// The slowest first.
    pub(super) fn rows(&self) -> Vec<SlowOperation> {
        let mut rows: Vec<_> = self.heap.iter().map(|slow| slow.0.clone()).collect();
        rows.sort_unstable_by(|a, b| b.cmp(a));
        rows
    }
}
