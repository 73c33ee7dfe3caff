//! Errors of sidecars.

/// Why a sidecar cannot be used. It is derived data: index the file again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SidecarError {
    /// The file is not a sidecar, or truncated.
    #[error("not an index: {0}; index the file again")]
    NotAnIndex(&'static str),
    /// Another version of the program wrote it.
    #[error("the index has version {found}, this program reads {wanted}; index the file again")]
    Version {
        /// The version it has.
        found: u32,
        /// The version that is read.
        wanted: u32,
    },
    /// A part is damaged.
    #[error("the index is damaged in {part} at offset {offset}: {reason}; index the file again")]
    Damaged {
        /// Which part.
        part: &'static str,
        /// Where it begins.
        offset: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The given bytes are not the requested ones.
    #[error(
        "{found} bytes were given for a part of {wanted} bytes at offset {offset} of the index"
    )]
    WrongBytes {
        /// Offset of the part.
        offset: u64,
        /// Number of its bytes.
        wanted: u64,
        /// Number of the given bytes.
        found: u64,
    },
    /// A block, or the table of chunks, is larger than a reader accepts.
    #[error(
        "a part of the index would have {bytes} bytes, at most {max} are allowed; index larger chunks"
    )]
    TooLarge {
        /// Bytes of the part.
        bytes: usize,
        /// Most bytes that a part may have.
        max: usize,
    },
    /// More leaves have sidecars than a bundle can have sections.
    #[error("a bundle has at most {max} sections; the leaf remains without a sidecar in it")]
    TooManySections {
        /// Most sections that a bundle may have.
        max: usize,
    },
    /// An index that is not completely loaded cannot be written.
    #[error("the index is not completely loaded and cannot be written; load all blocks first")]
    NotLoaded,
}

pub(crate) fn damaged(part: &'static str, offset: u64, reason: impl ToString) -> SidecarError {
    SidecarError::Damaged {
        part,
        offset,
        reason: reason.to_string(),
    }
}
