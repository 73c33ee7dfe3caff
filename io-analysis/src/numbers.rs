//! Conversions between integer widths and from floating point.

/// A value as an index or a size in memory; `usize::MAX` if it does not fit.
#[inline]
pub(crate) fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A count of things that are numbered with `u32`; `u32::MAX` if it does not fit.
#[inline]
pub(crate) fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The integer part of a number; 0 if it is negative or not a number, `u64::MAX` if it is too
/// large.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts from floating point saturate"
)]
pub(crate) fn floor_to_u64(value: f64) -> u64 {
    value as u64
}
