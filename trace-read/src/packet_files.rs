//! Files of packets on this machine: streams of CTF folders, traces of a server's own I/O, and
//! RocksDB traces.

use std::fs::File;
use std::io::Read;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trace_events::ctf::{TraceFolder, find_traces};
use trace_events::io_trace::{PREAMBLE_BYTES, is_io_trace, packet_bytes};
use trace_events::rocksdb::{HEADER_BYTES, PacketReader, TraceKind, is_trace};
use trace_events::{EachEvent, Origin, StreamContext, bare_unit};
use trace_format::Kind;
use trace_query::{BareUnit, FieldPath, FieldTable, Filter};

use crate::dft::DftSet;
use crate::source::{ChunkSource, Counters, LocalFilter, Scratch, Task};
use crate::stored::{PacketEvents, answer_origin};
use crate::{Evidence, Fetch, LocalFile, ReadError, Request};

/// Bytes of packets that are read as one task.
const TASK_BYTES: u64 = 4 << 20;
/// Bytes of a RocksDB trace that are decoded at once.
const PACKET_BYTES: usize = 1 << 20;

/// Opens files and folders of any kind as sources of the engine: folders of CTF traces, DFTracer
/// files with their sidecars unless `use_sidecars` says no, and RocksDB traces.
///
/// # Errors
///
/// When something cannot be read or is no trace, or the query means nothing for it.
pub fn open_paths(
    paths: &[PathBuf],
    use_sidecars: bool,
    request: &Request,
    fields: &[FieldPath],
) -> Result<Vec<Box<dyn ChunkSource>>, ReadError> {
    let mut sources: Vec<Box<dyn ChunkSource>> = Vec::new();
    let mut lines = Vec::new();
    for path in paths {
        if path.is_dir() {
            open_folder(path, &mut sources)?;
        } else if is_io_trace_file(path)? {
            let packets = io_trace_packets(path)?;
            let stream = PacketFile::open(path, packets, StreamContext::default(), Kind::IoTrace)?;
            sources.push(Box::new(stream));
        } else if let Some(kind) = rocksdb_kind(path)? {
            sources.push(Box::new(RocksdbFile::new(path, kind)));
        } else {
            lines.push(path.clone());
        }
    }
    if !lines.is_empty() {
        sources.extend(DftSet::sources(&lines, use_sidecars, request, fields)?);
    }
    Ok(sources)
}

fn open_folder(path: &Path, sources: &mut Vec<Box<dyn ChunkSource>>) -> Result<(), ReadError> {
    let traces = find_traces(path)?;
    if traces.is_empty() {
        return Err(ReadError::UnknownFile {
            path: path.to_owned(),
            reason: "there is no file named metadata in it or below it",
        });
    }
    for trace in traces {
        let folder = TraceFolder::open(&trace)?;
        let context = StreamContext {
            procedure: Some(Arc::new(folder.plan.procedure().clone())),
            ..StreamContext::default()
        };
        for stream in &folder.streams {
            for (number, file) in stream.files.iter().enumerate() {
                let packets = stream.packets.iter().filter(|packet| packet.file == number);
                let packets = packets.map(|packet| packet.offset..packet.offset + packet.length);
                // CTF as well, but told in the fields of its own kind, as from its storage.
                let kind = match is_io_trace_file(&file.path)? {
                    true => Kind::IoTrace,
                    false => Kind::Ctf,
                };
                let (packets, context) = (packets.collect(), context.clone());
                let stream = PacketFile::open(&file.path, packets, context, kind)?;
                sources.push(Box::new(stream));
            }
        }
    }
    Ok(())
}

/// Whether a file begins like a stream of a server's trace of its own I/O.
fn is_io_trace_file(path: &Path) -> Result<bool, ReadError> {
    let failed = |error| ReadError::fetch(path.display().to_string(), error);
    let mut head = Vec::new();
    let file = File::open(path).map_err(failed)?;
    let read = file.take(PREAMBLE_BYTES as u64).read_to_end(&mut head);
    read.map_err(failed)?;
    Ok(is_io_trace(&head))
}

/// The packets of such a stream. What is behind the last whole one is a packet as well: a crash cut
/// it, and it is read up to the cut.
fn io_trace_packets(path: &Path) -> Result<Vec<Range<u64>>, ReadError> {
    let failed = |error| ReadError::fetch(path.display().to_string(), error);
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let (mut packets, mut at) = (Vec::new(), 0);
    while at < length {
        let mut head = vec![0; (length - at).min(PREAMBLE_BYTES as u64) as usize];
        file.read_exact_at(&mut head, at).map_err(failed)?;
        let end = packet_bytes(&head).and_then(|bytes| at.checked_add(bytes));
        let end = end.map_or(length, |end| end.clamp(at + 1, length));
        packets.push(at..end);
        at = end;
    }
    Ok(packets)
}

/// The kind of a RocksDB trace; `None` for any other file.
fn rocksdb_kind(path: &Path) -> Result<Option<TraceKind>, ReadError> {
    let failed = |error| ReadError::fetch(path.display().to_string(), error);
    let mut head = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(HEADER_BYTES as u64)
        .read_to_end(&mut head)
        .map_err(failed)?;
    if !is_trace(&head) {
        return Ok(None);
    }
    // The header is the same for both kinds; the first record tells.
    let file = File::open(path).map_err(failed)?;
    let mut reader = PacketReader::new(file, PACKET_BYTES);
    while reader.kind().is_none() {
        match reader.next_packet() {
            Ok(Some(_)) => {}
            // A trace without records, or one that breaks off, is told when it is read.
            Ok(None) | Err(_) => break,
        }
    }
    Ok(Some(reader.kind().unwrap_or(TraceKind::Io)))
}

