use std::collections::HashMap;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use crate::{
    BareUnit, CompareOp, Condition, Expr, FieldPath, FieldTable, Filter, Number, Program, Query,
    Scalar, Value,
};

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

#[test]
fn when_an_event_matches() {
    let cases = [
        ("name == \"read\"", true),
        ("name == 'READ'", false),
        ("NAME == 'read'", false),
        ("name != 'write' AND cat In ['POSIX']", true),
        ("not name == 'read' or cat == 'STDIO'", false),
        ("not (name == 'read' and cat == 'STDIO')", true),
        ("name == 'x' or name == 'read' and cat == 'POSIX'", true),
        ("name < 'reae' and name >= 'read' and name > 'rea'", true),
        // Numbers compare by value, whatever their spelling.
        ("tid == 2677792.0", true),
        ("tid > 2677791.5", true),
        ("fhash == 18446744073709551615", true),
        ("fhash == 18446744073709551614", false),
        ("fhash > 9223372036854775807", true),
        ("ret == -1 and ret < 0", true),
        ("ratio >= 0.5 and ratio < 1", true),
        // Text that spells a number is a number if the query has a number, and text if it has text.
        ("pid == 1338896", true),
        ("pid == 1338896.0", true),
        ("pid < 1338897 and pid != 5", true),
        ("pid == '1338896'", true),
        ("pid in [1, 1338896]", true),
        ("pid not in [1, 1338896]", false),
        // Another type matches no condition, not even !=.
        ("tid == '2677792'", false),
        ("tid != '2677792'", false),
        ("name == 5", false),
        ("name != 5", false),
        ("ok == 1", false),
        ("ok == true and ok != false and ok > FALSE", true),
        ("tid ~ '2'", false),
        ("tid contains '2'", false),
        ("name in [1, true, 'read']", true),
        ("name not in [1, true]", true),
        ("name not in []", true),
        ("name in []", false),
        // A missing field is false, and not turns that into true.
        ("nosuch == 1", false),
        ("nosuch != 1", false),
        ("nosuch in [1]", false),
        ("nosuch not in [1]", false),
        ("nosuch ~ ''", false),
        ("not (nosuch == 1)", true),
        ("not (nosuch != 1)", true),
        ("not not nosuch != 1", false),
        ("exists(name) and exists ret and not exists(nosuch)", true),
        ("exists nosuch", false),
        // NaN compares with nothing.
        ("nan < 1 or nan >= 1 or nan != 1", false),
        // A bare name is an argument.
        ("ret == -1 and args.ret == -1", true),
        ("args.name == 'read'", false),
        // Units: bare numbers in microseconds here.
        ("dur == 141", true),
        ("dur == 141us and dur < 1ms and dur > 0.1ms", true),
        ("dur >= 140.5 and dur <= 141.0", true),
        ("ts == 1698080323775554", true),
        ("ts > 2023-10-23T16:58:43Z and ts < 2023-10-24", true),
        ("ts > '2023-10-23T16:58:43Z'", true),
        ("ts >= 2023-10-23T18:58:43.775554+02:00", true),
        // Text.
        ("fname ~ '^/data/.*\\.bat$'", true),
        ("fname ~ 'FILE'", false),
        ("fname ~ '(?i)FILE'", true),
        ("fname contains 'file \"a\"'", true),
        ("fname starts_with '/data'", true),
        ("fname STARTS_WITH 'data'", false),
        // The backslash stays in the string, as in DFTracer.
        ("fname == \"/data/file \\\"a\\\".bat\"", false),
        ("fname ~ \"file \\\"a\\\"\"", true),
        // Words are keywords only where a field cannot be.
        ("exists == 1 or contains == 1 or starts_with == 1", false),
        ("not exists contains 'x'", true),
        ("`args.ret` == -1", true),
        ("tid == 2677792and name == 'read'", true),
    ];
    for (text, expected) in cases {
        check(text, expected);
    }
}

