//! A ring on disk: the most recent packets of a storage, in segments of which the oldest is
//! removed.
//!
//! Every block is synced before it counts, so a killed server leaves the blocks up to a torn last
//! one. The packets are not derived from other files, and belong to no storage until they are
//! pushed into theirs; then the ring is removed.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use storage_format::{
    FormatError,
    frame::Facts,
    limits::PACKET_BYTES_MAX,
    paths::RING_ENDING,
    ring_block::{HEADER_BYTES, RingBlock},
};

use super::staged::sync_folder;
use crate::{StorageError, read::read_small};

/// A ring has about this many segments, and removes the oldest one at a time.
const SEGMENT_COUNT: u64 = 8;

/// A ring that is being written.
#[derive(Debug)]
pub struct Ring {
    folder: PathBuf,
    bytes_max: u64,
    segments: VecDeque<Segment>,
    file: Option<File>,
    blocks: u64,
}

#[derive(Debug, Default)]
struct Segment {
    path: PathBuf,
    totals: RingTotals,
}

/// Counts of blocks of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RingTotals {
    /// How many.
    pub blocks: u64,
    /// Bytes of their packets.
    pub bytes: u64,
    /// Events in them, as far as known.
    pub events: u64,
}

impl RingTotals {
    fn add(&mut self, other: Self) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.events = self.events.saturating_add(other.events);
    }
}

/// A packet in a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingPacket {
    /// Its number among all written packets, including the removed ones.
    pub sequence: u64,
    /// Its facts.
    pub facts: Facts,
    /// Its bytes.
    pub payload: Bytes,
}

impl Ring {
    /// An empty ring in `folder`, which is recreated, for at most `bytes_max` bytes of packets.
    pub(crate) fn create(folder: PathBuf, bytes_max: u64) -> Result<Self, StorageError> {
        remove(&folder)?;
        std::fs::create_dir(&folder).map_err(StorageError::io("create", &folder))?;
        if let Some(parent) = folder.parent() {
            sync_folder(parent)?;
        }
        Ok(Self {
            folder,
            bytes_max,
            segments: VecDeque::new(),
            file: None,
            blocks: 0,
        })
    }

    /// Makes a packet durable; returns what was removed for it.
    pub(crate) fn append(
        &mut self,
        payload: &[u8],
        facts: Facts,
    ) -> Result<RingTotals, StorageError> {
        let length = payload.len() as u64;
        let segment_max = self.bytes_max / SEGMENT_COUNT;
        let last = self.segments.back().map(|segment| segment.totals.bytes);
        let is_new = last.is_none_or(|bytes| bytes.saturating_add(length) > segment_max);
        if is_new {
            self.begin_segment()?;
        }
        let header = RingBlock {
            sequence: self.blocks,
            facts,
            payload,
        }
        .header();
        let (Some(segment), Some(file)) = (self.segments.back_mut(), &mut self.file) else {
            return Ok(RingTotals::default());
        };
        let mut write = || {
            file.write_all(&header)?;
            file.write_all(payload)?;
            file.sync_data()
        };
        write().map_err(StorageError::io("write", &segment.path))?;
        segment.totals.add(RingTotals {
            blocks: 1,
            bytes: length,
            events: facts.events.map_or(0, u64::from),
        });
        self.blocks = self.blocks.saturating_add(1);
        if is_new {
            sync_folder(&self.folder)?;
        }
        self.remove_oldest()
    }

    fn begin_segment(&mut self) -> Result<(), StorageError> {
        let path = self
            .folder
            .join(format!("{:016x}{RING_ENDING}", self.blocks));
        let file = File::create_new(&path).map_err(StorageError::io("create", &path))?;
        self.file = Some(file);
        self.segments.push_back(Segment {
            path,
            totals: RingTotals::default(),
        });
        Ok(())
    }

    /// Removes the oldest segments, but never the last one.
    fn remove_oldest(&mut self) -> Result<RingTotals, StorageError> {
        let mut removed = RingTotals::default();
        let bytes = |ring: &Self| ring.segments.iter().map(|s| s.totals.bytes).sum::<u64>();
        while self.segments.len() > 1 && bytes(self) > self.bytes_max {
            let Some(oldest) = self.segments.pop_front() else {
                break;
            };
            std::fs::remove_file(&oldest.path).map_err(StorageError::io("remove", &oldest.path))?;
            removed.add(oldest.totals);
        }
        Ok(removed)
    }
}

