//! Packets on their way in: bounded by bytes, decoded, cut, and handed to the engine.

mod encoding;
mod error;
mod facts;
mod push;
mod records;
mod room;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use error::IngestError;
pub(crate) use push::{Pusher, Target, prefers_async};
