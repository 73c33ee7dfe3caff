//! The settings, by section, and their defaults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use storage_format::limits::PACKET_BYTES_MAX;

use super::query::QueryConfig;

/// Everything the server can be told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Connections and requests.
    pub http: HttpConfig,
    /// Incoming packets.
    pub ingest: IngestConfig,
    /// The buffer and recordings.
    pub recording: RecordingConfig,
    /// File bytes going out.
    pub range: RangeConfig,
    /// Queries and chunk indexes.
    pub query: QueryConfig,
    /// Where and how storages lie on disk.
    pub storage: StorageConfig,
    /// Tracing of our own I/O.
    pub io_trace: IoTraceConfig,
    /// Threads.
    pub runtime: RuntimeConfig,
    /// Logging.
    pub log: LogConfig,
    /// Switches that only measurements need.
    pub bench: BenchConfig,
}

/// Section `[http]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Connections served at once.
    pub connections_max: u32,
    /// Limit for a request head to arrive.
    pub header_read_seconds: u64,
    /// Largest request head.
    pub header_bytes_max: u32,
    /// Most header fields of a request.
    pub header_count_max: u32,
    /// Longest pause within a request body.
    pub body_idle_seconds: u64,
    /// Slowest body, averaged over its life so far, after the first `body_idle_seconds`.
    pub body_bytes_per_second_min: u64,
    /// Longest time without the client taking a byte of its answer.
    pub write_stall_seconds: u64,
    /// Largest JSON request body.
    pub json_bytes_max: u64,
    /// Largest trace metadata of an agent.
    pub metadata_bytes_max: u64,
    /// How long requests in flight may take to end after SIGTERM.
    pub drain_seconds: u64,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7117)),
            connections_max: 1024,
            header_read_seconds: 10,
            header_bytes_max: 64 << 10,
            header_count_max: 100,
            body_idle_seconds: 30,
            body_bytes_per_second_min: 1024,
            write_stall_seconds: 60,
            json_bytes_max: 1 << 20,
            metadata_bytes_max: 16 << 20,
            drain_seconds: 20,
        }
    }
}

impl HttpConfig {
    /// `header_read_seconds` as a duration.
    pub fn header_read(&self) -> Duration {
        Duration::from_secs(self.header_read_seconds)
    }

    /// `body_idle_seconds` as a duration.
    pub fn body_idle(&self) -> Duration {
        Duration::from_secs(self.body_idle_seconds)
    }

    /// `write_stall_seconds` as a duration.
    pub fn write_stall(&self) -> Duration {
        Duration::from_secs(self.write_stall_seconds)
    }

    /// `drain_seconds` as a duration.
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }
}

/// Section `[ingest]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IngestConfig {
    /// Largest packet.
    pub packet_bytes_max: u64,
    /// Largest decoded body of a request with many packets.
    pub request_bytes_max: u64,
    /// Packet bytes in memory over all requests.
    pub in_flight_bytes_max: u64,
    /// Most packets in one request.
    pub batch_packets_max: u32,
    /// Largest window a zstd body may ask for.
    pub zstd_window_bytes_max: u64,
}

impl Default for IngestConfig {
    fn default() -> Self {
        Self {
            packet_bytes_max: 64 << 20,
            request_bytes_max: 1 << 30,
            in_flight_bytes_max: 64 << 20,
            batch_packets_max: 65_536,
            zstd_window_bytes_max: 8 << 20,
        }
    }
}

/// Section `[recording]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordingConfig {
    /// Memory of the buffer, which keeps the latest packets of all agents.
    pub buffer_bytes_max: u64,
    /// Recordings that wait or record at once.
    pub recordings_max: u32,
    /// Memory of spans that wait for others of their trace, a recording.
    pub waiting_bytes_max: u64,
    /// How long they wait after the last of them came.
    pub waiting_milliseconds: u32,
}

impl Default for RecordingConfig {
    fn default() -> Self {
        Self {
            buffer_bytes_max: 64 << 20,
            recordings_max: 16,
            waiting_bytes_max: 32 << 20,
            waiting_milliseconds: 1000,
        }
    }
}

/// Section `[range]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RangeConfig {
    /// Memory for file bytes on their way to readers.
    pub buffer_bytes_max: u64,
}

impl Default for RangeConfig {
    fn default() -> Self {
        Self {
            buffer_bytes_max: 32 << 20,
        }
    }
}

/// Section `[storage]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageConfig {
    /// Root of everything on disk.
    pub data_dir: PathBuf,
    /// How the disk is written.
    pub io: Io,
    /// Threads that compress and frame packets; 0 = one a core.
    pub serializers: u32,
    /// Level of zstd.
    pub zstd_level: i32,
    /// Shortest time between two syncs of a data file.
    pub commit_window_microseconds: u64,
    /// Data files open for writing at once.
    pub open_files_max: u32,
    /// Largest extent by which a data file is extended ahead of writing; 0 turns it off.
    pub preallocation_bytes_max: u64,
    /// Packets in the live index of a storage before a part of it is written out.
    pub live_index_packets_max: u64,
    /// Bytes of data files no index part covers before one is written.
    pub uncovered_bytes_max: u64,
    /// Length of a time bucket of the index; 0 puts a whole stream into one file.
    pub time_bucket_seconds: u64,
    /// Memory for index blocks of readers.
    pub index_cache_bytes_max: u64,
    /// Most storages.
    pub storages_max: u64,
    /// Ingest stops below this many free bytes,
    pub disk_stop_free_bytes: u64,
    /// or below this share of the file system, whichever is more;
    pub disk_stop_free_percent: u32,
    /// and goes on above this share.
    pub disk_resume_free_percent: u32,
}

