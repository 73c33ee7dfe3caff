//! The bytes of a leaf of a mount, wherever they are in its data files.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use query_engine::{Fetch, FoundPacket, PacketTimes};
use storage_format::frame::HEADER_BYTES;
use storage_format::index_part::{Extent, LeafEntry, PacketEntry};
use storage_format::{DataFileId, LeafId, StorageId, data_file};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::times::{Part, PartTimes, read_block};
use crate::http::Client;
use crate::remote::Transferred;

/// Reads a leaf by offsets in the leaf: one request for each data file that contains wanted bytes.
pub(super) struct LeafFetch {
    leaf: LeafId,
    blocks: Vec<(Arc<Part>, LeafEntry)>,
    /// Read from the blocks by the first read.
    extents: OnceLock<Vec<Extent>>,
    files: BTreeMap<DataFileId, Arc<dyn Fetch>>,
    /// Where packets are read that the server does not send as part of a file.
    packets: Option<PacketClient>,
}

/// Reads packets of a storage from its server, one by one.
#[derive(Clone)]
pub(super) struct PacketClient {
    client: Client,
    storage: Uuid,
    runtime: Handle,
    transferred: Arc<Transferred>,
}

impl PacketClient {
    pub(super) fn new(
        client: &Client,
        storage: StorageId,
        runtime: &Handle,
        transferred: Arc<Transferred>,
    ) -> Self {
        Self {
            client: client.clone(),
            storage: Uuid::from_bytes(*storage.as_bytes()),
            runtime: runtime.clone(),
            transferred,
        }
    }

    fn packet(&self, entry: &PacketEntry) -> io::Result<Vec<u8>> {
        self.transferred.add_request();
        let length = u64::from(entry.raw_size);
        let packet = self.client.packet(self.storage, entry.number, length);
        let packet = self.runtime.block_on(packet).map_err(io::Error::other)?;
        self.transferred.add_bytes(packet.len() as u64);
        Ok(packet)
    }
}

impl LeafFetch {
    /// The leaf that `blocks` describe; `files` are the data files of the storage.
    pub(super) fn new(
        leaf: LeafId,
        blocks: Vec<(Arc<Part>, LeafEntry)>,
        files: BTreeMap<DataFileId, Arc<dyn Fetch>>,
        packets: Option<PacketClient>,
    ) -> Self {
        Self {
            leaf,
            blocks,
            extents: OnceLock::new(),
            files,
            packets,
        }
    }

    fn extents(&self) -> io::Result<&[Extent]> {
        if let Some(extents) = self.extents.get() {
            return Ok(extents);
        }
        let mut extents: Vec<Extent> = Vec::new();
        for (part, entry) in &self.blocks {
            let block = read_block(part, entry)?;
            let found = entry
                .extents_in(&block)
                .map_err(|error| part.damaged(&error))?;
            for extent in found {
                let last = extents.last_mut();
                if !last.is_some_and(|last| last.append(&extent)) {
                    extents.push(extent);
                }
            }
        }
        // The header of a leaf is directly before its first frame.
        let header = data_file::HEADER_BYTES as u64;
        if let Some(first) = extents.first_mut()
            && first.leaf_offset == header
            && let Some(offset) = first.offset.checked_sub(header)
        {
            first.offset = offset;
            first.leaf_offset = 0;
            first.length += header;
        }
        Ok(self.extents.get_or_init(|| extents))
    }

