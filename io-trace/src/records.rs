//! Records of all threads, as they are taken from their buffers.

use std::fmt;

use crate::{Access, Block, Cause, Operation, Record, batch::Batch};

/// What [`Tracer::drain`](crate::Tracer::drain) took: records of all threads, by their end.
#[derive(Default)]
pub struct Records {
    /// One for each buffer of the tracer; they keep the files.
    batches: Vec<Batch>,
    entries: Vec<Entry>,
    /// Ids of requests, one behind the other.
    requests: String,
    blocks: Vec<Block>,
    /// The entries, by the end of their operation.
    order: Vec<(u64, usize)>,
}

/// A record without what is kept beside it.
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
    /// Where in the ids of requests, and how many bytes; none for no request.
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

    /// Forgets the records; their memory stays for the next.
    pub(crate) fn clear(&mut self) {
        self.batches.iter_mut().for_each(Batch::clear);
        self.entries.clear();
        self.requests.clear();
        self.blocks.clear();
        self.order.clear();
    }

    /// Takes what is in the batch of a buffer, and leaves it an empty one with the memory of the
    /// one before. The batches here must be empty.
    pub(crate) fn take(&mut self, buffer: usize, batch: &mut Batch) {
        if self.batches.len() <= buffer {
            self.batches.resize_with(buffer + 1, Batch::default);
        }
        std::mem::swap(&mut self.batches[buffer], batch);
    }

    /// Reads what was taken, and puts it in order.
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
        // Those of one thread are in order, more or less: a stable sort merges such runs.
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
