//! What is refused, and the text of the error.

use expect_test::{Expect, expect};

use crate::{BareUnit, Query};

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
