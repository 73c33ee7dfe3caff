//! Sets of granules of one file, changed and read without a lock.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use storage_format::tier_file::GRANULE_BYTES;

/// A bit for each granule.
#[derive(Debug)]
pub(super) struct Granules(Box<[AtomicU64]>);

impl Granules {
    pub(super) fn new(count: u64) -> Self {
        Self((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn word(&self, granule: u64) -> Option<&AtomicU64> {
        self.0.get(usize::try_from(granule / 64).ok()?)
    }

    pub(super) fn has(&self, granule: u64) -> bool {
        let bit = 1 << (granule % 64);
        let word = self.word(granule);
        word.is_some_and(|word| word.load(Ordering::Acquire) & bit != 0)
    }

    /// Adds a granule; whether it is new.
    pub(super) fn add(&self, granule: u64) -> bool {
        let bit = 1 << (granule % 64);
        let word = self.word(granule);
        word.is_some_and(|word| word.fetch_or(bit, Ordering::AcqRel) & bit == 0)
    }

    pub(super) fn remove(&self, granule: u64) {
        if let Some(word) = self.word(granule) {
            word.fetch_and(!(1 << (granule % 64)), Ordering::AcqRel);
        }
    }
}

/// The granules that contain the bytes of a range.
pub(super) fn granules_of(range: &Range<u64>) -> Range<u64> {
    if range.is_empty() {
        return 0..0;
    }
    range.start / GRANULE_BYTES..range.end.div_ceil(GRANULE_BYTES)
}

/// The bytes of granules of a file of this length.
pub(super) fn bytes_of(granules: &Range<u64>, length: u64) -> Range<u64> {
    let start = granules.start.saturating_mul(GRANULE_BYTES);
    let end = granules.end.saturating_mul(GRANULE_BYTES);
    start.min(length)..end.min(length)
}

/// Ascending granules as runs that are at most `parts` long; between the granules of a run, up to
/// `gap` others are included.
pub(super) fn runs(granules: &[u64], gap: u64, parts: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &granule in granules {
        let after = granule.saturating_add(1);
        match runs.last_mut() {
            Some(run)
                if granule.saturating_sub(run.end) <= gap
                    && after.saturating_sub(run.start) <= parts =>
            {
                run.end = after;
            }
            _ => runs.push(granule..after),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cross_small_gaps_and_are_bounded() {
        assert_eq!(runs(&[], 1, 8), []);
        assert_eq!(runs(&[3, 7], 1, 8), [3..4, 7..8]);
        assert_eq!(runs(&[1, 2, 3, 5, 9], 1, 8), [1..6, 9..10]);
        assert_eq!(runs(&[1, 2, 3, 4, 5], 0, 2), [1..3, 3..5, 5..6]);
        assert_eq!(runs(&[0, 16, 90], 16, 64), [0..17, 90..91]);
    }

    #[test]
    fn granules_cover_exactly_their_bytes() {
        assert_eq!(granules_of(&(0..0)), 0..0);
        assert_eq!(granules_of(&(0..1)), 0..1);
        assert_eq!(granules_of(&(65_535..65_537)), 0..2);
        assert_eq!(granules_of(&(65_536..131_072)), 1..2);
        assert_eq!(bytes_of(&(1..3), 70_000), 65_536..70_000);
        let set = Granules::new(70);
        assert!(set.add(69) && !set.add(69) && set.has(69) && !set.has(68));
        set.remove(69);
        assert!(!set.has(69));
    }
}
