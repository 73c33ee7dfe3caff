//! Metrics of queries and chunk indexes.

use prometheus::{IntCounter, IntCounterVec, IntGauge};
use query_engine::Report;

use super::maker::{InProgress, Maker};

/// Metrics of queries.
pub(crate) struct QueryMetrics {
    running: IntGauge,
    finished: IntCounter,
    /// Queries whose client disconnected.
    pub(crate) cancelled: IntCounter,
    chunks: IntCounterVec,
    events_decoded: IntCounter,
    events_matched: IntCounter,
    fetched_bytes: IntCounter,
    incomplete: IntCounter,
    skipped_records: IntCounter,
    /// Aggregations answered with a cached result.
    pub(crate) cached: IntCounter,
    /// Bytes of data files read to build chunk indexes.
    pub(crate) indexed_bytes: IntCounter,
    /// Failed attempts to complete the chunk indexes of a storage.
    pub(crate) index_failures: IntCounter,
    /// Bytes of all files of events.
    pub(crate) event_files_bytes: IntGauge,
    /// Files of events that are made or wait for their turn.
    pub(crate) event_files_waiting: IntGauge,
}

impl QueryMetrics {
    pub(super) fn new(maker: &Maker) -> Self {
        Self {
            running: maker.gauge("tracehold_queries_running", "Running queries."),
            finished: maker.counter("tracehold_queries_total", "Finished queries."),
            cancelled: maker.counter(
                "tracehold_queries_cancelled_total",
                "Queries cancelled because their client disconnected.",
            ),
            chunks: maker.counters(
                "tracehold_query_chunks_total",
                "Indexed chunks of queries, by outcome.",
                &["outcome"],
            ),
            events_decoded: maker.counter(
                "tracehold_query_events_decoded_total",
                "Events decoded by queries.",
            ),
            events_matched: maker.counter(
                "tracehold_query_events_matched_total",
                "Events matched by queries.",
            ),
            fetched_bytes: maker.counter(
                "tracehold_query_fetched_bytes_total",
                "Bytes of data files and chunk indexes read by queries.",
            ),
            incomplete: maker.counter(
                "tracehold_queries_incomplete_total",
                "Queries that skipped data that cannot be read.",
            ),
            skipped_records: maker.counter(
                "tracehold_query_skipped_records_total",
                "Records and packets that queries skipped because they cannot be read.",
            ),
            cached: maker.counter(
                "tracehold_query_cached_total",
                "Aggregations answered with a cached result.",
            ),
            indexed_bytes: maker.counter(
                "tracehold_indexed_bytes_total",
                "Bytes of data files read to build chunk indexes.",
            ),
            index_failures: maker.counter(
                "tracehold_index_failures_total",
                "Failed attempts to complete the chunk indexes of a storage.",
            ),
            event_files_bytes: maker.gauge(
                "tracehold_event_files_bytes",
                "Bytes of all files of events.",
            ),
            event_files_waiting: maker.gauge(
                "tracehold_event_files_waiting",
                "Files of events that are being made or wait for that.",
            ),
        }
    }

    /// Counts a query that begins; dropping the result counts its end.
    pub(crate) fn began(&self) -> InProgress {
        InProgress::new(&self.running)
    }

    /// Counts a query that finished.
    pub(crate) fn ended(&self, report: &Report) {
        self.finished.inc();
        let [statistics, dictionaries, filters] = report.ruled_out;
        let outcomes = [
            ("ruled_out", statistics + dictionaries + filters),
            ("summarized", report.summarized),
            ("read", report.read),
        ];
        for (outcome, chunks) in outcomes {
            self.chunks
                .with_label_values(&[outcome])
                .inc_by(chunks as u64);
        }
        self.incomplete.inc_by(u64::from(!report.is_complete()));
        self.skipped_records.inc_by(report.skipped_parts());
        let counters = &report.counters;
        self.events_decoded.inc_by(counters.decoded.events);
        self.events_matched.inc_by(report.matched);
        self.fetched_bytes
            .inc_by(counters.fetched_bytes + report.index_bytes);
    }
}
