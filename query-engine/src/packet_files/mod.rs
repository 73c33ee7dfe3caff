//! Files of packets on this machine, with or without a sidecar: stream files of CTF folders, I/O
//! traces of a server, RocksDB traces, Chrome traces and files of OpenTelemetry spans.
//!
//! | step | where |
//! | --- | --- |
//! | what a path is, and opening it for a query | here, [`folder`] |
//! | a file with known ranges of packets, as a source | [`packet_file`] |
//! | a file without an index, as a source | [`whole_file`] |
//! | the packets of RocksDB traces, Chrome traces and spans | [`rocksdb`], [`chrome`], [`otlp`] |
//! | a file in a folder of which nothing can be read | [`unreadable_file`] |
//! | the index of such a file, and whether it is used | [`packet_index`] |

pub(crate) mod chrome;
pub(crate) mod folder;
pub(crate) mod once;
pub(crate) mod otlp;
pub(crate) mod packet_file;
pub(crate) mod packet_index;
pub(crate) mod rocksdb;
pub(crate) mod unreadable_file;
mod whole_file;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use chunk_index::{PacketRange, TraceStamp};
use query_language::FieldPath;
use storage_format::Kind;
use trace_kinds::io_trace::{PREAMBLE_BYTES, packet_bytes};
use trace_kinds::otlp::file::FileForm;
use trace_kinds::{Container, Content, Recognized, StreamContext};

use self::folder::FolderContents;
use self::once::Once;
use self::packet_file::PacketFile;
use self::packet_index::{PacketIndex, unused};
use self::unreadable_file::UnreadableFile;
use crate::dft::{DftFile, DftSet};
use crate::file_content::recognize_file;
use crate::source::ChunkSource;
use crate::spooled::{Spooled, spooled};
use crate::{ReadError, Request};

/// How a path is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputFormat {
    IoTrace,
    /// A RocksDB trace; its kind.
    Rocksdb(Kind),
    /// A Chrome trace, and how it is compressed.
    Chrome(Container),
    /// OpenTelemetry spans, and how the file is compressed.
    Otlp(FileForm, Container),
    /// Lines of a DFTracer trace, plain or gzip.
    DftLines,
}

impl InputFormat {
    pub(crate) fn of(path: &Path) -> Result<InputFormat, ReadError> {
        InputFormat::recognized(path, recognize_file(path)?)
    }

    fn recognized(path: &Path, found: Recognized) -> Result<InputFormat, ReadError> {
        match (found.container, found.content) {
            (container, Content::ChromeTrace) => Ok(InputFormat::Chrome(container)),
            (container, Content::Otlp(form)) => Ok(InputFormat::Otlp(form, container)),
            (Container::Plain, Content::IoTrace) => Ok(InputFormat::IoTrace),
            // A trace without records has no events of either kind.
            (Container::Plain, Content::Rocksdb(_)) => Ok(InputFormat::Rocksdb(
                found.kind().unwrap_or(Kind::RocksdbIo),
            )),
            (Container::Plain | Container::Gzip, Content::DftLines | Content::Empty) => {
                Ok(InputFormat::DftLines)
            }
            _ => Err(ReadError::NotATrace {
                path: path.to_owned(),
                found,
            }),
        }
    }
}

/// What was opened.
pub struct Opened {
    /// What is read.
    pub sources: Vec<Box<dyn ChunkSource>>,
    /// A line for each file that was named again, by whatever name, and is read once.
    pub repeated: Vec<String>,
    /// Folders of derived streams in folders that were named, which are not read.
    pub derived: Vec<PathBuf>,
}

/// The files that are named, or in folders that are.
#[derive(Default)]
struct Inputs {
    files: Vec<PathBuf>,
    /// Those of `files` that are in folders.
    of_folders: BTreeSet<PathBuf>,
    damaged: Vec<PathBuf>,
    unreadable: Vec<UnreadableFile>,
    derived: Vec<PathBuf>,
}

impl Inputs {
    /// Each file once; CTF traces are opened.
    fn of(
        paths: &[PathBuf],
        once: &mut Once,
        use_sidecars: bool,
        sources: &mut Vec<Box<dyn ChunkSource>>,
    ) -> Result<Inputs, ReadError> {
        let mut inputs = Inputs::default();
        for path in paths {
            if !path.is_dir() {
                inputs.files.push(path.clone());
                continue;
            }
            let contents = FolderContents::of(path)?;
            for trace in contents.traces {
                if once.is_first(&trace) {
                    folder::open(&trace, use_sidecars, sources)?;
                }
            }
            inputs.of_folders.extend(contents.files.iter().cloned());
            inputs.files.extend(contents.files);
            inputs.damaged.extend(contents.damaged);
            inputs.unreadable.extend(contents.unreadable);
            inputs.derived.extend(contents.derived);
        }
        inputs.files.retain(|path| once.is_first(path));
        inputs.damaged.retain(|path| once.is_first(path));
        Ok(inputs)
    }
}

