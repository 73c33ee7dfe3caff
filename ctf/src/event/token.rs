//! Decoded values as a flat list.

use crate::class::ByteOrder;
use crate::decoding::bits;
use crate::integer::{bit_in_byte, byte_of};
use crate::procedure::{FixedKind, FixedRead, NodeId};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Unsigned,
    Signed,
    Bool,
    Float32,
    Float64,
    BitArray,
    BitMap,
    /// Frequent integers of a run, by sign and bits: little-endian and byte-aligned.
    Unsigned8,
    Unsigned16,
    Unsigned32,
    Unsigned64,
    Signed32,
    Signed64,
    /// `value` is the byte offset in the packet, `length` the bytes.
    Text,
    Blob,
    StructBegin,
    StructEnd,
    /// `length` is the number of elements.
    ArrayBegin,
    ArrayEnd,
    /// An array whose elements are decoded on iteration: `value` is the bit offset of the first one
    /// in the packet, `length` their number, `node` the index of the packing.
    Packed,
    /// Items at known offsets of a run: `value` is the bit offset of the run in the packet, `node`
    /// the index of the first item, `length` their number.
    Items,
    /// `value` is the selector, `length` the index of the option.
    VariantBegin,
    VariantEnd,
    /// `length` is 1 when the field is present.
    OptionalBegin,
    OptionalEnd,
}

/// A decoded value or a boundary.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) value: u64,
    pub(super) length: u64,
    pub(super) node: NodeId,
    pub(super) kind: TokenKind,
}

const _: () = assert!(
    size_of::<Token>() == 24,
    "tokens are written for every event record"
);

/// The offset of a fixed-length field in a run, and how to load it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) node: NodeId,
    /// Bits from the beginning of the run.
    pub(super) at: u32,
    /// 1 to 64.
    pub(super) length: u8,
    pub(super) order: ByteOrder,
    /// The number of bit offsets in a byte at which one word contains the complete field; 0 when
    /// its bits are in reversed order.
    quick: u8,
    pub(super) kind: FixedKind,
}

impl Load {
    /// The field `at` bits from the beginning of its run.
    pub(super) fn new(read: &FixedRead, at: u32) -> Self {
        let quick = if read.reversed {
            0
        } else {
            8.min(65 - read.length)
        };
        Self {
            node: read.node,
            at,
            length: read.length,
            order: read.order,
            quick,
            kind: read.kind,
        }
    }

    /// A placeholder for items that load nothing.
    pub(super) fn nothing(node: NodeId, at: u32) -> Self {
        Self {
            node,
            at,
            length: 1,
            order: ByteOrder::Little,
            quick: 0,
            kind: FixedKind::Unsigned,
        }
    }

    /// The kind of the field's token.
    pub(super) fn token_kind(&self) -> TokenKind {
        match self.kind {
            FixedKind::Unsigned => TokenKind::Unsigned,
            FixedKind::Signed => TokenKind::Signed,
            FixedKind::Bool => TokenKind::Bool,
            FixedKind::Float32 => TokenKind::Float32,
            FixedKind::Float64 => TokenKind::Float64,
            FixedKind::BitArray => TokenKind::BitArray,
            FixedKind::BitMap => TokenKind::BitMap,
        }
    }

    /// The kind of the field's item when it is byte-aligned: an integer that can be loaded
    /// directly, or else the kind of its token.
    pub(super) fn item_kind(&self) -> TokenKind {
        let is_natural = self.quick > 0 && self.order == ByteOrder::Little;
        match (self.kind, self.length) {
            (FixedKind::Unsigned, 8) if is_natural => TokenKind::Unsigned8,
            (FixedKind::Unsigned, 16) if is_natural => TokenKind::Unsigned16,
            (FixedKind::Unsigned, 32) if is_natural => TokenKind::Unsigned32,
            (FixedKind::Unsigned, 64) if is_natural => TokenKind::Unsigned64,
            (FixedKind::Signed, 32) if is_natural => TokenKind::Signed32,
            (FixedKind::Signed, 64) if is_natural => TokenKind::Signed64,
            _ => self.token_kind(),
        }
    }

    /// True when the field is an unsigned byte, provided that it is byte-aligned.
    pub(super) fn is_octet(&self) -> bool {
        self.length == 8 && self.quick > 0 && self.kind == FixedKind::Unsigned
    }

    /// The bits of the field at `bit`, as 64 bits with the sign of a signed integer; zero when they
    /// are not in `bytes`, which the interpreter has excluded.
    #[inline(always)]
    pub(super) fn read(&self, bytes: &[u8], bit: u64) -> u64 {
        let shift = bit_in_byte(bit);
        let word = bytes
            .get(byte_of(bit)..)
            .and_then(|rest| rest.first_chunk::<8>());
        let Some(&word) = word.filter(|_| shift < u32::from(self.quick)) else {
            return self.read_slowly(bytes, bit);
        };
        // The field is moved to the top of the word, from where a shift isolates it. The code has
        // no branches, because the kinds of successive fields are hard to predict.
        let unused = 64 - u32::from(self.length);
        let is_big = self.order == ByteOrder::Big;
        let word = u64::from_le_bytes(word);
        let word = if is_big { word.swap_bytes() } else { word };
        let top = word << (if is_big { shift } else { unused - shift } & 63);
        let signed = (top.cast_signed() >> unused).cast_unsigned();
        if self.kind == FixedKind::Signed {
            signed
        } else {
            top >> unused
        }
    }

    /// Reads a field at the end of the data, across nine bytes, or in reversed bit order.
    #[inline(never)]
    fn read_slowly(&self, bytes: &[u8], bit: u64) -> u64 {
        let (length, reversed) = (u32::from(self.length), self.quick == 0);
        let value = bits::read(bytes, bit, length, self.order, reversed).unwrap_or_default();
        match self.kind {
            FixedKind::Signed => bits::sign_extend(value, length).cast_unsigned(),
            _ => value,
        }
    }
}

/// A value or boundary at a known offset in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// The offset and, for a field of fixed length, how to load it. For a packed array, the node is
    /// the index of the packing.
    pub(super) load: Load,
    pub(super) kind: TokenKind,
    /// Bytes of text or a BLOB, or elements of a packed array.
    pub(super) count: u32,
}

/// The elements of an array of fixed-length fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packing {
    /// The array.
    pub(super) node: NodeId,
    /// How to load an element; `at` is 0.
    pub(super) load: Load,
    /// Alignment of the array, in bits.
    pub(super) alignment: u32,
    /// Bits from one element to the next.
    pub(super) stride: u32,
}

impl Packing {
    /// True when every element begins and ends at a byte boundary.
    pub(super) fn is_bytes(&self) -> bool {
        (self.alignment | self.stride | u32::from(self.load.length)) & 7 == 0
    }

    /// Bits of `count` elements; `None` when they exceed 64 bits, as in no packet.
    #[inline]
    pub(super) fn bits(&self, count: u64) -> Option<u64> {
        match count.checked_sub(1) {
            None => Some(0),
            Some(before) => before
                .checked_mul(self.stride.into())?
                .checked_add(self.load.length.into()),
        }
    }
}
