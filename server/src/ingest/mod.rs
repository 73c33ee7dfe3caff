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
mod push;
mod records;
mod target;
#[cfg(test)]
mod tests;

pub(crate) use encoding::ContentEncoding;
pub(crate) use error::IngestError;
pub(crate) use otlp::{ExportOutcome, OtlpEncoding, TraceRequests};
pub(crate) use push::{Pusher, prefers_async};
pub(crate) use target::Target;
