//! Metrics of the server itself.

use std::time::Duration;

use http::StatusCode;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Registry,
    TextEncoder,
};

use super::connections::ConnectionMetrics;
use super::jobs::JobMetrics;
use super::maker::{InProgress, Maker};
use super::queries::QueryMetrics;
use super::responses::ResponseMetrics;
use super::retention::RetentionMetrics;
use super::route_group::RouteGroup;
use super::spans::SpanMetrics;

/// Status classes, 1xx to 5xx.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Upper bounds of the latency buckets, in seconds.
const SECONDS: [f64; 14] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
];

/// The outcome of a request for file bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeOutcome {
    /// 200, all bytes.
    Full,
    /// 206, one range.
    Single,
    /// 206, several ranges.
    Multi,
    /// 304.
    NotModified,
    /// 412.
    PreconditionFailed,
    /// 416.
    NotSatisfiable,
}

impl RangeOutcome {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Full, "full"),
        (Self::Single, "single"),
        (Self::Multi, "multi"),
        (Self::NotModified, "not_modified"),
        (Self::PreconditionFailed, "precondition_failed"),
        (Self::NotSatisfiable, "not_satisfiable"),
    ];
}

/// Metrics of one route group.
struct GroupMetrics {
    by_class: [IntCounter; 5],
    seconds: Histogram,
}

/// All metrics of the server itself; `routes::metrics` appends those of the engine.
pub(crate) struct Metrics {
    registry: Registry,
    groups: Vec<GroupMetrics>,
    responses: ResponseMetrics,
    in_flight: IntGauge,
    /// Connections.
    pub(crate) connections: ConnectionMetrics,
    panics: IntCounter,
    refusals: IntCounterVec,
    ranges: Vec<IntCounter>,
    /// File bytes of planned responses.
    pub(crate) range_bytes: IntCounter,
    /// Reads that missed the page cache and ran on the blocking pool.
    pub(crate) range_blocking_reads: IntCounter,
    /// Reads that failed or ended before the expected length of the file.
    pub(crate) range_read_failures: IntCounter,
    /// Memory for file bytes sent to readers.
    pub(crate) range_buffer_bytes: IntGauge,
    /// Completely received packets.
    pub(crate) ingest_packets: IntCounter,
    /// Their decoded bytes.
    pub(crate) ingest_bytes: IntCounter,
    /// Spans.
    pub(crate) spans: SpanMetrics,
    /// Jobs.
    pub(crate) jobs: JobMetrics,
    /// Queries and chunk indexes.
    pub(crate) queries: QueryMetrics,
    /// Retention.
    pub(crate) retention: RetentionMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let maker = Maker(Registry::new());
        let requests = maker.counters(
            "tracehold_http_requests_total",
            "Requests answered.",
            &["route", "status"],
        );
        let seconds = maker.add(HistogramVec::new(
            HistogramOpts::new(
                "tracehold_http_request_seconds",
                "Time from the head of a request to the head of its response.",
            )
            .buckets(SECONDS.to_vec()),
            &["route"],
        ));
        let groups = RouteGroup::ALL
            .iter()
            .map(|group| GroupMetrics {
                by_class: CLASSES.map(|class| requests.with_label_values(&[group.name(), class])),
                seconds: seconds.with_label_values(&[group.name()]),
            })
            .collect();
        let ranges = maker.counters(
            "tracehold_range_requests_total",
            "Requests for file or packet bytes, by outcome.",
            &["outcome"],
        );
        Self {
            groups,
            responses: ResponseMetrics::new(&maker),
            ranges: RangeOutcome::ALL
                .iter()
                .map(|(_, name)| ranges.with_label_values(&[name]))
                .collect(),
            in_flight: maker.gauge(
                "tracehold_http_requests_in_flight",
                "Requests whose response has not begun.",
            ),
            connections: ConnectionMetrics::new(&maker),
            panics: maker.counter(
                "tracehold_http_panics_total",
                "Panics caught in request handlers.",
            ),
            refusals: maker.counters(
                "tracehold_http_refusals_total",
                "Refused requests, by problem code.",
                &["code"],
            ),
            range_bytes: maker.counter(
                "tracehold_range_bytes_total",
                "File and packet bytes of planned responses.",
            ),
            range_blocking_reads: maker.counter(
                "tracehold_range_blocking_reads_total",
                "Reads that missed the page cache.",
            ),
            range_read_failures: maker.counter(
                "tracehold_range_read_failures_total",
                "Reads that failed or were short; their responses were aborted.",
            ),
            range_buffer_bytes: maker.gauge(
                "tracehold_range_buffer_bytes",
                "Memory for file bytes being sent.",
            ),
            ingest_packets: maker.counter(
                "tracehold_ingest_packets_total",
                "Completely received packets.",
            ),
            ingest_bytes: maker.counter(
                "tracehold_ingest_bytes_total",
                "Bytes of completely received packets.",
            ),
            spans: SpanMetrics::new(&maker),
            jobs: JobMetrics::new(&maker),
            queries: QueryMetrics::new(&maker),
            retention: RetentionMetrics::new(&maker),
            registry: maker.0,
        }
    }
}

impl Metrics {
    pub(crate) fn request_began(&self, _group: RouteGroup) -> InProgress {
        InProgress::new(&self.in_flight)
    }

    pub(crate) fn request_ended(&self, group: RouteGroup, status: StatusCode, took: Duration) {
        self.responses.sent(group, status);
        let Some(group) = self.groups.get(group.index()) else {
            return;
        };
        group.seconds.observe(took.as_secs_f64());
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = group.by_class.get(class) {
            counter.inc();
        }
    }

    pub(crate) fn panic_caught(&self) {
        self.panics.inc();
    }

    pub(crate) fn refused(&self, code: &str) {
        self.refusals.with_label_values(&[code]).inc();
    }

    pub(crate) fn range(&self, outcome: RangeOutcome) {
        let position = RangeOutcome::ALL
            .iter()
            .position(|(each, _)| *each == outcome);
        if let Some(counter) = position.and_then(|position| self.ranges.get(position)) {
            counter.inc();
        }
    }

    /// All metrics in the text format of Prometheus.
    pub(crate) fn render(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(16 << 10);
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut text)
            .expect("writing to memory does not fail");
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::{Metrics, RangeOutcome, RouteGroup};

    #[test]
    fn events_are_counted_in_base_units() {
        let metrics = Metrics::default();
        let in_flight = metrics.request_began(RouteGroup::Files);
        metrics.request_ended(RouteGroup::Files, StatusCode::OK, Duration::from_millis(2));
        metrics.range(RangeOutcome::Multi);
        metrics.refused("stream_not_found");
        metrics.range_bytes.inc_by(7);
        let text = String::from_utf8(metrics.render()).unwrap();
        for line in [
            "tracehold_http_requests_total{route=\"files\",status=\"2xx\"} 1",
            "tracehold_http_responses_total{route=\"files\",status=\"200\"} 1",
            "tracehold_http_request_seconds_sum{route=\"files\"} 0.002",
            "tracehold_http_requests_in_flight 1",
            "tracehold_range_requests_total{outcome=\"multi\"} 1",
            "tracehold_http_refusals_total{code=\"stream_not_found\"} 1",
            "tracehold_range_bytes_total 7",
        ] {
            assert!(
                text.lines().any(|each| each == line),
                "{line} is missing in\n{text}"
            );
        }
        drop(in_flight);
        let text = String::from_utf8(metrics.render()).unwrap();
        assert!(text.contains("tracehold_http_requests_in_flight 0\n"));
    }
}
