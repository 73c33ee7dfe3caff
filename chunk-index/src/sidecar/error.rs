//! What can be wrong with a sidecar.

/// Why the bytes of a sidecar cannot be used. It is derived data: index the file again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SidecarError {
    /// It is no sidecar, or torn off.
    #[error("no index: {0}")]
    NotAnIndex(&'static str),
    /// Another version wrote it.
    #[error("index of version {found}, this program reads {wanted}; index the file again")]
    Version {
        /// The version it has.
        found: u32,
        /// The version that is read.
        wanted: u32,
    },
    /// A part is damaged.
    #[error("index damaged in {part} at offset {offset}: {reason}; index the file again")]
    Damaged {
        /// Which part.
        part: &'static str,
        /// Where it begins.
        offset: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The bytes given are not those that were asked for.
    #[error("{found} bytes given where the index has {wanted} at offset {offset}")]
    WrongBytes {
        /// Begin of the part.
        offset: u64,
        /// Its bytes.
        wanted: u64,
        /// The bytes given.
        found: u64,
    },
    /// A block, or the table of chunks, is larger than a reader accepts.
    #[error("the index would have a part of {bytes} bytes, {max} are read; index larger chunks")]
    TooLarge {
        /// Bytes of the part.
        bytes: usize,
        /// Bytes that are accepted.
        max: usize,
    },
    /// An index of which parts are not loaded cannot be written.
    #[error("the index is not loaded whole, so it cannot be written; load all blocks first")]
    NotLoaded,
}

pub(crate) fn damaged(part: &'static str, offset: u64, reason: impl ToString) -> SidecarError {
    SidecarError::Damaged {
        part,
        offset,
        reason: reason.to_string(),
    }
}
