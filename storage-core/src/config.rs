//! Configuration of the engine; each limit is named with its unit.

use std::{path::PathBuf, sync::Arc, time::Duration};

use storage_format::seal::SigningKey;

/// Bytes of packets as stored that agents may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaDefaults {
    /// All together; `None` for no limit.
    pub all_bytes_max: Option<u64>,
    /// Each one that has no quota of its own; `None` for no limit.
    pub agent_bytes_max: Option<u64>,
}

/// Which I/O implementation the I/O thread uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring if the kernel allows it, blocking calls otherwise.
    Auto,
    /// io_uring; the server does not start without it.
    Uring,
    /// Blocking calls on threads.
    Blocking,
}

/// When ingest stops because disk space is low, and when it resumes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskLow {
    /// Ingest stops below this many free bytes …
    pub stop_free_bytes: u64,
    /// … or below this share of the file system, whichever is more.
    pub stop_free_ratio: f64,
    /// Ingest resumes above this share and above twice `stop_free_bytes`.
    pub resume_free_ratio: f64,
    /// How often free space is checked.
    pub check_interval: Duration,
}

/// Whether finalization seals storages, and with which key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SealConfig {
    /// The key that signs seals; without one they are not signed.
    pub key: Option<Arc<SigningKey>>,
}

/// Configuration of an [`Engine`](crate::Engine).
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    /// The data folder.
    pub data_dir: PathBuf,
    /// Written into storage files.
    pub server_version: String,
    /// I/O implementation of the I/O thread.
    pub io: IoChoice,
    /// Aligned buffers of 256 KiB each that the I/O thread owns.
    pub io_buffer_count: usize,
    /// Shortest time between two syncs of a data file.
    pub commit_window: Duration,
    /// Data files that are open for writing at once.
    pub open_channel_count_max: usize,
    /// A data file without a write for this long is closed.
    pub channel_idle: Duration,
    /// Largest extent that is preallocated at the end of a data file; 0 turns preallocation off.
    pub preallocation_bytes_max: u64,
    /// A data file of this many bytes is complete; the log continues in a new one.
    pub data_file_bytes_max: u64,
    /// Serializer threads.
    pub serializer_count: usize,
    /// Compression level of zstd.
    pub zstd_level: i32,
    /// Storages that are recovered, and data files that are scanned, at the same time after a
    /// start.
    pub recovery_thread_count: usize,
    /// Bytes of packets that may be in flight, between arrival and acknowledgement, each with its
    /// payload and its bookkeeping.
    pub in_flight_bytes_max: u64,
    /// Bytes of these of one agent; a packet that is longer is accepted alone.
    pub agent_in_flight_bytes_max: u64,
    /// Longest packet, in bytes.
    pub packet_bytes_max: u32,
    /// Bytes per second that arranging a storage, and checksums of its pieces, read at most; 0 for
    /// no limit.
    pub arranging_bytes_per_second_max: u64,
    /// Bytes per second that arranging full files of open storages writes at most, of all storages
    /// together; with 0, they are arranged when their storage is finalized.
    pub full_file_arranging_bytes_per_second_max: u64,
    /// What agents may store.
    pub quotas: QuotaDefaults,
    /// Time between two looks at what they have stored; zero turns them off.
    pub usage_interval: Duration,
    /// Time between two writes that are tried to learn whether the disk works; zero turns them off.
    pub disk_probe_interval: Duration,
    /// Bytes per second that the scrub reads at most; 0 turns it off.
    pub scrub_bytes_per_second: u64,
    /// Shortest time between the beginnings of two passes of the scrub.
    pub scrub_pass_interval: Duration,
    /// Time after the start before the scrub begins: a start has other work.
    pub scrub_delay: Duration,
    /// A log up to this many bytes that is not arranged is read for its checksums before the
    /// storage is FINALIZED, a longer one afterwards.
    pub checksums_at_once_bytes_max: u64,
    /// Whether finalization seals storages, and how.
    pub seal: Option<SealConfig>,
    /// Packets in the live tree of a storage that cause an index part to be written.
    pub tree_packet_count_max: usize,
    /// Bytes of the live trees of all storages; beyond them, the largest is written as an index
    /// part.
    pub live_index_bytes_max: u64,
    /// Age of the oldest packet of a live tree that causes an index part to be written; more for a
    /// storage that has many of them. With zero, age does not matter.
    pub live_index_age_max: Duration,
    /// Bytes of data files without an index part that cause one to be written.
    pub uncovered_bytes_max: u64,
    /// Index parts of similar size that are merged into one.
    pub index_merge_count: usize,
    /// Length of a time bucket of the index tree; with zero, a stream has one leaf.
    pub time_bucket: Duration,
    /// Leaves that one storage may have.
    pub leaf_count_max: usize,
    /// Storages that the server may have.
    pub storage_count_max: usize,
    /// Agents that the server may have, and streams of one agent.
    pub agent_count_max: usize,
    /// Bytes of index blocks that are cached for readers.
    pub index_cache_bytes_max: u64,
    /// Disk space limits.
    pub disk_low: DiskLow,
    #[cfg(test)]
    pub(crate) faults: Option<std::sync::Arc<crate::io::faulty::FaultPlan>>,
}

impl EngineConfig {
    /// The defaults, with the data in `data_dir`.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            data_dir: data_dir.into(),
            server_version: env!("CARGO_PKG_VERSION").to_owned(),
            io: IoChoice::Auto,
            io_buffer_count: 64,
            commit_window: Duration::ZERO,
            open_channel_count_max: 512,
            channel_idle: Duration::from_secs(10),
            preallocation_bytes_max: 64 << 20,
            data_file_bytes_max: 1 << 30,
            serializer_count: cores,
            zstd_level: 1,
            // One that hangs in the disk leaves a thread for the others.
            recovery_thread_count: cores.max(2),
            in_flight_bytes_max: 64 << 20,
            agent_in_flight_bytes_max: 32 << 20,
            packet_bytes_max: 16 << 20,
            arranging_bytes_per_second_max: 0,
            full_file_arranging_bytes_per_second_max: 32 << 20,
            quotas: QuotaDefaults::default(),
            usage_interval: Duration::ZERO,
            disk_probe_interval: Duration::ZERO,
            scrub_bytes_per_second: 4 << 20,
            scrub_pass_interval: Duration::from_secs(86_400),
            scrub_delay: Duration::from_secs(60),
            checksums_at_once_bytes_max: 64 << 20,
            seal: None,
            tree_packet_count_max: 256 << 10,
            live_index_bytes_max: 64 << 20,
            live_index_age_max: Duration::from_secs(60),
            uncovered_bytes_max: 4 << 30,
            index_merge_count: 8,
            time_bucket: Duration::from_secs(3600),
            leaf_count_max: 64 << 10,
            storage_count_max: 1 << 20,
            agent_count_max: 64 << 10,
            index_cache_bytes_max: 32 << 20,
            disk_low: DiskLow {
                stop_free_bytes: 1 << 30,
                stop_free_ratio: 0.05,
                resume_free_ratio: 0.08,
                check_interval: Duration::from_secs(1),
            },
            #[cfg(test)]
            faults: None,
        }
    }
}
