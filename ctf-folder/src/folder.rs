//! Traces in folders: which there are, and what their streams hold.

use super::error::{FolderError, FolderFault};
use super::index::read_index;
use super::preamble::{PacketFacts, packet_facts};
use super::producer::Faults;
use super::text::{Clock, TextPlan};
use ctf::class::{StreamClassIndex, TraceClass};
use ctf::{Leniency, MetadataWarning, Procedure, parse_metadata_with};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage_format::checksum::{crc32c, crc32c_append};

/// Bytes read to learn what a packet says about itself; more when that was not enough.
const HEAD_BYTES: usize = 4096;
/// How deep folders are searched.
const FOLDER_DEPTH_MAX: usize = 32;
/// Longest metadata that is read.
const METADATA_BYTES_MAX: u64 = 1 << 30;

/// A file of packets of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its length in bytes.
    pub length: u64,
}

/// A packet of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketEntry {
    /// Index of its file in [`TraceStream::files`].
    pub file: usize,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Length in bytes, padding included; up to the end of the file when the packet does not say.
    pub length: u64,
    /// What it says about itself.
    pub facts: PacketFacts,
    /// Nanoseconds at its beginning and its end, where they are known. Where the producer is known
    /// to say wrong things about them they are mended.
    pub begin: Option<i64>,
    /// See [`Self::begin`].
    pub end: Option<i64>,
}

/// A stream: packets in the order of their times.
#[derive(Clone, Debug)]
pub struct TraceStream {
    /// Its class.
    pub class: Option<StreamClassIndex>,
    /// Its id in the class.
    pub id: Option<u64>,
    /// Files, by path.
    pub files: Vec<StreamFile>,
    /// Packets.
    pub packets: Vec<PacketEntry>,
}

/// A trace: metadata and streams, from one folder or from several that hold parts of it.
#[derive(Debug)]
pub struct TraceFolder {
    /// The folder of the metadata.
    pub path: PathBuf,
    /// What is needed for its text.
    pub plan: Arc<TextPlan>,
    /// What was skipped in the metadata.
    pub warnings: Vec<MetadataWarning>,
    /// Streams, by class and id.
    pub streams: Vec<TraceStream>,
}

/// What a folder holds before its packets are looked for.
#[derive(Debug)]
pub struct FolderParts {
    /// The folder of the metadata.
    pub path: PathBuf,
    /// What is needed for its text.
    pub plan: Arc<TextPlan>,
    /// What was skipped in the metadata.
    pub warnings: Vec<MetadataWarning>,
    /// CRC32C of the metadata.
    pub metadata_checksum: u32,
    /// Files of packets, by path.
    pub files: Vec<StreamFile>,
}

/// Folders with metadata at and below `path`, sorted. A folder with metadata holds no others.
///
/// # Errors
/// When a folder cannot be read.
pub fn find_traces(path: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let mut found = Vec::new();
    search(path, 0, &mut found)?;
    Ok(found)
}

