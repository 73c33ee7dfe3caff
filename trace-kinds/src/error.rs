//! Why a packet cannot be decoded.

/// Why a packet cannot be decoded further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes violate their format.
    #[error("{format} packet is damaged at byte {offset}: {reason}")]
    Damaged {
        /// The name of the kind.
        format: &'static str,
        /// Offset in the packet of the first invalid byte.
        offset: u64,
        /// What is invalid.
        reason: String,
    },
    /// The packet ends inside a record.
    #[error("{format} packet ends inside the record at byte {offset}")]
    Truncated {
        /// The name of the kind.
        format: &'static str,
        /// Offset in the packet of the incomplete record.
        offset: u64,
    },
    /// The packet needs something that its stream did not declare.
    #[error("cannot decode {format} packet: {reason}")]
    Unsupported {
        /// The name of the kind.
        format: &'static str,
        /// What is missing, and what to do.
        reason: String,
    },
}
