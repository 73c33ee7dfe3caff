//! A file with known ranges of packets, as a source.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use chunk_index::PacketRange;
use query_language::{BareUnit, FieldTable, Filter};
use storage_format::Kind;
use trace_kinds::rocksdb::TraceHeader;
use trace_kinds::{EachEvent, Origin, StreamContext, bare_unit};

use super::packet_index::PacketIndex;
use crate::evidence::EVERYTHING;
use crate::open_sidecar::OpenSidecar;
use crate::slices::{Pairing, pairing_in};
use crate::source::{ChunkSource, Counters, LocalFilter, Scratch, Task, chunk_tasks};
use crate::stored::PacketEvents;
use crate::{Evidence, Fetch, LocalFile, ReadError};

/// Bytes of packets per task.
const TASK_BYTES: u64 = 4 << 20;

/// A file with known ranges of packets: a stream file of a CTF folder or of an I/O trace, or any
/// indexed file.
pub(crate) struct PacketFile {
    fetch: Arc<dyn Fetch>,
    kind: Kind,
    context: StreamContext,
    origin: Origin,
    packets: Vec<PacketRange>,
    read_by: ReadBy,
    /// Errors recorded in the index.
    faults: Vec<String>,
    /// Records that cannot be read, according to the index.
    unreadable: Option<u64>,
}

/// How a file is divided into tasks.
enum ReadBy {
    /// Groups of packets, as ranges in their list; why an index is not used.
    Groups(Vec<Range<usize>>, Option<String>),
    Chunks(OpenSidecar, Option<TraceHeader>),
}

impl PacketFile {
    /// A file without an index; `unused` says why an existing one is not used.
    pub(crate) fn plain(
        path: &Path,
        kind: Kind,
        context: StreamContext,
        packets: Vec<PacketRange>,
        unused: Option<String>,
    ) -> Result<PacketFile, ReadError> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        let mut bytes = 0;
        for (place, packet) in packets.iter().enumerate() {
            match groups.last_mut() {
                Some(group) if bytes + packet.length() <= TASK_BYTES => {
                    group.end = place + 1;
                    bytes += packet.length();
                }
                _ => {
                    groups.push(place..place + 1);
                    bytes = packet.length();
                }
            }
        }
        let read_by = ReadBy::Groups(groups, unused);
        PacketFile::open(path, kind, context, packets, read_by)
    }

    /// A file with its index.
    pub(crate) fn indexed(
        path: &Path,
        context: StreamContext,
        index: PacketIndex,
    ) -> Result<PacketFile, ReadError> {
        let read_by = ReadBy::Chunks(index.sidecar, index.header);
        let file = PacketFile::open(path, index.facts.kind, context, index.packets, read_by)?;
        let faults = index.facts.fault.into_iter().collect();
        Ok(PacketFile {
            faults,
            unreadable: Some(index.facts.broken),
            ..file
        })
    }

    /// The same file, of which packets cannot be found for this reason.
    pub(crate) fn with_fault(mut self, fault: Option<String>) -> PacketFile {
        let known = fault.filter(|fault| !self.faults.contains(fault));
        self.faults.extend(known);
        self
    }

    fn open(
        path: &Path,
        kind: Kind,
        context: StreamContext,
        packets: Vec<PacketRange>,
        read_by: ReadBy,
    ) -> Result<PacketFile, ReadError> {
        let fetch = LocalFile::open(path);
        let fetch = fetch.map_err(|error| ReadError::fetch(path.display().to_string(), error))?;
        Ok(PacketFile {
            fetch: Arc::new(fetch),
            kind,
            context,
            origin: origin(kind, path),
            packets,
            read_by,
            faults: Vec::new(),
            unreadable: None,
        })
    }

    /// The packets of a task, as a range in their list.
    fn packets_of(&self, number: usize) -> Range<usize> {
        match &self.read_by {
            ReadBy::Groups(groups, _) => groups.get(number).cloned().unwrap_or_default(),
            ReadBy::Chunks(sidecar, _) => {
                let Some(chunk) = sidecar.index().chunks().get(number) else {
                    return 0..0;
                };
                let end = chunk.offset.saturating_add(chunk.length);
                let before = |place| move |packet: &PacketRange| packet.range.start < place;
                let place = |at| self.packets.partition_point(before(at));
                place(chunk.offset)..place(end)
            }
        }
    }

    /// The bytes of a packet, preceded by a header if they need one.
    fn packet(&self, packet: &PacketRange) -> Result<Vec<u8>, ReadError> {
        let bytes = self.fetch.fetch_one(packet.range.clone());
        let bytes = bytes.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => ReadError::Shrunk {
                place: self.place(),
            },
            _ => ReadError::fetch(self.place(), error),
        })?;
        match &self.read_by {
            ReadBy::Chunks(_, Some(header)) if packet.range.start > 0 => {
                let offset = packet.range.start.wrapping_add_signed(packet.shift);
                let mut whole = Vec::new();
                header.at(offset).put(&mut whole);
                whole.extend(bytes);
                Ok(whole)
            }
            _ => Ok(bytes),
        }
    }
}

