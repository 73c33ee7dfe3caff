use std::ops::Range;

use chunk_index::SourceFile;
use storage_format::{AgentId, Kind, StreamId, StreamPosition};

use super::ExportOptions;
use crate::ClientError;

/// Where the packets of a finalized storage are read from.
pub trait PacketSource {
    /// The streams of the agent and with the name in the options.
    ///
    /// # Errors
    /// If the storage is not finalized, or cannot be read.
    fn streams(&self, options: &ExportOptions) -> Result<Vec<ExportStream>, ClientError>;

    /// The bytes of a packet as it was pushed.
    ///
    /// # Errors
    /// If it is damaged, or the source cannot be read.
    fn read(&self, packet: &StoredPacket) -> Result<Vec<u8>, Unread>;

    /// The trace metadata of an agent.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn metadata(&self, agent: &AgentId) -> Result<Option<Vec<u8>>, ClientError>;
}

/// Why a packet could not be read.
#[derive(Debug)]
pub enum Unread {
    /// Its bytes are damaged; others may be intact.
    Damaged(String),
    /// The source failed.
    Failed(ClientError),
}

/// A stream and its packets.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportStream {
    /// Agent.
    pub agent: AgentId,
    /// Stream.
    pub stream: StreamId,
    /// Kind.
    pub kind: Kind,
    /// The files that packets were cut from.
    pub files: Vec<SourceFile>,
    /// In the order of their positions.
    pub packets: Vec<StoredPacket>,
}

/// A packet to export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPacket {
    /// Epoch and sequence.
    pub position: StreamPosition,
    /// Number in the storage.
    pub number: u64,
    /// Bytes of the packet as it was pushed.
    pub raw_size: u64,
    /// Where it is in a folder; unknown on a server.
    pub place: Option<Place>,
    /// What it was cut from, if that is known.
    pub origin: Option<FileRange>,
}

/// The place of a packet in a leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Index of the leaf.
    pub leaf: usize,
    /// The stored payload.
    pub payload: Range<u64>,
    /// CRC32C of the packet as it was pushed.
    pub raw_checksum: u32,
}

/// A range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRange {
    /// Index in [`ExportStream::files`].
    pub file: usize,
    /// Offset in the file; in its text, if it is compressed.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl ExportStream {
    /// A stream without packets.
    pub(super) fn new(agent: AgentId, stream: StreamId, kind: Kind) -> Self {
        Self {
            agent,
            stream,
            kind,
            files: Vec::new(),
            packets: Vec::new(),
        }
    }

    /// The index of a file, which is added if it is new. Packets of one file follow each other.
    pub(super) fn file(&mut self, file: SourceFile) -> usize {
        let known = self.files.iter().rposition(|known| *known == file);
        known.unwrap_or_else(|| {
            self.files.push(file);
            self.files.len() - 1
        })
    }

    /// Whether the packets are a file from its start. Packets of copies may be described as ranges
    /// of the data file that they were copied from.
    pub(super) fn is_of_file(&self) -> bool {
        let first = self.packets.first().and_then(|packet| packet.origin);
        first.is_some_and(|origin| origin.offset == 0)
    }

    /// Orders the packets as their producer counted them, not as they arrived.
    pub(super) fn sorted(mut self) -> Self {
        self.packets.sort_unstable_by_key(|packet| packet.position);
        self
    }
}

/// The bytes of a packet; the inner error says why they are damaged.
pub(super) fn read(
    source: &dyn PacketSource,
    packet: &StoredPacket,
) -> Result<Result<Vec<u8>, String>, ClientError> {
    match source.read(packet) {
        Ok(bytes) => Ok(Ok(bytes)),
        Err(Unread::Damaged(what)) => Ok(Err(what)),
        Err(Unread::Failed(error)) => Err(error),
    }
}
