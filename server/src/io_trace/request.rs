//! Requests to start an I/O trace.

use io_trace::Settings;
use storage_format::StorageId;

use super::error::IoTraceError;
use super::status::Mode;
use crate::config::IoTraceConfig;

/// Default name of the storage of a trace.
pub(crate) const NAME: &str = "io-trace";

/// Minimum size of a trace: a few packets.
const BYTES_MIN: u64 = 1 << 20;

/// A request to start a trace.
#[derive(Debug, Clone)]
pub(crate) struct TraceRequest {
    /// Name of the storage.
    pub(crate) name: String,
    /// What happens when the limit is reached.
    pub(crate) mode: Mode,
    /// The limit; by default that of the configuration.
    pub(crate) bytes_max: Option<u64>,
    /// What is recorded; the storage of the trace is added later.
    pub(crate) settings: Settings,
    /// Only these storages; all if empty.
    pub(crate) storages: Vec<StorageId>,
}

/// The limit of a trace: the requested one, within that of the configuration.
pub(super) fn bytes_max(
    config: &IoTraceConfig,
    mode: Mode,
    wanted: Option<u64>,
) -> Result<u64, IoTraceError> {
    let largest = match mode {
        Mode::StopAtLimit => config.bytes_max,
        Mode::Ring => config.ring_bytes_max,
    };
    let bytes_max = wanted.unwrap_or(largest);
    if !(BYTES_MIN..=largest).contains(&bytes_max) {
        let problem =
            format!("bytes_max is {bytes_max}, but must be from {BYTES_MIN} to {largest}");
        return Err(IoTraceError::Invalid { problem });
    }
    Ok(bytes_max)
}
