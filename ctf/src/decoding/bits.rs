//! Reads up to 64 bits at any bit offset of a byte slice, in both byte orders.
//!
//! CTF numbers the bits of a byte from its least significant bit in a little-endian field and from
//! its most significant bit in a big-endian field. A field of up to 64 bits covers at most nine
//! bytes, so one unaligned eight-byte load and, rarely, one more byte are all that is needed.

use crate::class::ByteOrder;
use crate::integer::{bit_in_byte, low_u64, usize_from};

/// Reads `len` bits (1 to 64) of a little-endian field that starts at bit `at`.
///
/// Returns `None` when the field ends beyond `data`.
#[inline]
pub(crate) fn read_le(data: &[u8], at: u64, len: u32) -> Option<u64> {
    let byte = usize::try_from(at >> 3).ok()?;
    let shift = bit_in_byte(at);
    if let Some(word) = word_at(data, byte) {
        let mut value = u64::from_le_bytes(word) >> shift;
        if shift + len > 64 {
            let ninth = *data.get(byte + 8)?;
            value |= u64::from(ninth) << (64 - shift);
        }
        return Some(value & mask(len));
    }
    let bytes = tail_at(data, byte, shift + len)?;
    Some(low_u64(u128::from_le_bytes(bytes) >> shift) & mask(len))
}

/// Reads `len` bits (1 to 64) of a big-endian field that starts at bit `at`.
///
/// Returns `None` when the field ends beyond `data`.
#[inline]
pub(crate) fn read_be(data: &[u8], at: u64, len: u32) -> Option<u64> {
    let byte = usize::try_from(at >> 3).ok()?;
    let shift = bit_in_byte(at);
    if let Some(word) = word_at(data, byte) {
        let mut value = u64::from_be_bytes(word) << shift;
        if shift + len > 64 {
            let ninth = *data.get(byte + 8)?;
            value |= u64::from(ninth) >> (8 - shift);
        }
        return Some(value >> (64 - len));
    }
    let bytes = tail_at(data, byte, shift + len)?;
    let value = u128::from_be_bytes(bytes) << shift;
    Some(low_u64(value >> (128 - len)))
}

/// Reads `len` bits (1 to 64) of a field that starts at bit `at`. Returns `None` when the field
/// ends beyond `data`.
#[inline]
pub(crate) fn read(
    data: &[u8],
    at: u64,
    len: u32,
    order: ByteOrder,
    reversed: bool,
) -> Option<u64> {
    let value = match order {
        ByteOrder::Little => read_le(data, at, len)?,
        ByteOrder::Big => read_be(data, at, len)?,
    };
    Some(if reversed { reverse(value, len) } else { value })
}

/// The value of a clock after its low `len` bits (1 to 64) became `low`.
///
/// A clock only advances: when the low bits are less than before, they wrapped around once.
#[inline]
pub(crate) fn update_clock(clock: u64, low: u64, len: u32) -> u64 {
    if len >= 64 {
        return low;
    }
    let mask = mask(len);
    let wrapped = if low < clock & mask { mask + 1 } else { 0 };
    (clock.wrapping_add(wrapped) & !mask) | low
}

/// A partially read variable-length integer (LEB128: seven bits per byte, low bits first).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leb128 {
    value: u64,
    length: u32,
}

impl Leb128 {
    /// Adds the next byte. Returns true for the last byte, and `None` when the integer exceeds 64
    /// bits. The tenth byte may only contain the 64th bit: 1 for an unsigned integer, copies of the
    /// sign for a signed one.
    #[inline]
    pub(crate) fn push(&mut self, byte: u8, signed: bool) -> Option<bool> {
        let low = u64::from(byte & 0x7f);
        let last = byte & 0x80 == 0;
        if self.length == 63 {
            let fits = if signed {
                low == 0 || low == 0x7f
            } else {
                low == 1
            };
            if !last || !fits {
                return None;
            }
        }
        self.value |= low << self.length;
        self.length = (self.length + 7).min(64);
        Some(last)
    }

    /// Bits of the integer: 7 per byte, at most 64.
    #[inline]
    pub(crate) fn length(&self) -> u32 {
        self.length
    }

    /// As an unsigned integer.
    #[inline]
    pub(crate) fn unsigned(&self) -> u64 {
        self.value
    }

    /// As a signed integer.
    #[inline]
    pub(crate) fn signed(&self) -> i64 {
        sign_extend(self.value, self.length.max(1))
    }
}

/// The `len` low bits of `value` in reverse order.
#[inline]
pub(crate) fn reverse(value: u64, len: u32) -> u64 {
    value.reverse_bits() >> (64 - len)
}

/// The `len` low bits of `value` as a two's complement number.
#[inline]
pub(crate) fn sign_extend(value: u64, len: u32) -> i64 {
    let unused = 64 - len;
    (value << unused).cast_signed() >> unused
}

/// A word with its `len` (0 to 64) low bits set.
#[inline]
pub(crate) fn mask(len: u32) -> u64 {
    u64::MAX.checked_shr(64 - len).unwrap_or(0)
}

#[inline]
fn word_at(data: &[u8], byte: usize) -> Option<[u8; 8]> {
    data.get(byte..)?.first_chunk::<8>().copied()
}

/// The bytes of `data` from `byte` to the end, padded with zeros, when they contain `bits` bits.
#[cold]
fn tail_at(data: &[u8], byte: usize, bits: u32) -> Option<[u8; 16]> {
    let rest = data.get(byte..)?;
    if rest.len() * 8 < usize_from(bits) {
        return None;
    }
    let mut bytes = [0; 16];
    let taken = rest.len().min(16);
    bytes[..taken].copy_from_slice(&rest[..taken]);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{mask, read_be, read_le, reverse, sign_extend};

    /// The definition, bit by bit.
    fn model(data: &[u8], at: u64, len: u32, big_endian: bool) -> Option<u64> {
        let mut value = 0;
        for index in 0..len {
            let bit = at + u64::from(index);
            let byte = *data.get(usize::try_from(bit / 8).ok()?)?;
            let in_byte = if big_endian { 7 - bit % 8 } else { bit % 8 };
            let set = u64::from(byte >> in_byte & 1);
            value |= if big_endian {
                set << (len - 1 - index)
            } else {
                set << index
            };
        }
        Some(value)
    }

    proptest! {
        #[test]
        fn equals_the_definition(
            data in prop::collection::vec(any::<u8>(), 0..24),
            at in 0u64..200,
            len in 1u32..=64,
        ) {
            prop_assert_eq!(read_le(&data, at, len), model(&data, at, len, false));
            prop_assert_eq!(read_be(&data, at, len), model(&data, at, len, true));
        }

        #[test]
        fn never_panics_at_far_offsets(at: u64, len in 1u32..=64) {
            prop_assert_eq!(read_le(&[1, 2], at | 1 << 40, len), None);
            prop_assert_eq!(read_be(&[1, 2], at | 1 << 40, len), None);
        }

        #[test]
        fn reverses_only_the_field(value: u64, len in 1u32..=64) {
            let value = value & mask(len);
            prop_assert_eq!(reverse(reverse(value, len), len), value);
            prop_assert_eq!(reverse(value, len) & 1, value >> (len - 1) & 1);
        }
    }

    #[test]
    fn extends_the_sign() {
        assert_eq!(sign_extend(0b1, 1), -1);
        assert_eq!(sign_extend(0b0111, 4), 7);
        assert_eq!(sign_extend(0b1000, 4), -8);
        assert_eq!(sign_extend(u64::MAX, 64), -1);
    }
}
