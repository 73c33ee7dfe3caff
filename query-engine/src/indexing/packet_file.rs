//! Indexing files of packets, in one pass.

use std::fmt::Display;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chunk_index::{
    ChromeUnpaired, Chunk, ChunkSummary, FileStamp, Identity, Index, IndexConfig, PacketFileFacts,
    PacketRange, PacketRanges, TraceStamp, Work,
};
use ctf_folder::FolderParts;
use query_language::FieldPath;
use storage_format::Kind;
use trace_kinds::chrome::{Durations, OutsideDurations, Unpaired};
use trace_kinds::otlp::file as otlp_file;
use trace_kinds::rocksdb::{self, PacketReader, TraceHeader};
use trace_kinds::{Container, Decoded, StreamContext, chrome};

use super::chunker::Chunker;
use super::leaf::LeafIndexOptions;
use super::sidecar_writer::{ChecksummedFile, write_sidecar};
use super::update::{Indexed, Update, summary};
use crate::packet_files::folder::{StreamPart, stream_parts};
use crate::packet_files::packet_index::CompleteIndex;
use crate::packet_files::rocksdb::PACKET_BYTES;
use crate::packet_files::{InputFormat, WITHOUT_FOLDER, io_trace_packets};
use crate::sidecar_file::refresh_stamp;
use crate::slices;
use crate::{Progress, ReadError};

/// What is known about a file of packets before it is indexed.
pub(crate) struct PacketInput {
    kind: Kind,
    context: StreamContext,
    stamp: TraceStamp,
    packets: Packets,
    /// Why packets of the file cannot be found.
    fault: Option<String>,
}

/// How the packets of a file are found.
enum Packets {
    /// They are known.
    Known(Vec<PacketRange>),
    /// Each has to be read to find the next one.
    Rocksdb,
    Chrome,
    Otlp(otlp_file::FileForm),
}

/// The files of a path, each with what is known about it; `None` for a file of lines.
///
/// # Errors
///
/// When something cannot be read or is not a trace.
pub(crate) fn inputs(path: &Path) -> Result<Option<Vec<(PathBuf, PacketInput)>>, ReadError> {
    let single = |kind, packets| {
        let input = PacketInput {
            kind,
            context: StreamContext::default(),
            stamp: WITHOUT_FOLDER,
            packets,
            fault: None,
        };
        vec![(path.to_owned(), input)]
    };
    Ok(Some(match InputFormat::of(path)? {
        InputFormat::DftLines => return Ok(None),
        InputFormat::IoTrace => single(Kind::IoTrace, Packets::Known(io_trace_packets(path)?)),
        InputFormat::Rocksdb(kind) => single(kind, Packets::Rocksdb),
        InputFormat::Chrome(Container::Plain) => single(Kind::Chrome, Packets::Chrome),
        InputFormat::Otlp(form, Container::Plain) => single(Kind::Otlp, Packets::Otlp(form)),
        InputFormat::Chrome(_) => return Err(no_index(path, "Chrome trace")),
        InputFormat::Otlp(..) => return Err(no_index(path, "file of OpenTelemetry spans")),
    }))
}

fn no_index(path: &Path, what: &'static str) -> ReadError {
    ReadError::NoIndex {
        path: path.to_owned(),
        what,
    }
}

/// The stream files of a CTF trace, each with what is known about it.
///
/// # Errors
///
/// When something cannot be read.
pub(crate) fn inputs_of_trace(trace: &Path) -> Result<Vec<(PathBuf, PacketInput)>, ReadError> {
    let parts = stream_parts(FolderParts::open(trace)?)?.into_iter();
    let input = |part: StreamPart| {
        let input = PacketInput {
            kind: part.kind,
            context: part.context,
            stamp: part.stamp,
            packets: Packets::Known(part.packets),
            fault: part.fault,
        };
        (part.path, input)
    };
    Ok(parts.map(input).collect())
}