/// The origin of events of a file: its stream is the name of the file, as when it is pushed. It has
/// no agent and no storage.
pub(crate) fn origin(kind: Kind, path: &Path) -> Origin {
    let name = path.file_name().map(|name| name.to_string_lossy());
    Origin {
        kind: kind.as_str(),
        stream: name.map(Cow::into_owned),
        ..Origin::default()
    }
}

pub(crate) fn localize(filter: &Filter, origin: &Origin) -> LocalFilter {
    let filter = origin.answer(filter);
    LocalFilter {
        evaluate: filter.clone(),
        prune: filter,
    }
}

impl ChunkSource for PacketFile {
    fn place(&self) -> String {
        self.fetch.place()
    }

    fn unit(&self) -> Option<BareUnit> {
        Some(bare_unit(self.kind, &self.context))
    }

    fn evidence(&self) -> Result<Option<Evidence>, ReadError> {
        Ok(match &self.read_by {
            ReadBy::Groups(..) => None,
            ReadBy::Chunks(open, _) => Some(Evidence::Sidecar {
                sidecar: open.sidecar(),
                fetch: Arc::clone(&open.fetch),
                fetched_bytes: open.fetched_bytes,
                cache: None,
                within: EVERYTHING,
            }),
        })
    }

    fn unused_index(&self) -> Option<String> {
        match &self.read_by {
            ReadBy::Groups(_, unused) => unused.clone(),
            ReadBy::Chunks(..) => None,
        }
    }

    fn faults(&self) -> Vec<String> {
        self.faults.clone()
    }

    fn unreadable(&self) -> Option<u64> {
        self.unreadable
    }

    fn is_changed(&self) -> bool {
        self.fetch.is_changed()
    }

    fn localize(&self, filter: &Filter) -> LocalFilter {
        localize(filter, &self.origin)
    }

    fn pairing(&self) -> Pairing {
        match &self.read_by {
            ReadBy::Chunks(open, _) => {
                pairing_in(open.index(), &EVERYTHING, self.context.outside.as_deref())
            }
            ReadBy::Groups(..) => Pairing::default(),
        }
    }

    fn tasks(&self, chunks: Option<&[usize]>) -> Vec<Task> {
        let groups = match (&self.read_by, chunks) {
            (ReadBy::Chunks(open, _), Some(chunks)) => {
                return chunk_tasks(open.index(), chunks, self.fetch.batch_bytes());
            }
            (ReadBy::Chunks(open, _), None) => open.index().chunks().len(),
            (ReadBy::Groups(groups, _), _) => groups.len(),
        };
        let task = |number: usize| Task {
            chunks: vec![number],
            // The start in the packet may be wrong, so the order of rows does not rely on it.
            within: None,
            first_ts: None,
            bytes: self.packets[self.packets_of(number)]
                .iter()
                .map(PacketRange::length)
                .sum(),
            records: None,
        };
        (0..groups).map(task).collect()
    }

    fn read(
        &self,
        task: &Task,
        fields: &FieldTable,
        _: &mut Scratch,
        each: &mut EachEvent<'_>,
    ) -> Result<Counters, ReadError> {
        let events = PacketEvents::new(
            self.kind,
            &self.context,
            &self.origin,
            fields,
            (each, matches!(self.read_by, ReadBy::Chunks(..))),
        )?;
        let Some(mut events) = events else {
            return Ok(Counters::default());
        };
        let numbers = task.chunks.iter();
        let places = numbers.flat_map(|number| self.packets_of(*number));
        for packet in places.filter_map(|place| self.packets.get(place)) {
            let bytes = self.packet(packet)?;
            events.counters.fetched_bytes += packet.length();
            let what = match self.kind {
                Kind::RocksdbIo | Kind::RocksdbBlockCache => "records",
                Kind::Chrome => "events",
                Kind::Otlp => "spans",
                _ => "packet",
            };
            let place = || format!("{}: {what} at {}", self.place(), packet.range.start);
            if events.packet(packet.range.start, &bytes, &place).is_break() {
                break;
            }
        }
        Ok(events.counters)
    }
}
