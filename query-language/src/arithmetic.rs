//! Arithmetic over the fields of an event: the tree, its unit, and its value.
//!
//! | operands | result |
//! | --- | --- |
//! | integers with `+`, `-`, `*`, `//` (quotient, rounded down), `%` (remainder of `//`) | exact |
//! | `//` and `%` with a fraction | the 64-bit fraction nearest to the exact result ([`division`](crate::division)) |
//! | `/`, or a fraction with another operator | the 64-bit fraction of the operation |
//! | a missing field, text that spells no number, a boolean, zero as divisor | none |
//! | a result that has neither 64 bits nor is a finite fraction | none |

use std::fmt;

use crate::division::{quotient, remainder};
use crate::{FieldId, FieldPath, FieldSource, FieldTable, Number, Value};

/// An operation on two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Plus,
    Minus,
    Times,
    /// The fraction.
    Over,
    /// The quotient, rounded down.
    Quotient,
    /// What the quotient leaves, with the sign of the divisor.
    Remainder,
}

impl Operator {
    fn as_str(self) -> &'static str {
        match self {
            Operator::Plus => "+",
            Operator::Minus => "-",
            Operator::Times => "*",
            Operator::Over => "/",
            Operator::Quotient => "//",
            Operator::Remainder => "%",
        }
    }

    fn apply(self, left: Number, right: Number) -> Option<Number> {
        if let (Number::Int(left), Number::Int(right)) = (left, right)
            && self != Operator::Over
        {
            return self.of_integers(left, right).map(Number::Int);
        }
        let divides = !matches!(self, Operator::Plus | Operator::Minus | Operator::Times);
        if divides && float(right) == 0.0 {
            return None;
        }
        let result = match self {
            Operator::Plus => float(left) + float(right),
            Operator::Minus => float(left) - float(right),
            Operator::Times => float(left) * float(right),
            Operator::Over => float(left) / float(right),
            Operator::Quotient => quotient(left, right),
            Operator::Remainder => remainder(left, right),
        };
        // Zero has one spelling.
        result.is_finite().then_some(Number::Float(result + 0.0))
    }

    /// The unit of the result.
    fn unit(self, left: Unit, right: Unit) -> Unit {
        match (self, left, right) {
            (Operator::Plus, Unit::Instant, Unit::Duration)
            | (Operator::Plus, Unit::Duration, Unit::Instant)
            | (Operator::Minus, Unit::Instant, Unit::Duration) => Unit::Instant,
            (Operator::Minus, Unit::Instant, Unit::Instant)
            | (
                Operator::Plus | Operator::Minus | Operator::Remainder,
                Unit::Duration,
                Unit::Duration,
            )
            | (Operator::Times, Unit::Duration, Unit::Plain)
            | (Operator::Times, Unit::Plain, Unit::Duration)
            | (Operator::Remainder, Unit::Instant, Unit::Duration) => Unit::Duration,
            (Operator::Over | Operator::Quotient, left, right) if left == right => Unit::Plain,
            (_, Unit::Plain, Unit::Plain) => Unit::Plain,
            _ => Unit::Either,
        }
    }

    fn of_integers(self, left: i128, right: i128) -> Option<i128> {
        let quotient = || {
            let cut = left.checked_div(right)?;
            let is_above = left % right != 0 && (left < 0) != (right < 0);
            Some(cut - i128::from(is_above))
        };
        match self {
            Operator::Plus => left.checked_add(right),
            Operator::Minus => left.checked_sub(right),
            Operator::Times => left.checked_mul(right),
            Operator::Over => None,
            Operator::Quotient => quotient(),
            Operator::Remainder => left.checked_sub(right.checked_mul(quotient()?)?),
        }
    }
}

fn float(number: Number) -> f64 {
    match number {
        Number::Int(value) => value as f64,
        Number::Float(value) => value,
    }
}

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Something without a unit.
    Plain,
    /// Nanoseconds since 1970.
    Instant,
    /// Nanoseconds.
    Duration,
    /// Of times and numbers together, such as `dur / 1000`: a number, or nanoseconds.
    Either,
}

/// Arithmetic over the fields of one event.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    /// A field.
    Field(FieldPath),
    /// A number without a unit.
    Number(Number),
    /// A duration in nanoseconds.
    Duration(Number),
    /// The negative of a number.
    Negative(Box<Term>),
    /// An operation.
    Operation(Box<Operation>),
}

/// An operation on two terms.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    pub(crate) operator: Operator,
    pub(crate) left: Term,
    pub(crate) right: Term,
}

impl Term {
    /// Calls `visit` with every field, from left to right.
    pub fn for_each_field(&self, visit: &mut dyn FnMut(&FieldPath)) {
        match self {
            Term::Field(field) => visit(field),
            Term::Number(_) | Term::Duration(_) => {}
            Term::Negative(operand) => operand.for_each_field(visit),
            Term::Operation(operation) => {
                operation.left.for_each_field(visit);
                operation.right.for_each_field(visit);
            }
        }
    }

    /// Whether the result is a fraction even if all fields are integers.
    pub fn is_fraction(&self) -> bool {
        match self {
            Term::Field(_) | Term::Duration(_) => false,
            Term::Number(number) => matches!(number, Number::Float(_)),
            Term::Negative(operand) => operand.is_fraction(),
            Term::Operation(operation) => {
                operation.operator == Operator::Over
                    || operation.left.is_fraction()
                    || operation.right.is_fraction()
            }
        }
    }

