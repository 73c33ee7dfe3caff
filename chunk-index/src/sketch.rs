//! A quantile sketch with a relative error of 1 % over the whole range of 64 bits.
//!
//! DDSketch (Masson, Rim, Lee 2019): a value is counted in a bin whose limits differ by at most 2
//! %, so the middle of the bin is accurate to 1 %. Bins are divided by a cubic approximation of the
//! logarithm, exact at powers of two, with a whole number of bins per octave. So no logarithm is
//! computed, no bin is ever collapsed, any two sketches can be merged, and the octaves are the log₂
//! histogram.

use std::sync::LazyLock;

use crate::wire::put_varint;

/// The guaranteed relative error.
pub const RELATIVE_ERROR: f64 = 0.01;
/// Bins per octave. ln 2 / ln(1.01 / 0.99) is 34.66, and the cubic differs from the logarithm by 1
/// %.
const OCTAVE_BINS: u32 = 36;
/// Bins of all 64 octaves.
pub(crate) const BINS: u32 = 64 * OCTAVE_BINS;
/// Octaves of a histogram, and one bin for values that are zero or less.
pub const HISTOGRAM_BINS: usize = 65;

/// Counts of values by magnitude.
#[derive(Debug, Clone, Default)]
pub struct Sketch {
    /// Values of zero and less.
    low: u64,
    /// The magnitudes of those below zero, as far as they are known: files do not have them.
    negative: Option<Box<Sketch>>,
    /// The bin of `counts[0]`.
    first: u32,
    counts: Vec<u64>,
}

/// Equal if files have the same counts of them, regardless of the capacity.
impl PartialEq for Sketch {
    fn eq(&self, other: &Sketch) -> bool {
        self.low == other.low && self.bins().eq(other.bins())
    }
}

impl Sketch {
    /// Counts a value.
    #[inline]
    pub fn add(&mut self, value: i64) {
        match u64::try_from(value) {
            Ok(0) => self.low += 1,
            Ok(value) => self.add_magnitude(value),
            Err(_) => {
                self.low += 1;
                let negative = self.negative.get_or_insert_default();
                negative.add_magnitude(value.unsigned_abs());
            }
        }
    }

    #[inline]
    fn add_magnitude(&mut self, value: u64) {
        let at = bin_of(value).wrapping_sub(self.first) as usize;
        match self.counts.get_mut(at) {
            Some(count) => *count += 1,
            None => self.add_outside(bin_of(value), 1),
        }
    }

    #[cold]
    fn add_outside(&mut self, bin: u32, count: u64) {
        if self.counts.is_empty() {
            self.first = bin;
        }
        if bin < self.first {
            // Some bins below, because smaller values often arrive one by one.
            let first = bin.saturating_sub(OCTAVE_BINS);
            let grown = (self.first - first) as usize;
            self.counts.splice(0..0, std::iter::repeat_n(0, grown));
            self.first = first;
        }
        let at = (bin - self.first) as usize;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += count;
    }

    /// Memory of the counts, bytes.
    pub fn memory(&self) -> usize {
        let negative = self.negative.as_ref();
        let below = negative.map_or(0, |negative| size_of::<Sketch>() + negative.memory());
        below + self.counts.capacity() * size_of::<u64>()
    }

    /// Adds the counts of another sketch.
    pub fn merge(&mut self, other: &Sketch) {
        self.low += other.low;
        if let Some(negative) = &other.negative {
            self.negative.get_or_insert_default().merge(negative);
        }
        for (bin, count) in other.bins() {
            self.add_bin(bin, count);
        }
    }

    pub(crate) fn add_bin(&mut self, bin: u32, count: u64) {
        let at = bin.wrapping_sub(self.first) as usize;
        match self.counts.get_mut(at) {
            Some(sum) => *sum = sum.saturating_add(count),
            None => self.add_outside(bin, count),
        }
    }

    pub(crate) fn low(&self) -> u64 {
        self.low
    }

    pub(crate) fn set_low(&mut self, low: u64) {
        self.low = low;
    }

    /// The bins with counts, ascending.
    pub(crate) fn bins(&self) -> impl Iterator<Item = (u32, u64)> {
        (self.first..)
            .zip(&self.counts)
            .filter(|(_, count)| **count > 0)
            .map(|(bin, count)| (bin, *count))
    }

