//! Folders of traces: which traces a folder contains, and the streams of each.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::class::{StreamClassIndex, TraceClass};
use ctf::{Leniency, MetadataWarning, Procedure, parse_metadata_with};
use storage_format::checksum::{crc32c, crc32c_append};

use super::error::{FolderError, FolderFault, OnFault};
use super::producer::{Defects, end_of_last};
use super::stream::{PacketEntry, StreamFile, TraceStream, sort_and_deduplicate};
use super::text::{TextPlan, TextStyle};
use super::time_window::TimeWindow;

/// Longest metadata that is read.
const METADATA_BYTES_MAX: u64 = 1 << 30;

/// A trace: metadata and streams, from one folder or from several that contain parts of it.
#[derive(Debug)]
pub struct TraceFolder {
    /// The folder of the metadata.
    pub path: PathBuf,
    /// The compiled metadata, and the text that all events have in common.
    pub plan: Arc<TextPlan>,
    /// Entries of the metadata that were skipped.
    pub warnings: Vec<MetadataWarning>,
    /// Streams, sorted by class and id.
    pub streams: Vec<TraceStream>,
    /// Files of which no packet was found, for [`OnFault::Skip`].
    pub unread: Vec<StreamFile>,
    /// Why files were not read, or not completely, for [`OnFault::Skip`].
    pub faults: Vec<FolderError>,
}

/// The contents of a folder before its packets are located.
#[derive(Debug)]
pub struct FolderParts {
    /// The folder of the metadata.
    pub path: PathBuf,
    /// The compiled metadata, and the text that all events have in common.
    pub plan: Arc<TextPlan>,
    /// Entries of the metadata that were skipped.
    pub warnings: Vec<MetadataWarning>,
    /// CRC32C of the metadata.
    pub metadata_checksum: u32,
    /// Files of packets, sorted by path.
    pub files: Vec<StreamFile>,
}

fn sorted_entries(path: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let listed = fs::read_dir(path).and_then(|entries| {
        entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<_>>>()
    });
    let mut entries = listed.map_err(|error| FolderError::io(path, error))?;
    entries.sort();
    Ok(entries)
}

impl TraceFolder {
    /// Opens the trace in `path`: reads its metadata and locates its packets.
    ///
    /// # Errors
    /// When a file cannot be read, the metadata is invalid, or the end of a packet cannot be
    /// determined.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        FolderParts::open(path)?.find_packets()
    }

    /// Opens the trace in `path` with all packets that can be located.
    ///
    /// # Errors
    /// When the folder or its metadata cannot be read, or the metadata is invalid.
    pub fn salvage(path: &Path) -> Result<Self, FolderError> {
        FolderParts::open(path)?.find(OnFault::Skip)
    }

    /// The trace class.
    pub fn class(&self) -> &TraceClass {
        self.plan.procedure().trace_class()
    }

    /// The window in which all streams are active; without limits when a stream has no times.
    pub(super) fn intersection(&self) -> TimeWindow {
        let begins = self
            .streams
            .iter()
            .map(|stream| stream.packets.first()?.begin);
        let ends = self.streams.iter().map(|stream| {
            let last = stream.packets.last()?;
            end_of_last(&self.plan, &stream.files, last)
        });
        TimeWindow {
            from: begins
                .collect::<Option<Vec<_>>>()
                .and_then(|all| all.into_iter().max()),
            to: ends
                .collect::<Option<Vec<_>>>()
                .and_then(|all| all.into_iter().min()?.checked_add(1)),
        }
    }

    /// Whether a stream does not say when it begins and ends: there is no intersection then.
    pub fn lacks_times(&self) -> bool {
        let TimeWindow { from, to } = self.intersection();
        (from.is_none() || to.is_none()) && !self.streams.is_empty()
    }

    /// Whether its streams have no time in common: nothing is in their intersection.
    pub fn is_disjoint(&self) -> bool {
        let TimeWindow { from, to } = self.intersection();
        from.zip(to).is_some_and(|(from, to)| from >= to)
    }

    /// Adds the packets of `other`, a part of the same trace (such as a snapshot or a rotation of
    /// the same recording session), and removes those that are in both.
    ///
    /// Returns `other` when it is not a part of this trace.
    pub fn merge(&mut self, other: Self) -> Option<Self> {
        let is_part = self.class().uuid().is_some() && self.class() == other.class();
        if !is_part {
            return Some(other);
        }
        let defects = Defects::of(self.class());
        self.unread.extend(other.unread);
        self.faults.extend(other.faults);
        for mut stream in other.streams {
            let same = self.streams.iter_mut().find(|candidate| {
                candidate.class == stream.class
                    && candidate.id == stream.id
                    && candidate.id.is_some()
            });
            match same {
                Some(target) => {
                    let files = target.files.len();
                    target.files.append(&mut stream.files);
                    let moved = stream.packets.into_iter();
                    target.packets.extend(moved.map(|p| PacketEntry {
                        file: p.file + files,
                        ..p
                    }));
                    sort_and_deduplicate(&mut target.packets);
                    defects.correct(&self.plan, &target.files, &mut target.packets);
                }
                None => self.streams.push(stream),
            }
        }
        None
    }
}

