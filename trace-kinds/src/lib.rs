//! One adapter a kind: packet bytes in, events out, with projection.
//!
//! A reader lists the fields it needs in a [`query_language::FieldTable`] and creates the
//! [`Decoder`] of the packet's kind with it. The decoder reads the packet, decodes those fields,
//! skips the rest, and passes each record on as an [`Event`], which the query language evaluates.
//! No adapter opens a file, stores events or knows the source of its bytes; [`OriginFields`] adds
//! the fields that depend on that. [`recognize`] determines the kind of a file from its content.
//!
//! *Invariant:* whether a record is an event never depends on the requested fields, so every way
//! to execute a query counts the same events.

pub mod chrome;
mod container;
pub mod ctf;
mod damaged_bytes;
pub mod dft;
mod error;
mod event;
mod field_type;
pub mod gzip;
pub mod io_trace;
mod kind;
mod origin;
mod origin_filter;
pub mod otlp;
pub mod protobuf;
mod recognize;
mod record_fields;
pub mod rocksdb;

pub use container::Container;
pub use damaged_bytes::DamagedBytes;
pub use error::DecodeError;
pub use event::{Decoded, Decoder, EachEvent, Event};
pub use field_type::FieldType;
pub use kind::{StreamContext, bare_unit, decoder_for, dimensions, has_events};
pub use origin::{EventWithOrigin, Origin, OriginFields};
pub use recognize::{
    Content, LONG_PREFIX_BYTES, MetadataFormat, PREFIX_BYTES, Recognized, UNDECOMPRESSED, recognize,
};
