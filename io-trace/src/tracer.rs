//! The tracer: its switch, and the buffers of the threads.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Instant,
};

use spin::{Yield, mutex::SpinMutex};

use crate::{
    Access, Cause, FileName, Operation, Record, Records, Settings, SettingsError, batch::Batch,
};

/// Number of buffers. Up to this many threads have separate buffers; more threads share them and
/// wait for each other while a record is copied.
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

/// Records operations while it is on. It begins a cache line: the reference count before it changes
/// all the time, and each hook reads the switch.
#[repr(align(128))]
pub struct Tracer {
    is_on: AtomicBool,
    made: Instant,
    buffers: Box<[Locked]>,
}

/// A buffer with separate cache lines. Its lock is rarely contended, and only while a record or a
/// few pointers are copied. It matters that an ordinary store releases it: system mutexes and
/// parking locks use an atomic operation, which would wait until the record is written to memory
/// that another core read last.
#[repr(align(128))]
#[derive(Default)]
struct Locked(SpinMutex<Buffer, Yield>);

impl std::ops::Deref for Locked {
    type Target = SpinMutex<Buffer, Yield>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

#[derive(Default)]
struct Buffer {
    /// The settings; `None` while the tracer is off.
    settings: Option<Arc<Settings>>,
    batch: Batch,
    counts: Counts,
    /// Operations that were candidates for sampling.
    seen: [u32; Operation::COUNT],
}

/// Counters since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    recorded: u64,
    dropped: [u64; Operation::COUNT],
}

/// The counters of [`Tracer::drain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Operations recorded since the start.
    pub recorded: u64,
    /// Operations since the start, by number, that did not fit into the buffer of their thread.
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

/// A thread: its number among those that ever recorded, and its number in the system.
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
            buffers: (0..BUFFER_COUNT).map(|_| Locked::default()).collect(),
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

    /// Call this before an operation.
    #[inline]
    #[must_use]
    pub fn begin(&self) -> Started {
        Started(self.is_on().then(Instant::now))
    }

    /// The clock of the tracer: ns since its creation.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.since_made(Instant::now())
    }

    fn since_made(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.made).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX)
    }

    /// Starts recording, and discards what is left of the last trace.
    ///
    /// # Errors
    /// When the settings are invalid.
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

    /// Excludes the storage that the trace is written to. It is known only after the start if the
    /// start of the server is traced.
    pub fn exclude(&self, own_storage: [u8; 16]) {
        for buffer in &self.buffers {
            if let Some(settings) = &mut buffer.lock().settings {
                Arc::make_mut(settings).own_storage = Some(own_storage);
            }
        }
    }

    /// Stops recording. Records remain in the buffers for a last [`Tracer::drain`].
    pub fn stop(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        for buffer in &self.buffers {
            buffer.lock().settings = None;
        }
    }

    /// Replaces `records` by those of all buffers, ordered by their end.
    pub fn drain(&self, records: &mut Records) -> Drained {
        records.clear();
        let mut drained = Drained::default();
        for (number, buffer) in self.buffers.iter().enumerate() {
            let mut buffer = buffer.lock();
            drained.recorded += buffer.counts.recorded;
            for (sum, dropped) in drained.dropped.iter_mut().zip(buffer.counts.dropped) {
                *sum += dropped;
            }
            if buffer.batch.len() > 0 {
                records.take(number, &mut buffer.batch);
            }
        }
        records.sort();
        drained
    }

    /// Records an operation that began at `started` and ends now.
    pub(crate) fn push(
        &self,
        file: &FileName,
        started: Instant,
        operation: Operation,
        access: Access,
        reason: impl FnOnce(&mut dyn FnMut(Cause, Option<&Arc<str>>, u32)),
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
        if buffer.batch.len() >= settings.thread_records_max {
            buffer.counts.dropped[number] += 1;
            return;
        }
        reason(&mut |cause, request, requests| {
            buffer.batch.push(&Record {
                start: self.since_made(started),
                latency: u64::try_from((ended - started).as_nanos()).unwrap_or(u64::MAX),
                operation,
                cause,
                thread: thread.system,
                file,
                access,
                request: request.map(|id| &**id),
                requests,
            });
        });
        buffer.counts.recorded += 1;
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
