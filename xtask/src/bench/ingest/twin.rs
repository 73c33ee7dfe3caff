//! The bare twin of the server: the least that any program must do to make the same packets durable
//! on the same disk.
//!
//! Some threads write packets to one preallocated file at ascending offsets, in parallel and, if
//! the disk permits it, past the page cache. Each waits until a sync that began after its write has
//! ended; one of those who wait does the sync for all. There is no network, no checksum and no
//! index.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::time::{ClockId, clock_gettime};

use super::RESERVED_PER_SECOND;
use crate::failure::{Failure, Outcome};

/// Direct writes are whole blocks.
const BLOCK_BYTES: usize = 4096;

/// When a thread writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum TwinPace {
    /// This long after its last write became durable.
    Pause(Duration),
    /// So many writes per second over all threads, whether they become durable or not: the latency
    /// of a write counts from the time at which it was due.
    PerSecond(f64),
}

/// Writers without a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Twin {
    pub(super) threads: u32,
    /// Bytes of a packet: whole blocks.
    pub(super) packet_bytes: usize,
    pub(super) pace: TwinPace,
    pub(super) duration: Duration,
}

/// What the twin made durable.
#[derive(Clone, Debug, Default)]
pub(super) struct TwinReport {
    pub(super) packets: u64,
    pub(super) syncs: u64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    packet_bytes: u64,
    /// Microseconds from the start of a write to the end of its sync, ascending.
    latencies: Vec<u32>,
}

#[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
impl TwinReport {
    pub(super) fn bytes_per_second(&self) -> f64 {
        (self.packets * self.packet_bytes) as f64 / self.seconds
    }

    pub(super) fn packets_per_sync(&self) -> f64 {
        self.packets as f64 / self.syncs as f64
    }

    pub(super) fn cpu_micros_per_packet(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.packets as f64
    }

    /// The latency in milliseconds that 99 of 100 writes did not exceed.
    pub(super) fn p99_ms(&self) -> f64 {
        let rank = (self.latencies.len() * 99).div_ceil(100);
        let latency = self.latencies.get(rank.saturating_sub(1));
        latency.map_or(f64::NAN, |&micros| f64::from(micros) / 1000.0)
    }
}

/// The syncs of the file: one at a time, for all who wait when it begins.
#[derive(Debug, Default)]
struct Syncs {
    state: Mutex<SyncState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct SyncState {
    begun: u64,
    ended: u64,
    is_syncing: bool,
    has_failed: bool,
}

impl Syncs {
    fn lock(&self) -> MutexGuard<'_, SyncState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a sync has ended that begins after this call.
    fn wait(&self, sync: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.lock();
        let needed = state.begun + 1;
        while state.ended < needed {
            if state.has_failed {
                return Err(io::Error::other("a sync of another thread failed"));
            }
            if state.is_syncing {
                let waited = self.ended.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_syncing = true;
            state.begun += 1;
            let begun = state.begun;
            drop(state);
            let result = sync();
            state = self.lock();
            state.is_syncing = false;
            state.has_failed = result.is_err();
            self.ended.notify_all();
            result?;
            state.ended = begun;
        }
        Ok(())
    }
}

impl Twin {
    /// Writes to a new file in `folder`, which is then removed.
    pub(super) fn run(&self, folder: &Path) -> Outcome<TwinReport> {
        let path = folder.join("twin.data");
        let report = self.write(&path).map_err(|source| Failure::File {
            path: path.clone(),
            source,
        });
        // A file that was not created cannot be removed.
        let _ = std::fs::remove_file(&path);
        report
    }

