//! Errors in queries: the reason, the position, and what was expected.

use std::fmt::Write as _;
use std::ops::Range;

use crate::time::TimeErrorKind;

/// Longest accepted query in bytes.
pub const QUERY_BYTES_MAX: usize = 1 << 20;
/// Most fields in one list.
pub const LISTED_FIELDS_MAX: usize = 64;
/// Deepest accepted nesting of parentheses and `not`, so that no query exhausts the stack.
pub const QUERY_DEPTH_MAX: usize = 128;
/// Characters of the query shown on either side of the error.
const CONTEXT_CHARS: usize = 60;

/// An invalid query: the reason, the position in the text, and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.report())]
pub struct QueryError {
    text: String,
    span: Range<usize>,
    kind: QueryErrorKind,
}

/// The reasons for refusing a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryErrorKind {
    /// Something else is expected here.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What is expected.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// A character that begins no token.
    #[error("unexpected character {0:?}, expected a field, a value, an operator or a bracket")]
    UnexpectedCharacter(char),
    /// An operator of another language.
    #[error("`{found}` is no operator here; did you mean `{meant}`?")]
    OtherOperator {
        /// What was found.
        found: &'static str,
        /// The operator of this language.
        meant: &'static str,
    },
    /// The direction of an order as another language writes it.
    #[error("`{found}` is no order here; did you mean `{meant}`?")]
    OtherDirection {
        /// What was found.
        found: String,
        /// The item of this language.
        meant: String,
    },
    /// A bare number that is added to a time, or subtracted.
    #[error("expected a duration such as 5us, for {number} has no unit here")]
    BareNumber {
        /// The number.
        number: String,
    },
    /// Arithmetic where a value is expected, or after one.
    #[error("expected arithmetic on the left of the operator only, as in `end - start > 100`")]
    MisplacedArithmetic,
    /// A string without its closing quote.
    #[error("unterminated string, expected a closing {0}")]
    UnterminatedString(char),
    /// A number outside of the 64-bit integers or the finite floats.
    #[error("number out of range, expected -2^63 to 2^64-1, or a finite fraction")]
    NumberOutOfRange,
    /// Letters after a number that are not a unit.
    #[error("unknown unit {0:?}, expected ns, us, ms, s, m, min, h or d")]
    UnknownUnit(String),
    /// A date or a time of day that does not exist.
    #[error("{0}")]
    BadTime(TimeErrorKind),
    /// A regular expression that does not compile.
    #[error("invalid regular expression: {0}")]
    BadPattern(String),
    /// A time or a duration compared with a field that is neither.
    #[error("{field} is not compared with {found}, expected {expected}")]
    WrongUnit {
        /// The field.
        field: String,
        /// The type of the literal.
        found: &'static str,
        /// A literal that suits the field.
        expected: &'static str,
    },
    /// A bare number for `ts` or `dur` while kinds with different units are read.
    #[error(
        "the traces read here have different units of time, expected a unit: \
         write {field} with {expected}"
    )]
    AmbiguousUnit {
        /// `ts` or `dur`.
        field: String,
        /// A literal with a unit.
        expected: &'static str,
    },
    /// Too many levels of parentheses and `not`.
    #[error("nested deeper than {QUERY_DEPTH_MAX} levels, expected a flatter expression")]
    TooDeep,
    /// Too many fields in a list.
    #[error("more than {LISTED_FIELDS_MAX} fields, expected fewer")]
    TooManyFields,
    /// Too much text.
    #[error("query longer than {QUERY_BYTES_MAX} bytes, expected a shorter one")]
    TooLong,
}

impl QueryError {
    pub(crate) fn new(text: &str, span: Range<usize>, kind: QueryErrorKind) -> QueryError {
        QueryError {
            text: text.to_owned(),
            span,
            kind,
        }
    }

    /// Something else is expected at `span`.
    pub(crate) fn expected(text: &str, span: Range<usize>, expected: &'static str) -> QueryError {
        let found = match text.get(span.clone()) {
            None | Some("") => "the end of the text".to_owned(),
            Some(found) => format!("`{found}`"),
        };
        QueryError::new(text, span, QueryErrorKind::Expected { expected, found })
    }

    /// The reason without the position.
    pub fn kind(&self) -> &QueryErrorKind {
        &self.kind
    }

    /// Bytes of the query that are wrong, half-open; empty at the end of the text.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Line of the error, from 1.
    pub fn line(&self) -> usize {
        self.before().matches('\n').count() + 1
    }

    /// Column of the error in its line, in characters, from 1.
    pub fn column(&self) -> usize {
        let before = self.before();
        let line = before.rsplit('\n').next().unwrap_or(before);
        line.chars().count() + 1
    }

    fn before(&self) -> &str {
        self.text.get(..self.span.start).unwrap_or(&self.text)
    }

    /// Two lines: the line of the query, and a caret below the error.
    pub fn caret(&self) -> String {
        let line = self.text.split('\n').nth(self.line() - 1).unwrap_or("");
        let column = self.column() - 1;
        let first = column.saturating_sub(CONTEXT_CHARS);
        let shown: String = line
            .chars()
            .skip(first)
            .take(2 * CONTEXT_CHARS)
            // A tab or an escape sequence would move the caret away from its character.
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let fault = self.text.get(self.span.clone()).unwrap_or("");
        let fault = fault.split('\n').next().unwrap_or("").chars().count();
        let tail = fault
            .saturating_sub(1)
            .min((2 * CONTEXT_CHARS).saturating_sub(column - first + 1));
        format!(
            "  {}\n  {}^{}",
            shown.trim_end(),
            " ".repeat(column - first),
            "~".repeat(tail)
        )
    }

    fn report(&self) -> String {
        let mut report = String::new();
        if self.line() > 1 {
            write!(report, "line {}, ", self.line()).expect("a string takes all text");
        }
        write!(
            report,
            "column {}: {}\n{}",
            self.column(),
            self.kind,
            self.caret()
        )
        .expect("a string takes all text");
        report
    }
}
