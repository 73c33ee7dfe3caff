//! A sketch of numbers of any sign and size, for quantiles with a relative error of 1 %.
//!
//! Values are counted in bins whose limits grow by a constant factor (DDSketch). Durations have a
//! faster sketch of their own, which chunk summaries contain.

use std::collections::BTreeMap;

use chunk_index::{RELATIVE_ERROR, nearest_rank};

/// Counts of numbers by sign and magnitude.
#[derive(Debug, Clone, Default)]
pub(crate) struct NumberSketch {
    negative: BTreeMap<i32, u64>,
    zero: u64,
    positive: BTreeMap<i32, u64>,
}

/// Bytes of memory of one bin.
pub(crate) const BIN_BYTES: usize = 32;

fn growth() -> f64 {
    ((1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR)).ln()
}

impl NumberSketch {
    /// Counts a finite number. Returns whether that takes another bin.
    pub(crate) fn add(&mut self, value: f64) -> bool {
        if value == 0.0 {
            self.zero += 1;
            return false;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "logarithms of floats divided by 0.02 are far below 2^31"
        )]
        let bin = (value.abs().ln() / growth()).ceil() as i32;
        let bins = if value < 0.0 {
            &mut self.negative
        } else {
            &mut self.positive
        };
        let count = bins.entry(bin).or_default();
        *count += 1;
        *count == 1
    }

    pub(crate) fn merge(&mut self, other: &NumberSketch) {
        self.zero += other.zero;
        for (bin, count) in &other.negative {
            *self.negative.entry(*bin).or_default() += count;
        }
        for (bin, count) in &other.positive {
            *self.positive.entry(*bin).or_default() += count;
        }
    }

    /// The number at the nearest rank of the share `quantile` (0 to 1); `None` without any.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<f64> {
        let middle = |bin: i32| {
            let upper = (f64::from(bin) * growth()).exp();
            upper * (1.0 - RELATIVE_ERROR)
        };
        let negative = self.negative.iter().rev();
        let negative = negative.map(|(bin, count)| (-middle(*bin), *count));
        let positive = self.positive.iter();
        let positive = positive.map(|(bin, count)| (middle(*bin), *count));
        let all = || {
            let zero = std::iter::once((0.0, self.zero));
            negative.clone().chain(zero).chain(positive.clone())
        };
        let count: u64 = all().map(|(_, count)| count).sum();
        if count == 0 {
            return None;
        }
        let rank = nearest_rank(quantile, count);
        let mut below = 0;
        all()
            .find(|(_, count)| {
                below += count;
                rank < below
            })
            .map(|(value, _)| value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_within_one_percent(
            mut values in proptest::collection::vec(
                prop_oneof![Just(0.0), -1e9..1e9, 1e-9..1e-6, 1.0..1e12], 1..200),
            cut in 0_usize..200,
            quantile in 0.0..=1.0,
        ) {
            let (left, right) = values.split_at(cut.min(values.len()));
            let sketch = |values: &[f64]| {
                let mut sketch = NumberSketch::default();
                for value in values {
                    sketch.add(*value);
                }
                sketch
            };
            let mut merged = sketch(left);
            merged.merge(&sketch(right));
            let found = merged.quantile(quantile).unwrap();
            values.sort_unstable_by(f64::total_cmp);
            let rank = nearest_rank(quantile, values.len() as u64);
            let exact = values[usize::try_from(rank).unwrap()];
            prop_assert!((found - exact).abs() <= exact.abs() * 0.010_001, "{found} {exact}");
        }
    }

    #[test]
    fn no_numbers_have_no_quantile() {
        assert_eq!(NumberSketch::default().quantile(0.5), None);
    }
}
