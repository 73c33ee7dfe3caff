//! How the trace of our own I/O stands.

use std::collections::BTreeMap;

use io_trace::{Drained, Operation};
use storage_format::StorageId;

use crate::config::TraceAtStart;

/// Bytes of a packet that is full.
const PACKET_BYTES: usize = 512 << 10;

/// What happens when a trace reaches its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// It ends.
    #[default]
    StopAtLimit,
    /// The oldest packets are given up; the others are in the storage when the trace ends.
    Ring,
}

impl Mode {
    pub(crate) const ALL: [Self; 2] = [Self::StopAtLimit, Self::Ring];

    /// What the configuration wants from the start on.
    pub(super) fn at_start(wanted: TraceAtStart) -> Option<Self> {
        match wanted {
            TraceAtStart::Off => None,
            TraceAtStart::StopAtLimit => Some(Self::StopAtLimit),
            TraceAtStart::Ring => Some(Self::Ring),
        }
    }

    /// Bytes of a packet that is full, in a trace of at most `bytes_max`: a ring gives up parts.
    pub(super) fn packet_bytes(self, bytes_max: u64) -> usize {
        let of_ring = usize::try_from(bytes_max / 16).unwrap_or(usize::MAX);
        match self {
            Self::StopAtLimit => PACKET_BYTES,
            Self::Ring => PACKET_BYTES.min(of_ring),
        }
    }

    /// The word for it in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::StopAtLimit => "stop_at_limit",
            Self::Ring => "ring",
        }
    }
}

/// Why a trace ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Somebody stopped it.
    Stopped,
    /// It reached its limit.
    Limit,
    /// The server ended.
    Shutdown,
    /// Its storage did not take it.
    Failed,
}

impl Reason {
    /// The word for it in the API and in the trace.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Limit => "limit",
            Self::Shutdown => "shutdown",
            Self::Failed => "failed",
        }
    }
}

/// Whether there is a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// None since the server started.
    #[default]
    Off,
    /// Operations are recorded.
    Running,
    /// The last one ended.
    Ended,
}

impl State {
    /// The word for it in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Running => "running",
            Self::Ended => "ended",
        }
    }
}

/// How the last trace stands.
#[derive(Debug, Clone, Default)]
pub(crate) struct Status {
    pub(crate) state: State,
    pub(crate) storage: Option<StorageId>,
    pub(crate) mode: Mode,
    pub(crate) bytes_max: u64,
    /// Bytes of its packets so far.
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    /// What was recorded and dropped.
    pub(crate) drained: Drained,
    /// Operations that were recorded and then given up (ring).
    pub(crate) overwritten: u64,
    /// ns since the epoch.
    pub(crate) started: Option<i64>,
    pub(crate) ended: Option<i64>,
    pub(crate) reason: Option<Reason>,
    /// Why its storage did not take it.
    pub(crate) error: Option<String>,
}

impl Status {
    /// Dropped operations by name, those of which any were.
    pub(crate) fn dropped_by_operation(&self) -> BTreeMap<String, u64> {
        let counts = Operation::ALL.iter().zip(self.drained.dropped);
        counts
            .filter(|(_, dropped)| *dropped > 0)
            .map(|(operation, dropped)| (operation.name().to_owned(), dropped))
            .collect()
    }
}
