//! Field classes: the shape of every datum that a packet can contain.

use super::{Attributes, Dependency, FixedBits, IntegerClass, RangeSet, SlotId};
use crate::integer::usize_from;

/// A field class of the trace class: an index into its field table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldId(pub u32);

impl FieldId {
    /// The index into the field table.
    pub const fn index(self) -> usize {
        usize_from(self.0)
    }
}

/// The meaning of a field's value for decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Role {
    /// Must be 0xC1FC1FC1.
    PacketMagicNumber = 1,
    /// 16 bytes, the UUID of the metadata.
    MetadataUuid = 1 << 1,
    /// Id of the packet's stream class.
    StreamClassId = 1 << 2,
    /// Id of the packet's stream in its class.
    StreamId = 1 << 3,
    /// Length of the packet in bits, padding included.
    PacketTotalLength = 1 << 4,
    /// Length of the packet in bits without the padding at its end.
    PacketContentLength = 1 << 5,
    /// Cycles of the default clock, or their low bits; updates the clock.
    ClockTimestamp = 1 << 6,
    /// Cycles of the default clock at the end of the packet; full value, does not update the clock.
    PacketEndTimestamp = 1 << 7,
    /// Snapshot of the counter of discarded event records of the stream.
    DiscardedEvents = 1 << 8,
    /// Sequence number of the packet in its stream.
    PacketSequenceNumber = 1 << 9,
    /// Id of the event record's class.
    EventClassId = 1 << 10,
}

/// A set of [`Role`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Roles(u16);

impl Roles {
    /// No role.
    pub const NONE: Self = Self(0);

    /// True when the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True when `role` is in the set.
    #[inline]
    pub const fn has(self, role: Role) -> bool {
        self.0 & role as u16 != 0
    }

    /// True when every role of the set is also in `other`.
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The set with `role` added.
    #[must_use]
    pub const fn with(self, role: Role) -> Self {
        Self(self.0 | role as u16)
    }
}

/// Encoding of text. A terminator is one code unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Units of 8 bits (ASCII too).
    #[default]
    Utf8,
    /// Units of 16 bits, big-endian.
    Utf16Be,
    /// Units of 16 bits, little-endian.
    Utf16Le,
    /// Units of 32 bits, big-endian.
    Utf32Be,
    /// Units of 32 bits, little-endian.
    Utf32Le,
}

impl Encoding {
    /// Bytes of a code unit: 1, 2 or 4.
    pub const fn unit_bytes(self) -> usize {
        match self {
            Self::Utf8 => 1,
            Self::Utf16Be | Self::Utf16Le => 2,
            Self::Utf32Be | Self::Utf32Le => 4,
        }
    }
}

/// The length of an array, string or BLOB: elements for arrays, otherwise bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Length {
    /// Known from metadata.
    Static(u64),
    /// The value of an earlier field.
    Dynamic(Dependency),
}

/// A flag of a bit map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Name.
    pub name: Box<str>,
    /// Indexes of its bits; the flag is active when one of them is set.
    pub bits: RangeSet<u64>,
}

/// Fixed-length bit map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitMapClass {
    /// The bits.
    pub bits: FixedBits,
    /// Flags in metadata order.
    pub flags: Box<[Flag]>,
}

impl BitMapClass {
    /// Names of the flags that are active in `value`, in metadata order.
    pub fn active_flags(&self, value: u64) -> impl Iterator<Item = &str> {
        let active = move |flag: &&Flag| {
            flag.bits.ranges().iter().any(|range| {
                let low = u64::MAX << range.lower.min(63);
                let high = u64::MAX >> (63 - range.upper.min(63));
                range.lower < 64 && value & low & high != 0
            })
        };
        self.flags.iter().filter(active).map(|flag| &*flag.name)
    }
}

/// Fixed-length boolean: false when all bits are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoolClass {
    /// The bits.
    pub bits: FixedBits,
}

/// IEEE 754 number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatClass {
    /// The bits; their length is 32 or 64.
    pub bits: FixedBits,
}

/// String of known or saved length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StringClass {
    /// Length in bytes; text ends at the first terminator when there is one.
    pub length: Length,
    /// Encoding.
    pub encoding: Encoding,
}

/// Bytes that the format does not interpret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobClass {
    /// Length in bytes.
    pub length: Length,
    /// IANA media type.
    pub media_type: Box<str>,
}

/// Array of elements of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayClass {
    /// Length in elements.
    pub length: Length,
    /// Class of every element.
    pub element: FieldId,
    /// Minimum alignment of the array, in bits.
    pub min_alignment: u32,
}

/// Member of a structure.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Name in locations.
    pub name: Box<str>,
    /// Display name (TSDL: without a leading underscore).
    pub display_name: Box<str>,
    /// Field class.
    pub class: FieldId,
    /// Attributes.
    pub attributes: Attributes,
}

impl Member {
    /// A member whose display name is its name.
    pub fn new(name: &str, class: FieldId) -> Self {
        let attributes = Attributes::default();
        Self {
            name: name.into(),
            display_name: name.into(),
            class,
            attributes,
        }
    }
}

/// Structure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StructClass {
    /// Members in decoding order.
    pub members: Box<[Member]>,
    /// Minimum alignment of the structure, in bits; 0 means 1.
    pub min_alignment: u32,
}