/// Brings the sidecar of the file at `path` up to date with `options`, with the least work.
///
/// # Errors
///
/// When the file cannot be read or the sidecar cannot be written.
pub(crate) fn update_packets(
    path: &Path,
    input: &PacketInput,
    options: &LeafIndexOptions,
    (rebuild, progress): (bool, &Progress),
) -> Result<Indexed, ReadError> {
    let is_of_input = |old: &CompleteIndex| {
        old.facts.kind == input.kind
            && old.facts.stamp.metadata == input.stamp.metadata
            && match &input.packets {
                Packets::Known(packets) => *packets == old.packets,
                Packets::Rocksdb | Packets::Chrome | Packets::Otlp(_) => true,
            }
    };
    let old = if rebuild {
        None
    } else {
        CompleteIndex::read(path)
    };
    let Some(mut old) = old.filter(is_of_input) else {
        return built(path, input, options, progress);
    };
    let config = options.config(input.kind);
    let moved = old.facts.stamp != input.stamp;
    old.facts.stamp = input.stamp;
    match config.work(old.index.config_hash(), &old.index.dimensions()) {
        Work::Everything => built(path, input, options, progress),
        Work::Dimensions(missing) => extended(path, input, options, (old, &missing), progress),
        Work::Nothing => {
            if refresh_stamp(path, &mut old.index) || moved {
                // Other files of the folder changed; the packets of this one did not.
                old.index.attach(PacketFileFacts::NAME, old.facts.encode());
                old.sidecar_bytes = write_sidecar(path, &old.index)?;
            }
            Ok(Indexed {
                broken: Some(old.facts.broken),
                fault: old.facts.fault,
                ..summary(Update::Fresh, &old.index, old.sidecar_bytes)
            })
        }
    }
}

fn built(
    path: &Path,
    input: &PacketInput,
    options: &LeafIndexOptions,
    progress: &Progress,
) -> Result<Indexed, ReadError> {
    let config = options.config(input.kind);
    let (pass, durations) = passes(path, input, &config, options.chunk_bytes, progress)?;
    let mut index = Index::new(&config);
    index.set_identity(pass.identity);
    let mut header = Vec::new();
    if let Some(entry) = &pass.entry {
        entry.put(&mut header);
    }
    let facts = PacketFileFacts {
        kind: input.kind,
        stamp: input.stamp,
        metadata: pass.decoded.metadata,
        broken: pass.decoded.broken,
        header: header.into(),
        fault: pass.fault.clone(),
    };
    index.attach(PacketFileFacts::NAME, facts.encode());
    if let Some(stamp) = pass.stamp {
        index.attach(FileStamp::NAME, stamp.encode());
    }
    if let Some(unpaired) = &pass.unpaired {
        let outside = durations
            .as_ref()
            .map(|found| found as &dyn OutsideDurations);
        index.attach(ChromeUnpaired::NAME, slices::attachment(unpaired, outside));
    }
    index.attach(PacketRanges::NAME, PacketRanges(pass.packets).encode());
    for (chunk, summary) in pass.chunks {
        index.push(chunk, summary);
    }
    let sidecar_bytes = write_sidecar(path, &index)?;
    Ok(Indexed {
        broken: Some(pass.decoded.broken),
        fault: pass.fault,
        ..summary(Update::Built, &index, sidecar_bytes)
    })
}

fn extended(
    path: &Path,
    input: &PacketInput,
    options: &LeafIndexOptions,
    (old, missing): (CompleteIndex, &[FieldPath]),
    progress: &Progress,
) -> Result<Indexed, ReadError> {
    let config = IndexConfig::new(missing.iter().map(FieldPath::as_str));
    let (pass, _) = passes(path, input, &config, options.chunk_bytes, progress)?;
    let range = |chunk: &Chunk| (chunk.offset, chunk.length);
    let new = pass.chunks.iter().map(|(chunk, _)| range(chunk));
    let mut index = old.index;
    let same = new.eq(index.chunks().iter().map(range));
    let summaries: Vec<ChunkSummary> = pass.chunks.into_iter().map(|(_, new)| new).collect();
    if !same || index.extend(&config, &summaries).is_err() {
        // The chunks have other boundaries.
        return built(path, input, options, progress);
    }
    index.attach(PacketFileFacts::NAME, old.facts.encode());
    let sidecar_bytes = write_sidecar(path, &index)?;
    let names = missing.iter().map(|field| field.as_str().to_owned());
    Ok(Indexed {
        broken: Some(pass.decoded.broken),
        fault: pass.fault,
        ..summary(Update::Extended(names.collect()), &index, sidecar_bytes)
    })
}

