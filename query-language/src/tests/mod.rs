//! The language by subject, and what the tests share.

mod arithmetic;
mod errors;
mod forms;
mod generated;
mod meaning;
mod times;

use std::collections::HashMap;

use crate::{BareUnit, Condition, Expr, FieldTable, Filter, Program, Query, Scalar, Value};

/// The event of the tables below.
const EVENT: &[(&str, Value<'static>)] = &[
    ("name", Value::Str(b"read")),
    ("cat", Value::Str(b"POSIX")),
    ("ts", Value::Int(1_698_080_323_775_554_000)),
    ("dur", Value::Int(141_000)),
    ("pid", Value::Str(b"1338896")),
    ("tid", Value::Uint(2_677_792)),
    ("args.fhash", Value::Uint(u64::MAX)),
    ("args.fname", Value::Str(b"/data/file \"a\".bat")),
    ("args.ratio", Value::Float(0.5)),
    ("args.nan", Value::Float(f64::NAN)),
    ("args.ok", Value::Bool(true)),
    ("args.ret", Value::Int(-1)),
];

fn ask(filter: &Filter, event: &[(&str, Value<'_>)]) -> bool {
    let mut table = FieldTable::new();
    let program = Program::compile(filter, &mut table);
    let by_name: HashMap<&str, Value<'_>> = event.iter().copied().collect();
    let row: Vec<Option<Value<'_>>> = table
        .paths()
        .iter()
        .map(|path| by_name.get(path.as_str()).copied())
        .collect();
    program.matches(&row)
}

fn check(text: &str, expected: bool) {
    let query = Query::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let filter = query
        .bind(BareUnit::MICROS)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ask(&filter, EVENT), expected, "{text}");
    assert_eq!(naive(&filter, EVENT), expected, "{text}, by the definition");
}

/// The meaning of a filter, implemented from its definition and not from its program.
fn naive(filter: &Filter, event: &[(&str, Value<'_>)]) -> bool {
    match filter {
        Expr::And(operands) => operands.iter().all(|operand| naive(operand, event)),
        Expr::Or(operands) => operands.iter().any(|operand| naive(operand, event)),
        Expr::Not(operand) => !naive(operand, event),
        Expr::Test(predicate) => {
            let wanted = predicate.field.as_str();
            let Some(&(_, value)) = event.iter().find(|(name, _)| *name == wanted) else {
                return false;
            };
            let equal = |scalar: &Scalar| compare(value, scalar).is_some_and(|o| o.is_eq());
            let text = match value {
                Value::Str(text) => Some(text),
                _ => None,
            };
            match &predicate.condition {
                Condition::Exists => true,
                Condition::Compare(op, scalar) => {
                    compare(value, scalar).is_some_and(|order| op.accepts(order))
                }
                Condition::In { values, negated } => values.iter().any(equal) != *negated,
                Condition::Matches(pattern) => text.is_some_and(|text| pattern.is_match(text)),
                Condition::Contains(part) => {
                    text.is_some_and(|text| String::from_utf8_lossy(text).contains(part.as_str()))
                }
                Condition::StartsWith(part) => {
                    text.is_some_and(|text| text.starts_with(part.as_bytes()))
                }
            }
        }
    }
}

fn compare(value: Value<'_>, scalar: &Scalar) -> Option<std::cmp::Ordering> {
    match (value, scalar) {
        (Value::Str(text), Scalar::Str(literal)) => Some(text.cmp(literal)),
        (Value::Bool(value), Scalar::Bool(literal)) => Some(value.cmp(literal)),
        (value, Scalar::Number(literal)) => value.as_number()?.compare(*literal),
        _ => None,
    }
}
