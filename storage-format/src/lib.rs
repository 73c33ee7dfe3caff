//! The on-disk formats of Tracehold, as pure functions over slices.
//!
//! A storage is a folder. This crate defines the layout of its files and nothing about how they
//! are written: it opens no file, reads no clock and starts no thread. Each module documents the
//! layout that it encodes; the golden bytes are in `golden/vN/`.
//!
//! | file | module | content |
//! | --- | --- | --- |
//! | `.itdata` | [`log`], [`data_file`], [`frame`] | packets in frames: header and payload |
//! | `.index` | [`index_part`] | one saved piece of the index tree |
//! | `.storage` | [`storage_file`] | description of a storage; its rename publishes a state |
//! | `.agent` | [`agent_file`] | an agent: attributes, streams, trace metadata |
//! | `.ring` | [`ring_block`] | recent packets, of which the oldest are removed |
//! | `.seal` | [`seal`] | hashes of all files and packets, and who signed them |
//! | `.tier` | [`tier_file`] | where the files of a storage are in an object store |
//! | `.local` | [`local_file`] | origin and completeness of a downloaded storage |
//!
//! [`paths`] alone builds and parses file names, [`limits`] defines every bound, and [`batch`] is
//! the body of a push of many packets. All integers are little-endian. Bytes from disk or from the
//! network never cause a panic: what is wrong with them is a [`FormatError`] with its offset.

#![deny(clippy::arithmetic_side_effects)]

pub mod agent_file;
pub mod batch;
pub mod cached_file;
pub mod chain_payload;
pub mod checksum;
pub mod checksum_file;
pub mod data_file;
mod derived_streams;
mod descriptor;
mod envelope;
mod error;
pub mod frame;
mod id;
pub mod index_part;
pub mod integer;
mod kind;
pub mod label_file;
mod layout;
pub mod limits;
pub mod local_file;
pub mod log;
pub mod paths;
mod position;
pub mod repair_file;
pub mod ring_block;
pub mod seal;
pub mod storage_file;
pub mod tier_file;
mod time_basis;
mod varint;

pub use derived_streams::{DERIVED_ENDINGS, STREAM_NAME_MAX, StreamNames, is_derived, is_reserved};
pub use descriptor::{Descriptor, DescriptorError};
pub use error::{FormatError, FormatErrorKind};
pub use id::{AgentId, DataFileId, IdError, LeafId, StorageId, StreamId};
pub use kind::{Codec, Kind, LeafType, UnknownName};
pub use position::{Arrival, OutOfOrder, StreamPosition};
pub use time_basis::TimeBasis;
pub use varint::{
    VARINT_BYTES_MAX, VarintError, put_varint, read_varint, varint_fits, varint_length,
};

/// Version of the layouts in this crate, except for those that name another one ([`log`],
/// [`index_part`]); written into each file and checked on reading.
pub const FORMAT_VERSION: u16 = 1;
