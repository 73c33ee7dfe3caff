//! Generated filters of generated events.

use super::*;

fn texts() -> impl Strategy<Value = OwnedValue> {
    "[ab12]{0,2}".prop_map(|text| OwnedValue::Str(text.into_bytes().into()))
}

fn mixed() -> impl Strategy<Value = OwnedValue> {
    prop_oneof![
        3 => texts(),
        3 => (-3_i64..6).prop_map(|value| match u64::try_from(value) {
            Ok(value) => OwnedValue::Uint(value),
            Err(_) => OwnedValue::Int(value),
        }),
        1 => Just(OwnedValue::Uint(u64::MAX)),
        2 => (-3_i32..6).prop_map(|value| OwnedValue::Float(f64::from(value) / 2.0)),
        1 => Just(OwnedValue::Float(f64::NAN)),
        1 => any::<bool>().prop_map(OwnedValue::Bool),
    ]
}

fn labels() -> impl Strategy<Value = Option<OwnedValue>> {
    proptest::option::weighted(
        0.9,
        prop_oneof![
            20 => "[abc]{1}".prop_map(|text| OwnedValue::Str(text.into_bytes().into())),
            1 => mixed(),
        ],
    )
}

fn times() -> impl Strategy<Value = Option<OwnedValue>> {
    proptest::option::weighted(
        0.9,
        prop_oneof![
            30 => (-2_i64..6).prop_map(|value| OwnedValue::Int(value * 1_000)),
            1 => mixed(),
        ],
    )
}

fn events() -> impl Strategy<Value = Event> {
    let some = proptest::option::weighted(0.8, mixed());
    (
        labels(),
        labels(),
        times(),
        times(),
        proptest::option::of((0_u64..3).prop_map(OwnedValue::Uint)),
        some,
        proptest::option::of(
            (0_u64..1_000).prop_map(|n| OwnedValue::Str(format!("{n:04x}").into_bytes().into())),
        ),
    )
        .prop_map(|(name, cat, ts, dur, pid, x, h)| [name, cat, ts, dur, pid, x, h])
}

fn scalars() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        mixed().prop_map(|value| match value {
            OwnedValue::Str(text) => Scalar::Str(text),
            OwnedValue::Bool(value) => Scalar::Bool(value),
            other => match other.as_value().as_number() {
                // A query cannot spell NaN.
                Some(Number::Float(value)) if value.is_nan() => Scalar::Number(Number::Int(0)),
                Some(number) => Scalar::Number(number),
                None => Scalar::Bool(true),
            },
        }),
        "[abc]{1}".prop_map(|text| Scalar::Str(text.into_bytes().into())),
        (-2_i128..6).prop_map(|value| Scalar::Number(Number::Int(value * 1_000))),
        (0_u64..1_000).prop_map(|n| Scalar::Str(format!("{n:04x}").into_bytes().into())),
    ]
}

fn filters() -> impl Strategy<Value = Filter> {
    let op = proptest::sample::select(vec![
        CompareOp::Eq,
        CompareOp::Ne,
        CompareOp::Lt,
        CompareOp::Le,
        CompareOp::Gt,
        CompareOp::Ge,
    ]);
    let pattern = proptest::sample::select(vec!["", "a", "^b", "1$", "00"]);
    let condition = prop_oneof![
        Just(Condition::Exists),
        (op, scalars()).prop_map(|(op, scalar)| Condition::Compare(op, scalar)),
        (proptest::collection::vec(scalars(), 0..4), any::<bool>())
            .prop_map(|(values, negated)| Condition::In { values, negated }),
        "[ab12]{0,2}".prop_map(Condition::Contains),
        "[ab012]{0,2}".prop_map(Condition::StartsWith),
        pattern.prop_map(|pattern| {
            let query = Query::parse(&format!("name ~ '{pattern}'")).expect("a plain pattern");
            match query.bind(BareUnit::NANOS).expect("no units") {
                Expr::Test(predicate) => predicate.condition,
                other => panic!("{other}"),
            }
        }),
    ];
    let field = proptest::sample::select([FIELDS.as_slice(), &["nosuch"]].concat());
    let leaf = (field, condition)
        .prop_map(|(field, condition)| Expr::test(FieldPath::new(field), condition));
    leaf.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Expr::And),
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Expr::Or),
            inner.prop_map(|operand| Expr::Not(Box::new(operand))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn no_matching_chunk_is_ruled_out_and_no_count_is_wrong(
        filter in filters(),
        chunks in proptest::collection::vec(proptest::collection::vec(events(), 0..26), 1..6),
        small in any::<bool>(),
    ) {
        let config = if small { small_config() } else { IndexConfig::new(["pid", "x", "h"]) };
        check(&filter, &config, &chunks);
    }
}
