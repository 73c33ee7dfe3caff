//! The switch, and the buffers of the threads.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;

use crate::{Access, FileTag, Operation, Record, Settings, SettingsError, scope};

/// Buffers. A thread has one of its own as long as there are no more threads than this; more
/// share, and wait for each other as long as it takes to copy a record.
const BUFFER_COUNT: usize = 64;

/// When an operation began; nothing while the tracer is off.
#[derive(Debug, Clone, Copy)]
pub struct Started(pub(crate) Option<Instant>);

impl Started {
    /// Whether the operation is being recorded.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.0.is_some()
    }
}

/// Records operations while it is on.
pub struct Tracer {
    is_on: AtomicBool,
    made: Instant,
    buffers: Box<[Mutex<Buffer>]>,
}

#[derive(Default)]
struct Buffer {
    /// What is recorded; `None` while the tracer is off.
    settings: Option<Arc<Settings>>,
    records: Vec<Record>,
    counts: Counts,
    /// Operations that were candidates, for sampling.
    seen: [u32; Operation::COUNT],
}

/// What became of operations since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    recorded: u64,
    dropped: [u64; Operation::COUNT],
}

/// What [`Tracer::drain`] found, beside the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Operations recorded since the start.
    pub recorded: u64,
    /// Operations since the start, by number, for which the buffer of their thread was full.
    pub dropped: [u64; Operation::COUNT],
}

impl Drained {
    /// All operations that were dropped.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }
}

static NEXT_THREAD: AtomicU32 = AtomicU32::new(0);

/// A thread: its number among those that ever recorded, and the system's number for it.
#[derive(Clone, Copy)]
struct ThreadNumbers {
    own: u32,
    system: u32,
}

thread_local! {
    static THREAD: ThreadNumbers = ThreadNumbers {
        own: NEXT_THREAD.fetch_add(1, Ordering::Relaxed),
        system: rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(),
    };
}

impl Default for Tracer {
    fn default() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            made: Instant::now(),
            buffers: (0..BUFFER_COUNT).map(|_| Mutex::default()).collect(),
        }
    }
}

impl Tracer {
    /// Whether operations are being recorded: one relaxed load.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// To be called before an operation.
    #[inline]
    #[must_use]
    pub fn begin(&self) -> Started {
        Started(self.is_on().then(Instant::now))
    }

    /// The tracer's clock: ns since it was made.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.since_made(Instant::now())
    }

    fn since_made(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.made).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX)
    }

    /// Starts recording; forgets what was left of the last trace.
    ///
    /// # Errors
    /// When the settings would record nothing.
    pub fn start(&self, settings: Settings) -> Result<(), SettingsError> {
        settings.check()?;
        let settings = Arc::new(settings);
        for buffer in &self.buffers {
            *buffer.lock() = Buffer {
                settings: Some(Arc::clone(&settings)),
                ..Buffer::default()
            };
        }
        self.is_on.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Records nothing more of the storage that the trace goes to: known only after the start, when
    /// the start of the server is traced.
    pub fn leave_out(&self, own_storage: [u8; 16]) {
        for buffer in &self.buffers {
            if let Some(settings) = &mut buffer.lock().settings {
                Arc::make_mut(settings).own_storage = Some(own_storage);
            }
        }
    }

    /// Ends recording. What is in the buffers stays there for a last [`Tracer::drain`].
    pub fn stop(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        for buffer in &self.buffers {
            buffer.lock().settings = None;
        }
    }

    /// Moves the records of all buffers behind those in `records`, sorted by their end.
    pub fn drain(&self, records: &mut Vec<Record>) -> Drained {
        let from = records.len();
        let mut drained = Drained::default();
        let mut spare = Vec::new();
        for buffer in &self.buffers {
            {
                let mut buffer = buffer.lock();
                drained.recorded += buffer.counts.recorded;
                for (sum, dropped) in drained.dropped.iter_mut().zip(buffer.counts.dropped) {
                    *sum += dropped;
                }
                std::mem::swap(&mut buffer.records, &mut spare);
            }
            // The emptied memory becomes the next buffer's, so that little is allocated anew.
            records.append(&mut spare);
        }
        records[from..].sort_by_key(Record::end);
        drained
    }

    /// Records an operation that began at `started` and ends now.
    pub(crate) fn push(
        &self,
        file: &FileTag,
        started: Instant,
        operation: Operation,
        access: Access,
    ) {
        let ended = Instant::now();
        let number = operation as usize;
        let thread = THREAD.with(|thread| *thread);
        let mut buffer = self.buffers[thread.own as usize % BUFFER_COUNT].lock();
        let buffer = &mut *buffer;
        let Some(settings) = &buffer.settings else {
            return;
        };
        let one_in = settings.one_in[number];
        if one_in == 0 || !settings.takes_file(file) || !settings.takes_block(file, access.offset) {
            return;
        }
        let seen = buffer.seen[number];
        buffer.seen[number] = seen.wrapping_add(1);
        if !seen.is_multiple_of(one_in) {
            return;
        }
        if buffer.records.len() >= settings.thread_records_max {
            buffer.counts.dropped[number] += 1;
            return;
        }
        let (cause, request, requests) = scope::why();
        buffer.counts.recorded += 1;
        buffer.records.push(Record {
            start: self.since_made(started),
            latency: u64::try_from((ended - started).as_nanos()).unwrap_or(u64::MAX),
            operation,
            cause,
            thread: thread.system,
            file: file.clone(),
            access,
            request,
            requests,
        });
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer")
            .field("is_on", &self.is_on())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
