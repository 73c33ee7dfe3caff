//! Metrics of connections.

use prometheus::{IntCounter, IntGauge};

use super::maker::{InProgress, Maker};

/// The port at which a connection was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    /// `http.listen`.
    Main,
    /// The ports of OpenTelemetry.
    Otlp,
}

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ConnectionState {
    /// It has no request.
    Idle,
    /// The rest of a request has yet to arrive.
    Reading,
    /// A response is being made; over HTTP/2, or sent.
    Answering,
}

/// The number of connections of one port in each state.
#[derive(Debug, Clone)]
pub(crate) struct StateGauges([IntGauge; 3]);

impl StateGauges {
    /// A connection was in `before`, and is in `after` now.
    pub(crate) fn moved(&self, before: Option<ConnectionState>, after: Option<ConnectionState>) {
        for (state, change) in [(before, -1), (after, 1)] {
            if let Some(gauge) = state.and_then(|state| self.0.get(state as usize)) {
                gauge.add(change);
            }
        }
    }
}

/// Connections of clients.
pub(crate) struct ConnectionMetrics {
    states: [StateGauges; 2],
    open: IntGauge,
    accepted: IntCounter,
    accept_failures: IntCounter,
    idle_closed: IntCounter,
    handshakes_failed: IntCounter,
}

impl ConnectionMetrics {
    pub(super) fn new(maker: &Maker) -> Self {
        let by_state = maker.gauges(
            "tracehold_http_connections_by_state",
            "Open connections by port, and by what they are doing: nothing, reading a request, or \
             answering one (over HTTP/1, until the response begins).",
            &["port", "state"],
        );
        let states = ["main", "otlp"].map(|port| {
            let states = ["idle", "reading", "answering"];
            StateGauges(states.map(|state| by_state.with_label_values(&[port, state])))
        });
        Self {
            states,
            open: maker.gauge("tracehold_http_connections", "Open connections."),
            accepted: maker.counter("tracehold_http_connections_total", "Connections accepted."),
            accept_failures: maker.counter(
                "tracehold_http_accept_failures_total",
                "Connections not accepted for lack of descriptors or memory.",
            ),
            idle_closed: maker.counter(
                "tracehold_http_idle_connections_closed_total",
                "Idle connections closed to make room for new ones.",
            ),
            handshakes_failed: maker.counter(
                "tracehold_tls_handshakes_failed_total",
                "Connections closed because the TLS handshake failed or took too long.",
            ),
        }
    }

    /// A connection was accepted; it is open until the guard is dropped.
    pub(crate) fn opened(&self) -> InProgress {
        self.accepted.inc();
        InProgress::new(&self.open)
    }

    /// The states of the connections of a port.
    pub(crate) fn states(&self, port: Port) -> StateGauges {
        let [main, otlp] = &self.states;
        match port {
            Port::Main => main.clone(),
            Port::Otlp => otlp.clone(),
        }
    }

    /// A connection was not accepted for lack of descriptors or memory.
    pub(crate) fn refused(&self) {
        self.accept_failures.inc();
    }

    /// The TLS handshake of a connection failed or took too long.
    pub(crate) fn handshake_failed(&self) {
        self.handshakes_failed.inc();
    }

    /// An idle connection was closed for a new one.
    pub(crate) fn idle_closed(&self) {
        self.idle_closed.inc();
    }
}
