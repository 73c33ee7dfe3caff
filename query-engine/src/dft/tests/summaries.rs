//! What the index answers by itself, without reading the file.

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
