//! Axes: the range of their values, and round ticks with labels.

/// About this many ticks are on an axis.
const TICKS: f64 = 6.0;
/// More are never drawn.
const TICKS_MAX: usize = 40;
/// Digits after the decimal point of a label at most.
const DIGITS_MAX: usize = 9;

/// What the values of an axis are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Powers of two are round.
    Bytes,
    /// 1, 2 and 5 with zeros are round.
    Number,
}

/// An axis: its name with its unit, and what its values are.
#[derive(Clone, Copy)]
pub(super) struct Axis<'a> {
    pub(super) name: &'a str,
    pub(super) unit: Unit,
    pub(super) logarithmic: bool,
}

/// The range of values of an axis.
#[derive(Debug)]
pub(super) struct Scale {
    least: f64,
    greatest: f64,
    /// Distance of ticks; of their exponents of two on a logarithmic axis.
    step: f64,
    unit: Unit,
    logarithmic: bool,
}

impl Scale {
    /// The range of exactly these values.
    pub(super) fn exact(axis: &Axis<'_>, values: impl Iterator<Item = f64>) -> Self {
        if axis.logarithmic {
            return Self::logarithmic(axis.unit, values);
        }
        let (mut least, mut greatest) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            (least, greatest) = (least.min(value), greatest.max(value));
        }
        if least > greatest {
            (least, greatest) = (0.0, 1.0);
        }
        if greatest <= least {
            greatest = least + 1.0;
        }
        Self {
            step: round_step((greatest - least) / TICKS, axis.unit),
            least,
            greatest,
            unit: axis.unit,
            logarithmic: false,
        }
    }

    /// A range that begins and ends with a tick, and contains 0 and these values.
    pub(super) fn from_zero(axis: &Axis<'_>, values: impl Iterator<Item = f64>) -> Self {
        let scale = Self::exact(axis, values.chain([0.0]));
        if scale.logarithmic {
            return scale;
        }
        Self {
            least: (scale.least / scale.step).floor() * scale.step,
            greatest: (scale.greatest / scale.step).ceil() * scale.step,
            ..scale
        }
    }

    /// From one power of two to another.
    fn logarithmic(unit: Unit, values: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut greatest) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            (least, greatest) = (least.min(value), greatest.max(value));
        }
        if least > greatest {
            (least, greatest) = (1.0, 2.0);
        }
        let (from, to) = (least.log2().floor(), greatest.log2().ceil());
        let to = to.max(from + 1.0);
        Self {
            least: from.exp2(),
            greatest: to.exp2(),
            step: ((to - from) / TICKS).ceil().max(1.0),
            unit,
            logarithmic: true,
        }
    }

    /// The position of a value: 0 at the least, 1 at the greatest.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.least) / self.least).ln() / (self.greatest / self.least).ln()
        } else {
            (value - self.least) / (self.greatest - self.least)
        };
        share.clamp(0.0, 1.0)
    }

    /// Round values on the scale.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let (least, greatest) = if self.logarithmic {
            (self.least.log2(), self.greatest.log2())
        } else {
            (self.least, self.greatest)
        };
        let first = (least / self.step - 1e-9).ceil();
        let at = |n: usize| (first + n as f64) * self.step;
        let ticks = (0..TICKS_MAX).map(at);
        let ticks = ticks.take_while(|tick| *tick <= greatest + self.step * 1e-9);
        let value = |tick: f64| if self.logarithmic { tick.exp2() } else { tick };
        ticks.map(value).collect()
    }

    /// The text of a tick.
    pub(super) fn label(&self, tick: f64) -> String {
        match self.unit {
            Unit::Bytes => bytes_label(tick),
            Unit::Number => number_label(tick, self.step),
        }
    }
}

/// The least round number that is not less than `rough`.
fn round_step(rough: f64, unit: Unit) -> f64 {
    match unit {
        Unit::Bytes => rough.max(1.0).log2().ceil().exp2(),
        Unit::Number => {
            let power = 10f64.powf(rough.log10().floor());
            let mut factors = [1.0, 2.0, 5.0].into_iter();
            let factor = factors.find(|factor| factor * power >= rough * (1.0 - 1e-9));
            factor.unwrap_or(10.0) * power
        }
    }
}

