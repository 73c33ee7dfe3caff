//! What jobs count.

use prometheus::{IntCounterVec, IntGaugeVec};

use super::maker::Maker;

/// Counters of long work.
pub(crate) struct JobMetrics {
    /// Jobs at work, by kind.
    pub(crate) running: IntGaugeVec,
    /// Jobs that ended, by kind and state.
    pub(crate) ended: IntCounterVec,
    /// Bytes that ended jobs did, by kind.
    pub(crate) bytes: IntCounterVec,
}

impl JobMetrics {
    pub(super) fn new(maker: &Maker) -> Self {
        Self {
            running: maker.gauges("tracehold_jobs_running", "Jobs at work.", &["kind"]),
            ended: maker.counters(
                "tracehold_jobs_ended_total",
                "Jobs that ended, by what became of them.",
                &["kind", "state"],
            ),
            bytes: maker.counters(
                "tracehold_job_bytes_total",
                "Bytes read or written by jobs that ended.",
                &["kind"],
            ),
        }
    }
}
