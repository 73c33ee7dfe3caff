//! Sidecars that are brought up to date.

use super::*;

#[test]
fn a_sidecar_is_brought_up_to_date_with_the_least_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pfw.gz");
    std::fs::write(&path, gzip(&version_1(1, 2_000), 20_000)).unwrap();
    let mut more = options(50_000);
    more.config.add(FieldPath::new("epoch"));
    let mut other = options(50_000);
    other.config.false_positive_rate = 0.1;
    let steps = [
        (options(50_000), Update::Built),
        (options(50_000), Update::Fresh),
        (more.clone(), Update::Extended(vec!["args.epoch".into()])),
        (more.clone(), Update::Fresh),
        (options(50_000), Update::Fresh),
        (other, Update::Built),
        (
            BuildOptions {
                chunk_bytes: 70_000,
                ..more
            },
            Update::Built,
        ),
    ];
    for (options, expected) in steps {
        let indexed = update_sidecar(&path, &options, false).unwrap();
        assert_eq!((indexed.update, indexed.events), (expected, 2_000));
        let (found, report) = ask_count(std::slice::from_ref(&path), &request("epoch == 3"), true);
        assert_eq!((found, report.indexed), (200, 1));
    }
    assert_eq!(
        update_sidecar(&path, &options(50_000), true)
            .unwrap()
            .update,
        Update::Built
    );
    std::fs::write(&path, gzip(&version_1(1, 541), 20_000)).unwrap();
    assert_eq!(
        update_sidecar(&path, &options(50_000), false)
            .unwrap()
            .events,
        541
    );
}

/// Length and time of modification can be restored; the content decides.
#[test]
fn an_index_of_other_bytes_is_not_used_whatever_the_time_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pfw");
    let text = version_1(1, 2_000);
    std::fs::write(&path, &text).unwrap();
    update_sidecar(&path, &options(20_000), true).unwrap();
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let paths = [path.clone()];
    let places: Vec<usize> = (0..16).map(|part| text.len() * part / 16).collect();
    for (number, place) in places.into_iter().enumerate() {
        let key = b"\"tid\":";
        let found = memchr::memmem::find(&text[place..], key).unwrap();
        let mut other = text.clone();
        other[place + found + key.len()] = b'9';
        let target = if number % 2 == 0 {
            path.clone()
        } else {
            folder.path().join("new")
        };
        std::fs::write(&target, &other).unwrap();
        let file = std::fs::File::options().write(true).open(&target).unwrap();
        file.set_modified(modified).unwrap();
        std::fs::rename(&target, &path).unwrap();
        let (found, report) = ask_count(&paths, &request("tid >= 9"), true);
        assert_eq!(report.indexed, 0, "{number}");
        assert_eq!(
            found,
            ask_count(&paths, &request("tid >= 9"), false).0,
            "{number}"
        );
    }
    // A copy has another inode and time, and the same bytes.
    std::fs::write(&path, &text).unwrap();
    assert_eq!(ask_count(&paths, &request("tid >= 9"), true).1.indexed, 1);
    let updated = update_sidecar(&path, &options(20_000), false).unwrap();
    assert_eq!(updated.update, Update::Fresh);
}

/// Fields that describe the file, and not its records.
#[test]
fn a_file_has_a_kind_and_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pfw");
    std::fs::write(&path, version_1(1, 500)).unwrap();
    let paths = [path.clone()];
    for indexed in [false, true] {
        if indexed {
            update_sidecar(&path, &options(20_000), true).unwrap();
        }
        for (query, expected) in [
            ("kind == 'dft'", 500),
            ("kind == 'ctf'", 0),
            ("kind in ['dft', 'ctf'] and exists(kind)", 500),
            ("stream == 'trace.pfw'", 500),
            ("stream ~ 'other'", 0),
            ("exists(agent) or exists(storage)", 0),
            ("not (agent == 'x')", 500),
        ] {
            assert_eq!(
                ask_count(&paths, &request(query), indexed).0,
                expected,
                "{query}"
            );
        }
        let columns = Columns::Fields(["kind", "stream"].map(str::to_owned).to_vec());
        let rows = ask_rows(&paths, &request(""), &columns, indexed);
        let rows = rows
            .lines()
            .filter(|row| row.contains("trace.pfw") && row.contains("dft"));
        assert_eq!(rows.count(), 500);
    }
}
