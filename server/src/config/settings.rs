//! The settings, by section, and their defaults.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::access::AccessConfig;
use super::audit::AuditConfig;
use super::invalid::InvalidSetting;
use super::log_filter;
use super::object_store::ObjectStoreConfig;
use super::otlp::OtlpConfig;
use super::query::QueryConfig;
use super::quota::QuotaConfig;
use super::retention::RetentionConfig;
use super::seal::SealSettings;
use super::tls::TlsConfig;

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Connections and requests.
    pub http: HttpConfig,
    /// TLS of the listener.
    pub tls: TlsConfig,
    /// Admission of requests.
    pub access: AccessConfig,
    /// The log of changes.
    pub audit: AuditConfig,
    /// The ports of OpenTelemetry.
    pub otlp: OtlpConfig,
    /// Incoming packets.
    pub ingest: IngestConfig,
    /// The buffer and recordings.
    pub recording: RecordingConfig,
    /// File bytes sent to readers.
    pub range: RangeConfig,
    /// Queries and chunk indexes.
    pub query: QueryConfig,
    /// Location and layout of storages on disk.
    pub storage: StorageConfig,
    /// Seals of finalized storages.
    pub seal: SealSettings,
    /// The object store of finalized storages.
    pub object_store: ObjectStoreConfig,
    /// Deletion of old storages.
    pub retention: RetentionConfig,
    /// What agents may store.
    pub quota: QuotaConfig,
    /// Tracing of the server's I/O.
    pub io_trace: IoTraceConfig,
    /// Threads.
    pub runtime: RuntimeConfig,
    /// Logging.
    pub log: LogConfig,
    /// Switches for measurements.
    pub bench: BenchConfig,
}

/// Section `[http]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Address to listen on; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Whether addresses other than loopback are accepted, although there are no tokens.
    pub insecure: bool,
    /// Names besides addresses, names without a dot and `*.localhost` that `Host` may have,
    /// separated by commas.
    pub allowed_hosts: String,
    /// Origins of foreign web pages that may change things, separated by commas.
    pub allowed_origins: String,
    /// Origins of foreign web pages that may read responses, separated by commas; `*` for all.
    pub cors_origins: String,
    /// Maximum number of connections.
    pub connections_max: u32,
    /// Maximum number of connections of one address other than loopback.
    pub connections_per_peer_max: u32,
    /// Time limit for the head of a request.
    pub header_read_seconds: u64,
    /// How long a connection without a request stays open after a response.
    pub keep_alive_seconds: u64,
    /// Maximum size of the head of a request.
    pub header_bytes_max: u32,
    /// Maximum number of header fields.
    pub header_count_max: u32,
    /// Maximum number of requests at once on a connection that speaks HTTP/2.
    pub streams_max: u32,
    /// Bytes of request bodies that such a connection accepts before they are read.
    pub receive_window_bytes: u32,
    /// Longest pause within a request body.
    pub body_idle_seconds: u64,
    /// Minimum average rate of a body, checked after the first `body_idle_seconds`.
    pub body_bytes_per_second_min: u64,
    /// Longest time in which a client reads nothing of a response.
    pub write_stall_seconds: u64,
    /// Maximum size of a JSON request body.
    pub json_bytes_max: u64,
    /// Maximum size of an agent's trace metadata.
    pub metadata_bytes_max: u64,
    /// Time for requests in flight to finish after SIGTERM.
    pub drain_seconds: u64,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7117)),
            insecure: false,
            allowed_hosts: String::new(),
            allowed_origins: String::new(),
            cors_origins: String::new(),
            connections_max: 1024,
            connections_per_peer_max: 512,
            header_read_seconds: 10,
            keep_alive_seconds: 75,
            header_bytes_max: 64 << 10,
            header_count_max: 100,
            streams_max: 100,
            receive_window_bytes: 512 << 10,
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

    /// `keep_alive_seconds` as a duration.
    pub fn keep_alive(&self) -> Duration {
        Duration::from_secs(self.keep_alive_seconds)
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
    /// Maximum size of a packet.
    pub packet_bytes_max: u64,
    /// Maximum decoded size of a request body with many packets.
    pub request_bytes_max: u64,
    /// Memory of packets over all requests, with their bookkeeping.
    pub in_flight_bytes_max: u64,
    /// Share of this memory for the packets of one agent; a packet above it is accepted alone.
    pub agent_share_percent: u32,
    /// Share of this memory for the packets of one connection; a packet above it is accepted alone.
    pub connection_share_percent: u32,
    /// Share of this memory for pushed packets, and for requests of spans.
    pub protocol_share_percent: u32,
    /// Maximum number of packets in a request.
    pub batch_packets_max: u32,
    /// Maximum zstd window of a request body.
    pub zstd_window_bytes_max: u64,
}

