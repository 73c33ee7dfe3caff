//! Storages: the packets of their leaves, with or without chunk indexes beside the data files.
//!
//! Frames in a data file are dense and describe themselves, so a range of whole frames is all that
//! must be fetched to read the packets in it. A chunk is such a range: one packet, or several small
//! ones. What the index of a leaf covers is read chunk by chunk; the rest, which a storage has
//! while it is written, in the runs that its tree knows, without packets of which that tree knows
//! that their events are at other times.

pub(crate) mod frames;
pub(crate) mod leaf;
mod localize;
mod packets;
pub(crate) mod set;
mod times;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use ctf::Procedure;
use storage_format::data_file::LeafPath;
use storage_format::{LeafId, StorageId};

use crate::Fetch;

pub(crate) use localize::answer_origin;
pub(crate) use packets::PacketEvents;

pub use leaf::LeafSource;
pub use set::{LeafRanges, StorageSet};
pub use times::PacketTimes;

/// A leaf of a storage, and as much of its data file as is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The storage.
    pub storage: StorageId,
    /// Name of the storage.
    pub storage_name: String,
    /// The leaf.
    pub leaf: LeafId,
    /// Where it stands in the tree.
    pub path: LeafPath,
    /// Number of its first packet in the storage.
    pub first_number: u64,
    /// Durable bytes of the data file.
    pub length: u64,
    /// CRC32C of the data file, once the storage is finalized.
    pub checksum: Option<u32>,
    /// Ranges that together are the frames, each of whole frames; they are read side by side where
    /// no chunk index covers them.
    pub runs: Vec<Range<u64>>,
}

/// A leaf, and where its bytes are.
#[derive(Clone)]
pub struct StoredLeaf {
    /// The leaf.
    pub leaf: Leaf,
    /// Its data file.
    pub data: Arc<dyn Fetch>,
    /// Its chunk index and the bytes of that, where there is one.
    pub sidecar: Option<(Arc<dyn Fetch>, u64)>,
    /// What its agent sent as trace metadata.
    pub trace: Arc<AgentTrace>,
    /// What the index of the storage says of its packets, where that can be asked.
    pub times: Option<Arc<dyn PacketTimes>>,
}

/// The trace metadata of an agent.
#[derive(Debug, Clone, Default)]
pub struct AgentTrace {
    /// The metadata, compiled; `None` where there is none or it is wrong.
    pub procedure: Option<Arc<Procedure>>,
    /// Why it is not there although metadata was sent.
    pub fault: Option<String>,
    /// CRC32C of the metadata: an index that was made with another one is not used.
    pub checksum: u32,
}

impl AgentTrace {
    /// Compiles metadata as an agent sent it.
    pub fn new(metadata: Option<&[u8]>) -> AgentTrace {
        let Some(metadata) = metadata else {
            return AgentTrace::default();
        };
        let compiled = ctf::parse_metadata(metadata)
            .map_err(|error| error.to_string())
            .and_then(|trace| Procedure::new(trace).map_err(|error| error.to_string()));
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
