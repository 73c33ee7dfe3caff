//! The syntax tree, generic over its literals: as written ([`Literal`]) or bound to units
//! ([`Scalar`]).

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

use crate::time::rfc3339;
use crate::{FieldPath, Number};

/// An expression over the fields of one event.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr<L> {
    /// True if all operands are; without operands true.
    And(Vec<Expr<L>>),
    /// True if any operand is; without operands false.
    Or(Vec<Expr<L>>),
    /// True if the operand is false for any reason: `not (nosuch == 1)` is true for every event.
    Not(Box<Expr<L>>),
    /// A predicate on one field.
    Test(Predicate<L>),
}

/// A filter ready for evaluation and pruning: every literal is in the units of the fields.
pub type Filter = Expr<Scalar>;

/// A predicate on one field. It is false for an event that lacks the field, and for a value that
/// cannot be compared with the literal, whatever the operator (including `!=` and `not in`; but a
/// value that differs in type from all literals of `not in` is not in the list).
#[derive(Debug, Clone, PartialEq)]
pub struct Predicate<L> {
    /// The field.
    pub field: FieldPath,
    /// The condition.
    pub condition: Condition<L>,
    /// Its bytes in the text, for messages; empty for predicates built by a program.
    pub span: Range<usize>,
}

/// A condition on the value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition<L> {
    /// The event has the field.
    Exists,
    /// Compares with a value.
    Compare(CompareOp, L),
    /// The value is one of these, or (negated) none of them.
    In {
        /// The list.
        values: Vec<L>,
        /// `not in`.
        negated: bool,
    },
    /// The pattern occurs in the text.
    Matches(Pattern),
    /// This occurs in the text.
    Contains(String),
    /// The text begins with this.
    StartsWith(String),
}

/// The six comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompareOp {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

impl CompareOp {
    /// Whether a field that compares so with the literal matches.
    #[inline]
    pub fn accepts(self, order: Ordering) -> bool {
        match self {
            CompareOp::Eq => order.is_eq(),
            CompareOp::Ne => order.is_ne(),
            CompareOp::Lt => order.is_lt(),
            CompareOp::Le => order.is_le(),
            CompareOp::Gt => order.is_gt(),
            CompareOp::Ge => order.is_ge(),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            CompareOp::Eq => "==",
            CompareOp::Ne => "!=",
            CompareOp::Lt => "<",
            CompareOp::Le => "<=",
            CompareOp::Gt => ">",
            CompareOp::Ge => ">=",
        }
    }
}

/// A compiled regular expression with its text.
#[derive(Debug, Clone)]
pub struct Pattern(regex::bytes::Regex);

/// Largest size of a compiled pattern in bytes.
const PATTERN_BYTES_MAX: usize = 4 << 20;

impl Pattern {
    /// Compiles `text`; the error is the reason in one line.
    pub(crate) fn new(text: &str) -> Result<Pattern, String> {
        regex::bytes::RegexBuilder::new(text)
            .size_limit(PATTERN_BYTES_MAX)
            .build()
            .map(Pattern)
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(limit) => {
                    format!("larger than {limit} bytes when compiled")
                }
                // The library draws its own caret; the last line has the reason.
                other => {
                    let text = other.to_string();
                    let reason = text.lines().last().unwrap_or_default();
                    reason.trim_start_matches("error: ").to_owned()
                }
            })
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether it occurs in `text`.
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.0.is_match(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.as_str() == other.as_str()
    }
}

/// A value as written in a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// Text between quotes, verbatim: a backslash only prevents the next quote from ending it.
    Str(String),
    /// A bare integer.
    Int(i128),
    /// Another bare number, and its text: times have more digits than a float.
    Decimal(f64, Box<str>),
    /// `true` or `false`.
    Bool(bool),
    /// A duration such as `1.5ms`, in nanoseconds.
    Duration(Number),
    /// A date, in nanoseconds since the epoch.
    Time(i64),
}

/// A value in the unit of its field.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// Text.
    Str(Box<[u8]>),
    /// A number; nanoseconds where the field is `ts` or `dur`.
    Number(Number),
    /// A boolean.
    Bool(bool),
}

impl<L> Expr<L> {
    /// A predicate built by a program rather than parsed.
    pub fn test(field: FieldPath, condition: Condition<L>) -> Expr<L> {
        Expr::Test(Predicate {
            field,
            condition,
            span: 0..0,
        })
    }

    /// Whether it is false for every event, because of operands that do not depend on the event.
    pub fn passes_none(&self) -> bool {
        self.constant() == Some(false)
    }

    /// Its value, if that does not depend on the event.
    fn constant(&self) -> Option<bool> {
        match self {
            Expr::Test(_) => None,
            Expr::Not(operand) => operand.constant().map(|value| !value),
            Expr::And(operands) => Self::decided(operands, false),
            Expr::Or(operands) => Self::decided(operands, true),
        }
    }

