//! Conversions between integer widths that cannot fail, by name.
//!
//! `as` between integer widths is denied in this crate: it truncates without a word. The platforms
//! that Tracehold runs on have addresses of 64 bits, which the assertion below checks.

const _: () = assert!(
    size_of::<usize>() == size_of::<u64>(),
    "sizes in memory and in files have the same width"
);

/// A size in memory as a size in a file.
#[must_use]
pub const fn u64_of(size: usize) -> u64 {
    size as u64
}

/// A size of 32 bits as a size in memory.
#[must_use]
pub const fn usize_of(size: u32) -> usize {
    size as usize
}

/// A size in a file as a size in memory.
#[expect(
    clippy::cast_possible_truncation,
    reason = "both have 64 bits, see above"
)]
#[must_use]
pub const fn usize_of_u64(size: u64) -> usize {
    size as usize
}
