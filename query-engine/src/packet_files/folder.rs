//! Folders of CTF traces.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chunk_index::{PacketRange, TraceStamp};
use ctf_folder::FolderParts;
use storage_format::Kind;
use trace_kinds::{Container, Content, StreamContext, UNDECOMPRESSED};

use super::choose;
use super::packet_file::PacketFile;
use super::packet_index::PacketIndex;
use super::unreadable_file::UnreadableFile;
use crate::ReadError;
use crate::file_content::{
    FOLDER_DEPTH_MAX, is_derived_folder, is_named_as_lines, is_trace_folder, recognize_file,
    recognize_found,
};
use crate::source::ChunkSource;

/// A file of packets in a folder.
pub(crate) struct StreamPart {
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    pub(crate) context: StreamContext,
    pub(crate) stamp: TraceStamp,
    pub(crate) packets: Vec<PacketRange>,
    /// Why packets of the file cannot be found.
    pub(crate) fault: Option<String>,
}

/// What a folder and the folders below it contain.
#[derive(Debug, Default)]
pub(crate) struct FolderContents {
    /// Folders of CTF traces.
    pub(crate) traces: Vec<PathBuf>,
    /// Other files that are traces. Hidden files and files of unknown content are none.
    pub(crate) files: Vec<PathBuf>,
    /// Files of unknown content that DFTracer named: reading them as its lines tells what is
    /// broken. A process that was killed leaves such files.
    pub(crate) damaged: Vec<PathBuf>,
    /// Files that may be traces, of which nothing can be read: nobody may miss them unknowingly.
    pub(crate) unreadable: Vec<UnreadableFile>,
    /// Folders of derived streams, which are not searched.
    pub(crate) derived: Vec<PathBuf>,
}

impl FolderContents {
    /// # Errors
    ///
    /// When a folder or a file in it cannot be read, or none of them is a trace.
    pub(crate) fn of(path: &Path) -> Result<FolderContents, ReadError> {
        let mut found = FolderContents::default();
        found.search(path, 0)?;
        let is_empty = found.traces.is_empty() && found.files.is_empty();
        if is_empty && found.damaged.is_empty() && found.unreadable.is_empty() {
            return Err(ReadError::UnknownFile {
                path: path.to_owned(),
                reason: "no trace is in it or below it".to_owned(),
            });
        }
        Ok(found)
    }

