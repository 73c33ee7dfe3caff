//! What requests share with others: the bytes in flight of a connection, and of a protocol.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use http::Extensions;
use storage_core::{Holder, Share};

use crate::config::IngestConfig;

static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(0);

/// The share of a connection, in all of its requests: several may be in flight on HTTP/2.
#[derive(Debug)]
pub(crate) struct ConnectionShare {
    id: u64,
    share: OnceLock<Arc<Share>>,
}

impl Default for ConnectionShare {
    fn default() -> Self {
        Self {
            id: NEXT_CONNECTION.fetch_add(1, Ordering::Relaxed),
            share: OnceLock::new(),
        }
    }
}

/// The shares of one protocol.
#[derive(Debug)]
pub(super) struct ProtocolShares {
    protocol: Arc<Share>,
    connection_bytes_max: u64,
}

/// The shares of one request.
#[derive(Debug, Clone)]
pub(super) struct RequestShares {
    shares: [Arc<Share>; 2],
    /// Unique among open connections.
    pub(super) connection: u64,
}

impl RequestShares {
    /// Who asks for bytes, when the packets are of `agent`.
    pub(super) fn holder<'a>(&'a self, agent: &'a str) -> Holder<'a> {
        let shares = &self.shares;
        Holder { agent, shares }
    }
}

impl ProtocolShares {
    /// The shares of requests of `protocol`.
    pub(super) fn new(protocol: &'static str, limits: &IngestConfig) -> Self {
        Self {
            protocol: Arc::new(Share::new(protocol, limits.protocol_bytes_max())),
            connection_bytes_max: limits.connection_bytes_max(),
        }
    }

    /// The shares of a request with these extensions.
    pub(super) fn of(&self, extensions: &Extensions) -> RequestShares {
        let alone = Arc::default();
        let connection = extensions.get::<Arc<ConnectionShare>>().unwrap_or(&alone);
        let share = connection
            .share
            .get_or_init(|| Arc::new(Share::new("one connection", self.connection_bytes_max)));
        RequestShares {
            shares: [Arc::clone(share), Arc::clone(&self.protocol)],
            connection: connection.id,
        }
    }
}
