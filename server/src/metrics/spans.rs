//! Metrics of spans.

use prometheus::IntCounter;

use super::maker::Maker;

/// Spans in accepted requests.
pub(crate) struct SpanMetrics {
    /// Accepted by a recording.
    pub(crate) accepted: IntCounter,
    /// Rejected because their ids are invalid.
    pub(crate) invalid_id: IntCounter,
    /// Rejected because no recording accepts them.
    pub(crate) not_recorded: IntCounter,
    /// Rejected because they could not be stored after others of their request were.
    pub(crate) refused: IntCounter,
}

impl SpanMetrics {
    pub(super) fn new(maker: &Maker) -> Self {
        let rejected = maker.counters(
            "tracehold_ingest_spans_rejected_total",
            "Spans not stored although their request was accepted, by reason: their ids are \
             invalid, no recording accepts them, or they could not be stored after others of \
             their request were.",
            &["reason"],
        );
        Self {
            accepted: maker.counter(
                "tracehold_ingest_spans_accepted_total",
                "Spans that a recording accepted.",
            ),
            invalid_id: rejected.with_label_values(&["invalid_id"]),
            not_recorded: rejected.with_label_values(&["not_recorded"]),
            refused: rejected.with_label_values(&["refused"]),
        }
    }
}
