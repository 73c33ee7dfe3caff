//! Sums that do not depend on the order of their terms, so every way to execute a query gives the
//! same digits.

use query_language::Number;

/// From here on, floats are kept scaled, so that no sum overflows on the way to its total.
const LARGE_EXPONENT: i32 = 900;
/// Binary orders of magnitude by which they are scaled down.
const SCALE: i32 = 200;

/// The exact sum of all numbers that were added.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sum {
    whole: i128,
    floats: Partials,
    /// Floats of at least 2^900, scaled.
    large: Partials,
    /// The sum of what is not finite, if there is any.
    special: Option<f64>,
    has_fractions: bool,
}

impl Sum {
    pub(crate) fn add(&mut self, number: Number) {
        match number {
            Number::Int(value) => match i64::try_from(value) {
                Ok(value) => self.whole = self.whole.saturating_add(i128::from(value)),
                Err(_) => self.add_wide(value),
            },
            Number::Float(value) => {
                self.has_fractions = true;
                self.add_float(value);
            }
        }
    }

    /// Adds an integer beyond 64 bits, of which there may be too many for 128.
    fn add_wide(&mut self, value: i128) {
        match self.whole.checked_add(value) {
            // Far from the limit, so that the order of small terms does not matter.
            Some(sum) if sum.unsigned_abs() < 1 << 120 => self.whole = sum,
            _ => {
                self.has_fractions = true;
                halves(value)
                    .into_iter()
                    .for_each(|half| self.floats.add(half));
            }
        }
    }

    fn add_float(&mut self, value: f64) {
        if !value.is_finite() {
            self.special = Some(self.special.unwrap_or(0.0) + value);
        } else if value.abs() < power(LARGE_EXPONENT) {
            self.floats.add(value);
        } else {
            self.large.add(value * power(-SCALE));
        }
    }

    pub(crate) fn merge(&mut self, other: &Sum) {
        self.add_wide(other.whole);
        self.has_fractions |= other.has_fractions;
        other
            .floats
            .0
            .iter()
            .for_each(|part| self.floats.add(*part));
        other.large.0.iter().for_each(|part| self.large.add(*part));
        if let Some(special) = other.special {
            self.add_float(special);
        }
    }

    /// The sum: an integer if all terms were.
    pub(crate) fn total(&self) -> Number {
        if !self.has_fractions {
            return Number::Int(self.whole);
        }
        Number::Float(self.divided(1))
    }

    /// The float that is nearest to the sum divided by a number of terms.
    pub(crate) fn divided(&self, terms: u64) -> f64 {
        if let Some(special) = self.special {
            return special;
        }
        let mut all = self.floats.clone();
        halves(self.whole)
            .into_iter()
            .for_each(|half| all.add(half));
        // Unscaled, it is far enough from the largest float.
        if self.large.largest().abs() < power(1_000 - SCALE) {
            self.large
                .0
                .iter()
                .for_each(|part| all.add(part * power(SCALE)));
            return all.divided(terms);
        }
        let mut scaled = self.large.clone();
        for part in all.0.iter().rev() {
            if part.abs() < power(-800) {
                // It can only decide a tie, and the smaller ones do not change its sign.
                scaled.add(power(-1_000).copysign(*part));
                break;
            }
            scaled.add(part * power(-SCALE));
        }
        scaled.divided(terms) * power(SCALE)
    }
}

/// Distinct magnitudes, ascending, whose exact sum is the sum of all floats that were added
/// (Shewchuk 1997).
#[derive(Debug, Clone, Default)]
struct Partials(Vec<f64>);

impl Partials {
    fn add(&mut self, value: f64) {
        let mut x = value;
        let mut kept = 0;
        for at in 0..self.0.len() {
            let mut y = self.0[at];
            if x.abs() < y.abs() {
                std::mem::swap(&mut x, &mut y);
            }
            let high = x + y;
            let low = y - (high - x);
            if low != 0.0 {
                self.0[kept] = low;
                kept += 1;
            }
            x = high;
        }
        self.0.truncate(kept);
        self.0.push(x);
    }

    fn largest(&self) -> f64 {
        self.0.last().copied().unwrap_or(0.0)
    }

    /// The nearest float to the sum divided by a number of terms.
    fn divided(&self, terms: u64) -> f64 {
        let sum = self.rounded();
        if terms == 1 {
            return sum;
        }
        let mut rest = self.clone();
        rest.add(-sum);
        let terms = terms as f64;
        let quotient = sum / terms;
        // What the division and the rounding of the sum left over, each exact.
        let remainder = quotient.mul_add(-terms, sum) + rest.rounded();
        quotient + remainder / terms
    }

    /// The partials do not overlap, so only the largest ones decide how the sum is rounded.
    fn rounded(&self) -> f64 {
        let mut rest = self.0.iter().rev().copied();
        let Some(mut high) = rest.next() else {
            return 0.0;
        };
        let mut low = 0.0;
        for next in rest.by_ref() {
            let sum = high + next;
            low = next - (sum - high);
            high = sum;
            if low != 0.0 {
                break;
            }
        }
        // A tie is decided by the sign of what follows.
        if let Some(next) = rest.next()
            && low != 0.0
            && (low < 0.0) == (next < 0.0)
        {
            let doubled = low * 2.0;
            let sum = high + doubled;
            if doubled == sum - high {
                return sum;
            }
        }
        high
    }
}

