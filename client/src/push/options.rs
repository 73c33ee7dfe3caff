use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use uuid::Uuid;

/// Options of a push.
#[derive(Debug, Clone)]
pub struct PushOptions {
    /// The storage to push into; `None` for the server's buffer and recordings.
    pub storage: Option<Uuid>,
    /// Target size of packets in bytes.
    pub packet_bytes: usize,
    /// Number of streams that are pushed in parallel.
    pub streams_max: usize,
    /// Bytes of packets in memory, for all streams together.
    pub in_flight_bytes_max: u32,
    /// Follow growing files.
    pub follow: Option<Follow>,
}

/// How to follow growing files.
#[derive(Debug, Clone)]
pub struct Follow {
    /// Set to true to stop following.
    pub stop: Arc<AtomicBool>,
    /// Folder of the journals, which make following resumable.
    pub journals: PathBuf,
    /// Interval between checks of a growing file.
    pub poll_every: Duration,
    /// Interval between searches of the folders.
    pub look_every: Duration,
    /// An incomplete packet is sent if no packet was cut for this long.
    pub flush_after: Duration,
    /// Interval between provenance reports; there is another at the end.
    pub report_every: Duration,
}

impl Follow {
    /// Following with the default intervals.
    pub fn new(stop: Arc<AtomicBool>, journals: PathBuf) -> Self {
        Self {
            stop,
            journals,
            poll_every: Duration::from_millis(200),
            look_every: Duration::from_secs(1),
            flush_after: Duration::from_secs(1),
            report_every: Duration::from_secs(30),
        }
    }
}
