//! Several forms of one meaning.

use super::ask;
use crate::{BareUnit, Query, Value};

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
