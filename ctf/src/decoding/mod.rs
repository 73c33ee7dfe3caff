//! What both readers of packets share: reading bits, and errors.

pub(crate) mod bits;
mod error;

pub use error::{DecodeError, DecodeFault};

/// The first multiple of `alignment` (a power of two) that is not less than `bit`, or the last one
/// that fits 64 bits.
#[inline]
pub(crate) fn align_up(bit: u64, alignment: u32) -> u64 {
    let mask = u64::from(alignment) - 1;
    bit.saturating_add(mask) & !mask
}

#[cfg(test)]
mod tests;