    fn search(&mut self, folder: &Path, depth: usize) -> Result<(), ReadError> {
        if is_trace_folder(folder)? {
            self.traces.push(folder.to_owned());
            return Ok(());
        }
        if depth == FOLDER_DEPTH_MAX {
            return Ok(());
        }
        let failed = |error| ReadError::fetch(folder.display().to_string(), error);
        let entries = fs::read_dir(folder).map_err(failed)?;
        let entries = entries.collect::<io::Result<Vec<_>>>().map_err(failed)?;
        let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default();
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            // Links to folders may be circular.
            let metadata = fs::symlink_metadata(&path).map_err(failed)?;
            if metadata.is_dir() && is_derived_folder(&path) {
                self.derived.push(path);
            } else if metadata.is_dir() {
                self.search(&path, depth + 1)?;
            } else {
                self.add(path)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: PathBuf) -> Result<(), ReadError> {
        let target = match fs::metadata(&path) {
            Ok(target) => target,
            Err(error) => {
                let reason = format!("it cannot be opened: {error}");
                self.unreadable.push(UnreadableFile { path, reason });
                return Ok(());
            }
        };
        if !target.is_file() {
            if !target.is_dir() && is_named_as_lines(&path) {
                let reason = "it is no regular file: name it to read it".to_owned();
                self.unreadable.push(UnreadableFile { path, reason });
            }
            return Ok(());
        }
        let found = recognize_found(&path)?;
        if found.kind().is_some() {
            self.files.push(path);
        } else if is_named_as_lines(&path)
            && found.content != Content::Empty
            && found.container != Container::Zstd
        {
            self.damaged.push(path);
        } else if let Content::Unknown(UNDECOMPRESSED) = found.content {
            let reason = UNDECOMPRESSED.to_owned();
            self.unreadable.push(UnreadableFile { path, reason });
        }
        Ok(())
    }
}

/// Opens a trace; each stream file is a source.
pub(crate) fn open(
    trace: &Path,
    use_sidecars: bool,
    sources: &mut Vec<Box<dyn ChunkSource>>,
) -> Result<(), ReadError> {
    for file in open_trace(trace, use_sidecars)? {
        sources.push(Box::new(file));
    }
    Ok(())
}

fn open_trace(path: &Path, use_sidecars: bool) -> Result<Vec<PacketFile>, ReadError> {
    let parts = FolderParts::open(path)?;
    let mut indexes = BTreeMap::new();
    if use_sidecars {
        let files = parts.files.iter();
        indexes.extend(files.map(|file| (file.path.clone(), PacketIndex::open(&file.path))));
        if let Some(current) = all_current(&parts, &mut indexes) {
            let context = context_of(&parts);
            let files = current.into_iter();
            let open = |(path, indexes): (PathBuf, PacketIndex)| {
                PacketFile::indexed(&path, context.clone(), indexes)
            };
            return files.map(open).collect();
        }
    }
    let files = stream_parts(parts)?.into_iter().map(|part| {
        let (indexes, reason) = match indexes.remove(&part.path) {
            None | Some(Ok(None)) => (None, None),
            Some(Ok(Some(indexes))) => (Some(indexes), None),
            Some(Err(reason)) => (None, Some(reason)),
        };
        // With other metadata the same packets decode differently.
        let indexes = indexes.filter(|indexes| indexes.facts.stamp.metadata == part.stamp.metadata);
        let file = choose(
            &part.path,
            part.kind,
            part.context,
            part.packets,
            indexes,
            reason,
        )?;
        Ok(file.with_fault(part.fault))
    });
    files.collect()
}

/// The indexes of all files in the order of their sources, if the folder is unchanged since it was
/// indexed. Then its packets need not be searched.
fn all_current(
    parts: &FolderParts,
    indexes: &mut BTreeMap<PathBuf, Result<Option<PacketIndex>, String>>,
) -> Option<Vec<(PathBuf, PacketIndex)>> {
    let (metadata, folder) = (parts.metadata_checksum, parts.checksum());
    let is_current = |indexes: &Result<Option<PacketIndex>, String>| {
        let indexes = indexes.as_ref().ok().and_then(Option::as_ref);
        indexes.is_some_and(|indexes| {
            let stamp = indexes.facts.stamp;
            (stamp.metadata, stamp.folder) == (metadata, folder)
        })
    };
    if !indexes.values().all(is_current) {
        return None;
    }
    let all = std::mem::take(indexes).into_iter();
    let mut all: Vec<(PathBuf, PacketIndex)> = all
        .filter_map(|(path, indexes)| Some((path, indexes.ok()??)))
        .collect();
    all.sort_by_key(|(_, indexes)| indexes.facts.stamp.file_index);
    Some(all)
}

fn context_of(parts: &FolderParts) -> StreamContext {
    StreamContext {
        procedure: Some(Arc::new(parts.plan.procedure().clone())),
        ..StreamContext::default()
    }
}

/// The files of a trace in the order of its streams, each with its packets. What is behind damage
/// in the header or context of a packet cannot be found.
pub(crate) fn stream_parts(parts: FolderParts) -> Result<Vec<StreamPart>, ReadError> {
    let context = context_of(&parts);
    let (metadata, folder) = (parts.metadata_checksum, parts.checksum());
    let trace = parts.salvage_packets()?;
    let fault_of = |path: &Path| {
        let fault = trace.faults.iter().find(|fault| fault.path == path);
        fault.map(ToString::to_string)
    };
    let part = |file_index: usize, path: &Path, kind, packets| StreamPart {
        kind,
        path: path.to_owned(),
        context: context.clone(),
        stamp: TraceStamp {
            metadata,
            folder,
            file_index: u32::try_from(file_index).unwrap_or(u32::MAX),
        },
        packets,
        fault: fault_of(path),
    };
    let mut found = Vec::new();
    for stream in &trace.streams {
        for (number, file) in stream.files.iter().enumerate() {
            let of_file = stream.packets.iter().filter(|packet| packet.file == number);
            let mut packets: Vec<PacketRange> = of_file
                .map(|packet| PacketRange::new(packet.offset..packet.offset + packet.length))
                .collect();
            packets.sort_by_key(|packet| packet.range.start);
            // I/O traces are CTF too, but have the fields of their kind, as in storages.
            let kind = if recognize_file(&file.path)?.content == Content::IoTrace {
                Kind::IoTrace
            } else {
                Kind::Ctf
            };
            found.push(part(found.len(), &file.path, kind, packets));
        }
    }
    for file in &trace.unread {
        found.push(part(found.len(), &file.path, Kind::Ctf, Vec::new()));
    }
    Ok(found)
}
