//! What the engine refuses, and what goes wrong under it.

use std::{io, path::PathBuf};

use storage_format::{
    AgentId, FormatError, Kind, OutOfOrder, StorageId, StreamId, storage_file::StorageState,
};

/// A refusal or a failure. A request that gets one changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// No storage has this id.
    #[error("there is no storage {0}")]
    StorageNotFound(StorageId),
    /// No agent has this id.
    #[error("there is no agent `{0}`")]
    AgentNotFound(AgentId),
    /// The agent has no stream of this id.
    #[error("agent `{agent}` has no stream `{stream}`")]
    StreamNotFound {
        /// The agent.
        agent: AgentId,
        /// The stream.
        stream: StreamId,
    },
    /// The storage has no packet of this number.
    #[error("storage {storage} has no packet {number}")]
    PacketNotFound {
        /// The storage.
        storage: StorageId,
        /// The number asked for.
        number: u64,
    },
    /// The storage has no file of this name.
    #[error("storage {storage} has no file `{name}`")]
    FileNotFound {
        /// The storage.
        storage: StorageId,
        /// The name asked for, shortened.
        name: String,
    },
    /// The state of the storage does not allow this.
    #[error("storage {storage} is {state}, {action} needs {needed}")]
    WrongState {
        /// The storage.
        storage: StorageId,
        /// Its state.
        state: StorageState,
        /// What was asked for.
        action: &'static str,
        /// The states that allow it.
        needed: &'static str,
    },
    /// A stream was declared with another kind before.
    #[error("stream `{stream}` of agent `{agent}` is of kind `{declared}`, not `{wanted}`")]
    StreamKindConflict {
        /// The agent.
        agent: AgentId,
        /// The stream.
        stream: StreamId,
        /// The kind it has.
        declared: Kind,
        /// The kind asked for.
        wanted: Kind,
    },
    /// A storage from elsewhere has an agent of a name that is known here, with other trace
    /// metadata.
    #[error("agent `{0}` has other trace metadata here than in the storage")]
    AgentMetadataConflict(AgentId),
    /// The producer left out a sequence.
    #[error("sequence {found} of epoch {epoch} leaves a gap, {expected} is expected")]
    SequenceGap {
        /// The epoch.
        epoch: u64,
        /// The sequence that comes next.
        expected: u64,
        /// The sequence that came.
        found: u64,
    },
    /// The producer has begun a newer epoch already.
    #[error("epoch {found} is older than the current epoch {current}")]
    EpochStale {
        /// The newest epoch of the stream.
        current: u64,
        /// The epoch that came.
        found: u64,
    },
    /// The packet was not kept when it came, or never came, and later ones of its stream are there.
    #[error(
        "sequence {sequence} of epoch {epoch} was left out, and what came behind it is there; \
         {expected} is expected"
    )]
    PacketLeftOut {
        /// The epoch.
        epoch: u64,
        /// The sequence that came.
        sequence: u64,
        /// The sequence that comes next.
        expected: u64,
    },
    /// A packet without bytes.
    #[error("a packet has at least one byte")]
    PacketEmpty,
    /// A packet that is too long.
    #[error("the packet has {size} bytes, the limit is {max}")]
    PacketTooLarge {
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// A value of a request that cannot be kept.
    #[error("{what} {problem}")]
    Invalid {
        /// The value.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A bound of the server is reached that only deleting something lowers.
    #[error("the server has {max} {what} already, its limit")]
    LimitReached {
        /// What there are too many of.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// Too many bytes are under way.
    #[error("{max} bytes are on their way to the disk already, the limit of the server")]
    Busy {
        /// The limit in bytes.
        max: u64,
    },
    /// Free space is below the limit of the server.
    #[error("{free_bytes} bytes are free on the disk, ingest stops below {limit_bytes}")]
    DiskLow {
        /// Free bytes.
        free_bytes: u64,
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// A write found no space.
    #[error("no space is left for {path}")]
    DiskFull {
        /// What was to be written.
        path: PathBuf,
    },
    /// A packet before this one in its stream was refused.
    #[error("an earlier packet of the same stream was refused, so this one was not written")]
    EarlierRefused,
    /// The disk failed; the storage is read-only.
    #[error("storage {storage} is read-only: {reason}")]
    Failed {
        /// The storage.
        storage: StorageId,
        /// What failed.
        reason: String,
    },
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// Bytes on disk are damaged.
    #[error("{path}: {source}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where and how.
        source: FormatError,
    },
    /// A packet on disk whose stored bytes cannot be expanded to what was sent.
    #[error("{path}: packet at byte {offset}: {problem}")]
    DamagedPacket {
        /// The file.
        path: PathBuf,
        /// Offset of the stored payload.
        offset: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// A storage of this id is there already.
    #[error("there is a storage {0} already")]
    StorageExists(StorageId),
    /// An archive whose bytes are not those of a whole ZIP archive.
    #[error("the archive is damaged at byte {offset}: {problem}")]
    ArchiveDamaged {
        /// Offset in the archive.
        offset: u64,
        /// What is wrong there.
        problem: String,
    },
    /// An archive that is whole, but holds what is not taken.
    #[error("the archive is not taken: {entry:?} {problem}")]
    ArchiveRefused {
        /// The entry; empty when it is about all of it.
        entry: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An archive that did not come to its end.
    #[error("the archive broke off at byte {offset}: {source}")]
    ArchiveBroken {
        /// Offset in the archive.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// No storage has this label, or no type or value of this name is known.
    #[error("there is no label `{0}`")]
    LabelNotFound(String),
    /// A type of labels that is as it is.
    #[error("the label type `{0}` is predefined")]
    LabelTypeFixed(String),
    /// A label that storages have.
    #[error("{storages} storages have the label `{name}`")]
    LabelInUse {
        /// Name of the type.
        name: String,
        /// Storages that have it.
        storages: u64,
    },
    /// Somebody told long work to stop.
    #[error("the work was cancelled")]
    Cancelled,
    /// Another process uses the data folder.
    #[error("{path} is in use by another server")]
    DataDirInUse {
        /// The data folder.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{operation} {path}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl From<OutOfOrder> for StorageError {
    fn from(error: OutOfOrder) -> Self {
        match error {
            OutOfOrder::Gap {
                epoch,
                expected,
                found,
            } => Self::SequenceGap {
                epoch,
                expected,
                found,
            },
            OutOfOrder::StaleEpoch { current, found } => Self::EpochStale { current, found },
        }
    }
}

impl StorageError {
    /// The stable word for this error in the API.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::StorageNotFound(_) => "storage_not_found",
            Self::AgentNotFound(_) => "agent_not_found",
            Self::StreamNotFound { .. } => "stream_not_found",
            Self::PacketNotFound { .. } => "packet_not_found",
            Self::FileNotFound { .. } => "file_not_found",
            Self::WrongState {
                state: StorageState::Created,
                ..
            } => "storage_not_open",
            Self::WrongState { .. } => "storage_state_conflict",
            Self::StreamKindConflict { .. } => "stream_kind_conflict",
            Self::AgentMetadataConflict(_) => "agent_metadata_conflict",
            Self::SequenceGap { .. } => "sequence_gap",
            Self::EpochStale { .. } => "epoch_stale",
            Self::PacketLeftOut { .. } => "packet_left_out",
            Self::PacketEmpty => "packet_empty",
            Self::PacketTooLarge { .. } => "packet_too_large",
            Self::Invalid { .. } => "invalid_value",
            Self::LimitReached { .. } => "limit_reached",
            Self::Busy { .. } => "busy",
            Self::DiskLow { .. } => "disk_low",
            Self::DiskFull { .. } => "disk_full",
            Self::EarlierRefused => "earlier_packet_refused",
            Self::Failed { .. } => "storage_failed",
            Self::Stopping => "stopping",
            Self::Damaged { .. } | Self::DamagedPacket { .. } => "damaged",
            Self::StorageExists(_) => "storage_exists",
            Self::ArchiveDamaged { .. } => "archive_damaged",
            Self::ArchiveRefused { .. } => "archive_refused",
            Self::ArchiveBroken { .. } => "archive_broken",
            Self::LabelNotFound(_) => "label_not_found",
            Self::LabelTypeFixed(_) => "label_type_fixed",
            Self::LabelInUse { .. } => "label_in_use",
            Self::Cancelled => "job_cancelled",
            Self::DataDirInUse { .. } => "data_dir_in_use",
            Self::Io { .. } => "io_error",
        }
    }

    pub(crate) fn io(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| {
            let full = rustix::io::Errno::NOSPC.raw_os_error();
            match source.raw_os_error() {
                Some(errno) if errno == full => Self::DiskFull { path },
                _ => Self::Io {
                    operation,
                    path,
                    source,
                },
            }
        }
    }

    pub(crate) fn damaged(path: impl Into<PathBuf>) -> impl FnOnce(FormatError) -> Self {
        let path = path.into();
        move |source| Self::Damaged { path, source }
    }
}