    /// The value of operands of which one with the value `decisive` decides.
    fn decided(operands: &[Self], decisive: bool) -> Option<bool> {
        let mut is_open = false;
        for value in operands.iter().map(Self::constant) {
            match value {
                Some(value) if value == decisive => return Some(decisive),
                Some(_) => {}
                None => is_open = true,
            }
        }
        (!is_open).then_some(!decisive)
    }

    /// Calls `visit` with every predicate, from left to right.
    pub fn for_each<'a>(&'a self, visit: &mut dyn FnMut(&'a Predicate<L>)) {
        match self {
            Expr::And(operands) | Expr::Or(operands) => {
                for operand in operands {
                    operand.for_each(visit);
                }
            }
            Expr::Not(operand) => operand.for_each(visit),
            Expr::Test(predicate) => visit(predicate),
        }
    }

    /// Replaces every predicate by another expression: this is how a file name becomes its hashes.
    /// The replacement must be true for the same events.
    ///
    /// # Errors
    /// The first error of `replace`.
    pub fn rewrite<M, E, F>(&self, replace: &mut F) -> Result<Expr<M>, E>
    where
        F: FnMut(&Predicate<L>) -> Result<Expr<M>, E>,
    {
        Ok(match self {
            Expr::And(operands) => Expr::And(rewrite_all(operands, replace)?),
            Expr::Or(operands) => Expr::Or(rewrite_all(operands, replace)?),
            Expr::Not(operand) => Expr::Not(Box::new(operand.rewrite(replace)?)),
            Expr::Test(predicate) => replace(predicate)?,
        })
    }
}

fn rewrite_all<L, M, E, F>(operands: &[Expr<L>], replace: &mut F) -> Result<Vec<Expr<M>>, E>
where
    F: FnMut(&Predicate<L>) -> Result<Expr<M>, E>,
{
    operands
        .iter()
        .map(|operand| operand.rewrite(replace))
        .collect()
}

impl<L: fmt::Display> fmt::Display for Expr<L> {
    /// Writes the expression with the minimum of brackets. Parsing that text gives the same
    /// expression, so the text is a key for caches.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl<L: fmt::Display> Expr<L> {
    fn write(&self, f: &mut fmt::Formatter<'_>, outer: u8) -> fmt::Result {
        let (operands, word, level) = match self {
            Expr::Or(operands) => (operands, " or ", 1),
            Expr::And(operands) => (operands, " and ", 2),
            Expr::Not(operand) => {
                f.write_str("not ")?;
                return operand.write(f, 3);
            }
            Expr::Test(predicate) => return write!(f, "{predicate}"),
        };
        if operands.is_empty() {
            // The language has no constants; `kind` is a field of every event.
            let word = if level == 2 { "" } else { "not " };
            return write!(f, "{word}exists(kind)");
        }
        let brackets = level <= outer;
        if brackets {
            f.write_str("(")?;
        }
        for (index, operand) in operands.iter().enumerate() {
            if index > 0 {
                f.write_str(word)?;
            }
            operand.write(f, level)?;
        }
        if brackets {
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl<L: fmt::Display> fmt::Display for Predicate<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = &self.field;
        match &self.condition {
            Condition::Exists => write!(f, "exists({field})"),
            Condition::Compare(op, value) => write!(f, "{field} {} {value}", op.as_str()),
            Condition::In { values, negated } => {
                write!(f, "{field} {}in [", if *negated { "not " } else { "" })?;
                for (index, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if index > 0 { ", " } else { "" })?;
                }
                f.write_str("]")
            }
            Condition::Matches(pattern) => {
                write!(f, "{field} ~ ")?;
                write_quoted(f, pattern.as_str())
            }
            Condition::Contains(text) => {
                write!(f, "{field} contains ")?;
                write_quoted(f, text)
            }
            Condition::StartsWith(text) => {
                write!(f, "{field} starts_with ")?;
                write_quoted(f, text)
            }
        }
    }
}

/// Text from a query can be quoted with one of the two quotes without changes, because each quote
/// of the other type is free and each of its own type has its backslash.
fn write_quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let quote = if closes_early(text, '"') { '\'' } else { '"' };
    write!(f, "{quote}{text}{quote}")
}

/// Whether `text` in `quote`s would end before its last character.
fn closes_early(text: &str, quote: char) -> bool {
    let mut escaped = false;
    for c in text.chars() {
        if !escaped && c == quote {
            return true;
        }
        escaped = !escaped && c == '\\';
    }
    escaped
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Str(text) => write_quoted(f, text),
            Literal::Int(value) => value.fmt(f),
            Literal::Decimal(_, text) => f.write_str(text),
            Literal::Bool(value) => value.fmt(f),
            Literal::Duration(nanos) => write!(f, "{nanos}ns"),
            Literal::Time(nanos) => f.write_str(&rfc3339(*nanos)),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Str(text) => write_quoted(f, &String::from_utf8_lossy(text)),
            Scalar::Number(number) => number.fmt(f),
            Scalar::Bool(value) => value.fmt(f),
        }
    }
}
