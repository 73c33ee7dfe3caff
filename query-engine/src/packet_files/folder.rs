//! Folders of CTF traces.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf_folder::{FolderParts, find_traces};
use storage_format::Kind;
use trace_kinds::StreamContext;

use super::facts::{PacketAt, Stamp};
use super::packet_index::Kept;
use super::source::PacketFile;
use super::{choose, is_io_trace_file};
use crate::ReadError;
use crate::source::ChunkSource;

/// A file of packets in a folder.
pub(crate) struct StreamPart {
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    pub(crate) context: StreamContext,
    pub(crate) stamp: Stamp,
    pub(crate) packets: Vec<PacketAt>,
}

/// The traces in and below a folder.
pub(crate) fn traces(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let traces = find_traces(path)?;
    match traces.is_empty() {
        false => Ok(traces),
        true => Err(ReadError::UnknownFile {
            path: path.to_owned(),
            reason: "there is no file named metadata in it or below it",
        }),
    }
}

/// Opens the traces in and below a folder, a source a file of packets.
pub(crate) fn open(
    path: &Path,
    use_sidecars: bool,
    sources: &mut Vec<Box<dyn ChunkSource>>,
) -> Result<(), ReadError> {
    for trace in traces(path)? {
        for file in open_trace(&trace, use_sidecars)? {
            sources.push(Box::new(file));
        }
    }
    Ok(())
}

fn open_trace(path: &Path, use_sidecars: bool) -> Result<Vec<PacketFile>, ReadError> {
    let parts = FolderParts::open(path)?;
    let mut kept = BTreeMap::new();
    if use_sidecars {
        let files = parts.files.iter();
        kept.extend(files.map(|file| (file.path.clone(), Kept::open(&file.path))));
        if let Some(current) = all_current(&parts, &mut kept) {
            let context = context_of(&parts);
            let files = current.into_iter();
            let open =
                |(path, kept): (PathBuf, Kept)| PacketFile::indexed(&path, context.clone(), kept);
            return files.map(open).collect();
        }
    }
    let files = stream_parts(parts)?.into_iter().map(|part| {
        let (kept, reason) = match kept.remove(&part.path) {
            None | Some(Ok(None)) => (None, None),
            Some(Ok(Some(kept))) => (Some(kept), None),
            Some(Err(reason)) => (None, Some(reason)),
        };
        // Another metadata tells the same packets in another way.
        let kept = kept.filter(|kept| kept.facts.stamp.metadata == part.stamp.metadata);
        choose(
            &part.path,
            part.kind,
            part.context,
            part.packets,
            kept,
            reason,
        )
    });
    files.collect()
}

/// What was kept of all files in the order of their sources, when the folder is the one that was
/// indexed: then its packets need not be looked for.
fn all_current(
    parts: &FolderParts,
    kept: &mut BTreeMap<PathBuf, Result<Option<Kept>, String>>,
) -> Option<Vec<(PathBuf, Kept)>> {
    let (metadata, folder) = (parts.metadata_checksum, parts.checksum());
    let is_current = |kept: &Result<Option<Kept>, String>| {
        let kept = kept.as_ref().ok().and_then(Option::as_ref);
        kept.is_some_and(|kept| {
            let stamp = kept.facts.stamp;
            (stamp.metadata, stamp.folder) == (metadata, folder)
        })
    };
    if !kept.values().all(is_current) {
        return None;
    }
    let all = std::mem::take(kept).into_iter();
    let mut all: Vec<(PathBuf, Kept)> = all
        .filter_map(|(path, kept)| Some((path, kept.ok()??)))
        .collect();
    all.sort_by_key(|(_, kept)| kept.facts.stamp.place);
    Some(all)
}

fn context_of(parts: &FolderParts) -> StreamContext {
    StreamContext {
        procedure: Some(Arc::new(parts.plan.procedure().clone())),
        ..StreamContext::default()
    }
}

/// The files of a trace in the order of its streams, with the packets that are read of each.
pub(crate) fn stream_parts(parts: FolderParts) -> Result<Vec<StreamPart>, ReadError> {
    let context = context_of(&parts);
    let (metadata, folder) = (parts.metadata_checksum, parts.checksum());
    let trace = parts.find_packets()?;
    let mut found = Vec::new();
    for stream in &trace.streams {
        for (number, file) in stream.files.iter().enumerate() {
            let of_file = stream.packets.iter().filter(|packet| packet.file == number);
            let mut packets: Vec<PacketAt> = of_file
                .map(|packet| PacketAt::of(packet.offset..packet.offset + packet.length))
                .collect();
            packets.sort_by_key(|packet| packet.range.start);
            found.push(StreamPart {
                // CTF as well, but told in the fields of its own kind, as from its storage.
                kind: match is_io_trace_file(&file.path)? {
                    true => Kind::IoTrace,
                    false => Kind::Ctf,
                },
                path: file.path.clone(),
                context: context.clone(),
                stamp: Stamp {
                    metadata,
                    folder,
                    place: u32::try_from(found.len()).unwrap_or(u32::MAX),
                },
                packets,
            });
        }
    }
    Ok(found)
}
