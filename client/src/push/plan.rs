use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use storage_format::limits::AGENT_METADATA_BYTES_MAX;
use storage_format::{AgentId, Kind, StreamId, is_reserved};
use trace_kinds::otlp::file::FileForm;
use trace_kinds::{Container, Content};

use super::found::{CTF_METADATA, Found, FoundFile, file_word};
use super::naming::{host_name, id_text};
use crate::ClientError;
use crate::cutter::{
    ChromeCutter, CtfCutter, Cutter, GzipCutter, LineCutter, OtlpCutter, RawCutter, RocksdbCutter,
};
use crate::file_content::{recognize_file, recognize_found, refusal};

/// How a file is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutMethod {
    /// Fixed-size pieces.
    Raw,
    /// Lines of text.
    Lines,
    /// Gzip members of lines.
    Gzip,
    /// The lines of a file compressed with zstd.
    ZstdLines,
    /// Records of a RocksDB trace.
    Rocksdb,
    /// Packets of a CTF data stream file.
    Ctf,
    /// Events of a Chrome trace in this container.
    Chrome(Container),
    /// Requests with spans, in this form and container.
    Otlp(FileForm, Container),
}

/// A file to push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// The file.
    pub path: PathBuf,
    /// Agent that it belongs to.
    pub agent: AgentId,
    /// Stream that it is pushed as.
    pub stream: StreamId,
    /// Kind of its packets.
    pub kind: Kind,
    /// How it is cut.
    pub method: CutMethod,
    /// Its length in bytes when the plan was made.
    pub length: u64,
}

/// An agent to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedAgent {
    /// Its id.
    pub id: AgentId,
    /// File with its trace metadata.
    pub metadata: Option<PathBuf>,
}

/// Which files are pushed as which streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The agents, without duplicates.
    pub agents: Vec<PlannedAgent>,
    /// The files, sorted by name.
    pub sources: Vec<SourceFile>,
    /// Where they were found.
    pub folders: Folders,
    /// Number of indexes in folders that are not pushed, because the server makes its own.
    pub indexes_skipped: u64,
    /// Folders in folders that are not pushed, because their streams repeat events of others that
    /// were exported with them.
    pub derived_skipped: Vec<PathBuf>,
}

/// The paths of a plan, and its options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folders {
    pub(super) paths: Vec<PathBuf>,
    pub(super) options: PlanOptions,
}

/// Overrides of what is derived from the files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// Name of the agent; `None` for the name of the host.
    pub agent: Option<String>,
    /// Name of the stream, if there is only one file.
    pub stream: Option<String>,
    /// Kind of all files.
    pub kind: Option<Kind>,
    /// The files grow: a trace may have no stream yet.
    pub follow: bool,
}

impl Folders {
    /// The agent of a trace that is not the only one.
    pub(super) fn agent_beside_others(&self, word: &str) -> Result<AgentId, ClientError> {
        let agent = self.options.agent.clone().unwrap_or_else(host_name);
        agent_id(&id_text(&format!("{agent}-{word}")), &self.options)
    }
}

impl CutMethod {
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Raw => 0,
            Self::Lines => 1,
            Self::Gzip => 2,
            Self::Rocksdb => 3,
            Self::Ctf => 4,
            Self::Chrome(_) => 5,
            Self::Otlp(..) => 6,
            Self::ZstdLines => 7,
        }
    }

    /// Whether only the text of a compressed file is stored.
    pub fn stores_text(self) -> bool {
        matches!(
            self,
            Self::ZstdLines
                | Self::Chrome(Container::Zstd)
                | Self::Otlp(_, Container::Gzip | Container::Zstd)
        )
    }

    /// Whether a growing file can be followed: cutting can start at any packet boundary.
    pub fn can_follow(self) -> bool {
        matches!(self, Self::Raw | Self::Lines | Self::Rocksdb | Self::Ctf)
    }
}

impl SourceFile {
    /// A cutter of the file while it grows.
    pub fn following_cutter(
        &self,
        offset: u64,
        packet_bytes: usize,
    ) -> Result<Box<dyn Cutter>, ClientError> {
        match self.method {
            CutMethod::Ctf => Ok(Box::new(CtfCutter::follow(&self.path, offset)?)),
            _ => self.cutter(offset, packet_bytes),
        }
    }

    /// A cutter of a data stream file of a CTF trace, of which the server has the first `offset`
    /// bytes.
    pub(super) fn resuming_cutter(&self, offset: u64) -> Result<Box<dyn Cutter>, ClientError> {
        Ok(Box::new(CtfCutter::resume(&self.path, offset)?))
    }