/// Values of the selector for which an optional field is present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorRanges {
    /// Present when the selector is true.
    Bool,
    /// Present when the unsigned selector is in the set.
    Unsigned(RangeSet<u64>),
    /// Present when the signed selector is in the set.
    Signed(RangeSet<i64>),
}

/// A field that is present or absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionalClass {
    /// The selector.
    pub selector: Dependency,
    /// When the field is present.
    pub enabled: SelectorRanges,
    /// The field.
    pub field: FieldId,
}

/// One of the fields of a variant.
#[derive(Clone, Debug, PartialEq)]
pub struct VariantOption<T> {
    /// Name, if any.
    pub name: Option<Box<str>>,
    /// Display name (TSDL: without a leading underscore).
    pub display_name: Option<Box<str>>,
    /// Values of the selector that select the option.
    pub ranges: RangeSet<T>,
    /// The field.
    pub field: FieldId,
    /// Attributes.
    pub attributes: Attributes,
}

/// Options of a variant by the sign of its selector; each value selects at most one.
#[derive(Clone, Debug, PartialEq)]
pub enum VariantOptions {
    /// Unsigned selector.
    Unsigned(Box<[VariantOption<u64>]>),
    /// Signed selector.
    Signed(Box<[VariantOption<i64>]>),
}

impl VariantOptions {
    /// Number of options.
    pub fn len(&self) -> usize {
        match self {
            Self::Unsigned(options) => options.len(),
            Self::Signed(options) => options.len(),
        }
    }

    /// True when there are no options.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The field of the option at `index`.
    pub fn field(&self, index: usize) -> FieldId {
        match self {
            Self::Unsigned(options) => options[index].field,
            Self::Signed(options) => options[index].field,
        }
    }

    /// The name of the option at `index`.
    pub fn name(&self, index: usize) -> Option<&str> {
        match self {
            Self::Unsigned(options) => options[index].name.as_deref(),
            Self::Signed(options) => options[index].name.as_deref(),
        }
    }

    /// The index of the option that the saved selector value `raw` selects.
    #[inline]
    pub fn select(&self, raw: u64) -> Option<usize> {
        match self {
            Self::Unsigned(options) => options.iter().position(|o| o.ranges.contains(raw)),
            Self::Signed(options) => options
                .iter()
                .position(|o| o.ranges.contains(raw.cast_signed())),
        }
    }
}

/// One field of several.
#[derive(Clone, Debug, PartialEq)]
pub struct VariantClass {
    /// The selector.
    pub selector: Dependency,
    /// The alternatives.
    pub options: VariantOptions,
}

/// The shape of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldKind {
    /// Fixed-length bits without interpretation.
    BitArray(FixedBits),
    /// Fixed-length bit map.
    BitMap(BitMapClass),
    /// Fixed-length boolean.
    Bool(BoolClass),
    /// Fixed-length unsigned integer or enumeration.
    Unsigned(FixedBits, IntegerClass<u64>),
    /// Fixed-length signed integer or enumeration, two's complement.
    Signed(FixedBits, IntegerClass<i64>),
    /// Fixed-length floating-point number.
    Float(FloatClass),
    /// Variable-length unsigned integer or enumeration (ULEB128).
    VariableUnsigned(IntegerClass<u64>),
    /// Variable-length signed integer or enumeration (SLEB128).
    VariableSigned(IntegerClass<i64>),
    /// Text up to a terminator.
    NullTerminatedString(Encoding),
    /// Text of static or dynamic length.
    String(StringClass),
    /// Bytes of static or dynamic length.
    Blob(BlobClass),
    /// Array of static or dynamic length.
    Array(ArrayClass),
    /// Structure.
    Struct(StructClass),
    /// Field that is present or absent.
    Optional(OptionalClass),
    /// One field of several.
    Variant(VariantClass),
}

/// A field class in the table of a trace class.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldClass {
    /// Shape.
    pub kind: FieldKind,
    /// Effective alignment in bits, a power of two: 8 for text, BLOBs and variable-length integers,
    /// the maximum of its parts for structures and arrays, 1 for optionals and variants.
    pub alignment: u32,
    /// The meaning of the value for decoding.
    pub roles: Roles,
    /// Slots in which the value is saved for later fields; usually empty.
    pub slots: Box<[SlotId]>,
    /// Attributes.
    pub attributes: Attributes,
}

impl FieldClass {
    /// The bits, when this is a fixed-length field.
    #[inline]
    pub fn fixed_bits(&self) -> Option<&FixedBits> {
        match &self.kind {
            FieldKind::BitArray(bits)
            | FieldKind::Unsigned(bits, _)
            | FieldKind::Signed(bits, _) => Some(bits),
            FieldKind::BitMap(class) => Some(&class.bits),
            FieldKind::Bool(class) => Some(&class.bits),
            FieldKind::Float(class) => Some(&class.bits),
            _ => None,
        }
    }

    /// The members of a structure; empty for other classes.
    pub fn members(&self) -> &[Member] {
        match &self.kind {
            FieldKind::Struct(class) => &class.members,
            _ => &[],
        }
    }
}