/// A power of two.
fn power(exponent: i32) -> f64 {
    f64::from(exponent).exp2()
}

/// An integer as floats that add up to it exactly.
fn halves(value: i128) -> [f64; 3] {
    let sign = if value < 0 { -1.0 } else { 1.0 };
    let magnitude = value.unsigned_abs();
    let part = |shift: i32, bits: u32| {
        let digits = (magnitude >> shift) & ((1 << bits) - 1);
        // 44 bits at most: exact.
        sign * digits as f64 * power(shift)
    };
    [part(88, 40), part(44, 44), part(0, 44)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(numbers: &[Number]) -> Sum {
        let mut sum = Sum::default();
        numbers.iter().for_each(|number| sum.add(*number));
        sum
    }

    #[test]
    fn sums_are_exact() {
        use Number::{Float, Int};
        let cases: &[(&[Number], Number)] = &[
            (&[], Int(0)),
            (&[Int(1), Int(-3)], Int(-2)),
            (&[Int(i128::from(u64::MAX)), Int(1)], Int(1 << 64)),
            (&[Float(0.1); 10], Float(1.0)),
            (&[Float(1e100), Float(1.0), Float(-1e100)], Float(1.0)),
            (
                &[Float(0.5), Int(1 << 60), Int(1)],
                Float(1_152_921_504_606_846_977.5),
            ),
            (&[Float(f64::INFINITY), Float(1.0)], Float(f64::INFINITY)),
            (&[Int(-(1 << 100)), Float(1.0)], Float(-(100_f64.exp2()))),
            (
                &[Float(1e308), Float(1e308), Float(-1e308), Float(1.5)],
                Float(1e308),
            ),
            (
                &[
                    Float(1.7e308),
                    Float(1.7e308),
                    Float(-1.7e308),
                    Float(-1.7e308),
                    Float(0.5),
                ],
                Float(0.5),
            ),
            (&[Float(1.7e308), Float(1.7e308)], Float(f64::INFINITY)),
            (
                &[Float(power(1_010)), Float(power(957)), Float(1e-300)],
                Float(power(1_010) * (1.0 + f64::EPSILON)),
            ),
            (
                &[Float(power(1_010)), Float(power(957)), Float(-1e-300)],
                Float(power(1_010)),
            ),
            (&[Float(f64::MAX), Float(1.0)], Float(f64::MAX)),
            (
                &[Float(f64::MAX), Float(f64::MAX), Float(-f64::MAX)],
                Float(f64::MAX),
            ),
        ];
        for (numbers, expected) in cases {
            assert_eq!(sum(numbers).total(), *expected, "{numbers:?}");
        }
    }

    #[test]
    fn averages_are_the_nearest_floats() {
        use Number::{Float, Int};
        let cases: &[(&[Number], f64)] = &[
            (&[Float(0.1), Float(0.2), Float(0.3)], 0.2),
            (&[Int(1), Int(2)], 1.5),
            (&[Float(1.7e308), Float(1.7e308)], 1.7e308),
            (
                &[Float(f64::MAX), Float(f64::MAX), Float(1.0)],
                f64::MAX / 1.5,
            ),
            (
                &[Int(i128::from(u64::MAX)), Int(1)],
                9_223_372_036_854_775_808.0,
            ),
            (&[Float(5e-324), Float(5e-324)], 5e-324),
            (&[Float(f64::NEG_INFINITY), Float(1.0)], f64::NEG_INFINITY),
            (&[Int(10), Int(10), Int(11)], 31.0 / 3.0),
        ];
        for (numbers, expected) in cases {
            let average = sum(numbers).divided(numbers.len() as u64);
            assert_eq!(
                average.to_bits(),
                expected.to_bits(),
                "{numbers:?}: {average}"
            );
        }
    }

    proptest! {
        #[test]
        fn neither_order_nor_partition_matters(
            numbers in proptest::collection::vec(prop_oneof![
                any::<i64>().prop_map(|value| Number::Int(value.into())),
                (-1e20..1e20_f64).prop_map(Number::Float),
                (-1e-3..1e-3_f64).prop_map(Number::Float),
                (-f64::MAX..f64::MAX).prop_map(Number::Float),
                (-270..270_i32).prop_map(|exponent| Number::Float(power(exponent * 4 - 20))),
            ], 0..60),
            cut in 0_usize..60,
        ) {
            let (left, right) = numbers.split_at(cut.min(numbers.len()));
            let mut merged = sum(right);
            merged.merge(&sum(left));
            prop_assert_eq!(merged.total(), sum(&numbers).total());
            prop_assert_eq!(merged.divided(7).to_bits(), sum(&numbers).divided(7).to_bits());
        }
    }
}