/// The segments in `folder`, oldest first; none if the folder does not exist.
pub(crate) fn segments(folder: &Path) -> Result<Vec<PathBuf>, StorageError> {
    let names = match std::fs::read_dir(folder) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StorageError::io("list", folder)(error)),
    };
    let mut found = Vec::new();
    for name in names {
        let path = name.map_err(StorageError::io("list", folder))?.path();
        if path.to_string_lossy().ends_with(RING_ENDING) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The packets of a segment up to the first damaged one, and the error of that one.
pub(crate) fn read_segment(
    path: &Path,
) -> Result<(Vec<RingPacket>, Option<FormatError>), StorageError> {
    let max = u64::from(PACKET_BYTES_MAX).saturating_add(HEADER_BYTES as u64);
    let bytes = Bytes::from(read_small(path, max).map_err(StorageError::io("read", path))?);
    let (mut packets, mut rest) = (Vec::new(), &bytes[..]);
    while !rest.is_empty() {
        let at = bytes.len().saturating_sub(rest.len()) as u64;
        let (block, following) = match RingBlock::split(rest) {
            Ok(found) => found,
            Err(mut error) => {
                error.offset = error.offset.saturating_add(at);
                return Ok((packets, Some(error)));
            }
        };
        packets.push(RingPacket {
            sequence: block.sequence,
            facts: block.facts,
            payload: bytes.slice_ref(block.payload),
        });
        rest = following;
    }
    Ok((packets, None))
}

/// Removes the ring, if there is one.
pub(crate) fn remove(folder: &Path) -> Result<(), StorageError> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StorageError::io("remove", folder)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(events: u32) -> Facts {
        Facts {
            time_span: Some((1, 2)),
            events: Some(events),
            ..Facts::default()
        }
    }

    fn stored(folder: &Path) -> (Vec<u64>, Option<FormatError>) {
        let (mut sequences, mut fault) = (Vec::new(), None);
        for segment in segments(folder).unwrap() {
            assert!(fault.is_none(), "only the last segment may be torn");
            let (packets, wrong) = read_segment(&segment).unwrap();
            for packet in packets {
                assert_eq!(packet.payload, vec![packet.sequence as u8; 100]);
                assert_eq!(packet.facts, facts(packet.sequence as u32));
                sequences.push(packet.sequence);
            }
            fault = wrong;
        }
        (sequences, fault)
    }

    #[test]
    fn the_oldest_blocks_are_removed_and_a_torn_block_is_ignored() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("ring");
        let mut ring = Ring::create(folder.clone(), 1_600).unwrap();
        let mut removed = RingTotals::default();
        for sequence in 0..40_u8 {
            let payload = [sequence; 100];
            removed.add(ring.append(&payload, facts(sequence.into())).unwrap());
        }
        let (sequences, fault) = stored(&folder);
        assert_eq!(fault, None);
        let first = removed.blocks;
        assert_eq!(sequences, (first..40).collect::<Vec<_>>());
        assert!((8..=16).contains(&sequences.len()), "{sequences:?}");
        assert_eq!(removed.events, (0..first).sum::<u64>());
        assert_eq!(removed.bytes, first * 100);

        let last = segments(&folder).unwrap().pop().unwrap();
        let whole = std::fs::read(&last).unwrap();
        let of_last = read_segment(&last).unwrap().0.len();
        for cut in 1..164 {
            std::fs::write(&last, &whole[..whole.len() - cut]).unwrap();
            let (packets, fault) = read_segment(&last).unwrap();
            assert_eq!(packets.len(), of_last - 1, "cut by {cut}");
            assert!(fault.is_some(), "cut by {cut}");
        }
        let ring = Ring::create(folder.clone(), 1_600).unwrap();
        assert!(stored(&ring.folder).0.is_empty(), "the ring is recreated");
        remove(&folder).unwrap();
        assert!(!folder.exists() && segments(&folder).unwrap().is_empty());
    }
}
