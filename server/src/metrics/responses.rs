//! Responses by route and exact status.

use http::StatusCode;
use prometheus::IntCounter;

use super::maker::Maker;
use super::route_group::RouteGroup;

/// The statuses that the server sends, in ascending order; others are counted together.
const STATUSES: [u16; 31] = [
    200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 416, 417, 421,
    422, 423, 426, 429, 431, 500, 501, 502, 503, 504, 505, 507,
];

/// Counters that are looked up once: a response neither hashes nor locks.
pub(super) struct ResponseMetrics {
    /// By route group; each has a counter per status, and one for all others at the end.
    groups: Vec<Vec<IntCounter>>,
}

impl ResponseMetrics {
    pub(super) fn new(maker: &Maker) -> Self {
        let responses = maker.counters(
            "tracehold_http_responses_total",
            "Responses, by route and status.",
            &["route", "status"],
        );
        let of_group = |group: &RouteGroup| {
            let names = STATUSES.iter().map(ToString::to_string);
            let names = names.chain(["other".to_owned()]);
            names
                .map(|status| responses.with_label_values(&[group.name(), status.as_str()]))
                .collect()
        };
        Self {
            groups: RouteGroup::ALL.iter().map(of_group).collect(),
        }
    }

    pub(super) fn sent(&self, group: RouteGroup, status: StatusCode) {
        let position = STATUSES.binary_search(&status.as_u16());
        let position = position.unwrap_or(STATUSES.len());
        let group = self.groups.get(group.index());
        if let Some(counter) = group.and_then(|group| group.get(position)) {
            counter.inc();
        }
    }
}
