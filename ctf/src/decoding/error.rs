//! Errors in packets.

use crate::class::ByteOrder;

/// A packet cannot be decoded any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bit {offset}: {fault}")]
pub struct DecodeError {
    /// Offset in the data, in bits.
    pub offset: u64,
    /// The reason.
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
    /// The packet does not begin with the magic number of packets.
    #[error("the magic number of the packet is {found:#x}, not 0xc1fc1fc1")]
    MagicNumber {
        /// The number that was read.
        found: u64,
    },
    /// The length of a packet must be a multiple of 8 bits.
    #[error("total length of the packet, {total}, is not a multiple of 8")]
    TotalLengthNotBytes {
        /// The length that was read.
        total: u64,
    },
    /// The content is longer than the packet.
    #[error("total length of the packet, {total}, is less than its content length, {content}")]
    TotalLengthBelowContent {
        /// The total length.
        total: u64,
        /// The content length.
        content: u64,
    },
    /// The header and context are longer than the total length.
    #[error("total length of the packet, {total}, is less than the position in it, {position}")]
    TotalLengthBelowPosition {
        /// The total length.
        total: u64,
        /// Offset in the packet.
        position: u64,
    },
    /// The header and context are longer than the content length.
    #[error("content length of the packet, {content}, is less than the position in it, {position}")]
    ContentLengthBelowPosition {
        /// The content length.
        content: u64,
        /// Offset in the packet.
        position: u64,
    },
    /// A field would extend into the padding of the packet.
    #[error("{needed} bits are needed, but only {remaining} remain in the packet")]
    BeyondContent {
        /// Bits of the field or of the padding before it.
        needed: u64,
        /// Remaining bits.
        remaining: u64,
    },
    /// The data ends inside the packet.
    #[error("{needed} bits are needed, but the data ends")]
    EndOfData {
        /// Bits of the field.
        needed: u64,
    },
    /// Two fields of different byte order share a byte.
    #[error("the byte order changes within a byte from {from:?} to {to:?} endian")]
    ByteOrderChange {
        /// Byte order of the previous field.
        from: ByteOrder,
        /// Byte order of this field.
        to: ByteOrder,
    },
    /// An unsigned selector selects no option of the variant.
    #[error("selector value {value} selects no option of the variant")]
    InvalidUnsignedSelector {
        /// The value.
        value: u64,
    },
    /// A signed selector selects no option of the variant.
    #[error("selector value {value} selects no option of the variant")]
    InvalidSignedSelector {
        /// The value.
        value: i64,
    },
    /// More consecutive event records or array elements without any bit than a packet may have.
    #[error("too many event records or array elements without any bit")]
    NoProgress,
    /// An event record has more values than a reader of event records accepts.
    #[error("the event record has more than {limit} values")]
    TooManyValues {
        /// The limit.
        limit: u64,
    },
    /// The nanoseconds of a time do not fit 64 bits.
    #[error("the clock is at {cycles} cycles, whose time does not fit 64 bits of nanoseconds")]
    ClockOverflow {
        /// The value of the clock.
        cycles: u64,
    },
    /// A variable-length integer has more than 64 bits.
    #[error("the variable-length integer has more than 64 bits")]
    OversizedInteger,
}
