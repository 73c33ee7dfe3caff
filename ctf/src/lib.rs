//! A reader and writer of the [Common Trace Format](https://diamon.org/ctf/), versions 1.8 (TSDL)
//! and 2 (JSON). It does no I/O: metadata and packets are slices of bytes.
//!
//! | input | function | result |
//! | --- | --- | --- |
//! | metadata, plain, packetized, or CTF 2 | [`parse_metadata`] | a [`class::TraceClass`], or a [`MetadataError`] with line and column |
//! | a trace class | [`Procedure::new`] | a compiled procedure that any number of readers share |
//! | packets of a stream, and a selection of fields | [`Plan::new`], [`EventReader`] | event records with time, class and the selected fields |
//! | packets of a stream | [`ElementReader`] | every datum and every boundary, with its offset in bits |
//! | event records to write | [`write::Schema`], [`write::PacketWriter`] | metadata in both dialects, and packets |
//!
//! Offsets and lengths are in bits where a packet contains them, and in bytes where they are
//! indexes into slices of the caller; each item documents its unit. Times are cycles of a clock, or
//! nanoseconds from its origin. Lengths in a packet are untrusted until they are checked against
//! the length of the data: a reader's memory is bounded by the data, and it never panics.
//!
//! ```
//! use ctf::class::Scope;
//! use ctf::{EventReader, Plan, Procedure, Value};
//!
//! let metadata = br#"/* CTF 1.8 */
//!     trace { major = 1; minor = 8; byte_order = le; };
//!     clock { name = monotonic; freq = 1000; };
//!     typealias integer { size = 8; } := u8;
//!     typealias integer { size = 16; map = clock.monotonic.value; } := time;
//!     stream { event.header := struct { u8 id; time timestamp; }; };
//!     event { name = "open"; id = 0; fields := struct { string path; u8 flags; }; };
//!     event { name = "close"; id = 1; fields := struct { u8 handle; }; };"#;
//! let stream = b"\x00\x05\x00/etc\x00\x02\x01\x09\x00\x07";
//!
//! let procedure = Procedure::new(ctf::parse_metadata(metadata)?)?;
//! // Select only the paths; time and class of an event record are always available.
//! let plan = Plan::new(&procedure, |field| field.path == ["path"]);
//! let mut reader = EventReader::new(&plan, stream);
//! let mut found = Vec::new();
//! while let Some(packet) = reader.next_packet()? {
//!     assert_eq!(packet.bytes, stream.len());
//!     while let Some(event) = reader.next_event()? {
//!         let name = event.name().unwrap_or("without a name").to_owned();
//!         let paths = event.fields(Scope::EventPayload).filter_map(|datum| match datum.value {
//!             Value::Text(path) => Some(String::from_utf8_lossy(path).into_owned()),
//!             _ => None,
//!         });
//!         found.push((event.nanoseconds(), name, paths.collect::<Vec<_>>()));
//!     }
//! }
//! assert_eq!(
//!     found,
//!     [
//!         (Some(5_000_000), "open".to_owned(), vec!["/etc".to_owned()]),
//!         (Some(9_000_000), "close".to_owned(), vec![]),
//!     ]
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Errors
//!
//! A packet that cannot be decoded causes a [`DecodeError`]: a [`DecodeFault`] and its offset in
//! bits. An event reader can then continue with the next packet, and [`EventReader::lost`] reports
//! the part that was skipped. Metadata is parsed strictly or, by [`parse_metadata_with`], as
//! leniently as Babeltrace does; unknown entries then cause a [`MetadataWarning`].

pub mod class;
mod ctf2;
mod decoding;
mod deep_stack;
mod element;
mod event;
mod integer;
mod metadata;
mod procedure;
pub mod text;
mod tsdl;
pub mod write;

pub use decoding::{DecodeError, DecodeFault};
pub use element::{Element, ElementReader, ElementText, Field, PacketInfo, Position, StreamInfo};
pub use event::{
    Candidate, Datum, Event, EventPosition, EventReader, Fields, Lost, Packet, Plan, Value,
};
pub use metadata::{
    Leniency, MetadataError, MetadataErrorKind, MetadataFrame, MetadataWarning, PacketizedMetadata,
    ParsedMetadata, TextLocation, is_packetized, metadata_text, metadata_text_with, parse_metadata,
    parse_metadata_with,
};
pub use procedure::{Node, NodeId, Procedure, ProcedureError};
