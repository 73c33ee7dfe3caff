//! A query: its text, its tree, and the binding of its literals to units.

use crate::arithmetic::{Term, Unit};
use crate::error::{QueryError, QueryErrorKind};
use crate::operand::{arithmetic, is_zero};
use crate::parser::parse;
use crate::syntax::{Condition, Expr, Filter, Literal, Predicate, Scalar};
use crate::time::{
    IntegerUnit, begins_date, duration_length, parse_instant, scaled, wide_duration,
};
use crate::{FieldPath, Number};

/// A valid query.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    text: String,
    expr: Expr<Literal>,
}

/// The unit of a bare number compared with `ts` and `dur`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BareUnit {
    /// This many nanoseconds: 1,000 for a DFTracer trace in microseconds, 1 for most other kinds.
    Nanos(u32),
    /// Kinds with different units are read, so a bare number is refused.
    Mixed,
}

impl BareUnit {
    /// DFTracer's default.
    pub const MICROS: BareUnit = BareUnit::Nanos(1_000);
    /// All kinds that measure in nanoseconds.
    pub const NANOS: BareUnit = BareUnit::Nanos(1);

    /// The unit of both together.
    pub fn and(self, other: BareUnit) -> BareUnit {
        if self == other { self } else { BareUnit::Mixed }
    }
}

impl Query {
    /// Parses a query.
    ///
    /// # Errors
    /// [`QueryError`] with the position, what was expected there, and a caret line.
    pub fn parse(text: &str) -> Result<Query, QueryError> {
        Ok(Query {
            expr: parse(text)?,
            text: text.to_owned(),
        })
    }

    /// The text as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The tree.
    pub fn expr(&self) -> &Expr<Literal> {
        &self.expr
    }

    /// Converts every literal to the unit of its field: `ts` and `dur` in nanoseconds.
    ///
    /// # Errors
    /// A bare number compared with `ts` or `dur` when `unit` is [`BareUnit::Mixed`]; a date or
    /// duration compared with a field that has no such unit.
    pub fn bind(&self, unit: BareUnit) -> Result<Filter, QueryError> {
        self.expr.rewrite(&mut |predicate| {
            let bind = |literal: &Literal| {
                bind_literal(literal, &predicate.field, unit)
                    .map_err(|kind| QueryError::new(&self.text, predicate.span.clone(), kind))
            };
            let condition = match &predicate.condition {
                Condition::Compare(op, literal) => Condition::Compare(*op, bind(literal)?),
                Condition::In { values, negated } => Condition::In {
                    values: values.iter().map(bind).collect::<Result<_, _>>()?,
                    negated: *negated,
                },
                Condition::Exists => Condition::Exists,
                Condition::Matches(pattern) => Condition::Matches(pattern.clone()),
                Condition::Contains(text) => Condition::Contains(text.clone()),
                Condition::StartsWith(text) => Condition::StartsWith(text.clone()),
            };
            Ok(Expr::Test(Predicate {
                field: predicate.field.clone(),
                condition,
                span: predicate.span.clone(),
            }))
        })
    }
}