    /// The pieces of each range, in the order of the leaf, as far as there are any.
    fn pieces(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<Extent>>> {
        let extents = self.extents()?;
        let of_range = |range: &Range<u64>| -> Vec<Extent> {
            let first = extents.partition_point(|extent| extent.leaf_end() <= range.start);
            let overlapping = extents.get(first..).unwrap_or_default();
            overlapping
                .iter()
                .map_while(|extent| extent.intersection(range))
                .collect()
        };
        Ok(ranges.iter().map(of_range).collect())
    }

    /// As [`Self::pieces`]; an error if they are not the whole ranges.
    fn all_pieces(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<Extent>>> {
        let pieces = self.pieces(ranges)?;
        for (range, pieces) in ranges.iter().zip(&pieces) {
            let found: u64 = pieces.iter().map(|piece| piece.length).sum();
            if found != range.end.saturating_sub(range.start) {
                let what = format!("leaf {} has no bytes at offset {}", self.leaf, range.end);
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
        }
        Ok(pieces)
    }

    fn file(&self, file: DataFileId) -> io::Result<&dyn Fetch> {
        let found = self.files.get(&file).map(|found| &**found);
        found.ok_or_else(|| {
            let what = format!("the storage has no data file {file}");
            io::Error::new(io::ErrorKind::NotFound, what)
        })
    }

    /// The bytes of pieces of one data file, which is read once.
    fn fetch_file(
        &self,
        file: DataFileId,
        pieces: &[Extent],
    ) -> io::Result<BTreeMap<u64, Vec<u8>>> {
        let ranges = ranges_of(pieces);
        let bytes = self.file(file)?.fetch(&ranges)?;
        let starts = ranges.iter().map(|range| range.start);
        Ok(starts.zip(bytes).collect())
    }
}

/// The ranges of pieces of one data file, ascending.
fn ranges_of(pieces: &[Extent]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = pieces
        .iter()
        .map(|piece| piece.offset..piece.offset + piece.length)
        .collect();
    ranges.sort_by_key(|range| range.start);
    ranges.dedup();
    ranges
}

/// Pieces by their data file.
fn by_file(pieces: &[Vec<Extent>]) -> BTreeMap<DataFileId, Vec<Extent>> {
    let mut of_files: BTreeMap<DataFileId, Vec<Extent>> = BTreeMap::new();
    for piece in pieces.iter().flatten() {
        of_files.entry(piece.file).or_default().push(*piece);
    }
    of_files
}

impl Fetch for LeafFetch {
    fn place(&self) -> String {
        match self.files.first_key_value() {
            Some((_, file)) if self.files.len() == 1 => {
                format!("leaf {} in {}", self.leaf, file.place())
            }
            _ => format!("leaf {}", self.leaf),
        }
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        let pieces = self.all_pieces(ranges)?;
        let mut read = BTreeMap::new();
        for (file, wanted) in by_file(&pieces) {
            read.insert(file, self.fetch_file(file, &wanted)?);
        }
        let mut found = Vec::with_capacity(ranges.len());
        for of_range in &pieces {
            let mut bytes = Vec::new();
            for piece in of_range {
                let part = read
                    .get_mut(&piece.file)
                    .and_then(|read| read.remove(&piece.offset));
                let part = part.ok_or(io::ErrorKind::UnexpectedEof)?;
                if bytes.is_empty() {
                    bytes = part;
                } else {
                    bytes.extend_from_slice(&part);
                }
            }
            found.push(bytes);
        }
        Ok(found)
    }

    fn packets_in(&self, range: Range<u64>) -> Option<Vec<FoundPacket>> {
        let packets = self.packets.as_ref()?;
        let times = PartTimes {
            blocks: self.blocks.clone(),
        };
        let mut entries = Vec::new();
        let listed = times.each(range.start, &mut |entry| {
            let frame = entry.offset.saturating_sub(HEADER_BYTES as u64);
            if range.contains(&frame) {
                entries.push(*entry);
            }
        });
        listed.ok()?;
        let read = |entry| {
            let packet = packets.packet(&entry);
            (entry, packet)
        };
        Some(entries.into_iter().map(read).collect())
    }

    fn lost(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        let mut lost = Vec::new();
        let pieces = self.pieces(ranges)?;
        for (range, pieces) in ranges.iter().zip(&pieces) {
            let mut next = range.start;
            for piece in pieces {
                lost.push(next..piece.leaf_offset);
                next = piece.leaf_end();
            }
            lost.push(next..range.end);
        }
        for (file, pieces) in by_file(&pieces) {
            let of_file = self.file(file)?.lost(&ranges_of(&pieces))?;
            for piece in pieces {
                let end = piece.offset + piece.length;
                let first = of_file.partition_point(|part| part.end <= piece.offset);
                let of_file = of_file.get(first..).unwrap_or_default();
                for part in of_file.iter().take_while(|part| part.start < end) {
                    let in_leaf = |at: u64| piece.leaf_offset + (at - piece.offset);
                    let start = in_leaf(part.start.max(piece.offset));
                    lost.push(start..in_leaf(part.end.min(end)));
                }
            }
        }
        lost.retain(|part| part.start < part.end);
        lost.sort_by_key(|part| part.start);
        Ok(lost)
    }

    fn batch_bytes(&self) -> u64 {
        let files = self.files.values().map(|file| file.batch_bytes());
        files.max().unwrap_or(1 << 20)
    }
}