/// Opens files and folders of any kind as sources: folders of CTF traces, DFTracer files, Chrome
/// traces, RocksDB traces, I/O traces of a server and files of spans. With `use_sidecars`, the
/// sidecars next to them are used. Each file is opened once.
///
/// # Errors
///
/// When something cannot be read or is not a trace, or the query is invalid for it.
pub fn open_paths(
    paths: &[PathBuf],
    use_sidecars: bool,
    request: &Request,
    fields: &[FieldPath],
) -> Result<Opened, ReadError> {
    let mut sources: Vec<Box<dyn ChunkSource>> = Vec::new();
    let mut lines = Vec::new();
    let mut once = Once::default();
    let Inputs {
        files,
        of_folders,
        damaged,
        mut unreadable,
        mut derived,
    } = Inputs::of(paths, &mut once, use_sidecars, &mut sources)?;
    for path in files {
        let copy = match spooled(&path) {
            // Of a folder, the others are read.
            Err(ReadError::UnknownFile { path, reason }) if of_folders.contains(&path) => {
                unreadable.push(UnreadableFile { path, reason });
                continue;
            }
            copy => copy?,
        };
        if let Some(copy) = copy {
            let found = copy.found;
            match InputFormat::recognized(&path, found)? {
                InputFormat::Chrome(_) => sources.push(chrome::copied(&path, copy)),
                InputFormat::Otlp(form, _) => sources.push(otlp::copied(&path, form, copy)),
                InputFormat::DftLines => {
                    let Spooled { file, fault, .. } = copy;
                    lines.push(DftFile::copied(&path, file, fault)?);
                }
                InputFormat::IoTrace | InputFormat::Rocksdb(_) => {
                    return Err(ReadError::NotAStream { path, found });
                }
            }
            continue;
        }
        match InputFormat::of(&path)? {
            InputFormat::IoTrace => sources.push(Box::new(open_io_trace(&path, use_sidecars)?)),
            InputFormat::Rocksdb(kind) => sources.push(rocksdb::open(&path, kind, use_sidecars)?),
            InputFormat::Chrome(container) => {
                sources.push(chrome::open(&path, container, use_sidecars)?);
            }
            InputFormat::Otlp(form, container) => {
                sources.push(otlp::open(&path, form, container, use_sidecars)?);
            }
            InputFormat::DftLines => lines.push(DftFile::open(&path, use_sidecars)?),
        }
    }
    for path in damaged {
        lines.push(DftFile::open(&path, use_sidecars)?);
    }
    for file in unreadable {
        sources.push(Box::new(file));
    }
    if !lines.is_empty() {
        sources.extend(DftSet::of(lines).sources_for(request, fields)?);
    }
    // Who names such a folder, too, means it.
    derived.retain(|folder| !paths.contains(folder));
    Ok(Opened {
        sources,
        repeated: once.into_repeated(),
        derived,
    })
}

/// A stream file of an I/O trace, without its folder.
fn open_io_trace(path: &Path, use_sidecars: bool) -> Result<PacketFile, ReadError> {
    let index = if use_sidecars {
        PacketIndex::open(path)
    } else {
        Ok(None)
    };
    let is_current = |index: &PacketIndex| {
        (index.facts.kind, index.facts.stamp) == (Kind::IoTrace, WITHOUT_FOLDER)
    };
    let (index, reason) = match index {
        Ok(Some(index)) if is_current(&index) => {
            return PacketFile::indexed(path, StreamContext::default(), index);
        }
        Ok(index) => (index, None),
        Err(reason) => (None, Some(reason)),
    };
    let packets = io_trace_packets(path)?;
    choose(
        path,
        Kind::IoTrace,
        StreamContext::default(),
        packets,
        index,
        reason,
    )
}

/// The stamp of a file that is not part of a folder.
pub(crate) const WITHOUT_FOLDER: TraceStamp = TraceStamp {
    metadata: 0,
    folder: 0,
    file_index: 0,
};

/// The file with its index if the index is of these packets, otherwise without.
fn choose(
    path: &Path,
    kind: Kind,
    context: StreamContext,
    packets: Vec<PacketRange>,
    index: Option<PacketIndex>,
    mut reason: Option<String>,
) -> Result<PacketFile, ReadError> {
    if let Some(index) = index {
        if index.facts.kind == kind && index.packets == packets {
            return PacketFile::indexed(path, context, index);
        }
        reason = Some(unused(
            path,
            "it was made of other packets; index the trace again",
        ));
    }
    PacketFile::plain(path, kind, context, packets, reason)
}

/// The packets of a stream of an I/O trace. Bytes after the last complete packet are one as well: a
/// crash cut it off, and it is decoded up to there.
pub(crate) fn io_trace_packets(path: &Path) -> Result<Vec<PacketRange>, ReadError> {
    let failed = |error| ReadError::fetch(path.display().to_string(), error);
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let (mut packets, mut at) = (Vec::new(), 0);
    while at < length {
        let preamble =
            usize::try_from(length - at).map_or(PREAMBLE_BYTES, |left| left.min(PREAMBLE_BYTES));
        let mut head = vec![0; preamble];
        file.read_exact_at(&mut head, at).map_err(failed)?;
        let end = packet_bytes(&head).and_then(|bytes| at.checked_add(bytes));
        let end = end.map_or(length, |end| end.clamp(at + 1, length));
        packets.push(PacketRange::new(at..end));
        at = end;
    }
    Ok(packets)
}