/// A number of bytes with at most two digits after the decimal point, and none that are zero.
pub(super) fn bytes_label(bytes: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} {}", UNITS[unit])
}

/// A number with as many digits as ticks with this distance need.
fn number_label(value: f64, step: f64) -> String {
    for (size, letter) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if step >= size && value != 0.0 {
            return format!("{}{letter}", number_label(value / size, step / size));
        }
    }
    let (mut digits, mut scaled) = (0, step);
    while digits < DIGITS_MAX && (scaled - scaled.round()).abs() > 1e-6 * scaled {
        scaled *= 10.0;
        digits += 1;
    }
    format!("{value:.digits$}")
}

/// Powers of two up to `most`, at most five, for the scale of colors; the greatest first.
pub(super) fn powers_to(most: u64) -> Vec<u64> {
    let greatest = most.max(1).ilog2();
    let every = greatest.div_ceil(4).max(1);
    let exponents = (0..=greatest).filter(|exponent| exponent.is_multiple_of(every));
    exponents.rev().map(|exponent| 1_u64 << exponent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(unit: Unit, logarithmic: bool) -> Axis<'static> {
        Axis {
            name: "x",
            unit,
            logarithmic,
        }
    }

    fn labels(scale: &Scale) -> Vec<String> {
        let ticks = scale.ticks();
        ticks.iter().map(|tick| scale.label(*tick)).collect()
    }

    #[test]
    fn ticks_are_round() {
        let check = |unit, from: f64, to: f64, expected: &[&str]| {
            let scale = Scale::exact(&axis(unit, false), [from, to].into_iter());
            assert_eq!(labels(&scale), expected, "{from} to {to}");
        };
        check(
            Unit::Number,
            0.0,
            0.3,
            &["0.00", "0.05", "0.10", "0.15", "0.20", "0.25", "0.30"],
        );
        check(Unit::Number, 0.0, 6.0, &["0", "1", "2", "3", "4", "5", "6"]);
        check(Unit::Number, 0.7, 3.1, &["1.0", "1.5", "2.0", "2.5", "3.0"]);
        check(
            Unit::Number,
            0.0,
            11_000.0,
            &["0", "2k", "4k", "6k", "8k", "10k"],
        );
        check(
            Unit::Number,
            0.0,
            3e9,
            &["0", "500M", "1000M", "1500M", "2000M", "2500M", "3000M"],
        );
        check(
            Unit::Bytes,
            0.0,
            1e9,
            &["0 B", "256 MiB", "512 MiB", "768 MiB"],
        );
        check(Unit::Bytes, 0.0, 3.0, &["0 B", "1 B", "2 B", "3 B"]);
        check(
            Unit::Bytes,
            0.0,
            f64::from(3 << 29),
            &[
                "0 B", "256 MiB", "512 MiB", "768 MiB", "1 GiB", "1.25 GiB", "1.5 GiB",
            ],
        );
    }

    #[test]
    fn a_logarithmic_axis_has_powers_of_two() {
        let scale = Scale::exact(&axis(Unit::Bytes, true), [3e6, 5e9].into_iter());
        assert_eq!(
            labels(&scale),
            ["4 MiB", "16 MiB", "64 MiB", "256 MiB", "1 GiB", "4 GiB"]
        );
        let scale = Scale::exact(&axis(Unit::Bytes, true), [4096.0].into_iter());
        assert_eq!(labels(&scale), ["4 KiB", "8 KiB"]);
    }

    #[test]
    fn values_from_zero_end_with_a_tick() {
        let scale = Scale::from_zero(&axis(Unit::Number, false), [97.3].into_iter());
        assert_eq!(labels(&scale), ["0", "20", "40", "60", "80", "100"]);
        assert!(scale.share(97.3) < 1.0 && scale.share(0.0) < 1e-9);
        let nothing = Scale::from_zero(&axis(Unit::Number, false), [f64::NAN].into_iter());
        assert!(nothing.ticks().len() > 1);
    }

    #[test]
    fn colors_have_few_powers() {
        assert_eq!(powers_to(0), [1]);
        assert_eq!(powers_to(5), [4, 2, 1]);
        assert_eq!(powers_to(1 << 30), [1 << 24, 1 << 16, 1 << 8, 1]);
    }
}
