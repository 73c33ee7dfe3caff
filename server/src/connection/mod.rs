//! Connections: accepting and limiting them, and detecting ambiguous requests.
//!
//! `axum::serve` does not limit slow heads, bodies or readers, so this is an accept loop over
//! hyper's connections.

mod accept_loop;
mod frame_heads;
mod frames;
mod framing;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod http2;
mod readers;
mod registry;
mod responses;
mod stream;
#[cfg(test)]
mod tests;
mod transport;

/// The address that a request came from: of the client, or of a proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) std::net::IpAddr);

pub(crate) use accept_loop::{Door, Stage, serve};
pub(crate) use registry::{Answering, InUse, RESERVE};
