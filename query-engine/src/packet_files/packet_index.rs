//! The index of a file of packets, if it is there and belongs to the file.

use std::path::Path;

use chunk_index::{ChromeUnpaired, Index, PacketFileFacts, PacketRange, PacketRanges};
use storage_format::Kind;
use trace_kinds::rocksdb::TraceHeader;

use crate::open_sidecar::OpenSidecar;
use crate::sidecar_file::{Unusable, sidecar_path, usable};
use crate::slices::of_attachment;

/// An open index that belongs to its file, and its attachments.
pub(crate) struct PacketIndex {
    pub(crate) sidecar: OpenSidecar,
    pub(crate) facts: PacketFileFacts,
    /// The header that precedes RocksDB records which are read from the middle of their file.
    pub(crate) header: Option<TraceHeader>,
    pub(crate) packets: Vec<PacketRange>,
}

impl PacketIndex {
    /// Opens the index of `path`: `None` if there is none; if it is damaged or of another file, the
    /// reason why it is not used.
    pub(crate) fn open(path: &Path) -> Result<Option<PacketIndex>, String> {
        let sidecar = match OpenSidecar::open(path) {
            Ok(sidecar) => sidecar,
            Err(Unusable::Missing) => return Ok(None),
            Err(Unusable::Refused(reason)) => return Err(reason),
        };
        let attachment = |name| sidecar.attachment(name).map_err(|error| error.line());
        let facts = attachment(PacketFileFacts::NAME)?;
        let packets = attachment(PacketRanges::NAME)?;
        let length = sidecar.index().identity().length;
        let decoded = facts.zip(packets).and_then(|(facts, packets)| {
            let facts = PacketFileFacts::decode(&facts).ok()?;
            let header = header_of(&facts)?;
            let packets = PacketRanges::decode(&packets, length).ok()?;
            Some((facts, header, packets.0))
        });
        match decoded {
            Some((facts, header, packets)) => Ok(Some(PacketIndex {
                sidecar,
                facts,
                header,
                packets,
            })),
            None => Err(unused(
                path,
                "it was written by another version, or for another kind of trace",
            )),
        }
    }
}

impl PacketIndex {
    /// The index of `path`, if indexes are used and it is of such a kind. Otherwise the reason why
    /// an existing one is not used.
    pub(crate) fn of_kind(
        path: &Path,
        use_sidecars: bool,
        is_kind: impl Fn(Kind) -> bool,
    ) -> Result<PacketIndex, Option<String>> {
        if !use_sidecars {
            return Err(None);
        }
        match PacketIndex::open(path) {
            Ok(Some(index)) if is_kind(index.facts.kind) => Ok(index),
            Ok(Some(_)) => Err(Some(unused(path, "it was made of another kind of trace"))),
            Ok(None) => Err(None),
            Err(reason) => Err(Some(reason)),
        }
    }
}

/// The header of RocksDB records; the outer `None` if it is invalid.
fn header_of(facts: &PacketFileFacts) -> Option<Option<TraceHeader>> {
    if facts.header.is_empty() {
        return Some(None);
    }
    match TraceHeader::read(&facts.header) {
        Ok((header, read)) if read == facts.header.len() => Some(Some(header)),
        _ => None,
    }
}

/// Why the sidecar of `path` is not used.
pub(crate) fn unused(path: &Path, reason: &str) -> String {
    format!("{}: {reason}", sidecar_path(path).display())
}

/// The complete index of `path`, to be extended.
pub(crate) struct CompleteIndex {
    pub(crate) index: Index,
    pub(crate) sidecar_bytes: u64,
    pub(crate) facts: PacketFileFacts,
    pub(crate) packets: Vec<PacketRange>,
}

impl CompleteIndex {
    /// Reads the index of `path`; `None` unless it belongs to the file.
    pub(crate) fn read(path: &Path) -> Option<CompleteIndex> {
        let (index, sidecar_bytes) = usable(path)?;
        let facts = PacketFileFacts::decode(index.attachment(PacketFileFacts::NAME)?).ok()?;
        header_of(&facts)?;
        let length = index.identity().length;
        let packets = index.attachment(PacketRanges::NAME)?;
        let packets = PacketRanges::decode(packets, length).ok()?.0;
        if facts.kind == Kind::Chrome {
            of_attachment(index.attachment(ChromeUnpaired::NAME)?)?;
        }
        Some(CompleteIndex {
            index,
            sidecar_bytes,
            facts,
            packets,
        })
    }
}
