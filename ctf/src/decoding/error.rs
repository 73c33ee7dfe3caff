//! What can be wrong with a packet.

use crate::class::ByteOrder;

/// A packet cannot be decoded any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bit {offset}: {fault}")]
pub struct DecodeError {
    /// Where, in bits from the beginning of the data.
    pub offset: u64,
    /// What.
    pub fault: DecodeFault,
}

/// The ways in which a packet and its trace class disagree. All lengths are in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeFault {
    /// No stream class has this id.
    #[error("stream class {id} does not exist")]
    UnknownStreamClass {
        /// The id that was read.
        id: u64,
    },
    /// The stream class has no event class with this id.
    #[error("event class {id} does not exist in this stream class")]
    UnknownEventClass {
        /// The id that was read.
        id: u64,
    },
    /// A packet must be whole bytes.
    #[error("total length of the packet, {total}, is not a multiple of 8")]
    TotalLengthNotBytes {
        /// The length that was read.
        total: u64,
    },
    /// The content does not fit the packet.
    #[error("total length of the packet, {total}, is less than its content length, {content}")]
    TotalLengthBelowContent {
        /// The total length.
        total: u64,
        /// The content length.
        content: u64,
    },
    /// More was read already than the packet should have.
    #[error("total length of the packet, {total}, is less than what was read of it, {position}")]
    TotalLengthBelowPosition {
        /// The total length.
        total: u64,
        /// Offset in the packet.
        position: u64,
    },
    /// More was read already than the content should have.
    #[error("content length of the packet, {content}, is less than what was read, {position}")]
    ContentLengthBelowPosition {
        /// The content length.
        content: u64,
        /// Offset in the packet.
        position: u64,
    },
    /// A field would reach into the padding of the packet.
    #[error("{needed} bits are needed where {remaining} remain in the packet")]
    BeyondContent {
        /// Bits of the field or of the padding before it.
        needed: u64,
        /// Bits left.
        remaining: u64,
    },
    /// The data ends inside the packet.
    #[error("{needed} bits are needed where the data ends")]
    EndOfData {
        /// Bits of the field.
        needed: u64,
    },
    /// Two fields of different byte order share a byte.
    #[error("the byte order changes within a byte from {from:?} to {to:?} endian")]
    ByteOrderChange {
        /// Byte order of the field before.
        from: ByteOrder,
        /// Byte order of the field here.
        to: ByteOrder,
    },
    /// An unsigned selector chooses no option of the variant.
    #[error("selector value {value} chooses no option")]
    InvalidUnsignedSelector {
        /// The value.
        value: u64,
    },
    /// A signed selector chooses no option of the variant.
    #[error("selector value {value} chooses no option")]
    InvalidSignedSelector {
        /// The value.
        value: i64,
    },
    /// Event records or array elements without a single bit, more of them than a packet may have.
    #[error("endless data without a single bit")]
    NoProgress,
    /// An event record has more values than a reader of event records keeps.
    #[error("event record of more than {limit} values")]
    TooManyValues {
        /// The most values.
        limit: u64,
    },
    /// A variable-length integer has more than 64 bits.
    #[error("variable-length integer of more than 64 bits")]
    OversizedInteger,
}
