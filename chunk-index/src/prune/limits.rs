//! What smallest and largest values say about a condition.

use std::cmp::Ordering;

use query_language::{CompareOp, Condition, Number, Scalar};

use crate::zone::TextRange;

/// What is known about the events of a chunk, or a non-empty part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Some event may match; otherwise certainly none does.
    pub(crate) may: bool,
    /// Certainly all of them match.
    pub(crate) all: bool,
}

impl Verdict {
    pub(crate) const NONE: Verdict = Verdict {
        may: false,
        all: false,
    };
    pub(crate) const ALL: Verdict = Verdict {
        may: true,
        all: true,
    };
    pub(crate) const UNKNOWN: Verdict = Verdict {
        may: true,
        all: false,
    };

    /// The verdict on the events of two parts together.
    pub(crate) fn union(self, other: Verdict) -> Verdict {
        Verdict {
            may: self.may || other.may,
            all: self.all && other.all,
        }
    }
}

/// Numbers between two limits, both of which occur.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberRange {
    pub(crate) min: Number,
    pub(crate) max: Number,
}

impl NumberRange {
    /// Whether some, and whether all numbers between the limits compare so with `literal`.
    pub(crate) fn compare(&self, op: CompareOp, literal: Number) -> Verdict {
        let orders = (self.min.compare(literal), self.max.compare(literal));
        let (Some(min), Some(max)) = orders else {
            // No comparison with NaN is true.
            return Verdict::NONE;
        };
        let single = min == Ordering::Equal && max == Ordering::Equal;
        let outside = min == Ordering::Greater || max == Ordering::Less;
        let (may, all) = match op {
            CompareOp::Eq => (!outside, single),
            CompareOp::Ne => (!single, outside),
            CompareOp::Lt => (min.is_lt(), max.is_lt()),
            CompareOp::Le => (min.is_le(), max.is_le()),
            CompareOp::Gt => (max.is_gt(), min.is_gt()),
            CompareOp::Ge => (max.is_ge(), min.is_ge()),
        };
        Verdict { may, all }
    }

    /// The verdict on a condition if all values are numbers between the limits.
    pub(crate) fn verdict(&self, condition: &Condition<Scalar>) -> Verdict {
        let equal = |scalar: &Scalar| match scalar {
            Scalar::Number(literal) => self.compare(CompareOp::Eq, *literal),
            _ => Verdict::NONE,
        };
        match condition {
            Condition::Exists => Verdict::ALL,
            Condition::Compare(op, Scalar::Number(literal)) => self.compare(*op, *literal),
            Condition::In { values, negated } => {
                let any = values
                    .iter()
                    .map(equal)
                    .fold(Verdict::NONE, |sum, verdict| Verdict {
                        may: sum.may || verdict.may,
                        all: sum.all || verdict.all,
                    });
                if *negated {
                    Verdict {
                        may: !any.all,
                        all: !any.may,
                    }
                } else {
                    any
                }
            }
            // Text and booleans do not compare with numbers.
            Condition::Compare(..)
            | Condition::Matches(_)
            | Condition::Contains(_)
            | Condition::StartsWith(_) => Verdict::NONE,
        }
    }
}

impl TextRange {
    /// Whether a text between the limits can compare so with `literal`.
    pub(crate) fn may_compare(&self, op: CompareOp, literal: &[u8]) -> bool {
        let not_above = *self.min <= *literal;
        let not_below = self.max.as_ref().is_none_or(|max| **max >= *literal);
        match op {
            CompareOp::Eq => not_above && not_below,
            CompareOp::Ne => true,
            CompareOp::Lt => *self.min < *literal,
            CompareOp::Le => not_above,
            CompareOp::Gt => self.max.as_ref().is_none_or(|max| **max > *literal),
            CompareOp::Ge => not_below,
        }
    }

    /// Whether a text between the limits can begin with `prefix`.
    pub(crate) fn may_start_with(&self, prefix: &[u8]) -> bool {
        let not_above = *self.min <= *prefix || self.min.starts_with(prefix);
        not_above && self.max.as_ref().is_none_or(|max| **max >= *prefix)
    }
}
