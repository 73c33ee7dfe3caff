//! The trace of the server's I/O across a crash: a ring is read up to the last complete block, and
//! a trace that starts with the server contains its recovery.

use std::path::Path;

use harness::{Server, Settings};
use serde_json::{Value, json};

use crate::io_trace::{decoded, having, push, show, tracehold};
use crate::io_trace_reading::wait_until;

fn exported(server: &Server, folder: &Path, trace: &str) -> Vec<Value> {
    let to = folder.join(format!("exported-{trace}"));
    let path = to.display().to_string();
    let (code, _, err) = tracehold(server, &["io-trace", "export", trace, &path]);
    assert_eq!(code, 0, "{err}");
    decoded(&to)
}

/// Writes of data files in a trace, with the storages they were for.
fn writes<'e>(events: &'e [Value], storage: &str) -> Vec<&'e Value> {
    let members = [
        ("/name", json!("write")),
        ("/cat", json!("data")),
        ("/args/cause", json!("ingest")),
        ("/args/storage", json!(storage)),
    ];
    having(events, &members)
}

#[test]
fn a_ring_is_read_up_to_where_a_crash_truncated_it() {
    let (folder, mut server, mut api) = Server::fresh();
    let started = api.done("POST", "/io-trace/start", Some(&json!({"mode": "ring"})));
    let trace = started["storage"].as_str().unwrap().to_owned();
    let ring = server.data().join("storages").join(&trace).join("ring");
    let first = push(&mut api, "first", 5);
    // The first packet is in the storage, the next ones are in the ring.
    let durable = || show(&mut server.api())["packets"].as_u64().unwrap();
    wait_until("the first packet is durable", || durable() > 0);
    let second = push(&mut server.api(), "second", 5);
    wait_until("the ring has a packet", || durable() > 1);
    let recorded = show(&mut server.api())["recorded"].as_u64().unwrap();
    assert!(ring.is_dir());
    server.kill();
    // What a server that is killed while it writes leaves after the last block.
    let last = std::fs::read_dir(&ring)
        .unwrap()
        .flatten()
        .map(|name| name.path())
        .max();
    let last = last.unwrap();
    let complete = std::fs::read(&last).unwrap();
    std::fs::write(&last, [&complete[..], &complete[..100]].concat()).unwrap();
    server.restart();
    let mut api = server.api();
    assert_eq!(api.state(&trace), "OPEN");
    assert!(!ring.exists(), "it is in the storage now");
    assert!(
        server.log().contains("the end of a ring segment is torn"),
        "{}",
        server.log()
    );
    let events = exported(&server, folder.path(), &trace);
    assert!(!writes(&events, &first).is_empty() && !writes(&events, &second).is_empty());
    assert!(
        events.len() as u64 >= recorded.min(20),
        "{} of {recorded}",
        events.len()
    );
    // A second restart: nothing is copied twice.
    server.kill();
    server.restart();
    assert_eq!(exported_again(&server, folder.path(), &trace), events);
    api = server.api();
    api.finalize(&trace);
    assert!(api.verify(&trace).is_empty());
}

fn exported_again(server: &Server, folder: &Path, trace: &str) -> Vec<Value> {
    let folder = folder.join("again");
    std::fs::create_dir(&folder).unwrap();
    exported(server, &folder, trace)
}

#[test]
fn a_trace_that_starts_with_the_server_contains_recovery() {
    for mode in ["ring", "stop_at_limit"] {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::start(folder.path(), &Settings::default());
        let storage = push(&mut server.api(), "pushed", 5);
        server.kill();
        let config = format!("[io_trace]\nat_start = \"{mode}\"\n");
        server.restart_with(&Settings::with_config(&config));
        let mut api = server.api();
        let shown = show(&mut api);
        assert_eq!(
            (&shown["state"], &shown["mode"]),
            (&json!("running"), &json!(mode))
        );
        api.packet(&storage, 2);
        let ended = api.done("POST", "/io-trace/stop", None);
        assert_eq!(
            (&ended["reason"], &ended["dropped"]),
            (&json!("stopped"), &json!(0))
        );
        let trace = ended["storage"].as_str().unwrap().to_owned();
        assert_eq!(api.state(&trace), "FINALIZED");
        let events = exported(&server, folder.path(), &trace);
        assert_eq!(
            ended["recorded"].as_u64(),
            Some(events.len() as u64),
            "{mode}"
        );
        for (name, class, cause) in [
            ("open", "data", "recovery"),
            ("read", "data", "recovery"),
            ("open", "catalog", "recovery"),
            ("read", "catalog", "recovery"),
            ("sync", "other", "recovery"),
            ("read", "data", "query"),
        ] {
            let members = [
                ("/name", json!(name)),
                ("/cat", json!(class)),
                ("/args/cause", json!(cause)),
            ];
            let found = having(&events, &members);
            assert!(
                !found.is_empty(),
                "{mode}: no {name} of {class} for {cause}"
            );
        }
        let trace_io = [("/args/storage", json!(trace))];
        assert!(
            having(&events, &trace_io).is_empty(),
            "the trace traced itself"
        );
    }
}
