//! Times in queries, and the text of a tree.

use crate::Query;

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
