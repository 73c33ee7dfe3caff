//! Metrics of retention.

use prometheus::IntCounter;

use super::maker::Maker;

/// What retention did.
pub(crate) struct RetentionMetrics {
    deleted: IntCounter,
    deleted_bytes: IntCounter,
    failures: IntCounter,
}

impl RetentionMetrics {
    pub(super) fn new(maker: &Maker) -> Self {
        Self {
            deleted: maker.counter(
                "tracehold_retention_deleted_storages_total",
                "Storages that retention has deleted.",
            ),
            deleted_bytes: maker.counter(
                "tracehold_retention_deleted_bytes_total",
                "Bytes of their files.",
            ),
            failures: maker.counter(
                "tracehold_retention_failures_total",
                "Storages that retention could not delete.",
            ),
        }
    }

    /// A storage with files of `bytes` was deleted.
    pub(crate) fn deleted(&self, bytes: u64) {
        self.deleted.inc();
        self.deleted_bytes.inc_by(bytes);
    }

    /// A storage could not be deleted.
    pub(crate) fn failed(&self) {
        self.failures.inc();
    }
}