    /// A cutter of the file, starting at `offset` if the method [can
    /// follow](CutMethod::can_follow) and is not of a CTF trace.
    pub fn cutter(&self, offset: u64, packet_bytes: usize) -> Result<Box<dyn Cutter>, ClientError> {
        let path = &self.path;
        Ok(match self.method {
            CutMethod::Raw => Box::new(RawCutter::open(path, offset, packet_bytes)?),
            CutMethod::Lines => Box::new(LineCutter::open(path, offset, packet_bytes)?),
            CutMethod::Gzip => Box::new(GzipCutter::open(path, packet_bytes)?),
            CutMethod::ZstdLines => {
                Box::new(LineCutter::compressed(path, Container::Zstd, packet_bytes)?)
            }
            CutMethod::Rocksdb => Box::new(RocksdbCutter::open(path, offset, packet_bytes)?),
            CutMethod::Ctf => Box::new(CtfCutter::open(path)?),
            CutMethod::Chrome(container) => {
                Box::new(ChromeCutter::open(path, container, packet_bytes)?)
            }
            CutMethod::Otlp(form, container) => Box::new(OtlpCutter::open(path, form, container)?),
        })
    }
}

impl Plan {
    /// Plans the push of files and folders.
    ///
    /// A folder with a file `metadata` is a CTF trace: an agent with that metadata, whose other
    /// files are streams. Other folders are searched recursively. In folders, indexes beside the
    /// files that they belong to are skipped. A file is a stream of the agent
    /// of this host, of the kind that its content is recognized as.
    pub fn of(paths: &[PathBuf], options: &PlanOptions) -> Result<Self, ClientError> {
        let found = Found::under(paths)?;
        found.into_plan(paths, options)
    }
}

impl Found {
    fn into_plan(self, paths: &[PathBuf], options: &PlanOptions) -> Result<Plan, ClientError> {
        let agent_text = options.agent.clone().unwrap_or_else(host_name);
        let mut plan = Plan {
            folders: Folders {
                paths: paths.to_vec(),
                options: options.clone(),
            },
            indexes_skipped: self.indexes_skipped,
            derived_skipped: self.derived_skipped,
            ..Plan::default()
        };
        if !self.files.is_empty() {
            let agent = agent_id(&agent_text, options)?;
            plan.agents.push(PlannedAgent {
                id: agent.clone(),
                metadata: None,
            });
            for file in self.files {
                let (kind, method) = kind_of(&file, options.kind)?;
                plan.add(&agent, file.path, &file.word, kind, method)?;
            }
        }
        let alone = self.traces.len() == 1 && plan.agents.is_empty();
        for trace in self.traces {
            if options.kind.is_some_and(|kind| kind != Kind::Ctf) {
                let what = format!(
                    "{} is a CTF trace; push it without --kind",
                    trace.folder.display()
                );
                return Err(ClientError::input(what));
            }
            let agent = if alone && options.agent.is_some() {
                agent_id(&agent_text, options)?
            } else {
                plan.folders.agent_beside_others(&trace.word)?
            };
            plan.agents.push(PlannedAgent {
                id: agent.clone(),
                metadata: Some(trace.folder.join(CTF_METADATA)),
            });
            for path in trace.files {
                let word = file_word(&path);
                plan.add(&agent, path, &word, Kind::Ctf, CutMethod::Ctf)?;
            }
        }
        plan.check(paths, options)
    }
}

impl Plan {
    /// Adds a file.
    pub(super) fn add(
        &mut self,
        agent: &AgentId,
        path: PathBuf,
        word: &str,
        kind: Kind,
        method: CutMethod,
    ) -> Result<(), ClientError> {
        let metadata = fs::metadata(&path).map_err(|error| ClientError::file(&path, error))?;
        let mut id = id_text(word);
        if is_reserved(kind, &id) {
            // Under that name, queries would omit it as a repeat of another stream.
            id = id_text(&format!("{word}.{kind}"));
        }
        let stream = id.parse().map_err(|error| id_error(&error))?;
        self.sources.push(SourceFile {
            path,
            agent: agent.clone(),
            stream,
            kind,
            method,
            length: metadata.len(),
        });
        Ok(())
    }