impl FolderParts {
    /// Reads the metadata of the trace in `path` and lists its files.
    ///
    /// # Errors
    /// When a file cannot be read or the metadata is invalid.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let metadata_path = path.join("metadata");
        let metadata = read_metadata(&metadata_path)?;
        let parsed = parse_metadata_with(&metadata, Leniency::Lenient)
            .map_err(|error| FolderError::new(&metadata_path, FolderFault::Metadata(error)))?;
        let procedure = Procedure::new(parsed.trace)
            .map_err(|error| FolderError::new(&metadata_path, FolderFault::Procedure(error)))?;
        Ok(Self {
            path: path.to_owned(),
            plan: Arc::new(TextPlan::new(procedure)),
            warnings: parsed.warnings,
            metadata_checksum: crc32c(&metadata),
            files: stream_files(path)?,
        })
    }

    /// Prints the events in another style, and as those of the trace with this name.
    #[must_use]
    pub fn with_style(self, style: TextStyle, name: &str) -> Self {
        let procedure = self.plan.procedure().clone();
        Self {
            plan: Arc::new(TextPlan::with_style(procedure, style, name)),
            ..self
        }
    }

    /// Locates the packets that can be located.
    ///
    /// # Errors
    /// Never: faults are in the result.
    pub fn salvage_packets(self) -> Result<TraceFolder, FolderError> {
        self.find(OnFault::Skip)
    }

    /// Locates the packets of all files.
    ///
    /// # Errors
    /// When a file cannot be read, or the end of a packet cannot be determined.
    pub fn find_packets(self) -> Result<TraceFolder, FolderError> {
        self.find(OnFault::Stop)
    }

    fn find(self, on_fault: OnFault) -> Result<TraceFolder, FolderError> {
        let plan = self.plan;
        let mut streams = BTreeMap::new();
        let (mut unread, mut faults) = (Vec::new(), Vec::new());
        for file in self.files {
            let packets = file.packets(&plan, on_fault, &mut faults)?;
            unread.extend(add_file(file, packets, &mut streams));
        }
        let mut streams: Vec<TraceStream> = streams.into_values().collect();
        let defects = Defects::of(plan.procedure().trace_class());
        for stream in &mut streams {
            sort_and_deduplicate(&mut stream.packets);
            defects.correct(&plan, &stream.files, &mut stream.packets);
        }
        Ok(TraceFolder {
            path: self.path,
            plan,
            warnings: self.warnings,
            streams,
            unread,
            faults,
        })
    }

    /// A checksum of what determines, in addition to the contents of the files, which packets are
    /// read from which file: names and lengths of the files, and their packet indexes.
    pub fn checksum(&self) -> u32 {
        let mut checksum = 0;
        for file in &self.files {
            let name = file.path.file_name().unwrap_or_default();
            checksum = crc32c_append(checksum, name.as_encoded_bytes());
            checksum = crc32c_append(checksum, &[0]);
            checksum = crc32c_append(checksum, &file.length.to_le_bytes());
            let index = file.index_path().and_then(|path| fs::read(path).ok());
            let index = index.map_or(0, |bytes| crc32c(&bytes));
            checksum = crc32c_append(checksum, &index.to_le_bytes());
        }
        checksum
    }
}

fn read_metadata(path: &Path) -> Result<Vec<u8>, FolderError> {
    let length = fs::metadata(path)
        .map_err(|error| FolderError::io(path, error))?
        .len();
    if length > METADATA_BYTES_MAX {
        let fault = FolderFault::MetadataTooLong {
            length,
            limit: METADATA_BYTES_MAX,
        };
        return Err(FolderError::new(path, fault));
    }
    fs::read(path).map_err(|error| FolderError::io(path, error))
}

/// Files of packets in a folder: all files except hidden ones, the metadata, and empty ones.
fn stream_files(path: &Path) -> Result<Vec<StreamFile>, FolderError> {
    let mut files = Vec::new();
    for entry in sorted_entries(path)? {
        let name = entry.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || name == "metadata" {
            continue;
        }
        let status = fs::metadata(&entry).map_err(|error| FolderError::io(&entry, error))?;
        if status.is_file() && status.len() > 0 {
            files.push(StreamFile {
                path: entry,
                length: status.len(),
            });
        }
    }
    Ok(files)
}

/// Streams by class, id, and file; the file is empty when packets contain the id of their stream.
type Streams = BTreeMap<(Option<StreamClassIndex>, Option<u64>, PathBuf), TraceStream>;

/// Adds a file to its stream; returns a file without packets.
fn add_file(
    file: StreamFile,
    packets: Vec<PacketEntry>,
    streams: &mut Streams,
) -> Option<StreamFile> {
    let Some(first) = packets.first() else {
        return Some(file);
    };
    let (class, id) = (first.preamble.class, first.preamble.stream);
    let path = if id.is_some() {
        PathBuf::new()
    } else {
        file.path.clone()
    };
    let stream = streams
        .entry((class, id, path))
        .or_insert_with(|| TraceStream {
            class,
            id,
            files: Vec::new(),
            packets: Vec::new(),
        });
    let index = stream.files.len();
    stream.files.push(file);
    stream.packets.extend(
        packets
            .into_iter()
            .map(|p| PacketEntry { file: index, ..p }),
    );
    None
}
