//! Why a packet cannot be decoded.

/// A packet that cannot be decoded any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes break the rules of their format.
    #[error("{format} packet is damaged at byte {offset}: {reason}")]
    Damaged {
        /// The format, as its kind is named.
        format: &'static str,
        /// Offset in the packet of the first byte that makes no sense.
        offset: u64,
        /// The rule that is broken.
        reason: String,
    },
    /// The packet ends inside a record.
    #[error("{format} packet ends inside a record that begins at byte {offset}")]
    Truncated {
        /// The format, as its kind is named.
        format: &'static str,
        /// Offset in the packet of the record that is not whole.
        offset: u64,
    },
    /// The packet needs something that its stream did not declare.
    #[error("{format} packet cannot be read: {reason}")]
    Unsupported {
        /// The format, as its kind is named.
        format: &'static str,
        /// What is missing, and what to do.
        reason: String,
    },
}
