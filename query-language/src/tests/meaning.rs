//! When an event matches.

use expect_test::expect;

use super::{EVENT, ask, check};
use crate::{BareUnit, Query, Value};

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
        column 1: the traces read here have different units of time, expected a unit: write dur with a duration such as 10ms
          dur == 141000 and ts != 0
          ^~~~~~~~~~~~~"#]]
    .assert_eq(&query.bind(unit).unwrap_err().to_string());
    expect![[r#"
        column 1: the traces read here have different units of time, expected a unit: write ts with a date such as 2026-11-21T01:00:00Z
          ts > 0.5
          ^~~~~~~~"#]]
    .assert_eq(&Query::parse("ts > 0.5").unwrap().bind(unit).unwrap_err().to_string());
    let free = Query::parse("dur == 141us and tid == 2677792").unwrap();
    assert!(ask(&free.bind(BareUnit::Mixed).unwrap(), EVENT));
}

#[test]
fn fractions_of_a_unit_are_whole_nanoseconds() {
    for (text, nanos) in [
        ("dur == 0.57", 570),
        ("dur == 1.1", 1_100),
        ("dur == 0.001", 1),
        ("dur == -2.5e1", -25_000),
        ("dur == 1700000000001339.5", 1_700_000_000_001_339_500),
        ("dur <= 1700000000001339.123", 1_700_000_000_001_339_123),
        ("dur >= 1700000000001339.123", 1_700_000_000_001_339_123),
        ("dur < 1700000000001339.124", 1_700_000_000_001_339_123),
        ("dur > 1700000000001339.122", 1_700_000_000_001_339_123),
        ("dur < 0.0005", 0),
        ("dur > 0.0005", 1),
    ] {
        let filter = Query::parse(text).unwrap().bind(BareUnit::MICROS).unwrap();
        assert!(ask(&filter, &[("dur", Value::Int(nanos))]), "{text}");
    }
}
