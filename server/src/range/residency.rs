//! Which parts of files were in the page cache a moment ago. To ask the kernel is a system call for
//! each part: a tenth of what a range of 64 KiB costs.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes of a part: one byte of it stands for all.
const PART_BYTES: u64 = 64 << 10;
/// Parts of all files that are remembered; a later one takes the place of an earlier one.
const PARTS: usize = 1 << 16;
/// How long a part counts as being in memory. It was sent at that time, so that the kernel keeps it
/// before others; if it did not, a thread waits for the disk.
const TICKS_MAX: u64 = 8;
const TICK_MILLISECONDS: u128 = 256;
/// Bits of the time in an entry; the others tell the part.
const TICK_BITS: u32 = 24;
const TICK_MASK: u64 = (1 << TICK_BITS) - 1;

static ENTRIES: [AtomicU64; PARTS] = [const { AtomicU64::new(0) }; PARTS];
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
static NEXT_FILE: AtomicU64 = AtomicU64::new(1);

/// What is known of one file.
#[derive(Debug)]
pub(super) struct Residency {
    file: u64,
}

impl Residency {
    pub(super) fn new() -> Self {
        Self {
            file: NEXT_FILE.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Whether the part with the byte at `offset` was in memory a moment ago, or is now by `ask`.
    pub(super) fn is_cached(&self, offset: u64, ask: impl FnOnce() -> bool) -> bool {
        let tick = u64::try_from(STARTED.elapsed().as_millis() / TICK_MILLISECONDS);
        self.is_cached_at(tick.unwrap_or(0), offset, ask)
    }

    fn is_cached_at(&self, tick: u64, offset: u64, ask: impl FnOnce() -> bool) -> bool {
        let mixed = mix(self.file, offset / PART_BYTES);
        let entry = &ENTRIES[usize::from(u16::try_from(mixed >> 48).unwrap_or(0))];
        let part = mixed << TICK_BITS;
        let found = entry.load(Ordering::Relaxed);
        let age = tick.wrapping_sub(found) & TICK_MASK;
        if found & !TICK_MASK == part && age <= TICKS_MAX {
            return true;
        }
        let is_cached = ask();
        if is_cached {
            entry.store(part | tick & TICK_MASK, Ordering::Relaxed);
        }
        is_cached
    }
}

/// Spreads the parts of files over 64 bits (the finalizer of MurmurHash3).
fn mix(file: u64, part: u64) -> u64 {
    let mut mixed = file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ part;
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_for_its_part_for_a_moment() {
        let (one, other) = (Residency::new(), Residency::new());
        let begun = TICK_MASK - 2;
        // File, ticks since the first, offset, answer of the kernel, result.
        let cases = [
            (&one, 0, 5, false, false),
            (&one, 0, 5, true, true),
            (&one, 0, PART_BYTES - 1, false, true),
            (&one, 0, PART_BYTES, false, false),
            (&other, 0, 5, false, false),
            // The time begins again in between.
            (&one, TICKS_MAX, 6, false, true),
            (&one, TICKS_MAX + 1, 6, false, false),
            (&one, TICKS_MAX + 1, 6, true, true),
        ];
        for (at, (file, ticks, offset, answer, expected)) in cases.into_iter().enumerate() {
            let found = file.is_cached_at(begun + ticks, offset, || answer);
            assert_eq!(found, expected, "case {at}");
        }
    }
}
