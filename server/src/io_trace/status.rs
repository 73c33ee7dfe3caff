//! The status of the I/O trace.

use std::collections::BTreeMap;

use io_trace::{Drained, Operation};
use storage_format::StorageId;

use crate::config::TraceAtStart;

/// Size of a full packet, in bytes.
const PACKET_BYTES: usize = 512 << 10;

/// What happens when a trace reaches its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// The trace ends.
    #[default]
    StopAtLimit,
    /// The oldest packets are overwritten; the others are in the storage when the trace ends.
    Ring,
}

impl Mode {
    pub(crate) const ALL: [Self; 2] = [Self::StopAtLimit, Self::Ring];

    /// The mode that the configuration sets for traces from startup.
    pub(super) fn at_start(wanted: TraceAtStart) -> Option<Self> {
        match wanted {
            TraceAtStart::Off => None,
            TraceAtStart::StopAtLimit => Some(Self::StopAtLimit),
            TraceAtStart::Ring => Some(Self::Ring),
        }
    }

    /// Size of a full packet in a trace of at most `bytes_max` bytes. Packets of a ring are smaller
    /// because it overwrites several at once.
    pub(super) fn packet_bytes(self, bytes_max: u64) -> usize {
        let of_ring = usize::try_from(bytes_max / 16).unwrap_or(usize::MAX);
        match self {
            Self::StopAtLimit => PACKET_BYTES,
            Self::Ring => PACKET_BYTES.min(of_ring),
        }
    }

    /// Its name in the API.
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
    /// A client stopped it.
    Stopped,
    /// It reached its limit.
    Limit,
    /// The server shut down.
    Shutdown,
    /// Its storage could not be written.
    Failed,
}

impl Reason {
    /// Its name in the API and in the trace.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Limit => "limit",
            Self::Shutdown => "shutdown",
            Self::Failed => "failed",
        }
    }
}

/// Whether a trace is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// No trace since the server started.
    #[default]
    Off,
    /// Operations are recorded.
    Running,
    /// The last trace has ended.
    Ended,
}

impl State {
    /// Its name in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Running => "running",
            Self::Ended => "ended",
        }
    }
}

/// The status of the current or last trace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Status {
    pub(crate) state: State,
    pub(crate) storage: Option<StorageId>,
    pub(crate) mode: Mode,
    pub(crate) bytes_max: u64,
    /// Bytes of its packets so far.
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    /// Operations recorded and dropped.
    pub(crate) drained: Drained,
    /// Operations that were recorded and then overwritten (ring).
    pub(crate) overwritten: u64,
    /// Nanoseconds since the epoch.
    pub(crate) started: Option<i64>,
    pub(crate) ended: Option<i64>,
    pub(crate) reason: Option<Reason>,
    /// Why its storage could not be written.
    pub(crate) error: Option<String>,
}

impl Status {
    /// Dropped operations by name, without zeros.
    pub(crate) fn dropped_by_operation(&self) -> BTreeMap<String, u64> {
        let counts = Operation::ALL.iter().zip(self.drained.dropped);
        counts
            .filter(|(_, dropped)| *dropped > 0)
            .map(|(operation, dropped)| (operation.name().to_owned(), dropped))
            .collect()
    }
}
