//! Columns: what they answer, and that only columns of the current index are used. That answers are
//! the same with them is a part of every test of the others.

use super::super::columns_path;
use super::*;

fn with_columns() -> BuildOptions {
    BuildOptions {
        columns: true,
        ..options(30_000)
    }
}

/// A file with columns in a folder that lives as long.
fn indexed(events: u64) -> (tempfile::TempDir, [PathBuf; 1]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pfw.gz");
    std::fs::write(&path, gzip(&version_1(1, events), 20_000)).unwrap();
    let indexed = update_sidecar(&path, &with_columns(), false).unwrap();
    assert_eq!((indexed.update, indexed.events), (Update::Built, events));
    (folder, [path])
}

const PARTS_OF_CHUNKS: [&str; 7] = [
    "ts >= 1700000000500000 and ts < 1700000001500000",
    "not (ts < 1700000000500000)",
    "tid == 3 and name == 'read' and dur > 40",
    "fname == '/p/file-5' and tid != 2",
    "fname ~ 'file-(3|7)$' and dur in [3, 5, 7]",
    "name contains 'e' and tid < 2 or dur == 7",
    "ts != 1700000001000001 and exists(dur) and not (tid == 1)",
];

#[test]
fn counts_over_parts_of_chunks_read_no_data() {
    let (_folder, paths) = indexed(5_000);
    for query in PARTS_OF_CHUNKS {
        let request = request(query);
        let expected = ask_count(&paths, &request, false).0;
        let (found, report) = ask_count(&paths, &request, true);
        assert_eq!(found, expected, "{query}");
        let counters = &report.counters;
        assert!(found > 0 && counters.answered_by_columns > 0, "{query}");
        assert_eq!((report.read, counters.fetched_bytes), (0, 0), "{query}");
        assert!(counters.column_bytes > 0, "{query}");
    }
    // Chunks are read for what the columns do not contain, unless the rest of the query rules them
    // out.
    let query = "ret == 6 and ts < 1700000000300000 and dur > 80";
    let (_, report) = ask_count(&paths, &request(query), true);
    assert!(report.read > 0 && report.read < 8, "{report:?}");
}

#[test]
fn only_chunks_with_matches_are_read() {
    let (_folder, paths) = indexed(5_000);
    // Every chunk has such durations and such times, few have both in one event.
    let query = request("dur == 7 and tid == 3 and ts < 1700000004200000 and name == 'write'");
    let rows = ask_rows(&paths, &query, &Columns::All, false);
    assert_eq!(ask_rows(&paths, &query, &Columns::All, true), rows);
    let none = request("dur == 7 and tid == 2");
    let sources = DftSet::sources(&paths, true, &none, &[]).unwrap();
    let limits = Limits::default();
    let mut out = |_: &[u8]| Ok(());
    let format = &mut Ndjson::default();
    let report = write_rows(&sources, &none, &Columns::All, format, limits, &mut out).unwrap();
    assert_eq!((report.matched > 0, report.read), (false, 0), "{report:?}");
    assert!(report.counters.answered_by_columns > 0);
}

#[test]
fn columns_are_built_on_request_and_removed_with_their_index() {
    let (_folder, [path]) = indexed(2_000);
    let columns = columns_path(&path);
    let update = |options: &BuildOptions, anew| {
        let indexed = update_sidecar(&path, options, anew).unwrap();
        (indexed.update, indexed.columns_bytes.is_some())
    };
    assert_eq!(update(&with_columns(), false), (Update::Fresh, true));
    assert_eq!(update(&options(30_000), false), (Update::Fresh, false));
    assert!(
        columns.exists(),
        "columns remain while the index is unchanged"
    );
    assert_eq!(update(&options(30_000), true), (Update::Built, false));
    assert!(!columns.exists(), "another index does not");
    assert_eq!(update(&with_columns(), false), (Update::Built, true));
    // A field that they do not contain.
    let mut more = with_columns();
    more.config.add(FieldPath::new("epoch"));
    assert_eq!(update(&more, false), (Update::Built, true));
    assert_eq!(update(&more, false), (Update::Fresh, true));
    std::fs::write(&columns, b"no columns").unwrap();
    assert_eq!(update(&more, false), (Update::Built, true));
}

#[test]
fn a_field_that_is_added_later_is_not_in_the_columns() {
    let (_folder, paths) = indexed(2_000);
    let mut more = options(30_000);
    more.config.add(FieldPath::new("epoch"));
    let extended = update_sidecar(&paths[0], &more, false).unwrap();
    assert_eq!(extended.update, Update::Extended(vec!["args.epoch".into()]));
    for query in ["epoch == 1 and dur > 50", PARTS_OF_CHUNKS[0]] {
        let request = request(query);
        let expected = ask_count(&paths, &request, false).0;
        assert_eq!(ask_count(&paths, &request, true).0, expected, "{query}");
    }
}

#[test]
fn columns_of_another_file_are_refused() {
    let (_folder, paths) = indexed(2_000);
    let (_other, other) = indexed(1_999);
    let request = request(PARTS_OF_CHUNKS[0]);
    let expected = ask_count(&paths, &request, false).0;
    std::fs::copy(columns_path(&other[0]), columns_path(&paths[0])).unwrap();
    let (found, report) = ask_count(&paths, &request, true);
    assert_eq!((found, report.counters.answered_by_columns), (expected, 0));
    assert!(report.damaged[0].contains(".cidx"), "{:?}", report.damaged);
}

#[test]
fn damaged_columns_are_reported_and_do_not_change_the_result() {
    let (_folder, paths) = indexed(3_000);
    let path = columns_path(&paths[0]);
    let columns = std::fs::read(&path).unwrap();
    let requests = PARTS_OF_CHUNKS.map(request);
    let expected = requests.each_ref().map(|r| ask_count(&paths, r, false).0);
    let mut noticed = 0;
    let mut check = |bytes: &[u8], what: String| {
        std::fs::write(&path, bytes).unwrap();
        for (request, expected) in requests.iter().zip(expected) {
            let (found, report) = ask_count(&paths, request, true);
            assert_eq!(found, expected, "{what}");
            noticed += report.damaged.len();
        }
    };
    for place in (0..columns.len()).step_by(columns.len() / 60) {
        let mut damaged = columns.clone();
        damaged[place] ^= 0x10;
        check(&damaged, format!("byte {place}"));
    }
    for len in [0, 1, 47, columns.len() / 2, columns.len() - 1] {
        check(&columns[..len], format!("cut to {len} bytes"));
    }
    assert!(noticed > 60, "{noticed}");
}