/// Section `[io_trace]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IoTraceConfig {
    /// Largest trace; also the limit of one that asks for none.
    pub bytes_max: u64,
    /// Largest trace of which the oldest part makes room for the latest (ring).
    pub ring_bytes_max: u64,
    /// Whether the trace begins with the server, and so tells of its start.
    pub at_start: TraceAtStart,
    /// Operations in the buffer of a thread; more are dropped and counted.
    pub thread_records_max: u32,
}

/// What is traced from the start of the server on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceAtStart {
    /// Nothing, until it is asked for.
    Off,
    /// Everything, until the trace has `bytes_max` bytes.
    StopAtLimit,
    /// Everything; the oldest part is given up beyond `ring_bytes_max` bytes.
    Ring,
}

impl Default for IoTraceConfig {
    fn default() -> Self {
        Self {
            bytes_max: 1 << 30,
            ring_bytes_max: 64 << 20,
            at_start: TraceAtStart::Off,
            thread_records_max: 16 << 10,
        }
    }
}

/// How the disk is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Io {
    /// io_uring where the kernel allows it, else blocking calls.
    Auto,
    /// io_uring, or refuse to start.
    Uring,
    /// Blocking calls on threads.
    Blocking,
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("./data"),
            io: Io::Auto,
            serializers: 0,
            zstd_level: 1,
            commit_window_microseconds: 0,
            open_files_max: 512,
            preallocation_bytes_max: 64 << 20,
            live_index_packets_max: 256 << 10,
            uncovered_bytes_max: 4 << 30,
            time_bucket_seconds: 3600,
            index_cache_bytes_max: 32 << 20,
            storages_max: 1 << 20,
            disk_stop_free_bytes: 1 << 30,
            disk_stop_free_percent: 5,
            disk_resume_free_percent: 8,
        }
    }
}

/// Section `[runtime]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeConfig {
    /// Threads that serve requests; 0 = one a core.
    pub threads: u32,
}

/// Section `[log]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// A level or a filter.
    pub level: String,
    /// Shape of a line.
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}

/// Shape of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs: one JSON object a line.
    Json,
}

/// Section `[bench]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BenchConfig {
    /// Read packet bodies and drop them.
    pub discard: bool,
}

/// A value that cannot work, with the key it belongs to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidSetting {
    pub(super) key: &'static str,
    pub(super) what: String,
    pub(super) remedy: &'static str,
}

impl Config {
    /// The settings as a file that would bring them about.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("settings of ours can be written as TOML")
    }

    /// The first setting that cannot work, alone or together with another.
    pub(super) fn invalid(&self) -> Option<InvalidSetting> {
        let zero = "give it a value of at least 1";
        let positive: [(&'static str, u64); 13] = [
            ("http.connections_max", u64::from(self.http.connections_max)),
            ("http.header_read_seconds", self.http.header_read_seconds),
            (
                "http.header_count_max",
                u64::from(self.http.header_count_max),
            ),
            ("http.body_idle_seconds", self.http.body_idle_seconds),
            (
                "http.body_bytes_per_second_min",
                self.http.body_bytes_per_second_min,
            ),
            ("http.write_stall_seconds", self.http.write_stall_seconds),
            ("http.json_bytes_max", self.http.json_bytes_max),
            ("http.metadata_bytes_max", self.http.metadata_bytes_max),
            ("ingest.packet_bytes_max", self.ingest.packet_bytes_max),
            (
                "ingest.batch_packets_max",
                u64::from(self.ingest.batch_packets_max),
            ),
            ("ingest.request_bytes_max", self.ingest.request_bytes_max),
            (
                "ingest.zstd_window_bytes_max",
                self.ingest.zstd_window_bytes_max,
            ),
            ("range.buffer_bytes_max", self.range.buffer_bytes_max),
        ];
        let mut positive = positive.into_iter().chain(self.query.positive());
        if let Some((key, _)) = positive.find(|(_, value)| *value == 0) {
            return Some(InvalidSetting {
                key,
                what: "is 0".to_owned(),
                remedy: zero,
            });
        }
        if self.http.header_bytes_max < 8192 {
            return Some(InvalidSetting {
                key: "http.header_bytes_max",
                what: format!(
                    "is {}, less than any client needs",
                    self.http.header_bytes_max
                ),
                remedy: "give it at least 8192",
            });
        }
        if self.ingest.packet_bytes_max > u64::from(PACKET_BYTES_MAX) {
            return Some(InvalidSetting {
                key: "ingest.packet_bytes_max",
                what: "is more than a packet of the storage format can hold".to_owned(),
                remedy: "give it at most 268435456",
            });
        }
        if self.ingest.in_flight_bytes_max < self.ingest.packet_bytes_max {
            return Some(InvalidSetting {
                key: "ingest.in_flight_bytes_max",
                what: "is less than ingest.packet_bytes_max: the largest packet could never enter"
                    .to_owned(),
                remedy: "raise it, or lower ingest.packet_bytes_max",
            });
        }
        let StorageConfig {
            disk_stop_free_percent,
            disk_resume_free_percent,
            ..
        } = self.storage;
        if disk_resume_free_percent < disk_stop_free_percent || disk_resume_free_percent > 100 {
            return Some(InvalidSetting {
                key: "storage.disk_resume_free_percent",
                what: "is less than storage.disk_stop_free_percent, or more than 100".to_owned(),
                remedy: "ingest that stopped must be able to go on: give it a value between",
            });
        }
        None
    }
}
