//! Operating bounds of the engine, each named with its unit.

use std::{path::PathBuf, time::Duration};

/// Which implementation of the I/O thread is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring where the kernel allows it, else blocking calls.
    Auto,
    /// io_uring, or refuse to start.
    Uring,
    /// Blocking calls on threads.
    Blocking,
}

/// When ingest stops for want of disk space, and when it goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskLow {
    /// Ingest stops below this many free bytes …
    pub stop_free_bytes: u64,
    /// … or below this share of the file system, whichever is more.
    pub stop_free_ratio: f64,
    /// Ingest goes on above this share, and above twice `stop_free_bytes`.
    pub resume_free_ratio: f64,
    /// How often free space is looked at.
    pub check_interval: Duration,
}

/// Configuration of an [`Engine`](crate::Engine).
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    /// The data folder.
    pub data_dir: PathBuf,
    /// Written into storage files.
    pub server_version: String,
    /// Implementation of the I/O thread.
    pub io: IoChoice,
    /// Aligned buffers of 256 KiB each that the I/O thread owns.
    pub io_buffer_count: usize,
    /// Shortest time between two syncs of a data file.
    pub commit_window: Duration,
    /// Data files that are open for writing at once.
    pub open_channel_count_max: usize,
    /// A data file without a write for this long is closed.
    pub channel_idle: Duration,
    /// Largest extent by which a data file is extended ahead of writing; 0 turns it off.
    pub preallocation_bytes_max: u64,
    /// Serializer threads.
    pub serializer_count: usize,
    /// Compression level of zstd.
    pub zstd_level: i32,
    /// Packet bytes that may be under way between arrival and acknowledgement.
    pub in_flight_bytes_max: u64,
    /// Longest packet, in bytes.
    pub packet_bytes_max: u32,
    /// Packets that the live tree of one storage holds before an index part is written.
    pub tree_packet_count_max: usize,
    /// Bytes of data files that no index part covers before one is written.
    pub uncovered_bytes_max: u64,
    /// Length of a time bucket of the index tree; zero puts a whole stream into one leaf.
    pub time_bucket: Duration,
    /// Leaves that one storage may have.
    pub leaf_count_max: usize,
    /// Storages that the server may have.
    pub storage_count_max: usize,
    /// Agents that the server may have, and streams of one agent.
    pub agent_count_max: usize,
    /// Bytes of index blocks that are kept in memory for readers.
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
            serializer_count: cores,
            zstd_level: 1,
            in_flight_bytes_max: 64 << 20,
            packet_bytes_max: 64 << 20,
            tree_packet_count_max: 256 << 10,
            uncovered_bytes_max: 4 << 30,
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