    /// Whether the result is a time since 1970.
    pub fn is_instant(&self) -> bool {
        self.unit() == Ok(Unit::Instant)
    }

    /// The unit of the result.
    ///
    /// # Errors
    ///
    /// A bare number is added to a time, or subtracted: its unit is unknown.
    pub(crate) fn unit(&self) -> Result<Unit, BareNumber> {
        Ok(self.measure()?.unit)
    }

    /// What is known of the result. It visits each node once.
    fn measure(&self) -> Result<Measure, BareNumber> {
        Ok(match self {
            Term::Field(field) => Measure {
                unit: unit_of_field(field),
                has_field: true,
            },
            Term::Number(_) => Measure {
                unit: Unit::Plain,
                has_field: false,
            },
            Term::Duration(_) => Measure {
                unit: Unit::Duration,
                has_field: false,
            },
            Term::Negative(operand) => {
                let Measure { unit, has_field } = operand.measure()?;
                let unit = match unit {
                    Unit::Instant => Unit::Plain,
                    unit => unit,
                };
                Measure { unit, has_field }
            }
            Term::Operation(operation) => operation.measure()?,
        })
    }

    /// The field, or the computed one.
    pub(crate) fn into_field(self) -> FieldPath {
        match self {
            Term::Field(field) => field,
            term => FieldPath::computed(&term.to_string()),
        }
    }

    /// The term with the ids of its fields, which `table` gets.
    pub fn compile(&self, table: &mut FieldTable) -> Computed {
        match self {
            Term::Field(field) => Computed::Field(table.insert(field)),
            Term::Number(number) => Computed::Number(*number),
            Term::Duration(nanos) => Computed::Number(*nanos),
            Term::Negative(operand) => Computed::Negative(Box::new(operand.compile(table))),
            Term::Operation(operation) => {
                let left = operation.left.compile(table);
                let right = operation.right.compile(table);
                Computed::Operation(Apply(operation.operator), Box::new((left, right)))
            }
        }
    }
}

fn unit_of_field(field: &FieldPath) -> Unit {
    if field.is_time() {
        Unit::Instant
    } else if field.is_duration() {
        Unit::Duration
    } else {
        Unit::Plain
    }
}

/// The unit of a result, and whether a field is a part of it.
#[derive(Clone, Copy)]
struct Measure {
    unit: Unit,
    has_field: bool,
}

impl Measure {
    fn is_timed(self) -> bool {
        matches!(self.unit, Unit::Instant | Unit::Duration)
    }

    /// Whether this is a number without a unit, written or computed from such numbers.
    fn is_bare(self) -> bool {
        !self.has_field && self.unit == Unit::Plain
    }
}

impl Operation {
    fn measure(&self) -> Result<Measure, BareNumber> {
        let (left, right) = (self.left.measure()?, self.right.measure()?);
        if matches!(
            self.operator,
            Operator::Plus | Operator::Minus | Operator::Remainder
        ) {
            for (term, own, other) in [(&self.left, left, right), (&self.right, right, left)] {
                if other.is_timed() && own.is_bare() {
                    return Err(BareNumber(term.to_string()));
                }
            }
        }
        Ok(Measure {
            unit: self.operator.unit(left.unit, right.unit),
            has_field: left.has_field || right.has_field,
        })
    }
}

/// A bare number that needs a unit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BareNumber(pub(crate) String);

impl fmt::Display for Term {
    /// Writes a text that the parser reads back as the same term.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Term::Field(field) => field.fmt(f),
            Term::Number(number) => number.fmt(f),
            Term::Duration(nanos) => write!(f, "{nanos}ns"),
            // A minus sign before a digit is the sign of the number, which is another term.
            Term::Negative(operand) => match **operand {
                Term::Number(_) | Term::Duration(_) => write!(f, "(- {operand})"),
                _ => write!(f, "(-{operand})"),
            },
            Term::Operation(operation) => write!(
                f,
                "({} {} {})",
                operation.left,
                operation.operator.as_str(),
                operation.right
            ),
        }
    }
}

/// How two numbers become one.
#[derive(Debug, Clone, Copy)]
pub struct Apply(Operator);

/// Arithmetic with the ids of its fields, evaluated on each event.
#[derive(Debug, Clone)]
pub enum Computed {
    /// The number of a field.
    Field(FieldId),
    /// A constant.
    Number(Number),
    /// The negative of a number.
    Negative(Box<Computed>),
    /// An operation.
    Operation(Apply, Box<(Computed, Computed)>),
}

impl Computed {
    /// The result for an event; `None` if it has none, as if the event did not have the field.
    pub fn value<S: FieldSource + ?Sized>(&self, event: &S) -> Option<Value<'static>> {
        match self.number(event)? {
            Number::Float(value) => value.is_finite().then_some(Value::Float(value)),
            Number::Int(value) => match i64::try_from(value) {
                Ok(value) => Some(Value::Int(value)),
                Err(_) => u64::try_from(value).ok().map(Value::Uint),
            },
        }
    }

    fn number<S: FieldSource + ?Sized>(&self, event: &S) -> Option<Number> {
        match self {
            Computed::Field(field) => event.field(*field)?.as_number(),
            Computed::Number(number) => Some(*number),
            Computed::Negative(operand) => match operand.number(event)? {
                Number::Int(value) => value.checked_neg().map(Number::Int),
                Number::Float(value) => Some(Number::Float(0.0 - value)),
            },
            Computed::Operation(Apply(operator), operands) => {
                operator.apply(operands.0.number(event)?, operands.1.number(event)?)
            }
        }
    }
}