#[test]
fn bare_numbers_follow_the_unit_of_the_kind() {
    let query = Query::parse("dur == 141000 and ts != 0").unwrap();
    assert!(ask(&query.bind(BareUnit::NANOS).unwrap(), EVENT));
    assert!(!ask(&query.bind(BareUnit::MICROS).unwrap(), EVENT));
    let unit = BareUnit::MICROS.and(BareUnit::NANOS);
    expect![[r#"
        column 1: the traces read here have different units of time, expected a unit: write dur with a duration such as 10ms, or a date
          dur == 141000 and ts != 0
          ^~~~~~~~~~~~~"#]]
    .assert_eq(&query.bind(unit).unwrap_err().to_string());
    let free = Query::parse("dur == 141us and tid == 2677792").unwrap();
    assert!(ask(&free.bind(BareUnit::Mixed).unwrap(), EVENT));
}

#[test]
fn fractions_of_a_unit_are_whole_nanoseconds() {
    for (text, nanos) in [
        ("dur == 0.57", 570),
        ("dur == 1.1", 1_100),
        ("dur == 0.001", 1),
    ] {
        let filter = Query::parse(text).unwrap().bind(BareUnit::MICROS).unwrap();
        assert!(ask(&filter, &[("dur", Value::Int(nanos))]), "{text}");
    }
}

fn error(text: &str, expected: &Expect) {
    let error = Query::parse(text).and_then(|query| query.bind(BareUnit::MICROS));
    expected.assert_eq(&error.unwrap_err().to_string());
}

#[test]
fn an_error_is_shown_at_its_position() {
    let cases = [
        (
            "",
            expect![[r#"
                column 1: expected a field, exists, not, or `(`, found the end of the query
                  
                  ^"#]],
        ),
        (
            "dur = 5",
            expect![[r#"
                column 5: `=` is no operator here; did you mean `==`?
                  dur = 5
                      ^"#]],
        ),
        (
            "a < 1 < 2",
            expect![[r#"
                column 7: expected and, or, or the end of the query, found `<`
                  a < 1 < 2
                        ^"#]],
        ),
        (
            "name",
            expect![[r#"
                column 5: expected a comparison (== != < <= > >=), in, not in, ~, contains, starts_with, like, is null or is not null, found the end of the query
                  name
                      ^"#]],
        ),
        (
            "name == null",
            expect![[r#"
                column 9: expected a value (string in quotes, number, duration, time, true or false), found `null`
                  name == null
                          ^~~~"#]],
        ),
        (
            "name == 'read",
            expect![[r#"
                column 9: unterminated string, expected a closing '
                  name == 'read
                          ^~~~~"#]],
        ),
        (
            "(name == 'a' or\n  cat === 'b')",
            expect![[r#"
                line 2, column 9: `=` is no operator here; did you mean `==`?
                    cat === 'b')
                          ^"#]],
        ),
        (
            "(name == 'é' and",
            expect![[r#"
                column 17: expected a field, exists, not, or `(`, found the end of the query
                  (name == 'é' and
                                  ^"#]],
        ),
        (
            "(pid == 1",
            expect![[r#"
                column 10: expected and, or, or `)`, found the end of the query
                  (pid == 1
                           ^"#]],
        ),
        (
            "pid in [1 2]",
            expect![[r#"
                column 11: expected `,` or `]`, found `2`
                  pid in [1 2]
                            ^"#]],
        ),
        (
            "pid in 1",
            expect![[r#"
                column 8: expected a list such as [1, 2], found `1`
                  pid in 1
                         ^"#]],
        ),
        (
            "pid == 18446744073709551616",
            expect![[r#"
                column 8: number out of range, expected -2^63 to 2^64-1, or a finite fraction
                  pid == 18446744073709551616
                         ^~~~~~~~~~~~~~~~~~~~"#]],
        ),
        (
            "pid == 1e400",
            expect![[r#"
                column 8: number out of range, expected -2^63 to 2^64-1, or a finite fraction
                  pid == 1e400
                         ^~~~~"#]],
        ),
        (
            "dur > 5MS",
            expect![[r#"
                column 8: unknown unit "MS", expected ns, us, ms, s, m, min, h or d
                  dur > 5MS
                         ^~"#]],
        ),
        (
            "ts > 2026-02-30",
            expect![[r#"
                column 14: no such day; expected 01 to 28
                  ts > 2026-02-30
                               ^~"#]],
        ),
        (
            "ts > 2026-02-20T25:00:00",
            expect![[r#"
                column 17: no such hour; expected 00 to 23
                  ts > 2026-02-20T25:00:00
                                  ^~"#]],
        ),
        (
            "name ~ '('",
            expect![[r#"
                column 8: invalid regular expression: unclosed group
                  name ~ '('
                         ^~~"#]],
        ),
        (
            "ts > 5ms",
            expect![[r#"
                column 1: ts is not compared with a duration, expected a date such as 2026-11-21T01:00:00Z
                  ts > 5ms
                  ^~~~~~~~"#]],
        ),
        (
            "pid == 1 and ret in [5, 5ms]",
            expect![[r#"
                column 14: args.ret is not compared with a duration, expected a plain number, for only dur has a unit
                  pid == 1 and ret in [5, 5ms]
                               ^~~~~~~~~~~~~~~"#]],
        ),
        (
            "pid == 1 § 2",
            expect![[r#"
                column 10: unexpected character '§', expected a field, a value, an operator or a bracket
                  pid == 1 § 2
                           ^"#]],
        ),
        (
            "name contains 5",
            expect![[r#"
                column 15: expected a string in quotes, found `5`
                  name contains 5
                                ^"#]],
        ),
    ];
    for (text, expected) in cases {
        error(text, &expected);
    }
}

#[test]
fn a_long_line_is_shortened_around_the_error() {
    let text = format!("name in [{}] = 5", vec!["'abcdefgh'"; 50].join(", "));
    let error = Query::parse(&text).unwrap_err();
    assert_eq!(&text[error.span()], "=");
    let caret = error.caret();
    let lines: Vec<&str> = caret.lines().collect();
    let at = lines[1].find('^').unwrap();
    assert_eq!(&lines[0][at..], "= 5");
    assert!(lines[0].len() < 130, "{caret}");
}

#[test]
fn depth_and_length_are_bounded() {
    let deep = |levels: usize| format!("{}pid == 1{}", "(".repeat(levels), ")".repeat(levels));
    assert!(Query::parse(&deep(crate::QUERY_DEPTH_MAX)).is_ok());
    assert!(Query::parse(&deep(crate::QUERY_DEPTH_MAX + 1)).is_err());
    assert!(Query::parse(&format!("{}pid == 1", "not ".repeat(100_000))).is_err());
    let long = format!("pid == {}", " ".repeat(crate::QUERY_BYTES_MAX));
    assert!(Query::parse(&long).is_err());
    let wide = vec!["pid == 1"; 10_000].join(" and ");
    assert!(Query::parse(&wide).is_ok());
}

#[test]
fn the_text_of_a_tree_has_no_needless_brackets() {
    let cases = [
        (
            "(a == 1 and (b == 2)) or c == 3",
            "args.a == 1 and args.b == 2 or args.c == 3",
        ),
        (
            "a == 1 and (b == 2 or c == 3)",
            "args.a == 1 and (args.b == 2 or args.c == 3)",
        ),
        ("not (a == 1 or b == 2)", "not (args.a == 1 or args.b == 2)"),
        ("not ((a == 1))", "not args.a == 1"),
        ("name == 'say \"x\"'", "name == 'say \"x\"'"),
        (
            "dur in [5ms, 1.5us] and ts < 2026-11-21",
            "dur in [5000000ns, 1500ns] and ts < 2026-11-21T00:00:00Z",
        ),
        ("exists `a-b`", "exists(`args.a-b`)"),
    ];
    for (text, expected) in cases {
        assert_eq!(Query::parse(text).unwrap().expr().to_string(), expected);
    }
}

#[test]
fn a_query_accepts_the_times_that_options_accept() {
    use crate::time::{IntegerUnit, parse_instant};
    for time in [
        "2026-11-21",
        "2026-11-21T01:00:00Z",
        "2026-11-21t01:00:00z",
        "2026-11-21T02:00:00.5+01:00",
        "2026-11-21 02:00:00.5-01:00",
        "2026-11-21 01:00",
        "2026-11-21T01:00:00.000000001",
        "1677-09-21T00:12:43.145224192Z",
        "2262-04-11T23:47:16.854775807Z",
        "2026-11-21T01:00:00 01:00",
        "2026-11-21T01:00:00+0100",
        "2026-11-21T01:00:00,5",
        "2026-11-21T01:00:60",
        "2026-11-21T01:00:00.0000000001",
        "2026-11-21T01",
        "2026-11-21x",
        "1677-09-21",
        "2262-04-12",
        "9999-12-31",
        "0001-01-01",
        "01:00",
        "+5",
        "1795226501.",
    ] {
        let options = parse_instant(time, IntegerUnit::Nanoseconds);
        let query = Query::parse(&format!("ts < {time} and dur in [1, 2]"));
        assert_eq!(
            query.is_ok(),
            options.is_ok(),
            "{time}: {query:?}, {options:?}"
        );
        if let (Err(query), Err(options)) = (query, options)
            && let crate::QueryErrorKind::BadTime(kind) = query.kind()
        {
            assert_eq!(kind, options.kind(), "{time}");
            assert_eq!(
                query.span().start,
                options.span().start + "ts < ".len(),
                "{time}"
            );
        }
    }
}

#[test]
fn what_follows_a_time_is_the_rest_of_the_query() {
    for (text, written) in [
        (
            "ts<2026-11-21 01:00and pid==1",
            "ts < 2026-11-21T01:00:00Z and pid == 1",
        ),
        (
            "ts in [2026-11-21 01:00,2026-11-21]",
            "ts in [2026-11-21T01:00:00Z, 2026-11-21T00:00:00Z]",
        ),
        (
            "(ts<2026-11-21) or pid==1",
            "ts < 2026-11-21T00:00:00Z or pid == 1",
        ),
    ] {
        assert_eq!(Query::parse(text).unwrap().expr().to_string(), written);
    }
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

#[test]
fn operators_of_other_languages_are_recognized() {
    for (query, meant) in [
        (
            "pid == 1 && tid == 2",
            "`&&` is no operator here; did you mean `and`?",
        ),
        (
            "pid == 1 || tid == 2",
            "`||` is no operator here; did you mean `or`?",
        ),
        (
            "pid == 1 | tid == 2",
            "`|` is no operator here; did you mean `or`?",
        ),
        (
            "!exists(pid)",
            "`!` is no operator here; did you mean `not`?",
        ),
        ("pid = 1", "`=` is no operator here; did you mean `==`?"),
    ] {
        let error = Query::parse(query).unwrap_err().to_string();
        assert!(error.contains(meant), "{query}: {error}");
    }
}

#[test]
fn null_and_like_mean_the_same_as_their_longer_forms() {
    let check = |query: &str, same: &str, event: &[(&str, Value<'static>)]| {
        let passes = |query: &str| {
            let filter = Query::parse(query).unwrap().bind(BareUnit::NANOS).unwrap();
            ask(&filter, event)
        };
        assert_eq!(passes(query), passes(same), "{query} {event:?}");
        passes(query)
    };
    let texts: [&[u8]; 8] = [
        b"",
        b"read",
        b"pread64",
        b"a.b",
        b"aXb",
        b"x\ny",
        b"\xff",
        "\u{e9}".as_bytes(),
    ];
    let mut passed = 0;
    for text in texts {
        let event = [("name", Value::Str(text))];
        for (query, same) in [
            ("name is null", "not exists(name)"),
            ("name IS NOT NULL", "exists(name)"),
            (
                "pid is null and name is not null",
                "not exists(pid) and exists(name)",
            ),
            ("not name is null", "exists(name)"),
            ("name like 'read'", "name == 'read'"),
            ("name like 'a.b'", "name == 'a.b'"),
            ("name like '%read%'", "name contains 'read'"),
            ("name like 'p%'", "name starts_with 'p'"),
            ("name like 'a_b'", "name ~ '^a.b$'"),
            ("name like 'x_y'", "name ~ '(?s)^x.y$'"),
            ("name like '%'", "exists(name)"),
            ("name like '_'", "name == '\u{e9}'"),
        ] {
            passed += u32::from(check(query, same, &event));
            check(query, same, &[]);
        }
    }
    assert!(passed > 30, "{passed}");
    for (query, message) in [
        ("name is", "expected null or not null"),
        ("name is not 5", "expected null or not null"),
        ("name like 5", "expected a string in quotes"),
    ] {
        let error = Query::parse(query).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    // Fields keep these names.
    assert!(Query::parse("is == 1 and like == 2 and null == 3").is_ok());
}

/// Whether a query is the same as another one once it is bound; otherwise a part of the error.
fn check_quoted(query: &str, expected: Result<&str, &str>) {
    let bound = Query::parse(query).unwrap().bind(BareUnit::MICROS);
    match (bound, expected) {
        (Ok(bound), Ok(expected)) => {
            let expected = Query::parse(expected).unwrap().bind(BareUnit::MICROS);
            assert_eq!(bound.to_string(), expected.unwrap().to_string(), "{query}");
        }
        (Err(error), Err(expected)) => {
            let error = error.to_string();
            assert!(error.contains(expected), "{query}: {error}");
        }
        (found, expected) => panic!("{query}: {found:?}, not {expected:?}"),
    }
}

#[test]
fn quoted_durations_and_times_are_what_they_say_or_refused() {
    check_quoted("dur > \"5ms\"", Ok("dur > 5ms"));
    check_quoted("dur in ['1us', '1h30m']", Ok("dur in [1us, 1h30m]"));
    check_quoted("ts > '2026-11-21'", Ok("ts > 2026-11-21"));
    for query in [
        "dur > '5'",
        "dur == ''",
        "dur > 'ms'",
        "dur > 'long'",
        "dur in ['5ms ']",
    ] {
        check_quoted(
            query,
            Err("dur is not compared with text, expected a duration"),
        );
    }
    check_quoted(
        "ts > 'yesterday'",
        Err("ts is not compared with text, expected a date"),
    );
    check_quoted("dur == true", Err("dur is not compared with true or false"));
}
