//! Begins of Chrome traces are paired with ends of other packets in the order of their times. Where
//! threads did not write them in that order, every door says that durations depend on the packets.

use std::fs;
use std::path::Path;

use harness::Server;

use crate::queries::{push, run, settings, wait_for_indexes};

const NOTE: &str = "threads did not write their records in the order of their times";

/// The trace of a thread whose calls contain the next one, each some bytes long.
fn write_trace(path: &Path, is_ordered: bool) {
    let record = |phase: &str, ts: usize| {
        let fill = "x".repeat(200);
        format!(
            r#"{{"ph":"{phase}","name":"f{}","pid":1,"tid":1,"ts":{ts},"args":{{"fill":"{fill}"}}}}"#,
            ts.min(201 - ts)
        )
    };
    let begins = (1..=100).map(|ts| record("B", ts));
    let ends = (101..=200).map(|ts| record("E", ts));
    let mut records: Vec<String> = begins.chain(ends).collect();
    if !is_ordered {
        records.swap(10, 90);
    }
    fs::write(path, format!("[{}]", records.join(",\n"))).unwrap();
}

#[test]
fn threads_out_of_order_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let url = server.url();
    for (name, is_ordered) in [("ordered", true), ("disordered", false)] {
        let path = folder.path().join(name);
        write_trace(&path, is_ordered);
        let storage = server.api().create_storage(name);
        push(&server, &storage, &path, "4096");
        let stored = ["--server", &url, "--storage", &storage];
        let check = |state: &str| {
            for (question, is_asked) in [
                (&["ph == 'B'", "--fields", "dur"][..], true),
                (&["ph == 'B'", "--aggregate", "max:dur"], true),
                (&["ph == 'B'", "--fields", "ts"], false),
                // Summaries of an index answer these.
                (&["--aggregate", "max:dur"], true),
                (&["--group-by", "name", "--aggregate", "count"], false),
                (&["dur >= 1h", "--count"], true),
                (
                    &["ph == 'B'", "--fields", "name", "--order-by", "dur"],
                    true,
                ),
            ] {
                let (code, _, errors) = run(&[&["query"], &stored[..], question].concat());
                assert!(code == 0 || question.contains(&"--count"), "{errors}");
                let is_told = errors.contains(NOTE);
                assert_eq!(
                    is_told,
                    is_asked && !is_ordered,
                    "{state} {name} {question:?}: {errors}"
                );
            }
        };
        check("open");
        server.api().finalize(&storage);
        wait_for_indexes(&server, &storage);
        check("finalized");
    }
}
