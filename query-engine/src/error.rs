//! Why a query cannot be answered.

use std::path::PathBuf;

use query_language::QueryError;
use trace_kinds::gzip::GzipError;
use trace_kinds::{DecodeError, Recognized};

/// Why a query cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The query is invalid, or invalid for what is read.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// A limit of the window has no unit, and the traces have another one than nanoseconds.
    #[error("{name}: {number} has no unit, and {why}")]
    BareTime {
        /// Which limit.
        name: &'static str,
        /// The limit.
        number: i64,
        /// Its readings, and what to write.
        why: String,
    },
    /// What a split reads is not what it was when the query was split.
    #[error("{place} has changed since the query was split: {why}")]
    SplitOutdated {
        /// The leaf.
        place: String,
        /// What is different.
        why: &'static str,
    },
    /// Bytes cannot be fetched.
    #[error("cannot read {place}")]
    Fetch {
        /// File or address.
        place: String,
        /// The error of the system or the server.
        #[source]
        source: std::io::Error,
    },
    /// A gzip file is damaged, or not the one that was indexed.
    #[error("cannot decompress {place}")]
    Gzip {
        /// File or address.
        place: String,
        /// What is wrong.
        #[source]
        source: GzipError,
    },
    /// A packet cannot be decoded.
    #[error("cannot decode {place}")]
    Decode {
        /// File or address.
        place: String,
        /// What is wrong.
        #[source]
        source: DecodeError,
    },
    /// A frame of a data file is damaged.
    #[error("{place} is damaged")]
    DamagedFrame {
        /// The data file.
        place: String,
        /// What is wrong, and where.
        #[source]
        source: storage_format::FormatError,
    },
    /// A packet of a data file is damaged.
    #[error("{place} is damaged: the packet at byte {offset}: {problem}")]
    DamagedPacket {
        /// The data file.
        place: String,
        /// Offset of its stored bytes.
        offset: u64,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A sidecar is damaged.
    #[error("cannot use index {place}")]
    Sidecar {
        /// The sidecar.
        place: String,
        /// What is wrong with it.
        #[source]
        source: chunk_index::SidecarError,
    },
    /// The window of a checkpoint in a gzip file is damaged.
    #[error("cannot use index {place}")]
    Window {
        /// The sidecar.
        place: String,
        /// What is wrong with it.
        #[source]
        source: chunk_index::DamagedWindow,
    },
    /// The file was truncated after it was opened or indexed.
    #[error(
        "{place} is shorter than when it was opened or indexed; read it again, and index it again if it \
             has an index"
    )]
    Shrunk {
        /// The file.
        place: String,
    },
    /// A folder of a CTF trace cannot be read.
    #[error(transparent)]
    Folder(#[from] ctf_folder::FolderError),
    /// The file is not a trace.
    #[error("{} cannot be queried: {reason}", path.display())]
    UnknownFile {
        /// The file.
        path: PathBuf,
        /// Why it is not recognized.
        reason: String,
    },
    /// The path is not a regular file.
    #[error("{}: this is {what}, not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The file is not a trace that a query reads.
    #[error(
        "{}: {found}{}; queries and indexes read DFTracer files (plain or gzip; queries also \
         zstd), Chrome traces and OpenTelemetry spans (queries also gzip and zstd), RocksDB \
         traces, I/O traces of a server, and folders of CTF traces",
        path.display(),
        found.hint().map(|hint| format!(" ({hint})")).unwrap_or_default()
    )]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: Recognized,
    },
    /// The trace cannot be read from a pipe or compressed with zstd.
    #[error(
        "{}: {found}; of pipes and of files compressed with zstd, queries read DFTracer and Chrome \
         traces and OpenTelemetry spans only: store it in a file, uncompressed",
        path.display()
    )]
    NotAStream {
        /// The path.
        path: PathBuf,
        /// What its text is.
        found: Recognized,
    },
    /// A compressed Chrome trace or file of spans can only be read from its start.
    #[error(
        "{}: a compressed {what} has no index; queries read it completely, or decompress it first",
        path.display()
    )]
    NoIndex {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Columns exist for DFTracer files only.
    #[error("{}: columns are supported for DFTracer files only; index it without", path.display())]
    NoColumns {
        /// The file.
        path: PathBuf,
    },
    /// There are too many groups.
    #[error("there are more than {max} groups by {field}, or they take more than {} MiB; narrow \
             the query, or group by less", crate::GROUP_BYTES_MAX >> 20)]
    TooManyGroups {
        /// The keys.
        field: String,
        /// Groups that a result may have.
        max: usize,
    },
    /// The requested groups are invalid.
    #[error(transparent)]
    GroupSpec(#[from] crate::GroupSpecError),
    /// A strict query would skip something.
    #[error("the result would be incomplete: {reason}")]
    Incomplete {
        /// What cannot be read, and why.
        reason: String,
    },
    /// Groups cannot be written.
    #[error(transparent)]
    Groups(#[from] row_formats::GroupsError),
    /// The query or the indexing was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// Rows cannot be written.
    #[error("cannot write the rows")]
    Output(#[source] std::io::Error),
    /// Buffered rows cannot be spilled.
    #[error("cannot write buffered rows to a temporary file")]
    Spill(#[source] std::io::Error),
}

impl ReadError {
    /// Whether an index is the cause: the query can be answered without it.
    pub(crate) fn is_of_index(&self) -> bool {
        matches!(self, ReadError::Sidecar { .. } | ReadError::Window { .. })
    }

    /// The error and its cause, in one line.
    pub(crate) fn line(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }

    pub(crate) fn fetch(place: impl Into<String>, source: std::io::Error) -> ReadError {
        ReadError::Fetch {
            place: place.into(),
            source,
        }
    }
}
