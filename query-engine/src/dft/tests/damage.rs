//! Files that changed or are cut, and sidecars that are damaged.

use super::*;

#[test]
fn a_stale_index_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pfw.gz");
    let index = |path: &Path| {
        write_sidecar(path, &build(path, &options(50_000)).unwrap().index).unwrap();
    };
    std::fs::write(&path, gzip(&version_1(1, 2_000), 20_000)).unwrap();
    index(&path);
    let paths = [path.clone()];
    let all = request("");
    assert_eq!(ask_count(&paths, &all, true).0, 2_000);

    std::fs::write(&path, gzip(&version_1(1, 541), 20_000)).unwrap();
    let (found, report) = ask_count(&paths, &all, true);
    assert_eq!((found, report.indexed), (541, 0));

    // Another time and the same bytes: the checksums are equal.
    index(&path);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    let file = std::fs::File::options().append(true).open(&path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(ask_count(&paths, &all, true).1.indexed, 1);

    // The same length and time: whoever forges both is not believed where a byte is read.
    let sidecar = std::fs::read(sidecar_path(&path)).unwrap();
    for place in [0, 30, sidecar.len() / 2, sidecar.len() - 60] {
        let mut damaged = sidecar.clone();
        damaged[place] ^= 0x10;
        std::fs::write(sidecar_path(&path), damaged).unwrap();
        assert_eq!(ask_count(&paths, &all, true).0, 541, "byte {place}");
    }
}

#[test]
fn a_damaged_sidecar_is_reported_and_does_not_change_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pfw.gz");
    // One member, so that reading starts at windows that the sidecar stores.
    std::fs::write(&path, gzip(&version_1(1, 3_000), usize::MAX)).unwrap();
    write_sidecar(&path, &build(&path, &options(30_000)).unwrap().index).unwrap();
    let sidecar = std::fs::read(sidecar_path(&path)).unwrap();
    let paths = [path.clone()];
    let queries = [
        "name == 'read' and ret == 6",
        "fname contains '1' and dur > 3ms",
        "",
    ];
    let expected = queries.map(|query| ask_count(&paths, &request(query), false).0);
    let sound = queries.map(|query| ask_count(&paths, &request(query), true));
    assert_eq!(sound.clone().map(|(count, _)| count), expected);
    assert!(sound.iter().all(|(_, report)| report.damaged.is_empty()));
    let (mut refused, mut gone_past) = (0, 0);
    let step = (sidecar.len() / 160).max(1);
    for place in (0..sidecar.len()).step_by(step) {
        let mut damaged = sidecar.clone();
        damaged[place] ^= 0x10;
        std::fs::write(sidecar_path(&path), damaged).unwrap();
        for (query, expected) in queries.iter().zip(expected) {
            let (found, report) = ask_count(&paths, &request(query), true);
            assert_eq!(found, expected, "byte {place}: {query}");
            refused += usize::from(report.indexed == 0);
            gone_past += usize::from(!report.damaged.is_empty());
        }
    }
    assert!(
        refused > 0 && gone_past > 0,
        "{refused} refused, {gone_past} gone past"
    );
}

#[test]
fn a_truncated_file_is_read_up_to_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pfw.gz");
    let file = gzip(&version_1(1, 3_000), 100_000);
    std::fs::write(&path, &file[..file.len() - 700]).unwrap();
    let built = build(&path, &options(50_000)).unwrap();
    assert_eq!(built.damage.len(), 1);
    write_sidecar(&path, &built.index).unwrap();
    let paths = [path];
    let expected = ask_count(&paths, &request(""), false).0;
    assert!(expected > 2_500 && expected < 3_000);
    for query in ["", "dur > 5s", "tid == 1 and ret == 2"] {
        let request = request(query);
        let without = ask_count(&paths, &request, false).0;
        assert_eq!(ask_count(&paths, &request, true).0, without, "{query}");
    }
}

/// Counts, and the messages about damage.
fn count_and_faults(path: &Path, query: &str, indexed: bool) -> (u64, Vec<String>) {
    let (count, report) = ask_count(&[path.to_owned()], &request(query), indexed);
    assert_eq!(report.indexed, usize::from(indexed));
    let reasons = report.skipped_reasons().map(str::to_owned);
    (count, reasons.collect())
}

#[test]
fn a_damaged_member_gives_no_rows_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.pfw.gz");
    let members: Vec<Vec<u8>> = (0..3)
        .map(|seed| gzip(&version_1(seed, 1_000), usize::MAX))
        .collect();
    let mut file = members.concat();
    let (start, end) = (members[0].len(), members[0].len() + members[1].len());
    let middle = start.midpoint(end);
    file[middle..middle + 4].copy_from_slice(&[0x55, 0xaa, 0x33, 0xcc]);
    std::fs::write(&path, &file).unwrap();
    let intact = folder.path().join("intact.pfw.gz");
    std::fs::write(&intact, [&members[0][..], &members[2]].concat()).unwrap();

    for chunk_bytes in [20_000, 1 << 30] {
        let indexed = update_sidecar(&path, &options(chunk_bytes), true).unwrap();
        for query in ["", "dur > 5s", "tid == 1"] {
            let what = format!("{query:?}, chunks of {chunk_bytes}");
            let expected = ask_count(std::slice::from_ref(&intact), &request(query), false).0;
            let plain = count_and_faults(&path, query, false);
            assert_eq!(plain.0, expected, "{what}");
            // Lines that continue in the damaged member cannot be read, either.
            let fault = plain.1.first().unwrap();
            assert!(
                fault.contains(&format!("bytes {start} to {end} are skipped")),
                "{fault}"
            );
            assert_eq!(count_and_faults(&path, query, true), plain, "{what}");
            assert_eq!(indexed.fault.as_ref(), Some(fault));

            let rows = |indexed| {
                ask_rows(
                    std::slice::from_ref(&path),
                    &request(query),
                    &Columns::All,
                    indexed,
                )
            };
            assert_eq!(rows(true), rows(false), "{what}");
        }
        let again = update_sidecar(&path, &options(chunk_bytes), false).unwrap();
        assert_eq!((again.update, again.fault), (Update::Fresh, indexed.fault));
    }
}

/// A line that is too long for a record is counted, also when the file ends in it.
#[test]
fn a_line_without_end_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let record = r#"{"id":0,"name":"read","cat":"POSIX","pid":1,"tid":1,"ts":1,"dur":1,"ph":"X"}"#;
    let blanks = " ".repeat(40 << 20);
    for (name, middle, found) in [
        ("cut", format!("{record}\n{record}\n{blanks}"), 2),
        (
            "between",
            format!("{record}\n{blanks}{record}\n{record}\n"),
            2,
        ),
        (
            "behind a record",
            format!("{record}\n{record},{blanks}{record}\n{record}\n"),
            2,
        ),
    ] {
        let text = format!("[\n{middle}").into_bytes();
        let (plain, packed) = (folder.path().join("a.pfw"), folder.path().join("a.pfw.gz"));
        std::fs::write(&packed, gzip(&text, usize::MAX)).unwrap();
        std::fs::write(&plain, text).unwrap();
        for path in [plain, packed] {
            let paths = [path.clone()];
            for indexed in [false, true] {
                if indexed {
                    let built = build(&path, &options(1 << 20)).unwrap();
                    write_sidecar(&path, &built.index).unwrap();
                }
                let (count, report) = ask_count(&paths, &request(""), indexed);
                assert_eq!(report.indexed, usize::from(indexed), "{name}");
                let skipped = report.skipped_parts();
                assert_eq!((count, skipped), (found, 1), "{name} {path:?} {indexed}");
            }
        }
    }
}
