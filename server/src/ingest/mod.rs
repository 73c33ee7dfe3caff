//! Packets on their way in: bounded by bytes, decoded, cut, and handed to the engine.

mod encoding;
mod error;
mod facts;
mod identity;
mod otlp;
mod push;
mod records;
mod room;
mod source;
mod target;
#[cfg(test)]
mod tests;
mod through;
mod traces;

pub(crate) use error::IngestError;
pub(crate) use otlp::{Form, Taken, TraceRequests};
pub(crate) use push::{Pusher, prefers_async};
pub(crate) use target::Target;