fn search(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), FolderError> {
    if path.join("metadata").is_file() {
        found.push(path.to_owned());
        return Ok(());
    }
    if depth == FOLDER_DEPTH_MAX || !path.is_dir() {
        return Ok(());
    }
    for entry in sorted_entries(path)? {
        if entry.is_dir() {
            search(&entry, depth + 1, found)?;
        }
    }
    Ok(())
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
    /// Opens the trace in `path`: reads its metadata and finds its packets.
    ///
    /// # Errors
    /// When a file cannot be read, the metadata is wrong, or a packet cannot be told from the next.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        FolderParts::open(path)?.find_packets()
    }

    /// The trace class.
    pub fn class(&self) -> &TraceClass {
        self.plan.procedure().trace_class()
    }

    /// Takes the packets of `other`, a part of the same trace (as the snapshots and the rotations
    /// of a recording session are), and drops those that are in both.
    ///
    /// Gives `other` back when it is not a part of this trace.
    pub fn merge(&mut self, other: Self) -> Option<Self> {
        let is_part = self.class().uuid().is_some() && self.class() == other.class();
        if !is_part {
            return Some(other);
        }
        let faults = Faults::of(self.class());
        for mut stream in other.streams {
            let same = self
                .streams
                .iter_mut()
                .find(|own| own.class == stream.class && own.id == stream.id && own.id.is_some());
            match same {
                Some(own) => {
                    let files = own.files.len();
                    own.files.append(&mut stream.files);
                    let moved = stream.packets.into_iter();
                    own.packets.extend(moved.map(|p| PacketEntry {
                        file: p.file + files,
                        ..p
                    }));
                    arrange(&mut own.packets);
                    faults.mend(&self.plan, &own.files, &mut own.packets);
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
    /// When a file cannot be read or the metadata is wrong.
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

    /// Finds the packets of all files.
    ///
    /// # Errors
    /// When a file cannot be read, or a packet cannot be told from the next.
    pub fn find_packets(self) -> Result<TraceFolder, FolderError> {
        let plan = self.plan;
        let mut streams = BTreeMap::new();
        for file in self.files {
            add_file(&plan, file, &mut streams)?;
        }
        let mut streams: Vec<TraceStream> = streams.into_values().collect();
        let faults = Faults::of(plan.procedure().trace_class());
        for stream in &mut streams {
            arrange(&mut stream.packets);
            faults.mend(&plan, &stream.files, &mut stream.packets);
        }
        Ok(TraceFolder {
            path: self.path,
            plan,
            warnings: self.warnings,
            streams,
        })
    }

    /// A checksum of all that tells which packets are read of which file, besides what the files
    /// hold: their names and lengths, and the indexes beside them.
    pub fn checksum(&self) -> u32 {
        let mut checksum = 0;
        for file in &self.files {
            let name = file.path.file_name().unwrap_or_default();
            checksum = crc32c_append(checksum, name.as_encoded_bytes());
            checksum = crc32c_append(checksum, &[0]);
            checksum = crc32c_append(checksum, &file.length.to_le_bytes());
            let index = index_path(file).and_then(|path| fs::read(path).ok());
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
        return Err(FolderError::new(
            path,
            FolderFault::MetadataTooLong { length },
        ));
    }
    fs::read(path).map_err(|error| FolderError::io(path, error))
}

/// Files of packets in a folder: all but hidden ones, the metadata and empty ones.
fn stream_files(path: &Path) -> Result<Vec<StreamFile>, FolderError> {
    let mut files = Vec::new();
    for entry in sorted_entries(path)? {
        let name = entry.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || name == "metadata" {
            continue;
        }
        let facts = fs::metadata(&entry).map_err(|error| FolderError::io(&entry, error))?;
        if facts.is_file() && facts.len() > 0 {
            files.push(StreamFile {
                path: entry,
                length: facts.len(),
            });
        }
    }
    Ok(files)
}

/// Streams by class, id, and the file when packets do not say which stream they belong to.
type Streams = BTreeMap<(Option<StreamClassIndex>, Option<u64>, PathBuf), TraceStream>;

fn add_file(plan: &TextPlan, file: StreamFile, streams: &mut Streams) -> Result<(), FolderError> {
    let packets = packets_of(plan, &file)?;
    let Some(first) = packets.first() else {
        return Ok(());
    };
    let (class, id) = (first.facts.class, first.facts.stream);
    let own = if id.is_some() {
        PathBuf::new()
    } else {
        file.path.clone()
    };
    let stream = streams
        .entry((class, id, own))
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
    Ok(())
}

/// The packets of a file, from its index when there is a good one, else from their own words.
fn packets_of(plan: &TextPlan, file: &StreamFile) -> Result<Vec<PacketEntry>, FolderError> {
    let source = File::open(&file.path).map_err(|error| FolderError::io(&file.path, error))?;
    let first = entry_at(plan, file, &source, 0)?;
    if let Some(entries) = indexed(file) {
        let clock = plan.clock(first.facts.class);
        return Ok(entries
            .into_iter()
            .map(|entry| from_index(&first, entry, clock))
            .collect());
    }
    let mut packets = vec![first];
    let mut offset = first.length;
    while offset < file.length {
        let entry = entry_at(plan, file, &source, offset)?;
        offset += entry.length;
        packets.push(entry);
    }
    Ok(packets)
}

fn index_path(file: &StreamFile) -> Option<PathBuf> {
    let name = file.path.file_name()?.to_str()?;
    Some(
        file.path
            .parent()?
            .join("index")
            .join(format!("{name}.idx")),
    )
}

fn indexed(file: &StreamFile) -> Option<Vec<super::index::IndexEntry>> {
    read_index(&fs::read(index_path(file)?).ok()?, file.length)
}

fn from_index(
    first: &PacketEntry,
    entry: super::index::IndexEntry,
    clock: Option<Clock>,
) -> PacketEntry {
    let mut facts = first.facts;
    facts.begin_clock = Some(entry.begin_clock);
    facts.info.total_length = Some(entry.total_length);
    facts.info.content_length = Some(entry.content_length);
    facts.info.end_clock = Some(entry.end_clock);
    facts.info.sequence = entry.sequence.filter(|_| facts.info.sequence.is_some());
    let counts = facts.info.discarded_events.is_some();
    facts.info.discarded_events = Some(entry.discarded_events).filter(|_| counts);
    let (begin, end) = times(&facts, clock);
    let length = entry.total_length / 8;
    PacketEntry {
        file: 0,
        offset: entry.offset,
        length,
        facts,
        begin,
        end,
    }
}

fn times(facts: &PacketFacts, clock: Option<Clock>) -> (Option<i64>, Option<i64>) {
    let nanoseconds = |cycles: Option<u64>| Some(clock?.nanoseconds(cycles?));
    (
        nanoseconds(facts.begin_clock),
        nanoseconds(facts.info.end_clock),
    )
}

/// Reads what the packet at `offset` says about itself.
fn entry_at(
    plan: &TextPlan,
    file: &StreamFile,
    source: &File,
    offset: u64,
) -> Result<PacketEntry, FolderError> {
    let rest = file.length - offset;
    let mut wanted = HEAD_BYTES as u64;
    let facts = loop {
        let mut head = vec![0; usize::try_from(wanted.min(rest)).unwrap_or(usize::MAX)];
        source
            .read_exact_at(&mut head, offset)
            .map_err(|error| FolderError::io(&file.path, error))?;
        match packet_facts(plan.procedure(), &head) {
            Ok(facts) => break facts,
            Err(error) if wanted >= rest => {
                return Err(FolderError::decode(&file.path, offset, error));
            }
            Err(_) => wanted *= 16,
        }
    };
    let said = facts.info.total_length.map(|bits| bits / 8);
    let length = match said {
        Some(length) if length == 0 || length > rest => {
            return Err(FolderError::new(
                &file.path,
                FolderFault::PacketLength {
                    offset,
                    length,
                    rest,
                },
            ));
        }
        Some(length) => length,
        None => rest,
    };
    let (begin, end) = times(&facts, plan.clock(facts.class));
    Ok(PacketEntry {
        file: 0,
        offset,
        length,
        facts,
        begin,
        end,
    })
}

/// Sorts packets by time and drops copies of a packet, which overlapping snapshots have.
fn arrange(packets: &mut Vec<PacketEntry>) {
    packets.sort_by_key(|packet| packet.begin);
    let mut kept: Vec<PacketEntry> = Vec::with_capacity(packets.len());
    for packet in packets.drain(..) {
        let same_time = kept
            .iter()
            .rev()
            .take_while(|other| other.begin == packet.begin);
        let is_copy = |other: &PacketEntry| {
            other.file != packet.file
                && packet.begin.is_some()
                && other.facts == packet.facts
                && other.length == packet.length
        };
        if !same_time.into_iter().any(is_copy) {
            kept.push(packet);
        }
    }
    *packets = kept;
}
