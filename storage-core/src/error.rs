//! Errors of the engine: requests that it refuses, and failures of the disk.

use std::{fmt, io, path::PathBuf};

use rustix::io::Errno;
use storage_format::{
    AgentId, FormatError, FormatErrorKind, Kind, OutOfOrder, StorageId, StreamId, StreamPosition,
    paths::FileName, storage_file::StorageState,
};

use crate::{
    errno::is_transient,
    file_ends::FileEnds,
    unfetched::{is_lost_object, is_unfetched},
};

/// Size and checksum of the bytes of a packet, which identify them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketSummary {
    /// Its bytes.
    pub size: u32,
    /// CRC32C of the bytes.
    pub checksum: u32,
}

impl fmt::Display for PacketSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes with CRC32C {:08x}", self.size, self.checksum)
    }
}

/// A refusal or a failure. A request that gets one has changed nothing.
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
        /// The requested number.
        number: u64,
    },
    /// The packet was acknowledged, and is missing since its storage was repaired.
    #[error(
        "packet {number} of storage {storage} is missing: its bytes were damaged, and the storage \
         was repaired without it"
    )]
    PacketMissing {
        /// The storage.
        storage: StorageId,
        /// The requested number.
        number: u64,
    },
    /// The storage has no file of this name.
    #[error("storage {storage} has no file `{name}`")]
    FileNotFound {
        /// The storage.
        storage: StorageId,
        /// The requested name, shortened.
        name: String,
    },
    /// A legal hold protects the storage.
    #[error("storage {storage} has the label `legal_hold` and cannot be deleted")]
    Held {
        /// The storage.
        storage: StorageId,
    },
    /// Nobody knows the labels of the storage: a legal hold may protect it.
    #[error(
        "the storage file of {storage} is lost, and with it its labels: it may have been held; \
         confirm that it is deleted without them"
    )]
    LabelsUnknown {
        /// The storage.
        storage: StorageId,
    },
    /// The damage is in files that a repair does not read.
    #[error(
        "{damage}; storage {storage} has data files of version 1, or arranged ones of which the index \
         is not complete, and such damage is not repaired"
    )]
    NotRepairable {
        /// The storage.
        storage: StorageId,
        /// Its damage.
        damage: Box<StorageError>,
    },
    /// The state of the storage does not allow the action.
    #[error("storage {storage} is {state}, but {action} needs {needed}")]
    WrongState {
        /// The storage.
        storage: StorageId,
        /// Its state.
        state: StorageState,
        /// The requested action.
        action: &'static str,
        /// The states that allow it.
        needed: &'static str,
    },
    /// The stream is declared with another kind.
    #[error("stream `{stream}` of agent `{agent}` is of kind `{declared}`, not `{wanted}`")]
    StreamKindConflict {
        /// The agent.
        agent: AgentId,
        /// The stream.
        stream: StreamId,
        /// Its declared kind.
        declared: Kind,
        /// The requested kind.
        wanted: Kind,
    },
    /// The stream has a name of those that recordings derive from others.
    #[error("stream `{0}` cannot come from outside: spans under such a name are derived ones")]
    StreamReserved(StreamId),
    /// An imported storage contains an agent whose id exists on this server with different trace
    /// metadata.
    #[error("agent `{0}` has different trace metadata on this server and in the storage")]
    AgentMetadataConflict(AgentId),
    /// The producer skipped a sequence.
    #[error("sequence {found} of epoch {epoch} leaves a gap, {expected} is expected")]
    SequenceGap {
        /// The epoch.
        epoch: u64,
        /// The expected sequence.
        expected: u64,
        /// The sequence of the packet.
        found: u64,
    },
    /// The producer has already begun a newer epoch.
    #[error("epoch {found} is older than the current epoch {current}")]
    EpochStale {
        /// The newest epoch of the stream.
        current: u64,
        /// The epoch of the packet.
        found: u64,
    },
    /// The packet was dropped or never arrived, and later packets of its stream are stored.
    #[error(
        "sequence {sequence} of epoch {epoch} was skipped, and later packets are stored: \
         continue with sequence {expected}"
    )]
    PacketLeftOut {
        /// The epoch.
        epoch: u64,
        /// The sequence of the packet.
        sequence: u64,
        /// The expected sequence.
        expected: u64,
    },
    /// The packet was acknowledged and is missing since its storage was repaired, and later packets
    /// of its stream are stored.
    #[error(
        "sequence {sequence} of epoch {epoch} is missing since the storage was repaired, and later \
         packets are stored: push it into another storage, and continue here with sequence \
         {expected}"
    )]
    RepeatMissing {
        /// The epoch.
        epoch: u64,
        /// The sequence of the packet.
        sequence: u64,
        /// The expected sequence.
        expected: u64,
    },
    /// Other bytes are stored or in flight at the position of the packet.
    #[error(
        "sequence {sequence} of epoch {epoch} has other bytes: {stored} arrived first, not {found}"
    )]
    PacketConflict {
        /// The epoch.
        epoch: u64,
        /// The sequence of the packet.
        sequence: u64,
        /// What arrived first.
        stored: PacketSummary,
        /// What was pushed now.
        found: PacketSummary,
    },
    /// A position that no packet can have.
    #[error("the packet is at {position}; both must be less than {max}", max = u64::MAX)]
    PositionInvalid {
        /// The position.
        position: StreamPosition,
    },
    /// A packet without bytes.
    #[error("the packet is empty: a packet has at least one byte")]
    PacketEmpty,
    /// A packet that is too long.
    #[error("the packet has {size} bytes, the limit is {max}")]
    PacketTooLarge {
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// An invalid value in a request.
    #[error("{what} {problem}")]
    Invalid {
        /// The value.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The idempotency key belongs to another request.
    #[error("another request with this Idempotency-Key created storage {0}")]
    IdempotencyKeyReused(StorageId),
    /// A limit of the server is reached; deleting something frees space.
    #[error("the server has {max} {what}, which is the limit: delete some, or raise the limit")]
    LimitReached {
        /// The things that are limited.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The storage has had as many data files as one can have.
    #[error(
        "storage {storage} has had {max} data files, and none can have more: finalize it, and push \
         to another storage",
        max = storage_format::limits::DATA_FILE_COUNT_MAX
    )]
    FilesUsedUp {
        /// The storage.
        storage: StorageId,
    },
    /// Too many bytes are in flight.
    #[error("the limit of {max} bytes in flight is reached: try again later")]
    Busy {
        /// The limit in bytes.
        max: u64,
    },
    /// The packets in flight of an agent, a connection or a protocol use its share of the limit.
    #[error("the limit of {max} bytes in flight of {of} is reached: try again later")]
    ShareUsed {
        /// Whose share.
        of: &'static str,
        /// The limit in bytes.
        max: u64,
    },
    /// An agent, or all agents, have stored what they may.
    #[error("{of} has {stored} bytes of a quota of {max}")]
    QuotaUsed {
        /// Whose quota.
        of: String,
        /// Bytes of packets as stored.
        stored: u64,
        /// The quota.
        max: u64,
    },
    /// Whether the agent is deleted is known soon.
    #[error("agent `{0}` is being deleted")]
    AgentBeingDeleted(AgentId),
    /// A storage that is not finalized has packets of the agent.
    #[error("storage {storage} has packets of agent `{agent}` and is not finalized")]
    AgentInUse {
        /// The agent.
        agent: AgentId,
        /// The storage.
        storage: StorageId,
    },
    /// The file of an agent is lost, and a storage that needs it is not finalized without.
    #[error(
        "storage {storage} is not finalized, because the file of agent `{agent}` is lost ({why}), \
         and its packets may not be decoded without the trace metadata in it: let the agent \
         register and send its trace metadata again, or put the file back, and finalize again"
    )]
    AgentLost {
        /// The storage.
        storage: StorageId,
        /// The agent.
        agent: AgentId,
        /// What is wrong with the file.
        why: String,
    },
    /// Free space is below the limit of the server.
    #[error(
        "only {free_bytes} bytes are free on the disk, and {limit_bytes} are needed to go on: free \
         some space"
    )]
    DiskLow {
        /// Free bytes.
        free_bytes: u64,
        /// Free bytes with which the work would be accepted.
        limit_bytes: u64,
    },
    /// Hardly any file can be created on the disk.
    #[error(
        "only {free_files} more files can be created on the disk (inodes), and ingest stops before \
         there are none: delete some files"
    )]
    FilesLow {
        /// Files that can be created.
        free_files: u64,
    },
    /// A write failed because the disk is full.
    #[error("no space, or no inode for another file, is left on the disk for {path}")]
    DiskFull {
        /// The file that could not be written.
        path: PathBuf,
    },
    /// Bytes of an evicted storage cannot be fetched.
    #[error("cannot fetch {} from the object store: {source}", path.display())]
    ObjectStore {
        /// The file.
        path: PathBuf,
        /// What the store, or the connection to it, said.
        source: io::Error,
    },
    /// The operating system refused an operation for want of a resource; nothing is damaged.
    #[error("{operation} {path}: {source}; try again later")]
    Exhausted {
        /// The operation.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An earlier packet of the same stream was refused.
    #[error("an earlier packet of the same stream was refused, so this one was not written")]
    EarlierRefused,
    /// The storage is not recovered yet.
    #[error(
        "storage {storage} is being recovered: {bytes_scanned} of {bytes_total} bytes are scanned"
    )]
    Recovering {
        /// The storage.
        storage: StorageId,
        /// Bytes that were scanned.
        bytes_scanned: u64,
        /// Bytes to scan.
        bytes_total: u64,
    },
    /// The storage has failed and is read-only.
    #[error("storage {storage} is read-only: {reason}")]
    Failed {
        /// The storage.
        storage: StorageId,
        /// What failed.
        reason: String,
    },
    /// The storage may have, or have had, more than what can be found in it: its log is damaged, or
    /// nobody knows what is missing since it was repaired.
    #[error("storage {storage} may be incomplete: {reason}")]
    Incomplete {
        /// The storage.
        storage: StorageId,
        /// Why.
        reason: String,
    },
    /// Bytes of the storage are damaged, and a finalization would make that final.
    #[error(
        "storage {storage} is not finalized, because its bytes are damaged: {damage}; repair it \
         first"
    )]
    DamagedWhileOpen {
        /// The storage.
        storage: StorageId,
        /// The damage.
        damage: Box<StorageError>,
    },
    /// The storage failed while the packet was in flight.
    #[error("storage {storage} failed before the packet was durable: {reason}")]
    NotWritten {
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
        /// Where and what.
        source: FormatError,
    },
    /// A packet on disk whose stored bytes do not expand to what was sent.
    #[error("{path}: packet at byte {offset}: {problem}")]
    DamagedPacket {
        /// The file.
        path: PathBuf,
        /// Offset of the stored payload.
        offset: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// The replica does not have the packets, so they are not acknowledged.
    #[error("the packets for storage {storage} are on the disk and not acknowledged: {reason}")]
    NotReplicated {
        /// The storage.
        storage: StorageId,
        /// Why.
        reason: String,
    },
    /// Another node writes the storage instead of this one.
    #[error("storage {storage} is written by another node: {reason}")]
    Superseded {
        /// The storage.
        storage: StorageId,
        /// Which.
        reason: String,
    },
    /// A storage with this id exists.
    #[error("storage {0} exists already: delete it before importing it again")]
    StorageExists(StorageId),
    /// An archive that is not a complete, intact ZIP archive.
    #[error("the archive is damaged at byte {offset}: {problem}")]
    ArchiveDamaged {
        /// Offset in the archive.
        offset: u64,
        /// What is wrong there.
        problem: String,
    },
    /// An intact archive with content that is not accepted.
    #[error("the archive is refused: {entry:?} {problem}")]
    ArchiveRefused {
        /// The entry; empty when the problem concerns the entire archive.
        entry: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An archive whose transfer was interrupted.
    #[error("the archive was interrupted at byte {offset}: {source}")]
    ArchiveBroken {
        /// Offset in the archive.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// No storage has this label, or there is no type or value of this name.
    #[error("there is no label `{0}`")]
    LabelNotFound(String),
    /// A label type that cannot be changed.
    #[error("the label type `{0}` is predefined and cannot be changed")]
    LabelTypeFixed(String),
    /// A label that storages use.
    #[error("{storages} storages have the label `{name}`: remove it there first")]
    LabelInUse {
        /// Name of the type.
        name: String,
        /// Number of storages that have it.
        storages: u64,
    },
    /// A job was cancelled.
    #[error("the work was cancelled")]
    Cancelled,
    /// Another process uses the data folder.
    #[error("{path} is in use by another server: stop that server, or use another data folder")]
    DataDirInUse {
        /// The data folder.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{operation} {path}: {source}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
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
    /// The stable code of this error in the API.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::StorageNotFound(_) => "storage_not_found",
            Self::AgentNotFound(_) => "agent_not_found",
            Self::AgentBeingDeleted(_) => "agent_being_deleted",
            Self::AgentInUse { .. } => "agent_in_use",
            Self::AgentLost { .. } => "agent_lost",
            Self::QuotaUsed { .. } => "quota_used",
            Self::StreamNotFound { .. } => "stream_not_found",
            Self::PacketNotFound { .. } => "packet_not_found",
            Self::PacketMissing { .. } => "packet_missing",
            Self::FileNotFound { .. } => "file_not_found",
            Self::WrongState {
                state: StorageState::Created,
                ..
            } => "storage_not_open",
            Self::WrongState { .. } => "storage_state_conflict",
            Self::Held { .. } => "storage_held",
            Self::LabelsUnknown { .. } => "labels_unknown",
            Self::NotRepairable { .. } => "storage_not_repairable",
            Self::StreamKindConflict { .. } => "stream_kind_conflict",
            Self::StreamReserved(_) => "stream_reserved",
            Self::AgentMetadataConflict(_) => "agent_metadata_conflict",
            Self::SequenceGap { .. } => "sequence_gap",
            Self::EpochStale { .. } => "epoch_stale",
            Self::PacketLeftOut { .. } => "packet_left_out",
            Self::RepeatMissing { .. } => "repeat_missing",
            Self::PacketConflict { .. } => "packet_conflict",
            Self::PositionInvalid { .. } => "position_invalid",
            Self::PacketEmpty => "packet_empty",
            Self::PacketTooLarge { .. } => "packet_too_large",
            Self::Invalid { .. } => "invalid_value",
            Self::IdempotencyKeyReused(_) => "idempotency_key_reused",
            Self::LimitReached { .. } => "limit_reached",
            Self::FilesUsedUp { .. } => "data_files_used_up",
            Self::Busy { .. } | Self::ShareUsed { .. } => "busy",
            Self::DiskLow { .. } | Self::FilesLow { .. } => "disk_low",
            Self::DiskFull { .. } => "disk_full",
            Self::Exhausted { .. } => "resources_exhausted",
            Self::ObjectStore { source, .. } if is_lost_object(source) => "object_lost",
            Self::ObjectStore { .. } => "object_store_unavailable",
            Self::EarlierRefused => "earlier_packet_refused",
            Self::Recovering { .. } => "storage_recovering",
            Self::Failed { .. } => "storage_failed",
            Self::Incomplete { .. } => "storage_incomplete",
            Self::DamagedWhileOpen { .. } => "storage_damaged",
            Self::NotWritten { .. } => "write_failed",
            Self::Stopping => "stopping",
            Self::Damaged { .. } | Self::DamagedPacket { .. } => "damaged",
            Self::NotReplicated { .. } => "object_store_unavailable",
            Self::Superseded { .. } => "storage_taken_over",
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

    /// The error of bytes that could not be fetched into the file at `path`.
    pub(crate) fn fetch(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match Errno::from_io_error(&source) {
            // Of the disk, not of the store.
            Some(_) => Self::io("write what was fetched into", path)(source),
            None => Self::ObjectStore { path, source },
        }
    }

    pub(crate) fn io(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| {
            let inner = source.get_ref();
            if let Some(ends) = inner.and_then(|inner| inner.downcast_ref::<FileEnds>()) {
                let source = FormatError {
                    what: "file",
                    offset: ends.length,
                    kind: FormatErrorKind::Truncated {
                        needed: ends.expected,
                        available: ends.length,
                    },
                };
                Self::Damaged { path, source }
            } else if is_unfetched(&source) {
                Self::ObjectStore { path, source }
            } else if matches!(
                Errno::from_io_error(&source),
                Some(Errno::NOSPC | Errno::DQUOT)
            ) {
                Self::DiskFull { path }
            } else if is_transient(&source) {
                Self::Exhausted {
                    operation,
                    path,
                    source,
                }
            } else {
                Self::Io {
                    operation,
                    path,
                    source,
                }
            }
        }
    }

    /// Whether bytes that were written cannot be read as they were written, and nothing else has
    /// them: an index part can be written again.
    pub(crate) fn is_damage(&self) -> bool {
        let path = match self {
            Self::Damaged { path, .. } => path,
            Self::Io {
                operation: "open" | "read",
                path,
                ..
            } if self.is_loss() => path,
            _ => return false,
        };
        let name = path.file_name().and_then(|name| name.to_str());
        !matches!(name.map(str::parse), Some(Ok(FileName::Index(_))))
    }

    pub(crate) fn damaged(path: impl Into<PathBuf>) -> impl FnOnce(FormatError) -> Self {
        let path = path.into();
        move |source| Self::Damaged { path, source }
    }
}