    /// The sketch as bytes: LEB128 numbers; the count of values of zero and less, then for each bin
    /// with counts its distance from the previous such bin (from 0 for the first) and its count.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |value: u64| put_varint(&mut out, value);
        put(self.low);
        let mut before = 0;
        for (bin, count) in self.bins() {
            put(u64::from(bin - before));
            put(count);
            before = bin;
        }
        out
    }

    /// Decodes a sketch; `None` for invalid bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Sketch> {
        let mut numbers = bytes.split_inclusive(|byte| byte & 0x80 == 0).map(|part| {
            let fits = part.len() <= 10 && part.last().is_some_and(|byte| byte & 0x80 == 0);
            let digits = part.iter().rev().map(|byte| u64::from(byte & 0x7f));
            fits.then(|| digits.fold(0, |value, digit| value << 7 | digit))
        });
        let mut sketch = Sketch {
            low: numbers.next()??,
            ..Sketch::default()
        };
        let mut bin = 0_u32;
        while let Some(distance) = numbers.next() {
            bin = bin.checked_add(u32::try_from(distance?).ok()?)?;
            if bin >= BINS {
                return None;
            }
            sketch.add_bin(bin, numbers.next()??);
        }
        Some(sketch)
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.counts
            .iter()
            .fold(self.low, |sum, count| sum.saturating_add(*count))
    }

    /// The value at the nearest rank of the share `quantile` (0 to 1), accurate to
    /// [`RELATIVE_ERROR`]. In a sketch of a file, values below zero count as zero. `None` without
    /// values.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = nearest_rank(quantile, count);
        if let Some(negative) = &self.negative
            && let Some(above) = negative.count().checked_sub(rank.saturating_add(1))
        {
            // The smallest values have the largest magnitudes.
            return negative.at_rank(above).map(|magnitude| -magnitude);
        }
        self.at_rank(rank)
    }

    /// The value of which `rank` others are less.
    fn at_rank(&self, rank: u64) -> Option<f64> {
        let mut below = self.low;
        if rank < below {
            return Some(0.0);
        }
        for (bin, count) in self.bins() {
            below = below.saturating_add(count);
            if rank < below {
                return Some(middle_of(bin));
            }
        }
        self.bins().last().map(|(bin, _)| middle_of(bin))
    }

    /// Exact counts by power of two: index 0 counts the values of zero and less, index `k` those
    /// from `2^(k-1)` to below `2^k`.
    pub fn histogram(&self) -> [u64; HISTOGRAM_BINS] {
        let mut histogram = [0; HISTOGRAM_BINS];
        histogram[0] = self.low;
        for (bin, count) in self.bins() {
            histogram[(bin / OCTAVE_BINS) as usize + 1] += count;
        }
        histogram
    }
}

/// The nearest rank of a share (0 to 1) of `count` ascending values, from 0: the first value that
/// the share does not exceed.
pub fn nearest_rank(quantile: f64, count: u64) -> u64 {
    let position = quantile.clamp(0.0, 1.0) * count as f64;
    // 7 % of 100 values are 7, although the product of the floats is a little more.
    let noise = position * (4.0 * f64::EPSILON);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank is at most the count"
    )]
    let rank = (position - noise).ceil() as u64;
    rank.clamp(1, count.max(1)) - 1
}

/// The cubic that is 0 at 0 and 1 at 1, and approximates log₂(1 + s) between.
#[inline]
fn cubic(s: f64) -> f64 {
    ((6.0 / 35.0 * s - 3.0 / 5.0) * s + 10.0 / 7.0) * s
}

#[inline]
fn bin_of(value: u64) -> u32 {
    let zeros = value.leading_zeros();
    // The bits below the leading one, as the fraction of a float from 1 to 2.
    let fraction = (value << zeros << 1) >> 12;
    let s = f64::from_bits(0x3ff0_0000_0000_0000 | fraction) - 1.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cubic is from 0 to 1"
    )]
    let within = (cubic(s) * f64::from(OCTAVE_BINS)) as u32;
    (63 - zeros) * OCTAVE_BINS + within.min(OCTAVE_BINS - 1)
}

/// Where the bins of an octave begin, as fractions of it: the inverse of the cubic.
static LIMITS: LazyLock<[f64; OCTAVE_BINS as usize + 1]> = LazyLock::new(|| {
    std::array::from_fn(|bin| {
        let wanted = bin as f64 / f64::from(OCTAVE_BINS);
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if cubic(middle) < wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        1.0 + high
    })
});

