use proptest::prelude::*;

use super::*;
use crate::Number;

const SECOND: i64 = NANOS_PER_SECOND;
/// 2026-11-21, the first moment.
const DAY: i64 = 1_795_219_200 * SECOND;

fn check(cases: &[(&str, Time)], unit: IntegerUnit) {
    for (text, expected) in cases {
        assert_eq!(parse_time(text, unit), Ok(*expected), "{text:?}");
    }
}

/// Each text is refused with an error that begins like this.
fn check_refused(cases: &[(&str, &str)], unit: IntegerUnit) {
    for (text, expected) in cases {
        let error = parse_time(text, unit).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{text:?}: {error}");
        assert!(text.get(error.span()).is_some(), "{text:?}: {error:?}");
    }
}

fn at(nanos: i64) -> Time {
    Time::Instant(nanos)
}

fn of_day(nanos: i64) -> Time {
    Time::TimeOfDay(nanos)
}

#[test]
fn dates_and_times() {
    let cases = [
        ("2026-11-21", at(DAY)),
        (" 2026-11-21 ", at(DAY)),
        ("2026-11-21T00:00:00Z", at(DAY)),
        ("2026-11-21t00:00:00z", at(DAY)),
        ("2026-11-21T01:00:00+01:00", at(DAY)),
        ("2026-11-21 01:00:00+01:00", at(DAY)),
        ("2026-11-20T19:00:00-05:00", at(DAY)),
        ("2026-11-21T00:00:01.000000001Z", at(DAY + SECOND + 1)),
        ("2026-11-21T00:00:01", at(DAY + SECOND)),
        ("2026-11-21 00:00:01", at(DAY + SECOND)),
        ("2026-11-21 00:01", at(DAY + 60 * SECOND)),
        ("2026-11-21T00:01", at(DAY + 60 * SECOND)),
        ("2026-11-21 00:00:01.5", at(DAY + SECOND + SECOND / 2)),
        ("2026-11-21 00:00:01.000000009", at(DAY + SECOND + 9)),
        ("1970-01-01", at(0)),
        ("1969-12-31T23:59:59Z", at(-SECOND)),
        ("2262-04-11T23:47:16.854775807Z", at(i64::MAX)),
        ("1677-09-21T00:12:43.145224192Z", at(i64::MIN)),
    ];
    check(&cases, IntegerUnit::Nanoseconds);
    check(&cases, IntegerUnit::Seconds);
}

#[test]
fn times_of_day() {
    let cases = [
        ("00:00", of_day(0)),
        ("12:30", of_day(45_000 * SECOND)),
        ("12:30:01", of_day(45_001 * SECOND)),
        ("12:30:01.5", of_day(45_001 * SECOND + SECOND / 2)),
        ("23:59:59.999999999", of_day(NANOS_PER_DAY - 1)),
    ];
    check(&cases, IntegerUnit::Nanoseconds);
    check(&cases, IntegerUnit::Seconds);
    let half_past_noon = Time::TimeOfDay(45_000 * SECOND);
    for (reference, expected) in [
        (DAY, Ok(DAY + 45_000 * SECOND)),
        (DAY + NANOS_PER_DAY - 1, Ok(DAY + 45_000 * SECOND)),
        (DAY - 1, Ok(DAY - NANOS_PER_DAY + 45_000 * SECOND)),
        (-1, Ok(45_000 * SECOND - NANOS_PER_DAY)),
        (i64::MIN, Err(TimeErrorKind::OutOfRange)),
    ] {
        assert_eq!(half_past_noon.on_day_of(reference), expected, "{reference}");
    }
    assert_eq!(Time::Instant(7).on_day_of(DAY), Ok(7));
    let error = parse_instant(" 12:30", IntegerUnit::Nanoseconds).unwrap_err();
    assert_eq!(error.kind(), &TimeErrorKind::NoDate);
    assert_eq!(error.span(), 1..6);
}

#[test]
fn integers_are_in_the_unit_of_the_caller() {
    let nanoseconds = [
        ("0", at(0)),
        ("12", at(12)),
        ("-1", at(-1)),
        ("1795219200000000000", at(DAY)),
        ("9223372036854775807", at(i64::MAX)),
        ("-9223372036854775808", at(i64::MIN)),
    ];
    check(&nanoseconds, IntegerUnit::Nanoseconds);
    let seconds = [
        ("0", at(0)),
        ("12", at(12 * SECOND)),
        ("-1", at(-SECOND)),
        ("1795219200", at(DAY)),
    ];
    check(&seconds, IntegerUnit::Seconds);
}

