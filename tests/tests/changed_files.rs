//! A file that is written to while a query reads it is told: what was read of it may be neither
//! what was there before nor what is there now.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use harness::tracehold;

type Change = fn(&Path);

/// More rows than a pipe holds.
fn dft() -> Vec<u8> {
    let line = |number: u32| format!("{{\"name\":\"read\",\"ts\":{number},\"dur\":1}}\n");
    (0..20_000).flat_map(|n| line(n).into_bytes()).collect()
}

fn chrome() -> Vec<u8> {
    let event = |number: u32| format!("{{\"name\":\"a\",\"ph\":\"X\",\"ts\":{number},\"dur\":1}}");
    let events: Vec<String> = (0..20_000).map(event).collect();
    format!("{{\"traceEvents\":[{}]}}", events.join(",\n")).into_bytes()
}

/// The exit code and the messages of a query during whose output the file is changed.
fn queried(path: &Path, change: Change) -> (Option<i32>, String) {
    let mut query = Command::new(tracehold());
    query.args(["query", "--format", "ndjson"]).arg(path);
    query.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = query.spawn().unwrap();
    let mut rows = BufReader::new(running.stdout.take().unwrap());
    // The query cannot end before its rows are read.
    rows.read_line(&mut String::new()).unwrap();
    change(path);
    rows.read_to_end(&mut Vec::new()).unwrap();
    let output = running.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), errors)
}

#[test]
fn a_file_that_is_changed_during_a_query_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let changes: [(&str, Change, bool); 5] = [
        ("nothing", |_| {}, false),
        (
            "overwritten",
            |path| {
                let file = OpenOptions::new().write(true).open(path).unwrap();
                file.write_all_at(b" ", fs::metadata(path).unwrap().len() - 1)
                    .unwrap();
            },
            true,
        ),
        (
            "cut",
            |path| {
                let file = OpenOptions::new().write(true).open(path).unwrap();
                file.set_len(fs::metadata(path).unwrap().len() - 1).unwrap();
            },
            true,
        ),
        (
            "appended to",
            |path| {
                let mut file = OpenOptions::new().append(true).open(path).unwrap();
                file.write_all(b"\n").unwrap();
            },
            false,
        ),
        ("removed", |path| fs::remove_file(path).unwrap(), false),
    ];
    for (kind, name, bytes) in [
        ("DFTracer", "trace.pfw", dft()),
        ("Chrome", "trace.json", chrome()),
    ] {
        for (what, change, is_told) in changes {
            let path = folder.path().join(name);
            fs::write(&path, &bytes).unwrap();
            let (code, errors) = queried(&path, change);
            let expected = format!("{}: it was written to while it was read", path.display());
            assert_eq!(
                errors.contains(&expected),
                is_told,
                "{kind}, {what}: {errors}"
            );
            assert_eq!(code, Some(i32::from(is_told)), "{kind}, {what}: {errors}");
        }
    }
}
