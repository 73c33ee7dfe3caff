//! Why a trace in a folder cannot be read.

use ctf::{DecodeError, MetadataError, ProcedureError};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A trace in a folder cannot be read (any further).
#[derive(Debug)]
pub struct FolderError {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong.
    pub fault: FolderFault,
}

/// What is wrong with a file of a trace.
#[derive(Debug, thiserror::Error)]
pub enum FolderFault {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The metadata is wrong.
    #[error("{0}")]
    Metadata(#[source] MetadataError),
    /// The metadata is longer than any that makes sense.
    #[error("metadata of {length} bytes")]
    MetadataTooLong {
        /// Its length.
        length: u64,
    },
    /// The trace class cannot be compiled.
    #[error("{0}")]
    Procedure(#[source] ProcedureError),
    /// A packet says a length that it cannot have.
    #[error("packet at byte {offset} says a length of {length} bytes where {rest} are left")]
    PacketLength {
        /// Offset in the file.
        offset: u64,
        /// What the packet says.
        length: u64,
        /// Bytes up to the end of the file.
        rest: u64,
    },
    /// The events of a packet cannot be decoded to their end.
    #[error("packet at byte {offset}: {error}")]
    Events {
        /// Offset of the packet in the file.
        offset: u64,
        /// Why; its own offset is in the packet.
        error: trace_kinds::DecodeError,
    },
    /// The header or context of a packet cannot be decoded.
    #[error("packet at byte {offset}: {error}")]
    Decode {
        /// Offset of the packet in the file.
        offset: u64,
        /// Why; its own offset is in the packet.
        error: DecodeError,
    },
}

impl FolderFault {
    pub(super) fn at(offset: u64, error: trace_kinds::DecodeError) -> Self {
        Self::Events { offset, error }
    }
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
