//! What the index answers by itself, without reading the file.

use std::collections::BTreeMap;

use chunk_index::OwnedValue;

use super::*;

#[test]
fn summaries_answer_without_reading_data() {
    let forms = forms(vec![version_1(1, 5_000)], 60_000);
    for (_, paths) in &forms.forms {
        for query in [
            "",
            "name == 'read'",
            "name == 'nosuch'",
            "not (cat == 'POSIX')",
            "tid == 2",
        ] {
            let (_, report) = ask_count(paths, &request(query), true);
            assert_eq!(report.counters.fetched_bytes, 0, "{query}: {report:?}");
        }
        let request = request("name in ['read', 'write']");
        let sources = DftSet::sources(paths, true, &request, &[]).unwrap();
        let (rows, report) = group_by(
            &sources,
            &request,
            &GroupSpec::by("name"),
            Limits::default(),
        )
        .unwrap();
        assert_eq!((rows.len(), report.counters.fetched_bytes), (2, 0));
        // A rare value is read in one piece.
        let (found, report) = ask_count(paths, &self::request("ts == 1700000001000001"), true);
        assert_eq!(found, 1);
        assert!(report.read <= 1, "{report:?}");
    }
}

#[test]
fn slow_events_are_read_from_the_index() {
    let forms = forms(vec![version_1(1, 5_000), version_1(2, 3_000)], 60_000);
    for query in ["dur > 5s", "dur > 5s and name == 'read'"] {
        assert!(!forms.check_rows(query, &Columns::All).is_empty());
        for (form, paths) in &forms.forms {
            let (_, report) = ask_count(paths, &request(query), true);
            assert_eq!(report.read, 0, "{query}: {form}: {report:?}");
            assert_eq!(report.counters.fetched_bytes, 0, "{query}: {form}");
            assert!(report.slowest > 0 && report.counters.decoded.events > 0);
        }
    }
}

/// Numbers of events by interval and name, as text.
fn over_time(
    paths: &[PathBuf],
    request: &Request,
    every: i64,
    estimate: bool,
) -> (BTreeMap<(String, String), u64>, Report) {
    let sources = DftSet::sources(paths, true, request, &[]).unwrap();
    let spec = GroupSpec {
        every: Some(every),
        aggregates: query_language::Aggregate::parse_list("count").unwrap(),
        estimate,
        ..GroupSpec::by("name")
    };
    let (rows, report) = group_by(&sources, request, &spec, Limits::default()).unwrap();
    let rows = rows.iter().map(|row| {
        let [time, name, Some(OwnedValue::Uint(events))] = row.as_slice() else {
            panic!("{row:?}");
        };
        ((format!("{time:?}"), format!("{name:?}")), *events)
    });
    (rows.collect(), report)
}

fn by_name(rows: &BTreeMap<(String, String), u64>) -> BTreeMap<&str, u64> {
    let mut sums = BTreeMap::new();
    for ((_, name), events) in rows {
        *sums.entry(name.as_str()).or_default() += events;
    }
    sums
}

/// Chunks are 100 ms of events, 50 of them; a second of estimates needs only a few of them.
#[test]
fn estimates_over_time_have_the_exact_sums_and_are_exact_when_little_is_read() {
    let forms = forms(vec![version_1(1, 5_000)], 60_000);
    let second = 1_000_000_000;
    for (_, paths) in &forms.forms {
        for query in ["", "name == 'read'", "name != 'step'"] {
            let request = request(query);
            let (exact, read) = over_time(paths, &request, second / 1000, false);
            let (estimated, report) = over_time(paths, &request, second / 1000, true);
            assert!(
                report.read <= 4 && read.read > 4,
                "{query}: {read:?} {report:?}"
            );
            assert_eq!(by_name(&exact), by_name(&estimated), "{query}");
            assert_eq!(read.matched, report.matched, "{query}");
            assert!(report.notes.iter().any(|note| note.contains("estimates")));
            assert!(read.notes.is_empty(), "{read:?}");
        }
        let start = 1_700_000_000_000_000_000;
        let short = Request {
            from: Some(start + second),
            to: Some(start + second + second / 5),
            ..Request::default()
        };
        let (exact, _) = over_time(paths, &short, second / 1000, false);
        let (estimated, report) = over_time(paths, &short, second / 1000, true);
        assert!(!exact.is_empty() && exact == estimated, "{report:?}");
        assert!(report.notes.is_empty(), "{report:?}");
    }
}
