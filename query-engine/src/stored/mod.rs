//! Storages: the packets of their leaves, with or without chunk indexes next to the data files.
//!
//! Frames in a data file are contiguous and self-describing, so a range of complete frames is all
//! that must be fetched to read its packets. A chunk is such a range: one packet, or several small
//! ones. The part of a leaf that its index covers is read in chunks. The rest, which exists while a
//! storage is written, is read in the runs of the index tree, without the packets whose events are
//! outside of the requested time range according to the tree.

mod declarations;
mod derived;
mod eventless;
pub(crate) mod frames;
pub(crate) mod leaf_source;
mod packet_events;
mod packets;
mod pieces;
mod ranges;
pub(crate) mod set;
mod slices;
mod split;
mod times;
mod undecodable;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use ctf::{Leniency, Procedure};
use storage_format::data_file::LeafPath;
use storage_format::{LeafId, StorageId};

use crate::Fetch;

pub(crate) use packet_events::PacketEvents;

pub use declarations::StreamDeclarations;
pub use derived::{derived_note, without_derived};
pub use leaf_source::LeafSource;
pub use packets::{each_packet, each_raw_packet, read_packet};
pub use set::{LeafRanges, StorageSet};
pub use split::{PlannedSplit, Split, SplitError, SplitLeaf, SplitPlan, SplitStorage};
pub use times::PacketTimes;

/// A leaf of a storage, and the durable part of its data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The storage.
    pub storage: StorageId,
    /// Name of the storage.
    pub storage_name: String,
    /// The leaf.
    pub leaf: LeafId,
    /// Its path in the index tree.
    pub path: LeafPath,
    /// Number of its first packet in the storage.
    pub first_number: u64,
    /// Durable bytes of the data file.
    pub length: u64,
    /// CRC32C of the data file, once the storage is finalized.
    pub checksum: Option<u32>,
    /// Identifies the repairs that cut the log of the storage; 0 if none did. An index of the leaf
    /// as it was before is not used.
    pub cuts: u32,
    /// Ranges of complete frames that together are the data file; they are read in parallel if no
    /// chunk index covers them.
    pub runs: Vec<Range<u64>>,
}

/// A leaf, and the files to read it from.
#[derive(Clone)]
pub struct StoredLeaf {
    /// The leaf.
    pub leaf: Leaf,
    /// Its data file.
    pub data: Arc<dyn Fetch>,
    /// Its chunk index, if there is one, and the bytes of that.
    pub sidecar: Option<(Arc<dyn Fetch>, u64)>,
    /// The trace metadata of its agent.
    pub trace: Arc<AgentTrace>,
    /// The times of its packets in the index of the storage, if that is available.
    pub times: Option<Arc<dyn PacketTimes>>,
}

/// The trace metadata of an agent.
#[derive(Debug, Clone, Default)]
pub struct AgentTrace {
    /// The compiled metadata; `None` if there is none or it is invalid.
    pub procedure: Option<Arc<Procedure>>,
    /// Why the metadata is invalid.
    pub fault: Option<String>,
    /// CRC32C of the metadata. An index that was made with other metadata is not used.
    pub checksum: u32,
}

impl AgentTrace {
    /// Compiles metadata as an agent sent it.
    pub fn new(metadata: Option<&[u8]>) -> AgentTrace {
        let Some(metadata) = metadata else {
            return AgentTrace::default();
        };
        let compiled = ctf::parse_metadata_with(metadata, Leniency::Lenient)
            .map_err(|error| error.to_string())
            .and_then(|parsed| Procedure::new(parsed.trace).map_err(|error| error.to_string()));
        let checksum = storage_format::checksum::crc32c(metadata);
        match compiled {
            Ok(procedure) => AgentTrace {
                procedure: Some(Arc::new(procedure)),
                fault: None,
                checksum,
            },
            Err(fault) => AgentTrace {
                procedure: None,
                fault: Some(fault),
                checksum,
            },
        }
    }
}