impl Default for IngestConfig {
    fn default() -> Self {
        Self {
            packet_bytes_max: 16 << 20,
            request_bytes_max: 1 << 30,
            in_flight_bytes_max: 64 << 20,
            agent_share_percent: 50,
            connection_share_percent: 25,
            protocol_share_percent: 75,
            batch_packets_max: 65_536,
            zstd_window_bytes_max: 8 << 20,
        }
    }
}

impl IngestConfig {
    /// Memory for the packets of one agent.
    pub fn agent_bytes_max(&self) -> u64 {
        share(self.in_flight_bytes_max, self.agent_share_percent)
    }

    /// Memory for the packets of one protocol.
    pub fn protocol_bytes_max(&self) -> u64 {
        share(self.in_flight_bytes_max, self.protocol_share_percent)
    }

    /// Memory for the decoders of one protocol.
    pub fn decoder_bytes_max(&self) -> u64 {
        self.in_flight_bytes_max / 2
    }

    /// Memory for the packets of one connection.
    pub fn connection_bytes_max(&self) -> u64 {
        share(self.in_flight_bytes_max, self.connection_share_percent)
    }
}

fn share(bytes: u64, percent: u32) -> u64 {
    bytes.saturating_mul(u64::from(percent)) / 100
}

/// Section `[recording]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordingConfig {
    /// Memory of the buffer of the latest packets of all agents.
    pub buffer_bytes_max: u64,
    /// Maximum number of recordings that are scheduled or on.
    pub recordings_max: u32,
    /// Memory for what the chains of all recordings and copies collect, and for derived packets.
    pub waiting_bytes_max: u64,
    /// Time for which these spans wait after the latest one arrived.
    pub waiting_milliseconds: u32,
    /// Whether the server keeps all spans that arrive, without a request.
    pub standing: bool,
    /// Time after which the standing recording begins a new storage.
    pub standing_period_seconds: u64,
    /// Bytes of its storages; beyond, the oldest is deleted.
    pub standing_bytes_max: u64,
    /// Time after which a finalized storage of the standing recording is deleted.
    pub standing_age_seconds_max: u64,
}

impl Default for RecordingConfig {
    fn default() -> Self {
        Self {
            buffer_bytes_max: 64 << 20,
            recordings_max: 16,
            waiting_bytes_max: 32 << 20,
            waiting_milliseconds: 1000,
            standing: true,
            standing_period_seconds: 86_400,
            standing_bytes_max: 10 << 30,
            standing_age_seconds_max: 14 * 86_400,
        }
    }
}

/// Section `[range]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RangeConfig {
    /// Memory for file bytes sent to readers.
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
    /// Root folder of all files.
    pub data_dir: PathBuf,
    /// Interface for disk writes.
    pub io: Io,
    /// Threads that compress and frame packets; 0 = one per core.
    pub serializers: u32,
    /// Storages that are recovered at the same time after a start, and data files that are scanned;
    /// 0 = one per core, and two at least.
    pub recovery_threads: u32,
    /// zstd compression level.
    pub zstd_level: i32,
    /// Minimum time between two syncs of a data file.
    pub commit_window_microseconds: u64,
    /// Maximum number of logs (one a storage) open for writing.
    pub open_files_max: u32,
    /// Maximum size of an extent preallocated for a data file; 0 disables preallocation.
    pub preallocation_bytes_max: u64,
    /// A data file of at least this many bytes is complete; the log continues in a new one.
    pub data_file_bytes_max: u64,
    /// Bytes per second at which finalization arranges a storage, or reads it for its checksums
    /// afterwards; 0 = no limit.
    pub arranging_bytes_per_second_max: u64,
    /// Bytes per second at which full data files of open storages are arranged, all storages
    /// together; 0 = they are arranged when their storage is finalized.
    pub full_file_arranging_bytes_per_second_max: u64,
    /// Time between two writes that are tried to learn whether the disk works; 0 = off.
    pub disk_probe_seconds: u64,
    /// Bytes per second at which files are re-read and compared with their checksums in the
    /// background; 0 = off.
    pub scrub_bytes_per_second: u64,
    /// Minimum time between the beginnings of two such passes over all storages.
    pub scrub_pass_seconds_min: u64,
    /// Packets in the live index of a storage before an index part is written.
    pub live_index_packets_max: u64,
    /// Memory for the live indexes of all storages.
    pub live_index_bytes_max: u64,
    /// Time after which packets in the live index are written to an index part; 0 = no limit.
    pub live_index_seconds_max: u64,
    /// Bytes of data files not covered by an index part before one is written.
    pub uncovered_bytes_max: u64,
    /// Length of a time bucket of the index: a stream has one leaf for each; 0 gives it one in all.
    pub time_bucket_seconds: u64,
    /// Memory for index blocks used by readers.
    pub index_cache_bytes_max: u64,
    /// Maximum number of storages.
    pub storages_max: u64,
    /// Ingest stops when fewer bytes are free
    pub disk_stop_free_bytes: u64,
    /// or a smaller percentage of the file system is free, whichever limit is higher,
    pub disk_stop_free_percent: u32,
    /// and resumes when a greater percentage is free.
    pub disk_resume_free_percent: u32,
}