#[test]
fn fractions_are_seconds() {
    let cases = [
        ("0.5", at(SECOND / 2)),
        ("-0.25", at(-SECOND / 4)),
        ("-1.000000001", at(-SECOND - 1)),
        ("1795219200.000000009", at(DAY + 9)),
        ("9223372036.854775807", at(i64::MAX)),
        ("-9223372036.854775808", at(i64::MIN)),
    ];
    check(&cases, IntegerUnit::Nanoseconds);
    check(&cases, IntegerUnit::Seconds);
}

#[test]
fn a_number_has_its_own_unit() {
    let cases = [
        ("7ns", at(7)),
        ("1795219200000000us", at(DAY)),
        (" 1795219200000ms ", at(DAY)),
        ("1795219200s", at(DAY)),
        ("1795219200.000000009s", at(DAY + 9)),
        ("0s", at(0)),
    ];
    check(&cases, IntegerUnit::Nanoseconds);
    check(&cases, IntegerUnit::Seconds);
}

#[test]
fn a_bound_is_a_time_or_before_now() {
    for (text, expected) in [
        ("1795219200000000000", Bound::Bare(DAY)),
        (" -5 ", Bound::Bare(-5)),
        ("1795219200000000000ns", Bound::Instant(DAY)),
        ("1795219200.0", Bound::Instant(DAY)),
        ("-0.25", Bound::Instant(-SECOND / 4)),
        ("2026-11-21", Bound::Instant(DAY)),
        ("-1h", Bound::Ago(3_600 * SECOND)),
        (" -1h30m ", Bound::Ago(5_400 * SECOND)),
        ("-5ms", Bound::Ago(5_000_000)),
        ("now", Bound::Ago(0)),
        (" now-1h ", Bound::Ago(3_600 * SECOND)),
    ] {
        assert_eq!(parse_bound(text), Ok(expected), "{text}");
    }
    for (text, expected) in [
        ("1h", "column 2: not a time; expected RFC 3339"),
        ("--1h", "column 1: not a time"),
        ("-1h-5m", "column 3: not a time"),
        ("- 1h", "column 1: not a time"),
        ("-106752d", "column 1: duration out of range"),
        ("12:30", "column 1: a time of day without a date"),
        ("now-5", "column 1: not a time"),
        ("now+1h", "column 1: not a time"),
        ("nowhere", "column 1: not a time"),
    ] {
        let error = parse_bound(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    let error = parse_bound("soon").unwrap_err().to_string();
    assert!(
        error.ends_with("or a duration before now such as -1h"),
        "{error}"
    );
    assert_eq!(Bound::Ago(5).nanos(7), 2);
    assert_eq!(Bound::Ago(i64::MAX).nanos(i64::MIN), i64::MIN);
    assert_eq!(Bound::Bare(5).nanos(7), 5);
}

#[test]
fn errors_give_the_column_and_the_reason() {
    let cases = [
        ("2026-13-01", "column 6: no such month; expected 01 to 12"),
        ("2026-00-01", "column 6: no such month; expected 01 to 12"),
        ("2026-02-30", "column 9: no such day; expected 01 to 28"),
        ("  2028-02-30", "column 11: no such day; expected 01 to 29"),
        (
            "\u{2003}2026-02-30",
            "column 10: no such day; expected 01 to 28",
        ),
        (
            "2026-11-21T25:00:00Z",
            "column 12: no such hour; expected 00 to 23",
        ),
        (
            "2026-11-21T24:00:00Z",
            "column 12: no such hour; expected 00 to 23",
        ),
        (
            "2026-11-21 01:60",
            "column 15: no such minute; expected 00 to 59",
        ),
        (
            "2026-11-21 01:00:60",
            "column 18: no such second; expected 00 to 59",
        ),
        ("2026-11-21T", "column 12: expected two digits of the hour"),
        (
            "2026-11-21T01",
            "column 14: expected a colon and the minute",
        ),
        (
            "2026-11-21T01:0",
            "column 15: expected two digits of the minute",
        ),
        (
            "2026-11-21T01:00:00.Z",
            "column 21: expected digits of the fraction",
        ),
        (
            "2026-11-21T01:00:00.0123456789",
            "column 30: too many digits; expected a fraction",
        ),
        ("2026-11-21T01:00:00,5", "column 20: expected nothing more"),
        (
            "2026-11-21T01:00:00+99:00",
            "column 21: no such offset hour; expected 00 to 23",
        ),
        (
            "2026-11-21T01:00:00+01:99",
            "column 24: no such offset minute; expected 00 to 59",
        ),
        (
            "2026-11-21T01:00:00+01",
            "column 23: expected a colon and the minutes of the offset",
        ),
        (
            "2026-11-21T01:00:00 01:00",
            "column 20: a space before the offset; expected a sign",
        ),
        ("2026-11-21x", "column 11: expected nothing more"),
        ("2026-11-21é", "column 11: expected nothing more"),
        ("2026-11-21 1:00", "column 11: expected nothing more"),
        ("24:00", "column 1: no such hour; expected 00 to 23"),
        ("12:60", "column 4: no such minute; expected 00 to 59"),
        ("12:3", "column 4: expected two digits of the minute"),
        ("12:30.5", "column 6: expected nothing more"),
        ("1.", "column 3: expected digits of the fraction"),
        (
            "1.0123456789",
            "column 12: too many digits; expected a fraction",
        ),
        (
            "9223372036.854775808",
            "column 1: out of range; expected a time from 1677-09-21T00:",
        ),
        ("99999999999999999999", "column 1: out of range"),
        (
            "9999-12-31",
            "column 1: out of range; expected a time from 1677-09-21T00:",
        ),
        ("9999-12-31T00:00:00Z", "column 1: out of range"),
        ("0001-01-01", "column 1: out of range"),
        ("2262-04-12", "column 1: out of range"),
        ("", "column 1: not a time; expected RFC 3339"),
        ("-", "column 1: not a time"),
        ("+12", "column 1: not a time"),
        (".5", "column 1: not a time"),
        ("yesterday", "column 1: not a time"),
        ("1:30", "column 2: not a time"),
        ("5m", "column 2: not a time"),
        ("5msx", "column 2: not a time"),
        ("5 ms", "column 2: not a time"),
        ("-5ms", "column 3: not a time"),
        ("1.5ms", "column 4: not a time"),
        ("9223372036854775808ns", "column 1: out of range"),
        ("9223372036855s", "column 1: out of range"),
        ("26-11-21", "column 3: not a time"),
        ("1_000", "column 2: not a time"),
        ("1e3.5", "column 2: not a time"),
    ];
    check_refused(&cases, IntegerUnit::Nanoseconds);
    check_refused(&cases, IntegerUnit::Seconds);
    let nanoseconds = [("9223372036854775808", "column 1: out of range")];
    check_refused(&nanoseconds, IntegerUnit::Nanoseconds);
    let seconds = [("1795219200000000000", "column 1: out of range")];
    check_refused(&seconds, IntegerUnit::Seconds);
}

#[test]
fn an_error_lists_all_forms_that_its_caller_accepts() {
    let unit = IntegerUnit::Nanoseconds;
    for (found, expected) in [
        (
            parse_instant("x", unit).unwrap_err(),
            "RFC 3339 such as 2026-11-21T01:00:00Z, a date such as 2026-11-21 or 2026-11-21 12:30, \
             nanoseconds since 1970, another unit since then such as 1795222800000000us, or seconds \
             with a fraction such as 1795222800.5",
        ),
        (
            parse_time("x", unit).unwrap_err(),
            "RFC 3339 such as 2026-11-21T01:00:00Z, a date such as 2026-11-21 or 2026-11-21 12:30, \
             a time of day such as 12:30, nanoseconds since 1970, another unit since then such as \
             1795222800000000us, or seconds with a fraction such as 1795222800.5",
        ),
        (
            parse_instant("x", IntegerUnit::Seconds).unwrap_err(),
            "RFC 3339 such as 2026-11-21T01:00:00Z, a date such as 2026-11-21 or 2026-11-21 12:30, \
             or seconds since 1970 such as 1795222800 or 1795222800.5",
        ),
    ] {
        assert_eq!(
            found.to_string(),
            format!("column 1: not a time; expected {expected}")
        );
    }
}

#[test]
fn durations() {
    for (text, expected) in [
        ("10ms", Some(10_000_000)),
        ("1.5us", Some(1_500)),
        ("0.3\u{b5}s", Some(300)),
        ("0.57us", Some(570)),
        ("1h30m", Some(5_400_000_000_000)),
        ("-2s", Some(-2_000_000_000)),
        ("-1m30s", Some(-90_000_000_000)),
        ("1e3ns", Some(1_000)),
        ("0.0000004ns", Some(0)),
        ("0e99d", Some(0)),
        ("1e-99d", Some(0)),
        ("2d", Some(172_800_000_000_000)),
        // What a program writes of 0.1 + 0.2.
        ("0.30000000000000004s", Some(300_000_000)),
        (
            "0.333333333333333333333333333333333333h",
            Some(1_200_000_000_000),
        ),
        ("1e99d", None),
        ("1e99999999999d", None),
    ] {
        assert_eq!(duration_length(text), Some(text.len()), "{text}");
        assert_eq!(wide_duration(text), expected.map(Number::Int), "{text}");
    }
    for (text, nanos) in [
        ("0.4ns", 0.4),
        ("-0.0004us", -0.4),
        ("2s0.5ns", 2_000_000_000.5),
    ] {
        assert_eq!(wide_duration(text), Some(Number::Float(nanos)), "{text}");
    }
    for text in ["10", "10 ms", "10and", "10S", "ms", "-ms", "10msx", ""] {
        assert_eq!(duration_length(text), None, "{text}");
    }
    assert_eq!(parse_duration(" 1h30m "), Ok(5_400 * SECOND));
    for (text, expected) in [
        ("", "column 1: not a duration"),
        (" 10", "column 2: not a duration"),
        (
            "5ms rest",
            "column 4: not a duration; expected a number with a unit such as 10ms",
        ),
        ("0.4ns", "column 1: not a whole number of nanoseconds"),
        ("1500.5ns", "column 1: not a whole number of nanoseconds"),
        (
            "106752d",
            "column 1: duration out of range; expected at most 106751d",
        ),
    ] {
        let error = parse_duration(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn numbers_end_where_their_spelling_ends() {
    for (text, number) in [
        ("12 ", "12"),
        ("-1.5e-3,", "-1.5e-3"),
        ("5and", "5"),
        ("1.", "1"),
        ("1.ms", "1"),
        ("3e", "3"),
        ("7ms", "7"),
        ("-", "-"),
    ] {
        assert_eq!(number_prefix(text), number, "{text}");
    }
}

proptest! {
    /// Every form that can spell an instant spells it exactly.
    #[test]
    fn an_instant_survives_each_of_its_forms(nanos: i64) {
        let rfc3339 = rfc3339(nanos);
        let unsigned = nanos.unsigned_abs();
        let (seconds, fraction) = (unsigned / 1_000_000_000, unsigned % 1_000_000_000);
        let sign = if nanos < 0 { "-" } else { "" };
        let forms = [
            nanos.to_string(),
            rfc3339.clone(),
            rfc3339.replace('T', " "),
            rfc3339.trim_end_matches('Z').to_owned(),
            format!("{sign}{seconds}.{fraction:09}"),
        ];
        for form in forms {
            let parsed = parse_instant(&form, IntegerUnit::Nanoseconds);
            prop_assert_eq!(parsed, Ok(nanos), "{}", form);
        }
    }

    #[test]
    fn a_time_of_day_is_on_the_day_of_its_reference(nanos in 0..NANOS_PER_DAY, reference: i32) {
        let reference = i64::from(reference) * SECOND;
        let (_, clock) = rfc3339(nanos).split_once('T').map(|(day, clock)| {
            (day.to_owned(), clock.trim_end_matches('Z').to_owned())
        }).unwrap();
        let time = parse_time(&clock, IntegerUnit::Seconds);
        prop_assert_eq!(&time, &Ok(Time::TimeOfDay(nanos)));
        let instant = time.unwrap().on_day_of(reference).unwrap();
        prop_assert_eq!(&rfc3339(instant)[..10], &rfc3339(reference)[..10]);
    }

    #[test]
    fn a_duration_survives_its_text(nanos: i64) {
        prop_assert_eq!(parse_duration(&format!("{nanos}ns")), Ok(nanos));
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,24}|[-+0-9:.TZ, \\[\\]smhdue]{0,24}") {
        let _ = parse_time(&text, IntegerUnit::Seconds);
        let _ = parse_time(&text, IntegerUnit::Nanoseconds);
        let _ = parse_bound(&text);
        let _ = parse_duration(&text);
    }
}
