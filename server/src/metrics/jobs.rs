//! Metrics of jobs.

use prometheus::{IntCounterVec, IntGaugeVec};

use super::maker::Maker;

/// Metrics of jobs.
pub(crate) struct JobMetrics {
    /// Running jobs, by kind.
    pub(crate) running: IntGaugeVec,
    /// Ended jobs, by kind and state.
    pub(crate) ended: IntCounterVec,
    /// Bytes processed by ended jobs, by kind.
    pub(crate) bytes: IntCounterVec,
}

impl JobMetrics {
    pub(super) fn new(maker: &Maker) -> Self {
        Self {
            running: maker.gauges(
                "tracehold_jobs_running",
                "Running jobs, by kind.",
                &["kind"],
            ),
            ended: maker.counters(
                "tracehold_jobs_ended_total",
                "Ended jobs, by kind and final state.",
                &["kind", "state"],
            ),
            bytes: maker.counters(
                "tracehold_job_bytes_total",
                "Bytes read or written by ended jobs.",
                &["kind"],
            ),
        }
    }
}
