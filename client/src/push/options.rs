use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use uuid::Uuid;

/// How to push.
#[derive(Debug, Clone)]
pub struct PushOptions {
    /// Straight into this storage, or to the buffer and the recordings.
    pub storage: Option<Uuid>,
    /// Length that packets have about, in bytes.
    pub packet_bytes: usize,
    /// Streams pushed side by side.
    pub streams_max: usize,
    /// Packets in memory, in bytes over all streams.
    pub in_flight_bytes_max: u32,
    /// Go on when a file grows, until the flag is set; its folder is where resume points are kept.
    pub follow: Option<Follow>,
}

/// How to follow growing files.
#[derive(Debug, Clone)]
pub struct Follow {
    /// Set it to end.
    pub stop: Arc<AtomicBool>,
    /// Folder for what is needed to resume.
    pub journals: PathBuf,
    /// A growing file is looked at this often.
    pub poll_every: Duration,
    /// What it has of a packet is sent when nothing was cut for this long.
    pub flush_after: Duration,
    /// Where packets came from is told this often, and at the end.
    pub report_every: Duration,
}

impl Follow {
    /// Following at the usual pace.
    pub fn new(stop: Arc<AtomicBool>, journals: PathBuf) -> Self {
        Self {
            stop,
            journals,
            poll_every: Duration::from_millis(200),
            flush_after: Duration::from_secs(1),
            report_every: Duration::from_secs(30),
        }
    }
}
