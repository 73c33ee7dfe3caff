//! A reader and writer of the Common Trace Format, versions 1.8 and 2.

pub mod class;
mod ctf2;
mod element;
mod event;
mod machine;
mod metadata;
mod procedure;
mod tsdl;
pub mod write;

pub use element::{Element, ElementReader, ElementText, Field, PacketInfo, Position, StreamInfo};
pub use event::{
    Candidate, Datum, Event, EventPosition, EventReader, Fields, Lost, PacketFacts, Plan, Value,
};
pub use machine::{DecodeError, DecodeFault};
pub use metadata::{
    Leniency, MetadataError, MetadataErrorKind, MetadataFrame, MetadataWarning, PacketizedMetadata,
    ParsedMetadata, TextLocation, is_packetized, metadata_text, parse_metadata,
    parse_metadata_with,
};
pub use procedure::{Node, NodeId, Procedure, ProcedureError};
