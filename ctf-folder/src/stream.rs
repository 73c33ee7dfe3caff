//! The streams of a trace: files, and the packets in them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ctf::class::StreamClassIndex;

use super::error::{FolderError, FolderFault, OnFault};
use super::packet_index::{PacketIndexEntry, read_packet_index};
use super::preamble::{Preamble, PreambleError};
use super::text::{BabeltraceClock, TextPlan};

/// A file that contains packets of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Length in bytes.
    pub length: u64,
}

/// A packet of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketEntry {
    /// Index of its file in [`TraceStream::files`].
    pub file: usize,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes, padding included; up to the end of the file when the packet has no length
    /// field.
    pub length: u64,
    /// Values of its header and context.
    pub preamble: Preamble,
    /// Nanoseconds at its beginning, when known. Corrected when the producer is known to write
    /// wrong values.
    pub begin: Option<i64>,
    /// Nanoseconds at its end; see [`Self::begin`].
    pub end: Option<i64>,
}

/// A stream: packets in the order of their times.
#[derive(Clone, Debug)]
pub struct TraceStream {
    /// Class of the stream.
    pub class: Option<StreamClassIndex>,
    /// Id of the stream in its class.
    pub id: Option<u64>,
    /// Files, sorted by path.
    pub files: Vec<StreamFile>,
    /// Packets.
    pub packets: Vec<PacketEntry>,
}

impl TraceStream {
    /// The file of the packet with this index, and the packet's offset in it.
    pub(super) fn place(&self, packet: usize) -> Option<(&Path, u64)> {
        let packet = self.packets.get(packet)?;
        Some((&self.files.get(packet.file)?.path, packet.offset))
    }
}

impl StreamFile {
    /// The path of the index that LTTng writes for this file.
    pub(super) fn index_path(&self) -> Option<PathBuf> {
        let name = self.path.file_name()?.to_str()?;
        let folder = self.path.parent()?.join("index");
        Some(folder.join(format!("{name}.idx")))
    }

    /// The packets of the file: from its index when there is a valid one, otherwise from the
    /// packets' preambles. With [`OnFault::Skip`], those before the first fault, and a last packet
    /// that is cut off.
    pub(super) fn packets(
        &self,
        plan: &TextPlan,
        on_fault: OnFault,
        faults: &mut Vec<FolderError>,
    ) -> Result<Vec<PacketEntry>, FolderError> {
        let mut packets = Vec::new();
        match self.find_packets(plan, on_fault, &mut packets) {
            Ok(()) => {}
            Err(error) if on_fault == OnFault::Skip => faults.push(error),
            Err(error) => return Err(error),
        }
        Ok(packets)
    }

    fn find_packets(
        &self,
        plan: &TextPlan,
        on_fault: OnFault,
        packets: &mut Vec<PacketEntry>,
    ) -> Result<(), FolderError> {
        let source = File::open(&self.path).map_err(|error| FolderError::io(&self.path, error))?;
        let indexed = self.index_entries();
        let packet_at = |offset| self.packet_at(plan, &source, offset, on_fault);
        let first = match packet_at(0) {
            // Who reads the first packet finds out, too, and goes on with those in the index.
            Err(error) if on_fault == OnFault::Skip => {
                let others = indexed.iter().flatten().skip(1);
                let mut intact = others.filter_map(|entry| packet_at(entry.offset).ok());
                intact.next().ok_or(error)?
            }
            first => first?,
        };
        if let Some(entries) = indexed {
            let clock = plan.clock(first.preamble.class);
            let entries = entries.into_iter();
            packets.extend(entries.map(|entry| packet_of_index(&first, entry, clock)));
            return Ok(());
        }
        packets.push(first);
        let mut offset = first.length;
        while offset < self.length {
            let packet = self.packet_at(plan, &source, offset, on_fault)?;
            offset += packet.length;
            packets.push(packet);
        }
        Ok(())
    }

    fn index_entries(&self) -> Option<Vec<PacketIndexEntry>> {
        read_packet_index(&fs::read(self.index_path()?).ok()?, self.length)
    }

    /// Reads the preamble of the packet at `offset`, which is less than the file's length.
    fn packet_at(
        &self,
        plan: &TextPlan,
        source: &File,
        offset: u64,
        on_fault: OnFault,
    ) -> Result<PacketEntry, FolderError> {
        let rest = self.length - offset;
        let preamble = Preamble::read(plan.procedure(), source, offset, rest);
        let preamble = preamble.map_err(|error| match error {
            PreambleError::Io(error) => FolderError::io(&self.path, error),
            PreambleError::Decode(error) => FolderError::decode(&self.path, offset, error),
            PreambleError::Magic(error) => {
                FolderError::new(&self.path, FolderFault::Magic { offset, error })
            }
        })?;
        let length = match preamble.packet_bytes() {
            // The events up to the end of the file can be decoded; then the decoder reports it.
            Some(length) if length > rest && on_fault == OnFault::Skip => rest,
            Some(length) if length == 0 || length > rest => {
                let fault = FolderFault::PacketLength {
                    offset,
                    length,
                    rest,
                };
                return Err(FolderError::new(&self.path, fault));
            }
            Some(length) => length,
            None => rest,
        };
        let (begin, end) = time_span(&preamble, plan.clock(preamble.class));
        Ok(PacketEntry {
            file: 0,
            offset,
            length,
            preamble,
            begin,
            end,
        })
    }
}

/// The packet of an index entry; properties that the index lacks are those of the first packet.
fn packet_of_index(
    first: &PacketEntry,
    entry: PacketIndexEntry,
    clock: Option<BabeltraceClock>,
) -> PacketEntry {
    let mut preamble = first.preamble;
    preamble.begin_clock = Some(entry.begin_clock);
    let info = &mut preamble.info;
    info.total_length = Some(entry.total_length);
    info.content_length = Some(entry.content_length);
    info.end_clock = Some(entry.end_clock);
    // An index has these fields even when the packets do not; then their values are invalid.
    info.sequence = entry.sequence.filter(|_| info.sequence.is_some());
    info.discarded_events = info.discarded_events.and(Some(entry.discarded_events));
    let (begin, end) = time_span(&preamble, clock);
    PacketEntry {
        file: 0,
        offset: entry.offset,
        length: entry.total_length / 8,
        preamble,
        begin,
        end,
    }
}

fn time_span(preamble: &Preamble, clock: Option<BabeltraceClock>) -> (Option<i64>, Option<i64>) {
    let nanoseconds = |cycles: Option<u64>| clock?.nanoseconds(cycles?);
    (
        nanoseconds(preamble.begin_clock),
        nanoseconds(preamble.info.end_clock),
    )
}

/// Sorts packets by time and removes copies of a packet, which overlapping snapshots contain: the
/// same packet in another file.
pub(super) fn sort_and_deduplicate(packets: &mut Vec<PacketEntry>) {
    packets.sort_by_key(|packet| packet.begin);
    // The files of the packets that begin at the current time.
    let mut files: HashMap<(Preamble, u64), usize> = HashMap::new();
    let mut time = None;
    packets.retain(|packet| {
        if packet.begin.is_none() {
            return true;
        }
        if time != packet.begin {
            time = packet.begin;
            files.clear();
        }
        let same = (packet.preamble, packet.length);
        *files.entry(same).or_insert(packet.file) == packet.file
    });
}
