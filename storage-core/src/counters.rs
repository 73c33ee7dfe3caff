//! Counters of the engine; the server exposes them to Prometheus.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A counter or a gauge.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, value: u64) {
        self.0.fetch_sub(value, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// Upper bounds of the buckets of a [`Latency`], in seconds.
pub const LATENCY_BOUNDS_SECONDS: [f64; 12] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5,
];

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; LATENCY_BOUNDS_SECONDS.len() + 1],
    sum_ns: AtomicU64,
}

/// The values of a [`Latency`] at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencySnapshot {
    /// Observations in each bucket, not cumulative; the last bucket is above every bound.
    pub buckets: [u64; LATENCY_BOUNDS_SECONDS.len() + 1],
    /// Sum of all observations in seconds.
    pub sum_seconds: f64,
}

impl Latency {
    /// The values now.
    #[must_use]
    pub fn snapshot(&self) -> LatencySnapshot {
        let mut buckets = [0; LATENCY_BOUNDS_SECONDS.len() + 1];
        for (value, bucket) in buckets.iter_mut().zip(&self.buckets) {
            *value = bucket.load(Ordering::Relaxed);
        }
        let sum = Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed));
        LatencySnapshot {
            buckets,
            sum_seconds: sum.as_secs_f64(),
        }
    }

    pub(crate) fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = LATENCY_BOUNDS_SECONDS.partition_point(|&bound| bound < seconds);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => {
        /// All counters of the engine.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: $type),*
        }
    };
}

counters! {
    /// Storages that are not recovered yet after the start.
    recovering_storages: Counter,
    /// Bytes of their data files to scan.
    recovery_bytes: Counter,
    /// The bytes of these that were scanned.
    recovery_scanned_bytes: Counter,
    /// Packets that were pushed and not refused immediately.
    packets_arrived: Counter,
    /// Packets that are durable.
    packets_durable: Counter,
    /// Duplicates.
    packets_repeated: Counter,
    /// Packets that were accepted and could not be written.
    packets_failed: Counter,
    /// Droppable packets that were dropped.
    packets_dropped: Counter,
    /// Bytes of these packets.
    dropped_bytes: Counter,
    /// Bytes of droppable packets that wait for a writer.
    droppable_bytes: Counter,
    /// Bytes of durable packets as the agents sent them.
    raw_bytes: Counter,
    /// Bytes of durable packets as stored.
    stored_bytes: Counter,
    /// Bytes of written frames.
    written_bytes: Counter,
    /// Write calls, from submission to completion.
    writes: Latency,
    /// Syncs of data files.
    syncs: Latency,
    /// Writes that failed.
    write_errors: Counter,
    /// Small files that were published.
    files_published: Counter,
    /// Index parts written.
    index_parts: Counter,
    /// Merges of index parts.
    index_merges: Counter,
    /// Index parts that merged ones replaced.
    index_parts_merged: Counter,
    /// Merges of index parts that failed.
    index_merge_failures: Counter,
    /// Attempts to rebuild the index of a finalized storage, of which a part was damaged or gone.
    index_rebuilds: Counter,
    /// The attempts of these that failed.
    index_rebuild_failures: Counter,
    /// Full data files that were arranged while their storage was open.
    files_arranged: Counter,
    /// Attempts to arrange such a file that failed.
    file_arranging_failures: Counter,
    /// Bytes of the live trees of all storages.
    live_index_bytes: Counter,
    /// Data files that are open for writing now.
    channels_open: Counter,
    /// Packet bytes in flight, between arrival and acknowledgement.
    in_flight_bytes: Counter,
    /// Requests that wait for admission.
    waiting_for_room: Counter,
    /// Jobs that wait for a serializer or run in one.
    serializer_jobs: Counter,
    /// Pushes refused because too many bytes were in flight.
    refused_busy: Counter,
    /// Pushes refused because the disk is low.
    refused_disk_low: Counter,
    /// Free bytes of the file system of the data folder at the last check.
    disk_free_bytes: Counter,
    /// Bytes of this file system.
    disk_total_bytes: Counter,
    /// 1 while ingest is stopped because the disk is low.
    disk_low: Counter,
    /// Storages that have failed, at the last call of `Engine::failures`.
    failed_storages: Counter,
    /// 1 when the I/O thread has ended unexpectedly, at the last call of `Engine::failures`.
    io_thread_failed: Counter,
    /// Bytes of finalized storages that were compared with their checksums.
    checked_bytes: Counter,
    /// Blocks of these that were found damaged.
    damaged_blocks: Counter,
    /// Bytes that the scrub read.
    scrub_bytes: Counter,
    /// Damaged places that it found.
    scrub_places: Counter,
    /// Passes of it over all storages that ended.
    scrub_passes: Counter,
    /// When the last of them ended, seconds since the epoch; 0 while there was none.
    scrub_finished_seconds: Counter,
    /// Pushes refused because a quota was used up.
    refused_quota: Counter,
    /// Storages whose bytes by agent are not known.
    usage_unknown_storages: Counter,
    /// 1 while the disk of the data folder fails.
    disk_failed: Counter,
    /// Time of the writes that are tried to learn that.
    disk_probe_seconds: Latency,
    /// Bytes of index blocks in the cache.
    index_cache_bytes: Counter,
    /// Lookups of index blocks that hit the cache.
    index_cache_hits: Counter,
    /// Lookups of index blocks that missed the cache.
    index_cache_misses: Counter,
}
