//! Every byte that Tracehold keeps as truth on disk, as pure functions over slices.
//!
//! A storage is a folder. This crate says what its files look like and nothing about how they
//! are written: no file is opened here, no clock is read, no thread is started. The picture of
//! a layout stands in the module that encodes it, and its golden bytes in `golden/v1/`.
//!
//! | file | module | content |
//! | --- | --- | --- |
//! | `.itdata` | [`data_file`], [`frame`] | frames: a self-describing header and a payload |
//! | `.index` | [`index_part`] | one saved piece of the index tree |
//! | `.storage` | [`storage_file`] | what a storage is; its rename publishes a state |
//! | `.agent` | [`agent_file`] | an agent: attributes, streams, trace metadata |
//! | `.ring` | [`ring_block`] | packets that may have to make room for later ones |
//! | `.local` | [`local_file`] | what only a downloading machine knows |
//!
//! [`paths`] alone builds and parses file names, [`limits`] holds every bound, and [`batch`] is
//! the body of a push of many packets. All integers are little-endian.

pub mod agent_file;
pub mod batch;
pub mod cached_file;
pub mod checksum;
pub mod data_file;
mod descriptor;
mod envelope;
mod error;
pub mod frame;
mod id;
pub mod index_part;
mod kind;
pub mod label_file;
mod layout;
pub mod limits;
pub mod local_file;
pub mod paths;
mod position;
pub mod ring_block;
pub mod storage_file;
mod time_basis;
mod varint;

pub use descriptor::{Descriptor, DescriptorError};
pub use error::{FormatError, FormatErrorKind};
pub use id::{AgentId, IdError, LeafId, StorageId, StreamId};
pub use kind::{Codec, Kind, LeafType, UnknownName};
pub use position::{Arrival, OutOfOrder, StreamPosition};
pub use time_basis::TimeBasis;
pub use varint::{
    VARINT_BYTES_MAX, VarintError, put_varint, read_varint, varint_fits, varint_length,
};

/// Version of every layout in this crate; written into each file and checked on reading.
pub const FORMAT_VERSION: u16 = 1;
