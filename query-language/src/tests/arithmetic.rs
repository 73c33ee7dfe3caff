//! Arithmetic: its values, its units and its text.

use std::collections::HashMap;

use super::{EVENT, ask};
use crate::{
    Aggregate, BareUnit, FieldPath, FieldTable, OrderKey, Query, Value, arithmetic, parse_field,
    parse_fields,
};

/// The result for the event of the tables, which has `dur` 141,000, `ret` -1 and `ratio` 0.5.
fn value(text: &str) -> Option<Value<'static>> {
    let field = FieldPath::new(text);
    let term = arithmetic(&field).unwrap_or_else(|| panic!("{text} is no arithmetic"));
    let mut table = FieldTable::new();
    let computed = term.compile(&mut table);
    let by_name: HashMap<&str, Value<'_>> = EVENT.iter().copied().collect();
    let paths = table.paths().iter();
    let row: Vec<Option<Value<'_>>> = paths
        .map(|path| by_name.get(path.as_str()).copied())
        .collect();
    computed.value(&row)
}

#[test]
fn results_are_exact_or_missing() {
    let (int, fraction) = (
        |value| Some(Value::Int(value)),
        |value| Some(Value::Float(value)),
    );
    let cases = [
        ("(dur + 1us)", int(142_000)),
        ("(dur-ret)", int(141_001)),
        ("(dur - -1ns)", int(141_001)),
        ("(-dur)", int(-141_000)),
        ("(- (dur * 2))", int(-282_000)),
        ("(dur / 1000)", fraction(141.0)),
        ("(dur // 1000)", int(141)),
        ("(ret // 2)", int(-1)),
        ("(ret % 2)", int(1)),
        ("(ret % -2)", int(-1)),
        ("(ret * ratio)", fraction(-0.5)),
        ("(7 // ratio)", fraction(14.0)),
        ("(7.5 % 2 + 0 * ret)", fraction(1.5)),
        // Of the exact quotient, which is less than the nearest fraction.
        ("(1e16 // 1.5 + 0 * ret)", fraction(6_666_666_666_666_666.0)),
        ("(1e16 % 1.5 + 0 * ret)", fraction(1.0)),
        ("(fhash % 1.5)", fraction(0.0)),
        ("((fhash - 1) % 1.5)", fraction(0.5)),
        ("(0 / ret)", fraction(0.0)),
        // Brackets and precedence.
        ("(2 + 3 * ret)", int(-1)),
        ("((2 + 3) * ret)", int(-5)),
        ("(10 - 4 - ret)", int(7)),
        ("(100 // 10 // ret)", int(-10)),
        // Text that spells a number is one.
        ("(pid + 1)", int(1_338_897)),
        ("(`args.ret` + 1)", int(0)),
        // 64 bits.
        ("(fhash + 0)", Some(Value::Uint(u64::MAX))),
        ("(fhash + 1)", None),
        ("(fhash + 1 - 1)", Some(Value::Uint(u64::MAX))),
        ("(-fhash)", None),
        ("(fhash * fhash * fhash)", None),
        ("(fhash * fhash * fhash * ratio)", None),
        ("(ratio * 1e308 * 100)", None),
        // Nothing is computed from nothing, text, booleans, NaN or a division by zero.
        ("(nosuch + 1)", None),
        ("(name + 1)", None),
        ("(ok + 1)", None),
        ("(nan + 1)", None),
        ("(dur / 0)", None),
        ("(dur // 0)", None),
        ("(dur % 0ns)", None),
        ("(ret / (ratio - 0.5))", None),
        ("(ret % (ratio - 0.5))", None),
    ];
    for (text, expected) in cases {
        assert_eq!(value(text), expected, "{text}");
    }
}

