//! The query language of Tracehold: lexer, parser, syntax tree, and evaluation over a field source.
//!
//! ```text
//! name == "read" and dur > 5ms and not (args.fname contains "/tmp/" or pid in [1, 2])
//! ```
//!
//! It accepts all that DFTracer's query language accepts, with the same meaning (`==`, `!=`, `<`,
//! `<=`, `>`, `>=`, `in`, `not in`, `and`, `or`, `not`, brackets, dotted fields), and adds `~`
//! (regular expression, matched anywhere in the text), `contains`, `starts_with`, `exists`,
//! durations (`10ms`, `1h30m`) and RFC 3339 times for `dur` and `ts`. The grammar is in the
//! parser, the fields in [`FieldPath`].
//!
//! # When an event matches
//!
//! - A predicate on a field that the event lacks is false, including `!=` and `not in`; `not` turns
//!   that into true. So `not (nosuch == 1)` is true for every event, and `nosuch != 1` for none, on
//!   every path of execution.
//! - Numbers compare by value, exactly, whatever their type. Text that spells a number compares as
//!   that number if the query has a number (old DFTracer traces quote their numbers). Other values
//!   of another type than the literal do not match.
//! - Text compares byte by byte. A string is verbatim: a backslash prevents the next quote from
//!   ending the string and remains in it, as in DFTracer.
//! - `ts` and `dur` are nanoseconds; a bare number compared with them is in the [`BareUnit`] of the
//!   traces.
//!
//! # Evaluation
//!
//! [`Query::parse`] gives a tree as written, [`Query::bind`] a [`Filter`] in the units of the
//! fields, [`Program::compile`] a program that reads fields from a [`FieldSource`] by id.
//!
//! ```
//! use query_language::{BareUnit, FieldTable, Program, Query, Value};
//!
//! let query = Query::parse("name == 'read' and dur > 5ms")?;
//! let mut fields = FieldTable::new();
//! let program = Program::compile(&query.bind(BareUnit::MICROS)?, &mut fields);
//! let event = [Some(Value::from("read")), Some(Value::Int(7_000_000))];
//! assert!(program.matches(event.as_slice()));
//! # Ok::<(), query_language::QueryError>(())
//! ```
//!
//! *Invariant:* this crate knows no trace format, no index and no file.

#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "the numbers of tests are small"
    )
)]

mod aggregate;
mod arithmetic;
mod division;
mod error;
mod field;
mod field_list;
mod lexer;
mod operand;
mod parser;
mod program;
mod query;
mod syntax;
pub mod time;
mod value;

#[cfg(test)]
mod tests;

pub use aggregate::{Aggregate, Function};
pub use arithmetic::{Apply, Computed, Operation, Term};
pub use error::{LISTED_FIELDS_MAX, QUERY_BYTES_MAX, QUERY_DEPTH_MAX, QueryError, QueryErrorKind};
pub use field::{FieldId, FieldPath, FieldSource, FieldTable};
pub use field_list::{OrderKey, parse_columns, parse_field, parse_fields};
pub use operand::arithmetic;
pub use program::{Matcher, Program};
pub use query::{BareUnit, Query};
pub use syntax::{CompareOp, Condition, Expr, Filter, Literal, Pattern, Predicate, Scalar};
pub use value::{Number, Value};
