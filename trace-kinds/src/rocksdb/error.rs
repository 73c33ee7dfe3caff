//! Errors in the bytes of a RocksDB trace, with their offsets.

/// Why a RocksDB trace, or one record of it, could not be read.
///
/// Every `offset` counts from the start of the trace file, even if only a packet is read, because
/// its header contains its offset (see [`super::TraceHeader`]).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RocksdbError {
    /// The bytes end inside a record: the trace was cut while it was written or copied.
    #[error(
        "offset {offset}: the trace is torn: {left} bytes are left of a record that needs \
         {needed}; everything before this offset is complete"
    )]
    Torn {
        /// Where the unfinished record starts.
        offset: u64,
        /// Bytes that are left.
        left: u64,
        /// Bytes that the record needs, as far as its length is known.
        needed: u64,
    },
    /// The first record is not the header that RocksDB writes.
    #[error("offset {offset}: not an IO or block cache trace of RocksDB: {what}")]
    NotATrace {
        /// Where the header was expected.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A record claims to be longer than any record that RocksDB writes.
    #[error(
        "offset {offset}: a record claims {length} bytes, more than the limit of {limit}; \
         the trace is damaged here"
    )]
    TooLong {
        /// Where the record starts.
        offset: u64,
        /// The claimed payload length.
        length: u32,
        /// The largest accepted length.
        limit: u32,
    },
    /// A record has a type that this kind of trace does not contain.
    #[error("offset {offset}: record type {found} does not occur in {expected}")]
    UnexpectedType {
        /// Where the record starts.
        offset: u64,
        /// The type that was found.
        found: u8,
        /// The kind of trace that is read.
        expected: &'static str,
    },
    /// The payload of a record ends before one of its fields.
    #[error("offset {offset}: the record ends before its field `{field}`")]
    MissingField {
        /// Where the record starts.
        offset: u64,
        /// The name of the field in the format.
        field: &'static str,
    },
    /// A record has bytes after its last field.
    #[error(
        "offset {offset}: {left} bytes follow the last field of the record; a newer RocksDB may \
         have added a field"
    )]
    TrailingBytes {
        /// Where the record starts.
        offset: u64,
        /// Bytes after the last field.
        left: usize,
    },
    /// Packets of one trace were joined in the wrong order, or one of them is missing.
    #[error("a packet continues the trace at offset {found}, but offset {expected} is next")]
    Gap {
        /// The next offset.
        expected: u64,
        /// The offset at which the packet continues.
        found: u64,
    },
}

impl RocksdbError {
    /// Whether only one record is damaged, and it is known where the next one begins.
    pub(super) fn is_of_record(&self) -> bool {
        match self {
            Self::UnexpectedType { .. }
            | Self::MissingField { .. }
            | Self::TrailingBytes { .. } => true,
            Self::Torn { .. }
            | Self::NotATrace { .. }
            | Self::TooLong { .. }
            | Self::Gap { .. } => false,
        }
    }
}