#[test]
fn arithmetic_is_compared_with_what_has_its_unit() {
    let cases = [
        ("dur / 1000 == 141", Ok(true)),
        ("dur / 2 > 70us", Ok(true)),
        ("dur * 2 > 281us", Ok(true)),
        ("dur*2>282us", Ok(false)),
        ("dur - 141us == 0", Ok(true)),
        ("(dur - 141us) * 5 < 1ns", Ok(true)),
        ("ts + dur > 2023-10-23T16:58:43Z", Ok(true)),
        ("ts - ts == 0", Ok(true)),
        ("tid - pid == 1338896", Ok(true)),
        ("tid - pid in [1, 1338896]", Ok(true)),
        ("tid - pid not in [1]", Ok(true)),
        ("dur % 1us == 0", Ok(true)),
        ("(tid) == 2677792", Ok(true)),
        ("((tid)) - 1 == 2677791 and not (tid - 1 == 0)", Ok(true)),
        (
            "(tid - 1 == 0 or (tid + 1) * 2 > 5) and name == 'read'",
            Ok(true),
        ),
        ("-ret == 1", Ok(true)),
        ("0 - ret == 1", Ok(true)),
        // A result that is missing is a missing field.
        ("ret / 0 != 1", Ok(false)),
        ("not (ret / 0 == 1)", Ok(true)),
        ("nosuch + 1 is null", Ok(true)),
        ("exists(ret + 1) and not exists(name + 1)", Ok(true)),
        // Units.
        ("dur * 2 > 281", Err("expected a duration such as 5ms")),
        ("dur + 5 > 1ms", Err("5 has no unit here")),
        ("5 - ts > 1ms", Err("5 has no unit here")),
        ("dur + -(5) > 1000", Err("(- 5) has no unit here")),
        ("dur - (2 * 5) > 1ms", Err("(2 * 5) has no unit here")),
        ("dur + -(5us) == 136us", Ok(true)),
        ("ret + -(5) == -6", Ok(true)),
        // Brackets in backquotes.
        ("`(ret + 1)` == 0", Ok(true)),
        ("`(ret) + 1` == 0", Ok(true)),
        ("`(ret)ret)` == 0", Err("column 7: expected an operator")),
        ("`(ret + 1)` * 2 == 0", Err("without backquotes")),
        ("`args.(ret)ret)` is null", Ok(true)),
        ("tid - pid > 1ms", Err("expected a number without a unit")),
        ("ts + dur > 5", Err("expected a date")),
        ("ret + 1 == '5'", Err("is not compared with text")),
        ("ret + 1 == true", Err("is not compared with true or false")),
        // What is no number, and where arithmetic cannot be.
        ("ret + 1 contains '5'", Err("arithmetic has no text")),
        ("ret + 1 ~ '5'", Err("arithmetic has no text")),
        ("dur > 2 * 5ms", Err("on the left")),
        ("dur > 5ms - 1ms", Err("on the left")),
        ("ret + > 5", Err("expected a field, a number, a duration")),
        ("(ret + 1 > 5", Err("`)`")),
        ("1 + 2 == 3", Err("expected a field")),
        ("ret + 'a' == 3", Err("expected a field, a number")),
    ];
    for (text, expected) in cases {
        let found = Query::parse(text).and_then(|query| query.bind(BareUnit::MICROS));
        match (found, expected) {
            (Ok(filter), Ok(expected)) => assert_eq!(ask(&filter, EVENT), expected, "{text}"),
            (Err(error), Err(expected)) => {
                let error = error.to_string();
                assert!(error.contains(expected), "{text}: {error}");
            }
            (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
        }
    }
}

#[test]
fn arithmetic_has_one_spelling() {
    for (text, expected) in [
        ("`(ret + 1)` == 0", "(args.ret + 1) == 0"),
        ("`((ret)+1)` == 0", "(args.ret + 1) == 0"),
        ("ret+1 == 0", "(args.ret + 1) == 0"),
        ("`(ret)` == 0", "args.ret == 0"),
    ] {
        let query = Query::parse(text).unwrap();
        assert_eq!(query.expr().to_string(), expected, "{text}");
    }
}

#[test]
fn depth_is_bounded() {
    for text in [
        format!("{}ret > 1", "-".repeat(100_000)),
        format!("ret{} > 1", " + 1".repeat(100_000)),
        format!("{}ret{} > 1", "(".repeat(100_000), ")".repeat(100_000)),
    ] {
        let error = Query::parse(&text).unwrap_err().to_string();
        assert!(error.contains("nested deeper"), "{error}");
    }
    for text in [
        format!("ret{} == 127", " + 1".repeat(128)),
        format!("{}ret == -1", "-".repeat(128)),
        format!("{}ret{} + 1 == 0", "(".repeat(128), ")".repeat(128)),
        // The unit of long constants is found in one pass.
        format!("dur + (1us{}) == 269us", " + 1us".repeat(127)),
        format!("dur + (1us{}) == 15us", " - 1us".repeat(127)),
        format!("dur + (1us{}) == 141us", " % 1us".repeat(127)),
        format!(
            "dur + {}1us{} == 269us",
            "(1us + ".repeat(127),
            ")".repeat(127)
        ),
    ] {
        let query = Query::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let filter = query.bind(BareUnit::MICROS).unwrap();
        assert!(ask(&filter, EVENT), "{text}");
    }
}

#[test]
fn lists_contain_arithmetic_in_brackets() {
    assert_eq!(
        parse_fields("name,(dur / 1000), (ret)").unwrap(),
        ["name", "(dur / 1000)", "(ret)"]
    );
    let keys = OrderKey::parse_list("(dur - ret) desc,name").unwrap();
    assert_eq!(
        (keys[0].label.as_str(), keys[0].descending),
        ("(dur - ret)", true)
    );
    let aggregates = Aggregate::parse_list("sum:(ret * (2 + ret)), p99:dur").unwrap();
    assert_eq!(aggregates[0].label, "sum:(ret * (2 + ret))");
    assert!(
        aggregates[0]
            .field
            .as_ref()
            .is_some_and(FieldPath::is_computed)
    );
    for (text, message) in [
        ("name,(dur +)", "column 12: expected a field, a number"),
        ("(dur + 1us", "expected an operator"),
        ("(1 + 1)", "expected arithmetic over a field"),
        ("(dur + 5)", "5 has no unit here"),
        ("(dur / 2) down", "expected a comma"),
    ] {
        let error = parse_fields(text).unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
    let error = Aggregate::parse_list("count,sum:(ret /)").unwrap_err();
    assert_eq!(error.column(), 17);
    assert!(parse_field("(ret / 2)").is_ok());
    assert!(parse_field("(ret /)").is_err());
    assert!(parse_field("(ret) + 1").is_ok());
    assert_eq!(value("(ret) + 1"), Some(Value::Int(0)));
}
