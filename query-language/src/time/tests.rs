use proptest::prelude::*;

use super::*;

const SECOND: i64 = NANOS_PER_SECOND;
/// 2026-11-21, the first moment.
const DAY: i64 = 1_795_219_200 * SECOND;

fn check(cases: &[(&str, Result<Time, TimeError>)], unit: IntegerUnit) {
    for (text, expected) in cases {
        assert_eq!(parse_time(text, unit), *expected, "{text:?}");
    }
}

fn at(nanos: i64) -> Result<Time, TimeError> {
    Ok(Time::Instant(nanos))
}

fn of_day(nanos: i64) -> Result<Time, TimeError> {
    Ok(Time::TimeOfDay(nanos))
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
        ("24:00", Err(TimeError::NoSuchTime)),
        ("12:60", Err(TimeError::NoSuchTime)),
    ];
    check(&cases, IntegerUnit::Nanoseconds);
    check(&cases, IntegerUnit::Seconds);
    let half_past_noon = Time::TimeOfDay(45_000 * SECOND);
    for (reference, expected) in [
        (DAY, Ok(DAY + 45_000 * SECOND)),
        (DAY + NANOS_PER_DAY - 1, Ok(DAY + 45_000 * SECOND)),
        (DAY - 1, Ok(DAY - NANOS_PER_DAY + 45_000 * SECOND)),
        (-1, Ok(45_000 * SECOND - NANOS_PER_DAY)),
        (i64::MIN, Err(TimeError::OutOfRange)),
    ] {
        assert_eq!(half_past_noon.on_day_of(reference), expected, "{reference}");
    }
    assert_eq!(Time::Instant(7).on_day_of(DAY), Ok(7));
    let nanos = IntegerUnit::Nanoseconds;
    assert_eq!(parse_instant("12:30", nanos), Err(TimeError::NoDate));
}

#[test]
fn integers_are_in_the_unit_of_the_caller() {
    let nanoseconds = [
        ("0", at(0)),
        ("12", at(12)),
        ("+12", at(12)),
        ("-1", at(-1)),
        ("1795219200000000000", at(DAY)),
        ("9223372036854775807", at(i64::MAX)),
        ("9223372036854775808", Err(TimeError::OutOfRange)),
    ];
    check(&nanoseconds, IntegerUnit::Nanoseconds);
    let seconds = [
        ("0", at(0)),
        ("12", at(12 * SECOND)),
        ("-1", at(-SECOND)),
        ("1795219200", at(DAY)),
        ("1795219200000000000", Err(TimeError::OutOfRange)),
    ];
    check(&seconds, IntegerUnit::Seconds);
}

#[test]
fn fractions_are_seconds() {
    let cases = |unit| {
        [
            ("0.5", at(SECOND / 2)),
            ("-0.25", at(-SECOND / 4)),
            ("-1.000000001", at(-SECOND - 1)),
            ("1795219200.000000009", at(DAY + 9)),
            ("9223372036.854775807", at(i64::MAX)),
            ("-9223372036.854775808", at(i64::MIN)),
            ("9223372036.854775808", Err(TimeError::OutOfRange)),
            ("1.", Err(TimeError::NotATime(unit))),
            (".5", Err(TimeError::NotATime(unit))),
            ("1.0000000001", Err(TimeError::NotATime(unit))),
            ("1e3.5", Err(TimeError::NotATime(unit))),
        ]
    };
    for unit in [IntegerUnit::Nanoseconds, IntegerUnit::Seconds] {
        check(&cases(unit), unit);
    }
}

#[test]
fn other_texts_are_not_times() {
    let no_such_time = [
        "2026-13-01",
        "2026-02-30",
        "2026-11-21T25:00:00Z",
        "2026-11-21T01",
        "2026-11-21T01:00:00 01:00",
        "2026-11-21T01:00:00.0000000001",
        "2026-11-21T01:00:00+99:00",
        "2026-11-21x",
        "2026-11-21é",
    ];
    for text in no_such_time {
        let parsed = parse_time(text, IntegerUnit::Seconds);
        assert_eq!(parsed, Err(TimeError::NoSuchTime), "{text}");
    }
    for text in [
        "",
        "-",
        "yesterday",
        "1:30",
        "12:3",
        "12:30.5",
        "5ms",
        "26-11-21",
        "1_000",
    ] {
        let unit = IntegerUnit::Nanoseconds;
        assert_eq!(
            parse_time(text, unit),
            Err(TimeError::NotATime(unit)),
            "{text}"
        );
    }
    assert_eq!(
        parse_time("9999-01-01T00:00:00Z", IntegerUnit::Nanoseconds),
        Err(TimeError::OutOfRange)
    );
}

