//! What queries and chunk indexes cost.

use prometheus::{IntCounter, IntCounterVec, IntGauge};
use query_engine::Report;

use super::maker::{InProgress, Maker};

/// Counters of queries.
pub(crate) struct QueryMetrics {
    running: IntGauge,
    finished: IntCounter,
    /// Queries of which the client left.
    pub(crate) cancelled: IntCounter,
    chunks: IntCounterVec,
    events_decoded: IntCounter,
    events_matched: IntCounter,
    fetched_bytes: IntCounter,
    /// Aggregates answered from the cache of their storage.
    pub(crate) cached: IntCounter,
    /// Bytes of data files read for chunk indexes.
    pub(crate) indexed_bytes: IntCounter,
    /// Storages whose chunk indexes could not be completed at once.
    pub(crate) index_failures: IntCounter,
}

impl QueryMetrics {
    pub(super) fn new(maker: &Maker) -> Self {
        Self {
            running: maker.gauge("tracehold_queries_running", "Queries that run."),
            finished: maker.counter("tracehold_queries_total", "Queries that ran to their end."),
            cancelled: maker.counter(
                "tracehold_queries_cancelled_total",
                "Queries that were ended because their client was gone.",
            ),
            chunks: maker.counters(
                "tracehold_query_chunks_total",
                "Indexed chunks, by what became of them.",
                &["outcome"],
            ),
            events_decoded: maker.counter(
                "tracehold_query_events_decoded_total",
                "Events that queries decoded.",
            ),
            events_matched: maker.counter(
                "tracehold_query_events_matched_total",
                "Events that queries found.",
            ),
            fetched_bytes: maker.counter(
                "tracehold_query_fetched_bytes_total",
                "Bytes of data files and chunk indexes that queries read.",
            ),
            cached: maker.counter(
                "tracehold_query_cached_total",
                "Aggregates answered from the cache of their storage.",
            ),
            indexed_bytes: maker.counter(
                "tracehold_indexed_bytes_total",
                "Bytes of data files read for chunk indexes.",
            ),
            index_failures: maker.counter(
                "tracehold_index_failures_total",
                "Looks at a storage whose chunk indexes could not be completed.",
            ),
        }
    }

    /// A query began; it ends with what this gives.
    pub(crate) fn began(&self) -> InProgress {
        InProgress::new(&self.running)
    }

    /// A query ran to its end.
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
        let counters = &report.counters;
        self.events_decoded.inc_by(counters.decoded.events);
        self.events_matched.inc_by(report.matched);
        self.fetched_bytes
            .inc_by(counters.fetched_bytes + report.index_bytes);
    }
}