/// Section `[io_trace]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IoTraceConfig {
    /// Maximum size of a trace, and the limit of a trace that does not set one.
    pub bytes_max: u64,
    /// Maximum size of a trace that overwrites its oldest part (ring).
    pub ring_bytes_max: u64,
    /// Whether a trace starts with the server and so records its startup.
    pub at_start: TraceAtStart,
    /// Operations in the buffer of a thread; further ones are dropped and counted.
    pub thread_records_max: u32,
}

/// What is traced from the start of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceAtStart {
    /// Nothing, until a client requests a trace.
    Off,
    /// Everything, until the trace has `bytes_max` bytes.
    StopAtLimit,
    /// Everything; the oldest part beyond `ring_bytes_max` bytes is overwritten.
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

/// Interface for disk writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Io {
    /// io_uring where the kernel allows it, otherwise blocking calls.
    Auto,
    /// io_uring, or fail to start.
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
            recovery_threads: 0,
            zstd_level: 1,
            commit_window_microseconds: 0,
            open_files_max: 512,
            preallocation_bytes_max: 64 << 20,
            data_file_bytes_max: 1 << 30,
            arranging_bytes_per_second_max: 0,
            disk_probe_seconds: 10,
            scrub_bytes_per_second: 4 << 20,
            scrub_pass_seconds_min: 86_400,
            full_file_arranging_bytes_per_second_max: 32 << 20,
            live_index_packets_max: 256 << 10,
            live_index_bytes_max: 64 << 20,
            live_index_seconds_max: 60,
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
    /// Threads that serve requests; 0 = one per core.
    pub threads: u32,
}

/// Section `[log]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// A level or a filter.
    pub level: String,
    /// Format of a line.
    pub format: LogFormat,
    /// Whether each request is a line.
    pub access: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
            access: false,
        }
    }
}

/// Format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs: one JSON object per line.
    Json,
}

/// Section `[bench]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BenchConfig {
    /// Read packet bodies and discard them.
    pub discard: bool,
}

impl Config {
    /// The folder of all files.
    pub fn data_dir(&self) -> &std::path::Path {
        &self.storage.data_dir
    }

    /// Whether the listener speaks TLS.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_on()
    }

    /// The settings as a configuration file.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("settings can be written as TOML")
    }

    /// The settings that are invalid, by themselves or in combination with another. Ranges of
    /// numbers are checked by layer.
    pub(super) fn invalid(&self) -> Vec<InvalidSetting> {
        let mut all = Vec::new();
        let mut invalid = |key: &str, what: String, remedy: &str| {
            all.push(InvalidSetting {
                key: key.to_owned(),
                what,
                remedy: remedy.to_owned(),
            });
        };
        let (ingest, storage) = (&self.ingest, &self.storage);
        let tls = self.tls.invalid();
        if ingest.in_flight_bytes_max < ingest.packet_bytes_max {
            invalid(
                "ingest.in_flight_bytes_max",
                format!(
                    "is {}, less than ingest.packet_bytes_max ({}): the largest packet is never \
                     admitted",
                    ingest.in_flight_bytes_max, ingest.packet_bytes_max
                ),
                "raise it, or lower ingest.packet_bytes_max",
            );
        }
        if ingest.request_bytes_max < ingest.packet_bytes_max {
            invalid(
                "ingest.request_bytes_max",
                format!(
                    "is {}, less than ingest.packet_bytes_max ({}): no request has space for the \
                     largest packet",
                    ingest.request_bytes_max, ingest.packet_bytes_max
                ),
                "raise it, or lower ingest.packet_bytes_max",
            );
        }
        if storage.disk_resume_free_percent < storage.disk_stop_free_percent {
            invalid(
                "storage.disk_resume_free_percent",
                format!(
                    "is {}, less than storage.disk_stop_free_percent ({}): ingest cannot resume",
                    storage.disk_resume_free_percent, storage.disk_stop_free_percent
                ),
                "raise it, or lower storage.disk_stop_free_percent",
            );
        }
        if let Some(fault) = log_filter::fault_of(&self.log.level) {
            invalid(
                "log.level",
                fault,
                "use off, error, warn, info, debug, trace, or a list such as info,server=debug",
            );
        }
        all.extend(tls);
        all.extend(self.query.invalid());
        all.extend(self.seal.invalid());
        all.extend(self.object_store.invalid(self.ingest.packet_bytes_max));
        all
    }
}