/// The result of one pass over a file.
struct Pass {
    chunks: Vec<(Chunk, ChunkSummary)>,
    decoded: Decoded,
    identity: Identity,
    stamp: Option<FileStamp>,
    packets: Vec<PacketRange>,
    entry: Option<TraceHeader>,
    fault: Option<String>,
    /// Of a Chrome trace.
    unpaired: Option<Unpaired>,
}

/// One pass over a file; two if slices of a Chrome trace begin and end in different packets,
/// because the chunks have their durations.
fn passes(
    path: &Path,
    input: &PacketInput,
    config: &IndexConfig,
    chunk_bytes: u64,
    progress: &Progress,
) -> Result<(Pass, Option<Durations>), ReadError> {
    let first = pass(path, (input, &input.context), config, chunk_bytes, progress)?;
    let found = first.unpaired.as_ref().map(slices::durations);
    let Some(found) = found.filter(|found| !found.all().is_empty()) else {
        return Ok((first, None));
    };
    // The summaries of both passes at once would take twice the memory.
    let checksum = first.identity.checksum;
    drop(first);
    let context = StreamContext {
        outside: Some(Arc::new(found.clone())),
        ..input.context.clone()
    };
    let quiet = Progress::default();
    let second = pass(path, (input, &context), config, chunk_bytes, &quiet)?;
    if second.identity.checksum == checksum {
        Ok((second, Some(found)))
    } else {
        let changed = io::Error::other("it changed while it was indexed");
        Err(ReadError::fetch(path.display().to_string(), changed))
    }
}

fn pass(
    path: &Path,
    (input, context): (&PacketInput, &StreamContext),
    config: &IndexConfig,
    chunk_bytes: u64,
    progress: &Progress,
) -> Result<Pass, ReadError> {
    let place = path.display().to_string();
    let failed = |error| ReadError::fetch(&*place, error);
    let chunker = Chunker::new(input.kind, context, config, chunk_bytes, 0);
    let chunker = chunker.map_err(|source| ReadError::Decode {
        place: place.clone(),
        source,
    })?;
    let Some(mut chunker) = chunker else {
        return Err(ReadError::UnknownFile {
            path: path.to_owned(),
            reason: "packets of its kind contain no events".to_owned(),
        });
    };
    let mut source = ChecksummedFile::open(path, progress).map_err(failed)?;
    let read = match &input.packets {
        Packets::Known(packets) => walk(&mut source, packets, &mut chunker),
        Packets::Rocksdb => walk_rocksdb(&mut source, &mut chunker, &place),
        Packets::Chrome => walk_chrome(&mut source, &mut chunker, &place),
        Packets::Otlp(form) => walk_otlp(&mut source, *form, &mut chunker, &place),
    };
    let Found {
        packets,
        entry,
        fault,
        unpaired,
    } = read.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ReadError::Shrunk {
            place: place.clone(),
        },
        _ => failed(error),
    })?;
    let (identity, stamp) = source.finish().map_err(failed)?;
    let mut chunked = chunker.finish();
    for (number, (chunk, _)) in (0_u64..).zip(&mut chunked.chunks) {
        chunk.number = number;
    }
    Ok(Pass {
        chunks: chunked.chunks,
        decoded: chunked.decoded,
        identity,
        stamp,
        packets,
        entry,
        fault: fault.or_else(|| input.fault.clone()),
        unpaired,
    })
}

/// Packets found while a file is read.
#[derive(Default)]
struct Found {
    packets: Vec<PacketRange>,
    entry: Option<TraceHeader>,
    fault: Option<String>,
    unpaired: Option<Unpaired>,
}

