//! What a request for an I/O trace says.

use io_trace::Settings;
use storage_format::StorageId;

use super::error::IoTraceError;
use super::status::Mode;
use crate::config::IoTraceConfig;

/// Name of the storage of a trace that asks for none.
pub(crate) const NAME: &str = "io-trace";

/// Fewest bytes a trace may have: that of a few packets.
const BYTES_MIN: u64 = 1 << 20;

/// What is wanted of a trace.
#[derive(Debug, Clone)]
pub(crate) struct TraceRequest {
    /// Name of the storage.
    pub(crate) name: String,
    /// What happens at the limit.
    pub(crate) mode: Mode,
    /// The limit; the configured one when it is not given.
    pub(crate) bytes_max: Option<u64>,
    /// What is recorded; the storage of the trace is filled in here.
    pub(crate) settings: Settings,
    /// Only these storages; all when it is empty.
    pub(crate) storages: Vec<StorageId>,
}

/// The limit of a trace: what is asked for, within what the configuration allows.
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
        let problem = format!("bytes_max is {bytes_max}, not within {BYTES_MIN} and {largest}");
        return Err(IoTraceError::Invalid { problem });
    }
    Ok(bytes_max)
}
