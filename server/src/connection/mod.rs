//! Connections: accepting and limiting them, and detecting ambiguous requests.
//!
//! `axum::serve` does not limit slow heads, bodies or readers, so this is an accept loop over
//! hyper's HTTP/1 connection.

mod accept_loop;
mod framing;
mod registry;
mod stream;
#[cfg(test)]
mod tests;
mod transport;

pub(crate) use accept_loop::{Stage, serve};
