//! What a group retains of the values of one field.

use chunk_index::OwnedValue;
use query_language::{Function, Number, Value};

use super::distinct::Distinct;
use super::group_key::write_key;
use super::number_sketch::{BIN_BYTES, NumberSketch};
use super::sum::Sum;
use crate::sort_key::write_field;

/// What aggregates need of a field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    sum: bool,
    range: bool,
    sketch: bool,
    distinct: bool,
}

impl Needs {
    pub(crate) fn add(&mut self, function: Function) {
        match function {
            Function::Count => {}
            Function::Sum | Function::Avg => self.sum = true,
            Function::Min | Function::Max => self.range = true,
            Function::Quantile(_) => self.sketch = true,
            Function::Distinct => self.distinct = true,
        }
    }
}

/// The values of a field in one group.
#[derive(Debug, Clone, Default)]
pub(crate) struct FieldValues {
    /// Events that have the field.
    present: u64,
    /// Those whose value is a number other than NaN.
    numbers: u64,
    sum: Sum,
    /// The smallest and the largest value.
    range: Option<(Extreme, Extreme)>,
    sketch: NumberSketch,
    /// The smallest and the largest finite number.
    sketched: Option<(f64, f64)>,
    distinct: Distinct,
}

/// A value, and bytes that compare as values do, with its spelling where they are equal.
#[derive(Debug, Clone)]
struct Extreme {
    key: Vec<u8>,
    value: OwnedValue,
}

impl FieldValues {
    /// Adds a value. Returns the bytes of memory that it takes.
    pub(crate) fn add(&mut self, value: Value<'_>, needs: Needs, key: &mut Vec<u8>) -> usize {
        self.present += 1;
        let number = value.as_number().filter(|number| !is_nan(*number));
        self.numbers += u64::from(number.is_some());
        let mut taken = 0;
        if let Some(number) = number {
            if needs.sum {
                self.sum.add(number.normalize());
            }
            if needs.sketch {
                let value = float(number);
                if value.is_finite() {
                    let (low, high) = self.sketched.get_or_insert((value, value));
                    (*low, *high) = (low.min(value), high.max(value));
                    taken += usize::from(self.sketch.add(value)) * BIN_BYTES;
                }
            }
        }
        if needs.distinct || needs.range {
            key.clear();
            write_field(Some(value), false, key);
            if needs.distinct {
                taken += self.distinct.add(key);
            }
            if needs.range {
                taken += self.extend(value, key);
            }
        }
        taken
    }

    fn extend(&mut self, value: Value<'_>, key: &mut Vec<u8>) -> usize {
        write_key(Some(value), key);
        let extreme = || Extreme {
            key: key.clone(),
            value: OwnedValue::from(value),
        };
        match &mut self.range {
            None => self.range = Some((extreme(), extreme())),
            Some((low, _)) if *key < low.key => *low = extreme(),
            Some((_, high)) if *key > high.key => *high = extreme(),
            Some(_) => return 0,
        }
        // The values that these replace are not counted back.
        2 * key.len()
    }

    pub(crate) fn merge(&mut self, other: FieldValues) {
        self.present += other.present;
        self.numbers += other.numbers;
        self.sum.merge(&other.sum);
        self.sketch.merge(&other.sketch);
        self.distinct.merge(other.distinct);
        self.sketched = match (self.sketched, other.sketched) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (one, other) => one.or(other),
        };
        self.range = match (self.range.take(), other.range) {
            (Some(a), Some(b)) => {
                let low = if b.0.key < a.0.key { b.0 } else { a.0 };
                let high = if b.1.key > a.1.key { b.1 } else { a.1 };
                Some((low, high))
            }
            (one, other) => one.or(other),
        };
    }

    /// The result of a function; `None` if the group has no value for it.
    pub(crate) fn result(&self, function: Function) -> Option<OwnedValue> {
        match function {
            Function::Count => Some(OwnedValue::Uint(self.present)),
            Function::Sum => (self.numbers > 0).then(|| owned(self.sum.total())),
            Function::Avg => {
                (self.numbers > 0).then(|| OwnedValue::Float(self.sum.divided(self.numbers)))
            }
            Function::Min => self.range.as_ref().map(|(low, _)| low.value.clone()),
            Function::Max => self.range.as_ref().map(|(_, high)| high.value.clone()),
            Function::Quantile(share) => {
                let (low, high) = self.sketched?;
                let about = self.sketch.quantile(share)?;
                Some(OwnedValue::Float(about.max(low).min(high)))
            }
            Function::Distinct => Some(OwnedValue::Uint(self.distinct.count().0)),
        }
    }

    /// Whether the number of distinct values is an estimate.
    pub(crate) fn is_estimate(&self) -> bool {
        !self.distinct.count().1
    }
}

fn is_nan(number: Number) -> bool {
    matches!(number, Number::Float(value) if value.is_nan())
}

fn float(number: Number) -> f64 {
    match number {
        Number::Int(value) => value as f64,
        Number::Float(value) => value,
    }
}

/// A number as a value; integers beyond 64 bits become fractions.
fn owned(number: Number) -> OwnedValue {
    match number {
        Number::Float(value) => OwnedValue::Float(value),
        Number::Int(value) => match (u64::try_from(value), i64::try_from(value)) {
            (Ok(value), _) => OwnedValue::Uint(value),
            (_, Ok(value)) => OwnedValue::Int(value),
            _ => OwnedValue::Float(value as f64),
        },
    }
}