    fn write(&self, path: &Path) -> io::Result<TwinReport> {
        let file = open_direct(path)?;
        let seconds = self.duration.as_secs().max(1);
        let length = RESERVED_PER_SECOND.saturating_mul(seconds);
        fallocate(&file, FallocateFlags::empty(), 0, length)?;
        file.sync_all()?;
        let (next, syncs) = (AtomicU64::new(0), Syncs::default());
        let (begin, cpu_before) = (Instant::now(), cpu_time());
        let results: Vec<io::Result<Vec<u32>>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|index| {
                    let (file, next, syncs) = (&file, &next, &syncs);
                    scope.spawn(move || self.thread(index, begin, file, next, length, syncs))
                })
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, io::Result<Vec<u32>>>| {
                thread
                    .join()
                    .expect("a panic of the thread is printed above")
            };
            threads.into_iter().map(join).collect()
        });
        let seconds = begin.elapsed().as_secs_f64();
        let cpu_seconds = (cpu_time() - cpu_before).as_secs_f64();
        let mut latencies = Vec::new();
        for result in results {
            latencies.extend(result?);
        }
        latencies.sort_unstable();
        Ok(TwinReport {
            packets: latencies.len() as u64,
            syncs: syncs.lock().ended,
            seconds,
            cpu_seconds,
            packet_bytes: self.packet_bytes as u64,
            latencies,
        })
    }

    /// One thread; returns the latencies of its writes.
    fn thread(
        &self,
        index: u32,
        begin: Instant,
        file: &File,
        next: &AtomicU64,
        length: u64,
        syncs: &Syncs,
    ) -> io::Result<Vec<u32>> {
        let (memory, packet) = aligned(self.packet_bytes);
        let mut latencies = Vec::new();
        let mut due = match self.pace {
            TwinPace::Pause(_) => begin,
            TwinPace::PerSecond(rate) => begin + Duration::from_secs_f64(f64::from(index) / rate),
        };
        while due.max(Instant::now()).duration_since(begin) < self.duration {
            if let Some(wait) = due.checked_duration_since(Instant::now()) {
                thread::sleep(wait);
            }
            let sent = match self.pace {
                TwinPace::Pause(_) => Instant::now(),
                TwinPace::PerSecond(_) => due,
            };
            let offset = next.fetch_add(self.packet_bytes as u64, Ordering::Relaxed);
            file.write_all_at(&memory[packet.clone()], offset % length)?;
            syncs.wait(|| file.sync_data())?;
            latencies.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
            due = match self.pace {
                TwinPace::Pause(pause) => Instant::now() + pause,
                TwinPace::PerSecond(rate) => {
                    due + Duration::from_secs_f64(f64::from(self.threads) / rate)
                }
            };
        }
        Ok(latencies)
    }
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// A new file that bypasses the page cache, where the file system permits that.
fn open_direct(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut direct = options.clone();
    direct.custom_flags(OFlags::DIRECT.bits().cast_signed());
    direct.open(path).or_else(|_| options.open(path))
}

/// Memory, and the range of it that is aligned for direct writes.
fn aligned(length: usize) -> (Vec<u8>, Range<usize>) {
    let memory = vec![0x5a; length + BLOCK_BYTES];
    let start = memory.as_ptr().align_offset(BLOCK_BYTES);
    (memory, start..start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_covers_only_those_who_waited_before_it() {
        let (syncs, count) = (Syncs::default(), AtomicU64::new(0));
        let sync = || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        syncs.wait(sync).unwrap();
        syncs.wait(sync).unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 2);
        // A thread that comes while a sync runs waits for the one after it.
        thread::scope(|scope| {
            let (entered, has_entered) = std::sync::mpsc::sync_channel(1);
            let (leave, may_leave) = std::sync::mpsc::sync_channel::<()>(1);
            let (syncs, count) = (&syncs, &count);
            let first = scope.spawn(move || {
                syncs.wait(|| {
                    entered.send(()).unwrap();
                    may_leave.recv().unwrap();
                    Ok(())
                })
            });
            has_entered.recv().unwrap();
            let second = scope.spawn(move || {
                syncs.wait(|| {
                    count.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
            });
            leave.send(()).unwrap();
            first.join().unwrap().unwrap();
            second.join().unwrap().unwrap();
        });
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn nobody_who_waits_passes_a_failed_sync() {
        let syncs = Syncs::default();
        assert!(syncs.wait(|| Err(io::ErrorKind::Other.into())).is_err());
        assert!(syncs.wait(|| Ok(())).is_err());
    }
}
