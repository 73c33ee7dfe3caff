//! Sums that do not depend on the order of their terms, so every way to execute a query gives the
//! same digits.

use query_language::Number;

/// Distinct magnitudes whose exact sum is the sum of all floats that were added (Shewchuk 1997).
#[derive(Debug, Clone, Default)]
pub(crate) struct Sum {
    whole: i128,
    partials: Vec<f64>,
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
                    .for_each(|half| self.add_float(half));
            }
        }
    }

    fn add_float(&mut self, value: f64) {
        if !value.is_finite() {
            self.special = Some(self.special.unwrap_or(0.0) + value);
            return;
        }
        let mut x = value;
        let mut kept = 0;
        for at in 0..self.partials.len() {
            let mut y = self.partials[at];
            if x.abs() < y.abs() {
                std::mem::swap(&mut x, &mut y);
            }
            let high = x + y;
            let low = y - (high - x);
            if low != 0.0 {
                self.partials[kept] = low;
                kept += 1;
            }
            x = high;
        }
        self.partials.truncate(kept);
        if x.is_finite() {
            self.partials.push(x);
        } else {
            self.special = Some(x);
        }
    }

    pub(crate) fn merge(&mut self, other: &Sum) {
        self.add_wide(other.whole);
        self.has_fractions |= other.has_fractions;
        for value in &other.partials {
            self.add_float(*value);
        }
        if let Some(special) = other.special {
            self.add_float(special);
        }
    }

    /// The sum: an integer if all terms were.
    pub(crate) fn total(&self) -> Number {
        if !self.has_fractions {
            return Number::Int(self.whole);
        }
        Number::Float(self.rounded())
    }

    /// The sum as the nearest float.
    pub(crate) fn rounded(&self) -> f64 {
        if let Some(special) = self.special {
            return special;
        }
        let mut all = Sum {
            partials: self.partials.clone(),
            ..Sum::default()
        };
        halves(self.whole)
            .into_iter()
            .for_each(|half| all.add_float(half));
        all.round_partials()
    }

    /// The partials do not overlap, so only the largest ones decide how the sum is rounded.
    fn round_partials(&self) -> f64 {
        let mut rest = self.partials.iter().rev().copied();
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

/// An integer as floats that add up to it exactly.
fn halves(value: i128) -> [f64; 3] {
    let sign = if value < 0 { -1.0 } else { 1.0 };
    let magnitude = value.unsigned_abs();
    let part = |shift: u32, bits: u32| {
        let digits = (magnitude >> shift) & ((1 << bits) - 1);
        // 44 bits at most: exact.
        sign * digits as f64 * f64::from(shift).exp2()
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
        ];
        for (numbers, expected) in cases {
            assert_eq!(sum(numbers).total(), *expected, "{numbers:?}");
        }
    }

    proptest! {
        #[test]
        fn neither_order_nor_partition_matters(
            numbers in proptest::collection::vec(prop_oneof![
                any::<i64>().prop_map(|value| Number::Int(value.into())),
                (-1e20..1e20_f64).prop_map(Number::Float),
                (-1e-3..1e-3_f64).prop_map(Number::Float),
            ], 0..60),
            cut in 0_usize..60,
        ) {
            let (left, right) = numbers.split_at(cut.min(numbers.len()));
            let mut merged = sum(right);
            merged.merge(&sum(left));
            prop_assert_eq!(merged.total(), sum(&numbers).total());
        }
    }
}
