//! Division with fractions, rounded down, and what it leaves: of the exact quotient, not of its
//! nearest fraction, which may be a whole number that the exact one does not reach.
//!
//! | operands | how |
//! | --- | --- |
//! | fractions, and integers that are equal to one | IEEE 754 operations without an error |
//! | an integer of more than 53 bits, and a fraction | both as whole numbers of the same power of two |
//!
//! Quotients of 2^53 and more are the nearest fraction.

use crate::Number;

/// The greatest quotient, rounded down, that is not more than the exact one.
pub(crate) fn quotient(left: Number, right: Number) -> f64 {
    match (exact(left), exact(right)) {
        (Some(left), Some(right)) => {
            let quotient = (left / right).floor();
            // The sign is that of the exact difference.
            let rest = if right.is_infinite() {
                left
            } else {
                (-quotient).mul_add(right, left)
            };
            let is_above = rest != 0.0 && (rest < 0.0) != (right < 0.0);
            quotient - f64::from(u8::from(is_above))
        }
        _ => divided(left, right).quotient,
    }
}

/// What [`quotient`] leaves, with the sign of `right`.
pub(crate) fn remainder(left: Number, right: Number) -> f64 {
    match (exact(left), exact(right)) {
        (Some(left), Some(right)) => {
            let rest = left % right;
            if rest != 0.0 && (rest < 0.0) != (right < 0.0) {
                rest + right
            } else {
                rest
            }
        }
        _ => divided(left, right).remainder,
    }
}

/// The fraction that is equal to a number.
fn exact(number: Number) -> Option<f64> {
    match number {
        Number::Float(value) => Some(value),
        Number::Int(value) => {
            let is_equal = value.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS;
            is_equal.then_some(value as f64)
        }
    }
}

struct Divided {
    quotient: f64,
    remainder: f64,
}

fn divided(left: Number, right: Number) -> Divided {
    let (a, b) = (Parts::of(left), Parts::of(right));
    let cut = a.divide(&b);
    let (mut quotient, mut rest) = (cut.quotient, cut.rest);
    if a.is_negative != b.is_negative && rest != 0 {
        quotient = quotient.and_then(|quotient| quotient.checked_add(1));
        let Some(divisor) = cut.divisor else {
            // A tiny number of the other sign than a large divisor.
            return Divided {
                quotient: -1.0,
                remainder: nearest(left) + nearest(right),
            };
        };
        rest = divisor - rest;
    }
    let sign = |is_negative: bool| if is_negative { -1.0 } else { 1.0 };
    Divided {
        quotient: match quotient {
            Some(quotient) => sign(a.is_negative != b.is_negative) * quotient as f64,
            None => (nearest(left) / nearest(right)).floor(),
        },
        remainder: sign(b.is_negative) * scaled(rest as f64, cut.exponent),
    }
}

fn nearest(number: Number) -> f64 {
    match number {
        Number::Int(value) => value as f64,
        Number::Float(value) => value,
    }
}

/// A number as a whole multiple of a power of two.
struct Parts {
    is_negative: bool,
    /// At most 2^127.
    whole: u128,
    exponent: i32,
}

/// A quotient without its fraction, and what it leaves.
struct Cut {
    /// `None` if it has more than 128 bits.
    quotient: Option<u128>,
    /// A multiple of 2^`exponent`.
    rest: u128,
    /// The divisor as such a multiple; `None` if it has more than 128 bits.
    divisor: Option<u128>,
    exponent: i32,
}

impl Parts {
    fn of(number: Number) -> Parts {
        match number {
            Number::Int(value) => Parts {
                is_negative: value < 0,
                whole: value.unsigned_abs(),
                exponent: 0,
            },
            Number::Float(value) => {
                let bits = value.abs().to_bits();
                let (high, low) = (bits >> 52, bits & ((1 << 52) - 1));
                let implied = u64::from(high > 0) << 52;
                Parts {
                    is_negative: value < 0.0,
                    whole: u128::from(low | implied),
                    exponent: i32::try_from(high.max(1)).unwrap_or(i32::MAX) - 1075,
                }
            }
        }
    }