/// A stream file of a CTF folder, or of a trace of a server's own I/O.
struct PacketFile {
    file: LocalFile,
    kind: Kind,
    /// Packets that are read together, in the order of the file.
    groups: Vec<Vec<Range<u64>>>,
    context: StreamContext,
    origin: Origin,
}

impl PacketFile {
    fn open(
        path: &Path,
        mut packets: Vec<Range<u64>>,
        context: StreamContext,
        kind: Kind,
    ) -> Result<PacketFile, ReadError> {
        let file = LocalFile::open(path);
        let file = file.map_err(|error| ReadError::fetch(path.display().to_string(), error))?;
        packets.sort_by_key(|packet| packet.start);
        let mut groups: Vec<Vec<Range<u64>>> = Vec::new();
        let mut bytes = 0;
        for packet in packets {
            let length = packet.end - packet.start;
            match groups.last_mut() {
                Some(group) if bytes + length <= TASK_BYTES => {
                    group.push(packet);
                    bytes += length;
                }
                _ => {
                    groups.push(vec![packet]);
                    bytes = length;
                }
            }
        }
        Ok(PacketFile {
            file,
            kind,
            groups,
            context,
            origin: origin(kind),
        })
    }
}

fn origin(kind: Kind) -> Origin {
    Origin {
        kind: kind.as_str(),
        ..Origin::default()
    }
}

fn localize(filter: &Filter, origin: &Origin) -> LocalFilter {
    let filter = answer_origin(filter, origin);
    LocalFilter {
        evaluate: filter.clone(),
        prune: filter,
    }
}

impl ChunkSource for PacketFile {
    fn place(&self) -> String {
        self.file.place()
    }

    fn unit(&self) -> BareUnit {
        bare_unit(self.kind, &self.context)
    }

    fn evidence(&self) -> Result<Option<Evidence>, ReadError> {
        Ok(None)
    }

    fn localize(&self, filter: &Filter) -> LocalFilter {
        localize(filter, &self.origin)
    }

    fn tasks(&self, _: Option<&[usize]>) -> Vec<Task> {
        let task = |(number, group): (usize, &Vec<Range<u64>>)| Task {
            chunks: vec![number],
            // What a packet says of its begin may be wrong, so rows do not rely on it.
            first_ts: None,
            bytes: group.iter().map(|packet| packet.end - packet.start).sum(),
            records: None,
        };
        self.groups.iter().enumerate().map(task).collect()
    }

    fn read(
        &self,
        task: &Task,
        fields: &FieldTable,
        _: &mut Scratch,
        each: &mut EachEvent<'_>,
    ) -> Result<Counters, ReadError> {
        let events = PacketEvents::new(self.kind, &self.context, &self.origin, fields, each)?;
        let Some(mut events) = events else {
            return Ok(Counters::default());
        };
        let groups = task.chunks.iter();
        let packets = groups
            .filter_map(|number| self.groups.get(*number))
            .flatten();
        for packet in packets {
            let bytes = self.file.fetch_one(packet.clone());
            let bytes = bytes.map_err(|error| ReadError::fetch(self.place(), error))?;
            events.counters.fetched_bytes += bytes.len() as u64;
            let place = || format!("{}: packet at {}", self.place(), packet.start);
            if events.packet(&bytes, &place).is_break() {
                break;
            }
        }
        Ok(events.counters)
    }
}

/// A RocksDB trace.
struct RocksdbFile {
    path: PathBuf,
    kind: Kind,
    origin: Origin,
}

impl RocksdbFile {
    fn new(path: &Path, kind: TraceKind) -> RocksdbFile {
        let kind = match kind {
            TraceKind::Io => Kind::RocksdbIo,
            TraceKind::BlockCache => Kind::RocksdbBlockCache,
        };
        RocksdbFile {
            path: path.to_owned(),
            kind,
            origin: origin(kind),
        }
    }
}

impl ChunkSource for RocksdbFile {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn unit(&self) -> BareUnit {
        bare_unit(self.kind, &StreamContext::default())
    }

    fn evidence(&self) -> Result<Option<Evidence>, ReadError> {
        Ok(None)
    }

    fn localize(&self, filter: &Filter) -> LocalFilter {
        localize(filter, &self.origin)
    }

    fn tasks(&self, _: Option<&[usize]>) -> Vec<Task> {
        vec![Task {
            chunks: vec![0],
            first_ts: None,
            bytes: std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len()),
            records: None,
        }]
    }

    fn read(
        &self,
        _: &Task,
        fields: &FieldTable,
        _: &mut Scratch,
        each: &mut EachEvent<'_>,
    ) -> Result<Counters, ReadError> {
        let context = StreamContext::default();
        let events = PacketEvents::new(self.kind, &context, &self.origin, fields, each)?;
        let Some(mut events) = events else {
            return Ok(Counters::default());
        };
        let file = File::open(&self.path);
        let file = file.map_err(|error| ReadError::fetch(self.place(), error))?;
        let mut reader = PacketReader::new(file, PACKET_BYTES);
        loop {
            let packet = match reader.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(trace_events::rocksdb::ReadError::Io(error)) => {
                    return Err(ReadError::fetch(self.place(), error));
                }
                Err(trace_events::rocksdb::ReadError::Rocksdb(error)) => {
                    events.fault(format!("{}: {error}", self.place()));
                    return Ok(events.counters);
                }
            };
            events.counters.fetched_bytes += packet.bytes.len() as u64;
            let place = || format!("{}: records at {}", self.place(), packet.offset);
            if events.packet(&packet.bytes, &place) == ControlFlow::Break(()) {
                return Ok(events.counters);
            }
        }
        if let Some(torn) = reader.tail() {
            events.fault(format!("{}: {torn}", self.place()));
        }
        Ok(events.counters)
    }
}