#[test]
fn ranges() {
    let unit = IntegerUnit::Seconds;
    for (text, expected) in [
        ("1,2", Ok((at(SECOND), at(2 * SECOND)))),
        ("[1.5,2]", Ok((at(SECOND * 3 / 2), at(2 * SECOND)))),
        (
            " [ 2026-11-21 , 12:30 ] ",
            Ok((at(DAY), of_day(45_000 * SECOND))),
        ),
        (
            "2026-11-21 00:00:01,-3",
            Ok((at(DAY + SECOND), at(-3 * SECOND))),
        ),
        ("1", Err(TimeError::NotARange)),
        ("1,2,3", Err(TimeError::NotARange)),
        ("[1,2", Err(TimeError::NotARange)),
        ("1,", Err(TimeError::NotATime(unit))),
        ("1,2]", Err(TimeError::NotATime(unit))),
    ] {
        let expected = expected.map(|(begin, end)| (begin.unwrap(), end.unwrap()));
        assert_eq!(parse_range(text, unit), expected, "{text:?}");
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
        ("5e-1ns", Some(1)),
        ("0.4ns", Some(0)),
        ("0e99d", Some(0)),
        ("1e-99d", Some(0)),
        ("2d", Some(172_800_000_000_000)),
        ("0.333333333333333333333333333333333333s", Some(333_333_333)),
        ("1e99d", None),
        ("1e99999999999d", None),
    ] {
        assert_eq!(duration_length(text), Some(text.len()), "{text}");
        assert_eq!(wide_duration(text), expected, "{text}");
    }
    for text in ["10", "10 ms", "10and", "10S", "ms", "-ms", "10msx", ""] {
        assert_eq!(duration_length(text), None, "{text}");
        assert_eq!(parse_duration(text), Err(TimeError::NotADuration), "{text}");
    }
    assert_eq!(parse_duration(" 1h30m "), Ok(5_400 * SECOND));
    assert_eq!(parse_duration("5ms rest"), Err(TimeError::NotADuration));
    assert_eq!(
        parse_duration("106752d"),
        Err(TimeError::DurationOutOfRange)
    );
}

#[test]
fn numbers_end_where_their_spelling_ends() {
    for (text, number) in [
        ("12 ", "12"),
        ("-1.5e-3,", "-1.5e-3"),
        ("5and", "5"),
        ("1.", "1."),
        ("3e", "3"),
        ("7ms", "7"),
        ("-", "-"),
    ] {
        assert_eq!(number_prefix(text), number, "{text}");
    }
}

#[test]
fn errors_give_an_example() {
    for (error, example) in [
        (
            TimeError::NotATime(IntegerUnit::Nanoseconds),
            "nanoseconds since 1970",
        ),
        (
            TimeError::NotATime(IntegerUnit::Seconds),
            "seconds since 1970",
        ),
        (TimeError::NoSuchTime, "2026-11-21T01:00:00Z"),
        (TimeError::OutOfRange, "2262-04-11"),
        (TimeError::NoDate, "2026-11-21 12:30"),
        (TimeError::NotARange, "2026-11-21 12:30,2026-11-21 12:45"),
        (TimeError::NotADuration, "1h30m"),
        (TimeError::DurationOutOfRange, "106751d"),
    ] {
        let text = error.to_string();
        assert!(
            text.contains("; expected ") && text.contains(example),
            "{text}"
        );
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
        prop_assert_eq!(time, Ok(Time::TimeOfDay(nanos)));
        let instant = time.unwrap().on_day_of(reference).unwrap();
        prop_assert_eq!(&rfc3339(instant)[..10], &rfc3339(reference)[..10]);
    }

    #[test]
    fn a_duration_survives_its_text(nanos: i64) {
        prop_assert_eq!(parse_duration(&format!("{nanos}ns")), Ok(nanos));
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,24}|[-+0-9:.TZ, \\[\\]smhdue]{0,24}") {
        let _ = parse_range(&text, IntegerUnit::Seconds);
        let _ = parse_time(&text, IntegerUnit::Nanoseconds);
        let _ = parse_duration(&text);
    }
}
