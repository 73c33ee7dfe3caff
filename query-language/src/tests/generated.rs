//! Random filters, and texts that are nearly queries.

use proptest::prelude::*;

use super::{ask, naive};
use crate::arithmetic::Operator;
use crate::operand::parse_arithmetic;
use crate::{
    BareUnit, CompareOp, Condition, Expr, FieldPath, Filter, Number, Operation, Query, Scalar,
    Term, Value, arithmetic,
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
        "`(a)a)`",
        "`(a + 1)`",
        "(",
        "-",
        "*",
        "/",
        "//",
        "%",
    ]);
    proptest::collection::vec(word, 0..16).prop_map(|words| words.join(" "))
}

/// Arithmetic, some of it with units that do not suit each other.
fn terms() -> impl Strategy<Value = Term> {
    let operators = proptest::sample::select(vec![
        Operator::Plus,
        Operator::Minus,
        Operator::Times,
        Operator::Over,
        Operator::Quotient,
        Operator::Remainder,
    ]);
    let fields = proptest::sample::select(vec!["x", "dur", "ts", "odd name", "args.(x)", "and"]);
    let numbers = prop_oneof![
        (-3_i128..4).prop_map(Number::Int),
        Just(Number::Int(i128::from(u64::MAX))),
        Just(Number::Int(i128::from(i64::MIN))),
        any::<f64>().prop_filter_map("numbers are finite", |value| {
            value.is_finite().then_some(Number::Float(value))
        }),
    ];
    let leaf = prop_oneof![
        3 => fields.prop_map(|field| Term::Field(FieldPath::new(field))),
        1 => numbers.prop_map(Term::Number),
        1 => (-3_i128..4).prop_map(|nanos| Term::Duration(Number::Int(nanos))),
    ];
    let constants = prop_oneof![
        (1_i128..4).prop_map(|number| Term::Number(Number::Int(number))),
        (-3_i128..4).prop_map(|nanos| Term::Duration(Number::Int(nanos))),
    ];
    let steps = proptest::collection::vec((operators.clone(), constants.clone()), 0..100);
    let chain = (leaf.clone(), operators.clone(), constants, steps).prop_map(
        |(field, operator, first, steps)| {
            let constant = (steps.into_iter()).fold(first, |left, (operator, right)| {
                operation(operator, left, right)
            });
            operation(operator, field, constant)
        },
    );
    let tree = leaf.prop_recursive(8, 60, 2, move |inner| {
        let operands = (operators.clone(), inner.clone(), inner.clone());
        prop_oneof![
            1 => inner.prop_map(|operand| Term::Negative(Box::new(operand))),
            4 => operands.prop_map(|(operator, left, right)| operation(operator, left, right)),
        ]
    });
    prop_oneof![4 => tree, 1 => chain]
}

fn operation(operator: Operator, left: Term, right: Term) -> Term {
    Term::Operation(Box::new(Operation {
        operator,
        left,
        right,
    }))
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
    fn arithmetic_survives_its_text(term in terms()) {
        let mut has_field = false;
        term.for_each_field(&mut |_| has_field = true);
        prop_assume!(has_field && term.unit().is_ok());
        let written = term.to_string();
        let again = parse_arithmetic(&written);
        prop_assert_eq!(again.as_ref(), Ok(&term), "{}", written);
        let field = FieldPath::computed(&written);
        prop_assert_eq!(arithmetic(&field), Some(term), "{}", field);
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
