//! Metrics of connections.

use prometheus::{IntCounter, IntGauge};

use super::maker::{InProgress, Maker};

/// Connections of clients.
pub(crate) struct ConnectionMetrics {
    open: IntGauge,
    accepted: IntCounter,
    accept_failures: IntCounter,
    idle_closed: IntCounter,
    handshakes_failed: IntCounter,
}

impl ConnectionMetrics {
    pub(super) fn new(maker: &Maker) -> Self {
        Self {
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
