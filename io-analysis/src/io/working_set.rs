//! The number of distinct pages accessed, in total and over time, estimated with sketches.

use super::steps::{Merge, Steps};
use super::{Direction, IoAccess};
use crate::numbers::floor_to_u64;

/// Size of a page.
pub(super) const PAGE_BYTES: u64 = 4096;

/// A sketch has 2^12 registers: the error is about 1.04 / sqrt(4096) = 1.6 %.
const PRECISION: u32 = 12;

/// Maximum number of time steps; each has a sketch of 4 KiB.
const STEPS_MAX: usize = 256;

/// Maximum number of pages counted per access; a longer access counts as 256 MiB.
const PAGES_MAX: u64 = 1 << 16;

/// HyperLogLog (Flajolet and others, 2007) with linear counting for small sets.
#[derive(Debug, Clone)]
pub(super) struct Sketch {
    registers: Vec<u8>,
}

impl Default for Sketch {
    fn default() -> Self {
        Self {
            registers: vec![0; 1 << PRECISION],
        }
    }
}

impl Sketch {
    #[inline]
    fn add(&mut self, hash: u64) {
        let index = (hash >> (64 - PRECISION)) as usize;
        let rank = ((hash << PRECISION) | (1 << (PRECISION - 1))).leading_zeros() + 1;
        let rank = u8::try_from(rank).unwrap_or(u8::MAX);
        let register = &mut self.registers[index];
        *register = (*register).max(rank);
    }

    pub(super) fn estimate(&self) -> u64 {
        let count = self.registers.len() as f64;
        let sum: f64 = self
            .registers
            .iter()
            .map(|&rank| (-f64::from(rank)).exp2())
            .sum();
        let zeros = self.registers.iter().filter(|&&rank| rank == 0).count();
        let raw = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
        let estimate = if raw <= 2.5 * count && zeros > 0 {
            count * (count / zeros as f64).ln()
        } else {
            raw
        };
        floor_to_u64(estimate.round())
    }
}

impl Merge for Sketch {
    fn merge(&mut self, other: &Self) {
        for (own, other) in self.registers.iter_mut().zip(&other.registers) {
            *own = (*own).max(*other);
        }
    }
}

/// Distinct pages read and written.
#[derive(Debug)]
pub(super) struct WorkingSet {
    pub(super) read: Sketch,
    pub(super) written: Sketch,
    pub(super) over_time: Steps<Sketch>,
}

impl WorkingSet {
    pub(super) fn new() -> Self {
        // The initial width of a step is 2^30 ns, about a second.
        let over_time = Steps::new(30, STEPS_MAX);
        Self {
            read: Sketch::default(),
            written: Sketch::default(),
            over_time,
        }
    }

    pub(super) fn add(&mut self, access: &IoAccess<'_>, file: u32) {
        let (Some(offset), Some(len)) = (access.offset, access.len) else {
            return;
        };
        let sketch = match access.direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.written,
            Direction::Sync | Direction::Other => return,
        };
        if len == 0 {
            return;
        }
        let first = offset / PAGE_BYTES;
        let last = offset.saturating_add(len - 1) / PAGE_BYTES;
        let step = self.over_time.at(access.start_ns);
        for page in first..=last.min(first.saturating_add(PAGES_MAX - 1)) {
            let hash = mix(page ^ u64::from(file).rotate_left(40));
            sketch.add(hash);
            step.add(hash);
        }
    }
}

/// The finalizer of splitmix64, a bijection in which every input bit affects all output bits.
#[inline]
fn mix(value: u64) -> u64 {
    let mut value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_close() {
        for count in [0u64, 10, 1000, 100_000, 2_000_000] {
            let mut sketch = Sketch::default();
            for round in 0..2 {
                for value in 0..count {
                    sketch.add(mix(value));
                }
                let estimate = sketch.estimate() as f64;
                let error = (estimate - count as f64).abs() / (count.max(1) as f64);
                assert!(error < 0.05, "{count} round {round}: {estimate}");
            }
        }
    }
}
