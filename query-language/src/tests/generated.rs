//! Random filters, and texts that are nearly queries.

use proptest::prelude::*;

use super::{ask, naive};
use crate::{
    BareUnit, CompareOp, Condition, Expr, FieldPath, Filter, Number, Query, Scalar, Value,
};

fn scalars() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        "[ab12]{0,2}".prop_map(|text| Scalar::Str(text.into_bytes().into())),
        (-3_i128..4).prop_map(|value| Scalar::Number(Number::Int(value))),
        Just(Scalar::Number(Number::Int(i128::from(u64::MAX)))),
        (-3_i32..4).prop_map(|value| Scalar::Number(Number::Float(f64::from(value) / 2.0))),
        any::<bool>().prop_map(Scalar::Bool),
    ]
}

fn filters() -> impl Strategy<Value = Filter> {
    let op = prop_oneof![
        Just(CompareOp::Eq),
        Just(CompareOp::Ne),
        Just(CompareOp::Lt),
        Just(CompareOp::Le),
        Just(CompareOp::Gt),
        Just(CompareOp::Ge),
    ];
    let condition = prop_oneof![
        Just(Condition::Exists),
        (op, scalars()).prop_map(|(op, scalar)| Condition::Compare(op, scalar)),
        (proptest::collection::vec(scalars(), 0..12), any::<bool>())
            .prop_map(|(values, negated)| Condition::In { values, negated }),
        "[ab12]{0,2}".prop_map(Condition::Contains),
        "[ab12]{0,2}".prop_map(Condition::StartsWith),
    ];
    let leaf = ("[xyz]", condition)
        .prop_map(|(field, condition)| Expr::test(FieldPath::new(&field), condition));
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Expr::And),
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Expr::Or),
            inner.prop_map(|operand| Expr::Not(Box::new(operand))),
        ]
    })
}

#[derive(Debug, Clone)]
enum Owned {
    Str(String),
    Int(i64),
    Uint(u64),
    Float(f64),
    Bool(bool),
}

impl Owned {
    fn value(&self) -> Value<'_> {
        match self {
            Owned::Str(text) => Value::Str(text.as_bytes()),
            Owned::Int(value) => Value::Int(*value),
            Owned::Uint(value) => Value::Uint(*value),
            Owned::Float(value) => Value::Float(*value),
            Owned::Bool(value) => Value::Bool(*value),
        }
    }
}

fn values() -> impl Strategy<Value = Option<Owned>> {
    proptest::option::of(prop_oneof![
        "[ab12]{0,2}".prop_map(Owned::Str),
        (-3_i64..4).prop_map(Owned::Int),
        prop_oneof![0_u64..4, Just(u64::MAX)].prop_map(Owned::Uint),
        (-3_i32..4).prop_map(|value| Owned::Float(f64::from(value) / 2.0)),
        Just(Owned::Float(f64::NAN)),
        any::<bool>().prop_map(Owned::Bool),
    ])
}

/// Texts that are almost queries.
fn nearly_queries() -> impl Strategy<Value = String> {
    let word = proptest::sample::select(vec![
        "name",
        "dur",
        "ts",
        "pid",
        "args.x",
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "=",
        "~",
        "(",
        ")",
        "[",
        "]",
        ",",
        "in",
        "not",
        "and",
        "or",
        "exists",
        "contains",
        "starts_with",
        "'a'",
        "\"b\\\"\"",
        "'",
        "`",
        "`q`",
        "5",
        "-5",
        "5.5",
        "1e9",
        "10ms",
        "1h30m",
        "5x",
        "2026-11-21",
        "2026-11-21T01:00:00Z",
        "true",
        "FALSE",
        "null",
        "é",
        "\\",
        "(a)+",
        "(",
        "-",
        "*",
        "/",
        "//",
        "%",
    ]);
    proptest::collection::vec(word, 0..16).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_program_means_what_its_filter_means(
        filter in filters(),
        x in values(), y in values(), z in values(),
    ) {
        let event: Vec<(&str, Value<'_>)> = [("args.x", &x), ("args.y", &y), ("args.z", &z)]
            .into_iter()
            .filter_map(|(name, value)| value.as_ref().map(|value| (name, value.value())))
            .collect();
        prop_assert_eq!(ask(&filter, &event), naive(&filter, &event), "{}", filter);
    }

    #[test]
    fn no_text_panics(text in ".{0,60}") {
        if let Err(error) = Query::parse(&text) {
            let _ = error.to_string();
        }
    }

    #[test]
    fn a_query_survives_its_text(text in nearly_queries()) {
        match Query::parse(&text) {
            Ok(query) => {
                let written = query.expr().to_string();
                let again = Query::parse(&written);
                prop_assert!(again.is_ok(), "{} -> {}: {:?}", text, written, again);
                prop_assert_eq!(again.unwrap().expr().to_string(), written);
                let _ = query.bind(BareUnit::MICROS);
            }
            Err(error) => {
                prop_assert!(error.span().end <= text.len());
                let text = error.to_string();
                let is_helpful = ["expected", "did you mean"].iter().any(|what| text.contains(what));
                prop_assert!(is_helpful, "{}", text);
            }
        }
    }
}
