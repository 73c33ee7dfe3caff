//! Paired runs: the sides of a comparison alternate, so that changes of the machine's speed affect
//! all of them.

use std::fmt;
use std::sync::Mutex;

use crate::failure::Outcome;
use crate::process::Usage;

/// One side of a comparison.
pub(crate) struct Side<'a> {
    /// Its name in the table.
    pub name: &'a str,
    /// One run. Returns the figure to compare, in the same unit for all sides.
    pub run: Box<dyn FnMut() -> Outcome<f64> + 'a>,
}

/// The figures of one side.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// The side's name.
    pub name: String,
    /// One figure per run, in the order of the runs.
    pub runs: Vec<f64>,
}

impl Figures {
    /// The middle figure; the mean of the middle two for an even number of runs.
    pub(crate) fn median(&self) -> f64 {
        median(&self.runs)
    }

    /// The median of the ratios of single runs to those of another side: `self / other`.
    pub(crate) fn ratio(&self, other: &Self) -> f64 {
        let ratios: Vec<f64> = self
            .runs
            .iter()
            .zip(&other.runs)
            .map(|(mine, its)| mine / its)
            .collect();
        median(&ratios)
    }

    /// The smallest and the largest figure.
    pub(crate) fn spread(&self) -> (f64, f64) {
        self.runs.iter().fold(
            (f64::INFINITY, f64::NEG_INFINITY),
            |(low, high), &figure| (low.min(figure), high.max(figure)),
        )
    }
}

/// Runs all sides `runs` times in turn, every second turn in reverse order, so that no side always
/// follows the other. One uncounted run of each side warms the caches first.
pub(crate) fn alternate(runs: usize, sides: &mut [Side<'_>]) -> Outcome<Vec<Figures>> {
    for side in sides.iter_mut() {
        (side.run)()?;
    }
    let mut figures: Vec<Figures> = sides
        .iter()
        .map(|side| Figures {
            name: side.name.to_owned(),
            runs: Vec::with_capacity(runs),
        })
        .collect();
    for turn in 0..runs {
        let mut order: Vec<usize> = (0..sides.len()).collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        for side in order {
            let figure = (sides[side].run)()?;
            figures[side].runs.push(figure);
        }
    }
    Ok(figures)
}

/// The median of some figures; NaN if there are none.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// CPU seconds of a child's run: the figure that compares single programs on a shared machine.
pub(crate) fn cpu_seconds(usage: &Usage) -> f64 {
    usage.cpu.as_secs_f64()
}

/// The limit for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

/// A target and its measured figure.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// What was measured, with its unit.
    pub what: String,
    /// The target.
    pub target: Target,
    /// The measured figure.
    pub measured: f64,
}

impl Verdict {
    /// A verdict on one figure.
    pub(crate) fn new(what: impl Into<String>, target: Target, measured: f64) -> Self {
        Self {
            what: what.into(),
            target,
            measured,
        }
    }

    /// Whether the target is met; a figure that was not measured (NaN) meets no target.
    pub(crate) fn met(&self) -> bool {
        match self.target {
            Target::AtLeast(limit) => self.measured >= limit,
            Target::AtMost(limit) => self.measured <= limit,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.met() { "met   " } else { "MISSED" };
        let (relation, limit) = match self.target {
            Target::AtLeast(limit) => ("at least", limit),
            Target::AtMost(limit) => ("at most", limit),
        };
        write!(
            f,
            "{word} {}: {:.3}, target {relation} {limit}",
            self.what, self.measured
        )
    }
}

/// The verdicts of the benchmark that runs.
static CONCLUDED: Mutex<Vec<Verdict>> = Mutex::new(Vec::new());

/// The verdicts that were printed.
pub(crate) fn concluded() -> Vec<Verdict> {
    CONCLUDED.lock().map(|all| all.clone()).unwrap_or_default()
}

/// Prints every verdict and how many targets were met, and notes them for the history.
pub(crate) fn conclude(verdicts: &[Verdict]) {
    for verdict in verdicts {
        println!("{verdict}");
    }
    let met = verdicts.iter().filter(|verdict| verdict.met()).count();
    println!("targets met: {met} of {}", verdicts.len());
    if let Ok(mut concluded) = CONCLUDED.lock() {
        concluded.extend_from_slice(verdicts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratios_are_computed_run_by_run() {
        let side = |name: &str, runs: &[f64]| Figures {
            name: name.into(),
            runs: runs.to_vec(),
        };
        // The machine was twice as fast in the second run, for both.
        let (ours, theirs) = (
            side("ours", &[10.0, 20.0, 10.0]),
            side("theirs", &[5.0, 10.0, 5.0]),
        );
        assert_eq!(ours.ratio(&theirs), 2.0);
        assert_eq!(ours.spread(), (10.0, 20.0));
    }

    #[test]
    fn sides_alternate_and_the_first_round_is_not_counted() {
        let order = std::cell::RefCell::new(String::new());
        let side = |name: &'static str| Side {
            name,
            run: Box::new(|| {
                order.borrow_mut().push_str(name);
                Ok(f64::from(u32::try_from(order.borrow().len()).unwrap()))
            }),
        };
        let figures = alternate(2, &mut [side("a"), side("b")]).unwrap();
        assert_eq!(*order.borrow(), "ababba");
        assert_eq!(figures[0].runs, [3.0, 6.0]);
        assert_eq!(figures[1].runs, [4.0, 5.0]);
    }

    #[test]
    fn a_verdict_is_met_or_missed() {
        let verdict = |target, measured| Verdict::new("ratio", target, measured).to_string();
        let at_least = Target::AtLeast(0.5);
        assert_eq!(
            verdict(at_least, 0.5),
            "met    ratio: 0.500, target at least 0.5"
        );
        assert_eq!(
            verdict(at_least, 0.4),
            "MISSED ratio: 0.400, target at least 0.5"
        );
        assert_eq!(
            verdict(Target::AtMost(20.0), 21.0),
            "MISSED ratio: 21.000, target at most 20"
        );
        assert!(!Verdict::new("ratio", Target::AtMost(1.0), f64::NAN).met());
    }
}