fn bind_literal(
    literal: &Literal,
    field: &FieldPath,
    unit: BareUnit,
) -> Result<Scalar, QueryErrorKind> {
    if let Some(term) = arithmetic(field) {
        return bind_computed(literal, field, &term);
    }
    let timed = field.is_time() || field.is_duration();
    let wrong = |found, expected| QueryErrorKind::WrongUnit {
        field: field.to_string(),
        found,
        expected,
    };
    Ok(match literal {
        // A date in quotes compared with `ts` can only mean the date.
        Literal::Str(text) if field.is_time() && begins_date(text) => {
            match parse_instant(text, IntegerUnit::Nanoseconds) {
                Ok(nanos) => Scalar::Number(Number::Int(nanos.into())),
                Err(error) => return Err(QueryErrorKind::BadTime(error.kind().clone())),
            }
        }
        // Durations and times are numbers, so text would match nothing.
        Literal::Str(text) if field.is_duration() => {
            let is_whole = duration_length(text) == Some(text.len());
            match wide_duration(text).filter(|_| is_whole) {
                Some(nanos) => Scalar::Number(nanos),
                None => return Err(wrong("text", "a duration such as 5ms")),
            }
        }
        Literal::Str(_) if field.is_time() => {
            return Err(wrong("text", "a date such as 2026-11-21T01:00:00Z"));
        }
        Literal::Bool(_) if timed => {
            return Err(wrong("true or false", "a duration such as 5ms, or a date"));
        }
        Literal::Str(text) => Scalar::Str(text.as_bytes().into()),
        Literal::Bool(value) => Scalar::Bool(*value),
        Literal::Int(value) if timed => {
            Scalar::Number(Number::Int(value * i128::from(nanoseconds(unit, field)?)))
        }
        Literal::Int(value) => Scalar::Number(Number::Int(*value)),
        Literal::Decimal(value, text) if timed => {
            Scalar::Number(scale(*value, text, nanoseconds(unit, field)?))
        }
        Literal::Decimal(value, _) => Scalar::Number(Number::Float(*value)),
        Literal::Duration(nanos) if field.is_duration() => Scalar::Number(*nanos),
        Literal::Time(nanos) if field.is_time() => Scalar::Number(Number::Int((*nanos).into())),
        Literal::Duration(_) if field.is_time() => {
            return Err(wrong("a duration", "a date such as 2026-11-21T01:00:00Z"));
        }
        Literal::Duration(_) => {
            return Err(wrong(
                "a duration",
                "a plain number, for only dur has a unit",
            ));
        }
        Literal::Time(_) if field.is_duration() => {
            return Err(wrong("a date", "a duration such as 10ms"));
        }
        Literal::Time(_) => {
            return Err(wrong(
                "a date",
                "a number or a string, for only ts is a time",
            ));
        }
    })
}

/// A literal that is compared with arithmetic, in which times and durations are nanoseconds.
fn bind_computed(
    literal: &Literal,
    field: &FieldPath,
    term: &Term,
) -> Result<Scalar, QueryErrorKind> {
    let unit = term.unit().unwrap_or(Unit::Plain);
    let expected = match unit {
        Unit::Plain => "a number without a unit, which this has not",
        Unit::Instant => "a date such as 2026-11-21T01:00:00Z",
        Unit::Duration => "a duration such as 5ms",
        Unit::Either => "a number or a duration",
    };
    let wrong = |found| QueryErrorKind::WrongUnit {
        field: field.to_string(),
        found,
        expected,
    };
    let bare = |number| match unit {
        Unit::Plain | Unit::Either => Ok(number),
        Unit::Instant | Unit::Duration if is_zero(number) => Ok(number),
        Unit::Instant | Unit::Duration => Err(wrong("a number without a unit")),
    };
    let number = match (literal, unit) {
        (Literal::Int(value), _) => bare(Number::Int(*value))?,
        (Literal::Decimal(value, _), _) => bare(Number::Float(*value))?,
        (Literal::Duration(nanos), Unit::Duration | Unit::Either) => *nanos,
        (Literal::Time(nanos), Unit::Instant) => Number::Int((*nanos).into()),
        (Literal::Duration(_), _) => return Err(wrong("a duration")),
        (Literal::Time(_), _) => return Err(wrong("a date")),
        (Literal::Str(_), _) => return Err(wrong("text")),
        (Literal::Bool(_), _) => return Err(wrong("true or false")),
    };
    Ok(Scalar::Number(number))
}

/// A bare decimal as nanoseconds.
fn scale(value: f64, text: &str, unit: u32) -> Number {
    let (is_negative, magnitude) = match text.strip_prefix('-') {
        Some(magnitude) => (true, magnitude),
        None => (false, text),
    };
    match scaled(magnitude, unit) {
        Some(Number::Int(nanos)) => Number::Int(if is_negative { -nanos } else { nanos }),
        _ => Number::Float(value * f64::from(unit)),
    }
}

/// Nanoseconds of a bare number in a field.
fn nanoseconds(unit: BareUnit, field: &FieldPath) -> Result<u32, QueryErrorKind> {
    match unit {
        BareUnit::Nanos(unit) => Ok(unit),
        BareUnit::Mixed => Err(QueryErrorKind::AmbiguousUnit {
            field: field.to_string(),
            expected: if field.is_time() {
                "a date such as 2026-11-21T01:00:00Z"
            } else {
                "a duration such as 10ms"
            },
        }),
    }
}