    /// Applies `--stream`, and refuses two files with the same stream.
    fn check(mut self, paths: &[PathBuf], options: &PlanOptions) -> Result<Self, ClientError> {
        if let Some(stream) = &options.stream {
            let [source] = self.sources.as_mut_slice() else {
                let what = format!(
                    "--stream requires a single file, found {}",
                    self.sources.len()
                );
                return Err(ClientError::input(what));
            };
            source.stream = stream.parse().map_err(|error| id_error(&error))?;
        }
        let has_trace = self.agents.iter().any(|agent| agent.metadata.is_some());
        if self.sources.is_empty() && !(options.follow && has_trace) {
            let paths: Vec<_> = paths
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            let what = format!("no file to push in {}", paths.join(", "));
            return Err(ClientError::input(what));
        }
        for source in &self.sources {
            // Reports and the provenance of packets are JSON.
            if source.path.to_str().is_none() {
                return Err(ClientError::input(format!(
                    "{}: the name of the file is not UTF-8; rename it, or push a link to it",
                    source.path.display()
                )));
            }
        }
        let mut seen: BTreeMap<_, &Path> = BTreeMap::new();
        for source in &self.sources {
            if let Some(other) = seen.insert((&source.agent, &source.stream), &source.path) {
                return Err(ClientError::input(format!(
                    "{} and {} would both be stream {} of agent {}; push each by itself with \
                    --stream NAME, or, if only their folders differ, the folder that contains both",
                    other.display(),
                    source.path.display(),
                    source.stream,
                    source.agent
                )));
            }
        }
        Ok(self)
    }
}

fn agent_id(text: &str, options: &PlanOptions) -> Result<AgentId, ClientError> {
    // A given name must be valid; the host name is converted to a valid id.
    let text = match &options.agent {
        Some(_) => text.to_owned(),
        None => id_text(text),
    };
    text.parse().map_err(|error| id_error(&error))
}

fn id_error(error: &storage_format::IdError) -> ClientError {
    ClientError::input(error.to_string())
}

/// The kind of a file, recognized by its content unless it is given, and how the file is cut.
fn kind_of(file: &FoundFile, given: Option<Kind>) -> Result<(Kind, CutMethod), ClientError> {
    let path = file.path.as_path();
    let found = if file.is_given || given.is_some() {
        recognize_file(path)?
    } else {
        recognize_found(path)?
    };
    let recognized = match found.kind() {
        Some(
            kind @ (Kind::Dft
            | Kind::Chrome
            | Kind::Otlp
            | Kind::RocksdbIo
            | Kind::RocksdbBlockCache),
        ) => kind,
        _ if is_empty_dft(path) => Kind::Dft,
        // Packets of CTF and of I/O traces need the metadata in their folder.
        _ => Kind::Raw,
    };
    let kind = given.unwrap_or(recognized);
    let method = match kind {
        Kind::Dft => match found.container {
            Container::Plain => CutMethod::Lines,
            Container::Gzip => CutMethod::Gzip,
            Container::Zstd => CutMethod::ZstdLines,
        },
        Kind::RocksdbIo | Kind::RocksdbBlockCache if recognized == kind => CutMethod::Rocksdb,
        Kind::Chrome if recognized == kind => CutMethod::Chrome(found.container),
        Kind::Otlp if let Content::Otlp(form) = found.content => {
            CutMethod::Otlp(form, found.container)
        }
        Kind::Chrome | Kind::Otlp | Kind::RocksdbIo | Kind::RocksdbBlockCache => {
            let reason = refusal(&found, &format!("a trace of kind {kind}"));
            return Err(ClientError::input(format!("{}: {reason}", path.display())));
        }
        Kind::Ctf => CutMethod::Ctf,
        Kind::Raw => CutMethod::Raw,
        Kind::IoTrace => {
            let what = format!("files cannot be pushed as kind {kind}");
            return Err(ClientError::input(what));
        }
    };
    Ok((kind, method))
}

/// Whether this is a DFTracer file without content, which `--follow` may fill.
fn is_empty_dft(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_dft = name.ends_with(".pfw") || name.ends_with(".pfw.gz");
    is_dft && fs::metadata(path).is_ok_and(|metadata| metadata.len() == 0)
}

/// Reads trace metadata, up to its maximum size.
pub(super) fn read_metadata(path: &Path) -> Result<Vec<u8>, ClientError> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| ClientError::file(path, error))?;
    file.take(AGENT_METADATA_BYTES_MAX as u64 + 1)
        .read_to_end(&mut text)
        .map_err(|error| ClientError::file(path, error))?;
    if text.len() > AGENT_METADATA_BYTES_MAX {
        let what = format!("longer than the maximum of {AGENT_METADATA_BYTES_MAX} bytes");
        return Err(ClientError::damaged(path.display().to_string(), what));
    }
    Ok(text)
}
