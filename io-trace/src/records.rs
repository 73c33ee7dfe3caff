//! The records of all threads, drained from their buffers.

use std::fmt;

use crate::{Access, Block, Cause, Operation, Record, batch::Batch};

/// Records of all threads, ordered by their end; see [`Tracer::drain`](crate::Tracer::drain).
#[derive(Default)]
pub struct Records {
    /// One for each buffer of the tracer; they contain the files.
    batches: Vec<Batch>,
    entries: Vec<Entry>,
    /// Ids of requests, concatenated.
    requests: String,
    blocks: Vec<Block>,
    /// The entries, by the end of their operation.
    order: Vec<(u64, usize)>,
}

/// A record without its strings.
#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u64,
    latency: u64,
    operation: Operation,
    cause: Cause,
    thread: u32,
    batch: usize,
    file: usize,
    /// Without its block.
    access: Access,
    block: Option<usize>,
    /// Offset and length in the ids of requests; zeros for no request.
    request: (usize, usize),
    requests: u32,
}

impl Records {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The records, by their end.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        let entries = self.order.iter().map(|&(_, place)| &self.entries[place]);
        entries.map(|entry| self.record(entry))
    }

    fn record(&self, entry: &Entry) -> Record<'_> {
        let (at, length) = entry.request;
        let request = &self.requests[at..at + length];
        Record {
            start: entry.start,
            latency: entry.latency,
            operation: entry.operation,
            cause: entry.cause,
            thread: entry.thread,
            file: self.batches[entry.batch].of(entry.file),
            access: Access {
                block: entry.block.map(|place| self.blocks[place]),
                ..entry.access
            },
            request: Some(request).filter(|id| !id.is_empty()),
            requests: entry.requests,
        }
    }

    /// Removes all records; their memory is reused.
    pub(crate) fn clear(&mut self) {
        self.batches.iter_mut().for_each(Batch::clear);
        self.entries.clear();
        self.requests.clear();
        self.blocks.clear();
        self.order.clear();
    }

    /// Moves the contents of a buffer here, and leaves it an empty batch with memory to reuse. The
    /// batches here must be empty.
    pub(crate) fn take(&mut self, buffer: usize, batch: &mut Batch) {
        if self.batches.len() <= buffer {
            self.batches.resize_with(buffer + 1, Batch::default);
        }
        std::mem::swap(&mut self.batches[buffer], batch);
    }

    /// Decodes the batches and orders the records.
    pub(crate) fn sort(&mut self) {
        let Self {
            batches,
            entries,
            requests,
            blocks,
            order,
        } = self;
        for (number, batch) in batches.iter().enumerate() {
            let mut last = (0, 0);
            batch.each(&mut |record, file| {
                let id = record.request.unwrap_or("");
                if requests[last.0..last.0 + last.1] != *id {
                    last = (requests.len(), id.len());
                    requests.push_str(id);
                }
                let block = record.access.block.map(|block| {
                    blocks.push(block);
                    blocks.len() - 1
                });
                order.push((record.end(), entries.len()));
                entries.push(Entry {
                    start: record.start,
                    latency: record.latency,
                    operation: record.operation,
                    cause: record.cause,
                    thread: record.thread,
                    batch: number,
                    file,
                    access: Access {
                        block: None,
                        ..record.access
                    },
                    block,
                    request: last,
                    requests: record.requests,
                });
            });
        }
        // The records of one thread are almost in order: a stable sort merges such runs.
        order.sort_by_key(|&(end, _)| end);
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