/// Reads packets at known ranges.
fn walk(
    source: &mut ChecksummedFile,
    packets: &[PacketRange],
    chunker: &mut Chunker,
) -> io::Result<Found> {
    let mut end = 0;
    let mut packet = Vec::new();
    for (number, at) in (0_u64..).zip(packets) {
        io::copy(&mut source.take(at.range.start - end), &mut io::sink())?;
        packet.clear();
        source.take(at.length()).read_to_end(&mut packet)?;
        if packet.len() as u64 != at.length() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        chunker.packet(at.range.clone(), number, &packet);
        end = at.range.end;
    }
    Ok(Found {
        packets: packets.to_vec(),
        ..Found::default()
    })
}

/// Splits a RocksDB trace into packets, as far as it can be read.
fn walk_rocksdb(
    source: &mut ChecksummedFile,
    chunker: &mut Chunker,
    place: &str,
) -> io::Result<Found> {
    let mut found = Found::default();
    let mut reader = PacketReader::new(source, PACKET_BYTES);
    let message = |fault: &dyn Display| format!("{place}: {fault}");
    loop {
        let packet = match reader.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            Err(rocksdb::ReadError::Io(error)) => return Err(error),
            Err(rocksdb::ReadError::Rocksdb(fault)) => {
                found.fault = Some(message(&fault));
                break;
            }
        };
        chunker.packet(
            packet.input_range.clone(),
            found.packets.len() as u64,
            &packet.bytes,
        );
        let start = match packet.input_range.start {
            // The first packet includes the header.
            0 => 0,
            _ => packet.offset,
        };
        let shift = start
            .cast_signed()
            .wrapping_sub(packet.input_range.start.cast_signed());
        found.packets.push(PacketRange {
            range: packet.input_range,
            shift,
        });
    }
    found.entry = reader.continuation();
    if found.fault.is_none() {
        found.fault = reader.torn_end().map(|torn| message(&torn));
    }
    Ok(found)
}

/// Splits a Chrome trace into packets, as far as it can be read.
fn walk_chrome(
    source: &mut ChecksummedFile,
    chunker: &mut Chunker,
    place: &str,
) -> io::Result<Found> {
    let mut found = Found::default();
    let mut unpaired = Unpaired::default();
    let mut reader = chrome::PacketReader::new(&mut *source, chrome::PACKET_BYTES);
    let mut is_read = false;
    while !is_read {
        let packet = match reader.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => {
                let damage = reader.damage().map(|damage| damage.to_string());
                found.fault = damage.or_else(|| reader.cut_end());
                break;
            }
            Err(chrome::ReadError::Io(error)) => return Err(error),
            Err(fault) => {
                // The events before an event that is too long are read, as without an index.
                found.fault = Some(fault.to_string());
                is_read = true;
                reader.rest()
            }
        };
        let end = packet.offset.saturating_add(packet.bytes.len() as u64);
        let range = packet.offset..end;
        if range.is_empty() {
            break;
        }
        unpaired.add_packet(0, packet.offset, &packet.bytes);
        chunker.packet(range.clone(), found.packets.len() as u64, &packet.bytes);
        found.packets.push(PacketRange::new(range));
    }
    drop(reader);
    found.unpaired = Some(unpaired);
    // The checksum is of the complete file, also where damage ends the events.
    io::copy(source, &mut io::sink())?;
    found.fault = found.fault.map(|fault| format!("{place}: {fault}"));
    Ok(found)
}

/// Splits a file of spans into requests, as far as it can be read.
fn walk_otlp(
    source: &mut ChecksummedFile,
    form: otlp_file::FileForm,
    chunker: &mut Chunker,
    place: &str,
) -> io::Result<Found> {
    let mut found = Found::default();
    let mut reader = otlp_file::PacketReader::new(&mut *source, form);
    loop {
        let packet = match reader.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            Err(otlp_file::ReadError::Io(error)) => return Err(error),
            Err(damage) => {
                chunker.broken();
                let fault = || format!("{place}: {damage}");
                found.fault.get_or_insert_with(fault);
                continue;
            }
        };
        let end = packet.offset.saturating_add(packet.bytes.len() as u64);
        let range = packet.offset..end;
        chunker.packet(range.clone(), found.packets.len() as u64, &packet.bytes);
        found.packets.push(PacketRange::new(range));
    }
    drop(reader);
    // The checksum is of the complete file, also where damage ends the spans.
    io::copy(source, &mut io::sink())?;
    Ok(found)
}
