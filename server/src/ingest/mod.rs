//! Incoming packets: admitted by size, decoded, split, and passed to the engine.

mod admission;
mod body;
mod encoding;
mod error;
mod facts;
mod fan_out;
mod identity;
mod metadata;
mod otlp;
mod otlp_request;
mod push;
mod records;
mod shares;
mod target;
#[cfg(test)]
mod tests;

pub(crate) use encoding::ContentEncoding;
pub(crate) use error::IngestError;
pub(crate) use otlp::TraceRequests;
pub(crate) use otlp_request::{ExportOutcome, OtlpEncoding};
pub(crate) use push::{Pusher, prefers_async};
pub(crate) use shares::ConnectionShare;
pub(crate) use target::Target;
