//! Errors of reading a trace from a folder.

use super::preamble::MagicError;
use super::trim::TrimFault;
use ctf::{DecodeError, MetadataError, ProcedureError};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What to do when a packet cannot be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFault {
    /// Write the preceding events and stop.
    #[default]
    Stop,
    /// Continue with the next packet of the stream.
    Skip,
}

/// A file or folder of a trace cannot be read.
#[derive(Debug)]
pub struct FolderError {
    /// The file or folder.
    pub path: PathBuf,
    /// The reason.
    pub fault: FolderFault,
}

/// Why a file or folder of a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FolderFault {
    /// An input/output error.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The metadata is invalid.
    #[error("{0}")]
    Metadata(#[source] MetadataError),
    /// The metadata exceeds the limit.
    #[error("the metadata has {length} bytes, more than the limit of {limit} bytes")]
    MetadataTooLong {
        /// Its length.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// The trace class cannot be compiled.
    #[error("{0}")]
    Procedure(#[source] ProcedureError),
    /// The length field of a packet is impossible.
    #[error(
        "packet at byte {offset} has a length field of {length} bytes, but {rest} bytes are left \
         in the file"
    )]
    PacketLength {
        /// Offset in the file.
        offset: u64,
        /// The value of the field, in bytes.
        length: u64,
        /// Bytes up to the end of the file.
        rest: u64,
    },
    /// An event of a packet cannot be decoded.
    #[error("packet at byte {offset}: {error}")]
    Events {
        /// Offset of the packet in the file.
        offset: u64,
        /// The reason; its offset counts from the beginning of the packet.
        error: trace_kinds::DecodeError,
    },
    /// An event is before the one before it in its stream.
    #[error(
        "packet at byte {offset}: time goes back: an event at {time} ns follows one at {before} ns \
         (steps back in the stream: {count}); its events are given in their order there"
    )]
    Order {
        /// Offset in the file of the packet with the first such event.
        offset: u64,
        /// The time of the event before it, in nanoseconds from the origin of the clock.
        before: i64,
        /// Its time.
        time: i64,
        /// How often time goes back in the stream.
        count: u64,
    },
    /// A packet cannot be trimmed to a window of time.
    #[error("packet at byte {offset}: {error}")]
    Trim {
        /// Offset of the packet in the file.
        offset: u64,
        /// The reason.
        error: TrimFault,
    },
    /// The magic number of a packet is wrong.
    #[error("packet at byte {offset}: {error}")]
    Magic {
        /// Offset of the packet in the file.
        offset: u64,
        /// The reason.
        error: MagicError,
    },
    /// The header or context of a packet cannot be decoded.
    #[error("packet at byte {offset}: {error}")]
    Decode {
        /// Offset of the packet in the file.
        offset: u64,
        /// The reason; its offset counts from the beginning of the packet.
        error: DecodeError,
    },
}

impl FolderError {
    pub(super) fn new(path: &Path, fault: FolderFault) -> Self {
        Self {
            path: path.to_owned(),
            fault,
        }
    }

    pub(super) fn io(path: &Path, error: io::Error) -> Self {
        Self::new(path, FolderFault::Io(error))
    }

    pub(super) fn decode(path: &Path, offset: u64, error: DecodeError) -> Self {
        Self::new(path, FolderFault::Decode { offset, error })
    }

    pub(super) fn events(path: &Path, offset: u64, error: trace_kinds::DecodeError) -> Self {
        Self::new(path, FolderFault::Events { offset, error })
    }
}

impl fmt::Display for FolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.fault)
    }
}

impl std::error::Error for FolderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.fault)
    }
}