    fn divide(&self, by: &Parts) -> Cut {
        let shift = self.exponent.abs_diff(by.exponent);
        if self.exponent < by.exponent {
            let divisor = (shift <= by.whole.leading_zeros()).then(|| by.whole << shift);
            let whole = self.whole;
            return Cut {
                quotient: Some(divisor.map_or(0, |divisor| whole / divisor)),
                rest: divisor.map_or(whole, |divisor| whole % divisor),
                divisor,
                exponent: self.exponent,
            };
        }
        let at_once = shift.min(self.whole.leading_zeros().min(127));
        let whole = self.whole << at_once;
        let mut quotient = Some(whole / by.whole);
        let mut rest = whole % by.whole;
        // Bit by bit: a rest is less than 2^127.
        for _ in at_once..shift {
            rest <<= 1;
            let bit = u128::from(rest >= by.whole);
            rest -= bit * by.whole;
            let double = |quotient: u128| quotient.checked_mul(2).map(|double| double | bit);
            quotient = quotient.and_then(double);
        }
        Cut {
            quotient,
            rest,
            divisor: Some(by.whole),
            exponent: by.exponent,
        }
    }
}

/// `value` × 2^`exponent`, for an exponent of a fraction.
fn scaled(value: f64, exponent: i32) -> f64 {
    // Neither half is too small or too large for itself.
    let half = exponent / 2;
    value * 2_f64.powi(half) * 2_f64.powi(exponent - half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(left: Number, right: Number, expected: (f64, f64)) {
        let found = (quotient(left, right), remainder(left, right));
        assert_eq!(found, expected, "{left} by {right}");
    }

    /// Expected are the results of exact fractions, rounded once.
    #[test]
    fn the_quotient_is_that_of_the_exact_fraction() {
        let (int, float) = (Number::Int, Number::Float);
        check(float(1e16), float(1.5), (6_666_666_666_666_666.0, 1.0));
        check(
            int(10_i128.pow(16)),
            float(1.5),
            (6_666_666_666_666_666.0, 1.0),
        );
        check(float(-1e16), float(1.5), (-6_666_666_666_666_667.0, 0.5));
        check(float(1e16), float(-1.5), (-6_666_666_666_666_667.0, -0.5));
        check(float(1.0), float(0.1), (9.0, 1.0 % 0.1));
        check(float(7.5), float(2.0), (3.0, 1.5));
        check(float(-7.5), float(2.0), (-4.0, 0.5));
        check(float(-6.0), float(1.5), (-4.0, 0.0));
        check(float(-5e-324), float(2.0), (-1.0, 2.0));
        check(float(5e-324), float(1e308), (0.0, 5e-324));
        // 2^64 - 1 is a multiple of 1.5, and 2^64 is not.
        let all = i128::from(u64::MAX);
        check(int(all), float(1.5), ((all / 3 * 2) as f64, 0.0));
        check(int(all), float(2.5), ((all / 5 * 2) as f64, 0.0));
        check(int(all), float(-2.5), (-((all / 5 * 2) as f64), 0.0));
        check(
            int(all - 1),
            float(2.5),
            (((all - 5) / 5 * 2 + 1) as f64, 1.5),
        );
        check(int(all), float(0.75), ((all / 3 * 4) as f64, 0.0));
        check(int(-all), float(4096.5), (-4_503_049_938_657_281.0, 1.5));
        check(int(all), float(1e300), (0.0, all as f64));
        check(int(-all), float(1e300), (-1.0, 1e300));
        check(
            int(1 << 100),
            float(3.0),
            (((1_i128 << 100) / 3) as f64, 1.0),
        );
        check(float(0.5), int(all), (0.0, 0.5));
        check(float(-0.5), int(all), (-1.0, all as f64));
        check(
            float(1e30),
            int(all),
            (54_210_108_624.0, 5.076964209140211e18),
        );
        check(int(1 << 60), float(5e-324), (f64::INFINITY, 0.0));
        assert!(quotient(int(3), float(f64::NAN)).is_nan());
        assert_eq!(quotient(int(-3), float(f64::INFINITY)), -1.0);
    }
}
