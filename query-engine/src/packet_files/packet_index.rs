//! What was kept of a file of packets beside it.

use std::path::Path;

use chunk_index::Index;

use super::facts::{FACTS, Facts, PACKETS, PacketAt, decode_facts, decode_packets};
use crate::open_sidecar::OpenSidecar;
use crate::sidecar_file::{Unusable, sidecar_path, usable};

/// A sidecar that belongs to its file, and what it says of that.
pub(crate) struct Kept {
    pub(crate) sidecar: OpenSidecar,
    pub(crate) facts: Facts,
    pub(crate) packets: Vec<PacketAt>,
}

impl Kept {
    /// The sidecar of `path`: `None` where there is none, and why it is not used when it is damaged
    /// or another file's.
    pub(crate) fn open(path: &Path) -> Result<Option<Kept>, String> {
        let sidecar = match OpenSidecar::open(path) {
            Ok(sidecar) => sidecar,
            Err(Unusable::Missing) => return Ok(None),
            Err(Unusable::Refused(reason)) => return Err(reason),
        };
        let attachment = |name| {
            let bytes = sidecar.attachment(name);
            bytes.map_err(|error| error.line())
        };
        let facts = attachment(FACTS)?.and_then(|bytes| decode_facts(&bytes));
        let length = sidecar.index().identity().length;
        let packets = attachment(PACKETS)?.and_then(|bytes| decode_packets(&bytes, length));
        match facts.zip(packets) {
            Some((facts, packets)) => Ok(Some(Kept {
                sidecar,
                facts,
                packets,
            })),
            None => Err(unused(
                path,
                "another version wrote it, or it is of another kind",
            )),
        }
    }
}

/// Why the sidecar of `path` is not used.
pub(crate) fn unused(path: &Path, reason: &str) -> String {
    format!("{}: {reason}", sidecar_path(path).display())
}

/// The whole index of `path`, to be gone on with.
pub(crate) struct Whole {
    pub(crate) index: Index,
    pub(crate) sidecar_bytes: u64,
    pub(crate) facts: Facts,
    pub(crate) packets: Vec<PacketAt>,
}

impl Whole {
    /// The index in the sidecar of `path` when it belongs to the file.
    pub(crate) fn read(path: &Path) -> Option<Whole> {
        let (index, sidecar_bytes) = usable(path)?;
        let facts = decode_facts(index.attachment(FACTS)?)?;
        let length = index.identity().length;
        let packets = decode_packets(index.attachment(PACKETS)?, length)?;
        Some(Whole {
            index,
            sidecar_bytes,
            facts,
            packets,
        })
    }
}
