//! One adapter a kind: packet bytes in, events out, with projection.
//!
//! A reader says which fields it wants with a [`query_language::FieldTable`] and makes the
//! [`Decoder`] of the packet's kind with it. The decoder walks the packet, decodes those fields and
//! skips the rest, and hands out each record as an [`Event`], which the query language evaluates
//! as it stands. No adapter opens a file, keeps events or knows where its bytes came from; what an
//! event has from there is added by [`OriginFields`].
//!
//! *Invariant:* whether a record is an event never depends on the fields that were asked for, so
//! that every way to answer a query counts the same events.

pub mod ctf;
pub mod dft;
mod error;
mod event;
pub mod gzip;
pub mod io_trace;
mod kind;
mod origin;
pub mod otlp;
pub mod protobuf;
mod recognize;
pub mod rocksdb;

pub use error::DecodeError;
pub use event::{Decoded, Decoder, EachEvent, Event};
pub use kind::{StreamContext, bare_unit, decoder_for, dimensions, has_events};
pub use origin::{EventWithOrigin, Origin, OriginFields};
pub use recognize::{Container, Content, MetadataFormat, PREFIX_BYTES, Recognized, recognize};