/// The value with the same relative distance to both limits of the bin.
fn middle_of(bin: u32) -> f64 {
    let octave = f64::from(bin / OCTAVE_BINS).exp2();
    let within = (bin % OCTAVE_BINS) as usize;
    let (low, high) = (LIMITS[within], LIMITS[within + 1]);
    octave * 2.0 * low * high / (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exact(sorted: &[i64], quantile: f64) -> f64 {
        sorted[nearest_rank(quantile, sorted.len() as u64) as usize] as f64
    }

    fn close(sketch: f64, exact: f64) -> bool {
        // A little above the guarantee, for the rounding of the floats themselves.
        (sketch - exact).abs() <= exact.abs() * (RELATIVE_ERROR + 1e-9)
    }

    #[test]
    fn every_magnitude_is_accurate_to_one_percent() {
        let mut value = 1_u64;
        while value < u64::MAX / 3 {
            for value in [value - 1, value, value + 1, value / 3 * 4] {
                if let Ok(signed) = i64::try_from(value) {
                    let mut sketch = Sketch::default();
                    sketch.add(signed);
                    let read = sketch.quantile(0.5).unwrap();
                    assert!(close(read, value as f64), "{value}: {read}");
                }
            }
            value += value / 33 + 1;
        }
    }

    #[test]
    fn low_quantiles_survive_a_huge_maximum() {
        let mut values: Vec<i64> = (0..100_000).map(|i| 1_000 + i % 90_000).collect();
        values.extend([i64::MAX, 13_800_000_000, 0, -5]);
        let mut sketch = Sketch::default();
        values.iter().for_each(|value| sketch.add(*value));
        values.sort_unstable();
        for quantile in [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let (read, truth) = (sketch.quantile(quantile).unwrap(), exact(&values, quantile));
            assert!(close(read, truth), "{quantile}: {read} {truth}");
        }
    }

    #[test]
    fn ranks_are_the_nearest_ones() {
        let cases = [
            (0.0, 10, 0),
            (0.5, 10, 4),
            (0.9, 10, 8),
            (0.99, 10, 9),
            (1.0, 10, 9),
            (0.5, 1, 0),
            (0.5, 11, 5),
            (0.01, 100, 0),
            (0.011, 100, 1),
            (0.5, 0, 0),
        ];
        for (quantile, count, expected) in cases {
            assert_eq!(
                nearest_rank(quantile, count),
                expected,
                "{quantile} of {count}"
            );
        }
        // Every percentage of a multiple of 100 is a whole rank.
        for count in [100, 300, 70_000, 1_000_000_000] {
            for percent in 1..=100_u64 {
                let found = nearest_rank(percent as f64 / 100.0, count);
                assert_eq!(found, percent * count / 100 - 1, "{percent} % of {count}");
            }
        }
    }

    #[test]
    fn an_empty_sketch_has_no_quantile() {
        assert_eq!(Sketch::default().quantile(0.5), None);
    }

    proptest! {
        #[test]
        fn merged_parts_equal_the_whole(
            values in proptest::collection::vec(
                prop_oneof![-3_i64..100, i64::MIN..i64::MAX, -9_000_i64..2_000_000], 1..300),
            cut in 0_usize..300,
            quantile in 0.0..=1.0,
        ) {
            let (left, right) = values.split_at(cut.min(values.len()));
            let sketch = |values: &[i64]| {
                let mut sketch = Sketch::default();
                values.iter().for_each(|value| sketch.add(*value));
                sketch
            };
            let mut merged = sketch(left);
            merged.merge(&sketch(right));
            let whole = sketch(&values);
            prop_assert_eq!(&merged, &whole);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let read = merged.quantile(quantile).unwrap();
            prop_assert!(close(read, exact(&sorted, quantile)), "{} {}", read, exact(&sorted, quantile));
            let histogram = whole.histogram();
            for (bucket, count) in histogram.iter().enumerate() {
                let inside = values.iter().filter(|value| match bucket {
                    0 => **value <= 0,
                    _ => **value > 0 && value.ilog2() as usize == bucket - 1,
                });
                prop_assert_eq!(*count, inside.count() as u64);
            }
        }
    }
}
