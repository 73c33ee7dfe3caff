//! Connections: accepting them, bounding them, and telling hyper's requests from ambiguous ones.
//!
//! `axum::serve` keeps no limit on slow heads, bodies or readers, so the loop here is our own, over
//! hyper's HTTP/1 connection.

mod accept_loop;
mod framing;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use accept_loop::{Stage, serve};
