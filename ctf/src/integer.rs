//! Conversions between integer widths that `From` does not provide.

const _: () = assert!(
    usize::BITS >= u32::BITS && usize::BITS <= u64::BITS,
    "pointers have 32 or 64 bits"
);

/// `value` as an index; exact.
#[inline(always)]
pub(crate) const fn usize_from(value: u32) -> usize {
    value as usize
}

/// `value` as a 64-bit length; exact.
#[inline(always)]
pub(crate) const fn u64_from(value: usize) -> u64 {
    value as u64
}

/// `value` as an index or length in memory. Larger values than `usize` saturate, which is beyond
/// the end of every slice.
#[inline(always)]
pub(crate) fn usize_saturating(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The number of the byte that contains `bit`.
#[inline(always)]
pub(crate) fn byte_of(bit: u64) -> usize {
    usize_saturating(bit >> 3)
}

/// The offset of `bit` in its byte.
#[inline(always)]
pub(crate) fn bit_in_byte(bit: u64) -> u32 {
    low_u32(bit & 7)
}

/// `value`, an index that a limit elsewhere keeps far below 2^32.
#[inline(always)]
pub(crate) fn u32_saturating(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The low 32 bits of `value`.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the high bits are dropped on purpose"
)]
pub(crate) const fn low_u32(value: u64) -> u32 {
    value as u32
}

/// The low 64 bits of `value`.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the high bits are dropped on purpose"
)]
pub(crate) const fn low_u64(value: u128) -> u64 {
    value as u64
}

/// The low 8 bits of `value`.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the high bits are dropped on purpose"
)]
pub(crate) const fn low_u8(value: u64) -> u8 {
    value as u8
}
