//! Integers: their bits in a packet, their display base, and names of their values.

/// Order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The bit order of fields with this byte order, unless metadata specifies another one.
    pub const fn natural_bit_order(self) -> BitOrder {
        match self {
            Self::Little => BitOrder::FirstToLast,
            Self::Big => BitOrder::LastToFirst,
        }
    }
}

/// Order in which the bits of a bit array are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BitOrder {
    /// From the least significant bit of a byte to the most significant one.
    FirstToLast,
    /// From the most significant bit of a byte to the least significant one.
    LastToFirst,
}

/// The bits of a fixed-length field: `length` bits at a bit offset that is a multiple of
/// `alignment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FixedBits {
    /// Number of bits, 1 to 64.
    pub length: u8,
    /// Alignment in bits, a power of two.
    pub alignment: u32,
    /// Byte order.
    pub byte_order: ByteOrder,
    /// Bit order. When it is not [`ByteOrder::natural_bit_order`], the value is read in the natural
    /// order and its `length` bits are then reversed.
    pub bit_order: BitOrder,
}

impl FixedBits {
    /// Bits in the natural bit order of `byte_order`.
    pub const fn new(length: u8, alignment: u32, byte_order: ByteOrder) -> Self {
        let bit_order = byte_order.natural_bit_order();
        Self {
            length,
            alignment,
            byte_order,
            bit_order,
        }
    }

    /// True when the value's bits must be reversed after a read in natural order.
    pub fn is_reversed(&self) -> bool {
        self.bit_order != self.byte_order.natural_bit_order()
    }
}

/// Preferred base for the display of an integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DisplayBase {
    /// Base 2.
    Binary,
    /// Base 8.
    Octal,
    /// Base 10.
    #[default]
    Decimal,
    /// Base 16.
    Hexadecimal,
}

/// An inclusive range of integers; `lower <= upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntRange<T> {
    /// Lowest value.
    pub lower: T,
    /// Highest value.
    pub upper: T,
}

/// A set of integers as sorted inclusive ranges, which are not merged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RangeSet<T>(Box<[IntRange<T>]>);

impl<T> Default for RangeSet<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<T: Copy + Ord> RangeSet<T> {
    /// A set of `ranges`, in any order.
    pub fn new(mut ranges: Vec<IntRange<T>>) -> Self {
        ranges.sort_unstable();
        Self(ranges.into_boxed_slice())
    }

    /// The ranges, lowest first.
    pub fn ranges(&self) -> &[IntRange<T>] {
        &self.0
    }

    /// True when one of the ranges contains `value`.
    #[inline]
    pub fn contains(&self, value: T) -> bool {
        self.0
            .iter()
            .any(|range| range.lower <= value && value <= range.upper)
    }

    /// True when some value is in both sets.
    pub fn intersects(&self, other: &Self) -> bool {
        let overlap = |a: &IntRange<T>, b: &IntRange<T>| a.lower <= b.upper && b.lower <= a.upper;
        self.0.iter().any(|a| other.0.iter().any(|b| overlap(a, b)))
    }
}

/// A name for some values of an integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping<T> {
    /// The name (Babeltrace calls it a *label*).
    pub name: Box<str>,
    /// The values with this name.
    pub ranges: RangeSet<T>,
}

/// Names of values, in metadata order; ranges of different names may overlap. An integer with at
/// least one mapping is an enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mappings<T>(Box<[Mapping<T>]>);

impl<T> Default for Mappings<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<T: Copy + Ord> Mappings<T> {
    /// Mappings in metadata order.
    pub fn new(mappings: Vec<Mapping<T>>) -> Self {
        Self(mappings.into_boxed_slice())
    }

    /// All mappings in metadata order.
    pub fn as_slice(&self) -> &[Mapping<T>] {
        &self.0
    }

    /// True for a plain integer.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names of `value`, in metadata order.
    pub fn names_of(&self, value: T) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |m| m.ranges.contains(value))
            .map(|m| &*m.name)
    }

    /// The mapping named `name`.
    pub fn get(&self, name: &str) -> Option<&Mapping<T>> {
        self.0.iter().find(|m| &*m.name == name)
    }
}

/// The common properties of fixed-length and variable-length integers; `T` is `u64` or `i64`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntegerClass<T> {
    /// Preferred display base.
    pub base: DisplayBase,
    /// Names of values; not empty for an enumeration.
    pub mappings: Mappings<T>,
}
