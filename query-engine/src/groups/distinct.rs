//! Number of distinct values: exact up to a bound, then from a sketch (HyperLogLog).

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Distinct values of a group that are counted exactly.
pub(crate) const DISTINCT_EXACT_MAX: usize = 10_000;
/// Bytes of these values.
const EXACT_BYTES_MAX: usize = 1 << 20;
/// Bits of a hash that select its register.
const REGISTER_BITS: u32 = 12;
const REGISTERS: usize = 1 << REGISTER_BITS;
/// The standard error of a sketch with so many registers: 1.04 / sqrt(4096).
pub(crate) const DISTINCT_ERROR: &str = "1.6 %";

/// The distinct values of a group.
#[derive(Debug, Clone)]
pub(crate) enum Distinct {
    /// All values, and their bytes.
    Exact(HashSet<Box<[u8]>>, usize),
    /// For each register, the most leading zeros of a hash, plus one.
    Sketch(Box<[u8]>),
}

impl Default for Distinct {
    fn default() -> Distinct {
        Distinct::Exact(HashSet::new(), 0)
    }
}

impl Distinct {
    /// Adds a value, encoded so that equal values have equal bytes. Returns the bytes of memory
    /// that it takes.
    pub(crate) fn add(&mut self, value: &[u8]) -> usize {
        match self {
            Distinct::Exact(values, bytes) => {
                if values.contains(value) {
                    return 0;
                }
                values.insert(value.into());
                *bytes += value.len();
                if values.len() > DISTINCT_EXACT_MAX || *bytes > EXACT_BYTES_MAX {
                    self.reduce();
                }
                value.len() + 32
            }
            Distinct::Sketch(registers) => {
                add_hash(value, registers);
                0
            }
        }
    }

    /// Replaces the values by a sketch of them.
    fn reduce(&mut self) {
        if let Distinct::Exact(values, _) = self {
            let mut registers = vec![0; REGISTERS].into_boxed_slice();
            values
                .iter()
                .for_each(|value| add_hash(value, &mut registers));
            *self = Distinct::Sketch(registers);
        }
    }

    pub(crate) fn merge(&mut self, other: Distinct) {
        match other {
            Distinct::Exact(values, _) => {
                for value in values {
                    self.add(&value);
                }
            }
            Distinct::Sketch(more) => {
                self.reduce();
                if let Distinct::Sketch(registers) = self {
                    for (register, other) in registers.iter_mut().zip(more) {
                        *register = (*register).max(other);
                    }
                }
            }
        }
    }

    /// The number of values, and whether it is exact.
    pub(crate) fn count(&self) -> (u64, bool) {
        match self {
            Distinct::Exact(values, _) => (values.len() as u64, true),
            Distinct::Sketch(registers) => (estimate(registers), false),
        }
    }
}

fn add_hash(value: &[u8], registers: &mut [u8]) {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    let hash = hasher.finish();
    let index = usize::try_from(hash >> (64 - REGISTER_BITS)).unwrap_or(0);
    // The lowest bit ends the zeros of a hash without any other.
    let zeros = (hash << REGISTER_BITS | 1 << (REGISTER_BITS - 1)).leading_zeros() + 1;
    if let Some(register) = registers.get_mut(index) {
        *register = (*register).max(u8::try_from(zeros).unwrap_or(u8::MAX));
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the estimate is positive and far below 2^64"
)]
fn estimate(registers: &[u8]) -> u64 {
    let count = registers.len() as f64;
    let sum: f64 = registers
        .iter()
        .map(|zeros| (-f64::from(*zeros)).exp2())
        .sum();
    let raw = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
    let empty = registers.iter().filter(|zeros| **zeros == 0).count();
    let estimate = if raw <= 2.5 * count && empty > 0 {
        count * (count / empty as f64).ln()
    } else {
        raw
    };
    estimate.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: std::ops::Range<u64>) -> Distinct {
        let mut distinct = Distinct::default();
        for value in values {
            distinct.add(&value.to_le_bytes());
            distinct.add(&value.to_le_bytes());
        }
        distinct
    }

    #[test]
    fn counts_are_exact_up_to_the_bound() {
        assert_eq!(Distinct::default().count(), (0, true));
        assert_eq!(of(0..10_000).count(), (10_000, true));
        let mut halves = of(0..6_000);
        halves.merge(of(3_000..9_000));
        assert_eq!(halves.count(), (9_000, true));
    }

    #[test]
    fn larger_counts_are_estimates_that_no_partition_changes() {
        for most in [20_000_u64, 100_000, 1_000_000] {
            let whole = of(0..most);
            let (count, is_exact) = whole.count();
            assert!(!is_exact);
            let error = (count as f64 - most as f64).abs() / most as f64;
            assert!(error < 0.05, "{count} {most}");
            let mut parts = of(0..8_000);
            parts.merge(of(8_000..most));
            assert_eq!(parts.count(), (count, false));
        }
        let mut short = of(0..8_000);
        short.merge(of(8_000..16_000));
        assert_eq!(short.count(), of(0..16_000).count());
    }
}
