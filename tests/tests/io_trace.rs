//! The trace of the server's I/O: started, read by every program, and truncated by a crash.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::{Agent, Api, Request, Server, run_tracehold, without};
use serde_json::{Value, json};

pub(crate) fn tracehold(server: &Server, arguments: &[&str]) -> (i32, String, String) {
    let mut all: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    all.extend(["--server".to_owned(), server.url()]);
    let output = run_tracehold(&all);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

pub(crate) fn show(api: &mut Api) -> Value {
    api.done("GET", "/io-trace", None)
}

/// Pushes a few packets into a new storage.
pub(crate) fn push(api: &mut Api, name: &str, count: u64) -> String {
    let storage = api.create_storage(name);
    let agent = Agent::declare(api, &storage, name, "s", "none");
    let first = agent.next_sequence(api);
    for packet in 0..count {
        agent.push(api, first + packet, &harness::payload(1, packet, 20_000));
    }
    storage
}

/// Reads a range of the data file with a request id chosen by the test.
fn read_range(server: &Server, api: &mut Api, storage: &str, id: &str) {
    let files = api.files(storage);
    let (name, ..) = files.iter().max_by_key(|file| file.2).unwrap();
    let path = format!("/storage/{storage}/{name}");
    let request = Request::new("GET", &path)
        .header("range", "bytes=4096-8191")
        .header("x-request-id", id);
    let response = server.connect().send(&request).unwrap();
    assert_eq!(response.status, 206);
    assert_eq!(response.body.len(), 4096);
}

/// The events of a decoded trace that have all these members.
pub(crate) fn having<'e>(events: &'e [Value], members: &[(&str, Value)]) -> Vec<&'e Value> {
    let has = |event: &&Value| {
        members
            .iter()
            .all(|(path, value)| event.pointer(path) == Some(value))
    };
    events.iter().filter(has).collect()
}

pub(crate) fn decoded(folder: &Path) -> Vec<Value> {
    let stream = folder.join("stream").display().to_string();
    let arguments = ["decode", "--format", "ndjson", &stream].map(str::to_owned);
    let output = run_tracehold(&arguments);
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_io_trace_is_a_trace_like_any_other() {
    let (folder, server, mut api) = Server::fresh();
    assert_eq!(show(&mut api)["state"], "off");
    assert_eq!(
        api.refused("POST", "/io-trace/stop", None).code,
        "io_trace_off"
    );
    let wrong = json!({"operations": {"teleport": 1}});
    assert_eq!(
        api.refused("POST", "/io-trace/start", Some(&wrong)).code,
        "io_trace_invalid"
    );

    let (code, out, err) = tracehold(&server, &["io-trace", "start", "--json"]);
    assert_eq!(code, 0, "{err}");
    let started: Value = serde_json::from_str(&out).unwrap();
    let trace = started["storage"].as_str().unwrap().to_owned();
    assert_eq!(
        api.refused("POST", "/io-trace/start", None).code,
        "io_trace_running"
    );
    let storage = push(&mut api, "traced", 10);
    api.finalize(&storage);
    read_range(&server, &mut api, &storage, "range-0");
    read_range(&server, &mut api, &storage, "range-1");
    api.packet(&storage, 3);
    assert!(api.verify(&storage).is_empty());
    let ended = api.done("POST", "/io-trace/stop", None);
    assert_eq!(
        (&ended["reason"], &ended["dropped"]),
        (&json!("stopped"), &json!(0))
    );
    let recorded = ended["recorded"].as_u64().unwrap();
    assert!(api.metric("tracehold_io_trace_records") >= 1.0);
    assert_eq!(api.state(&trace), "FINALIZED");
    assert!(api.verify(&trace).is_empty());
    assert_eq!(api.storage(&trace)["events"].as_u64(), Some(recorded));

    let exported = folder.path().join("exported");
    let to = exported.display().to_string();
    let (code, _, err) = tracehold(&server, &["io-trace", "export", &trace, &to]);
    assert_eq!(code, 0, "{err}");
    let events = decoded(&exported);
    assert_eq!(events.len() as u64, recorded);
    let of_storage = json!(storage);
    for (name, class, cause) in [
        ("write", "data", "ingest"),
        ("sync", "data", "ingest"),
        ("set_length", "data", "finalize"),
        ("rename", "storage", "finalize"),
        ("lookup", "index", "query"),
        ("read", "data", "query"),
        ("read", "data", "verify"),
    ] {
        let expected = [
            ("/name", json!(name)),
            ("/cat", json!(class)),
            ("/args/cause", json!(cause)),
            ("/args/storage", of_storage.clone()),
        ];
        assert!(
            !having(&events, &expected).is_empty(),
            "no {name} of {class} for {cause}"
        );
    }
    let reads = |request: &str| {
        let read = [
            ("/args/request_id", json!(request)),
            ("/name", json!("read")),
        ];
        having(&events, &read)
    };
    // The first one compared the block with its checksum.
    let first = reads("range-0");
    assert_eq!(first.len(), 3, "{first:?}");
    assert_eq!(
        first[0]["args"]["file_name"],
        format!("{storage}.checksums")
    );
    let length = first[1]["args"]["done"].as_u64();
    assert!(length > Some(65_536), "{first:?}");
    let range = reads("range-1");
    assert_eq!(range.len(), 1, "{range:?}");
    assert_eq!(range[0]["args"]["offset"], 4096);
    assert_eq!(range[0]["args"]["done"], 4096);
    // Whether it was in the page cache depends on how the file was written.
    assert!(range[0]["args"]["is_cache_hit"].is_boolean());
    assert_eq!(range[0]["args"]["cause"], "range");
    let trace_io = [("/args/storage", json!(trace))];
    assert!(
        having(&events, &trace_io).is_empty(),
        "the trace traced itself"
    );

    read_by_babeltrace(&exported, recorded);
    analyzed(&server, &trace, &exported, &storage);
}

/// Babeltrace knows nothing about Tracehold, and reads the same event records.
fn read_by_babeltrace(folder: &Path, recorded: u64) {
    let Ok(output) = Command::new("babeltrace2").arg(folder).output() else {
        return without("babeltrace2");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // The beginning and the end of the trace are event records, too.
    assert_eq!(text.lines().count() as u64, recorded + 2, "{errors}");
    assert!(text.contains(" write: "), "{text}");
    assert!(text.contains("request_id = \"range-1\""), "{text}");
}

/// Files and storages give the same analysis.
fn analyzed(server: &Server, trace: &str, exported: &Path, storage: &str) {
    let path = exported.display().to_string();
    let (code, of_file, err) = tracehold(server, &["analyze", &path, "--json"]);
    assert_eq!(code, 0, "{err}");
    let (code, of_storage, err) = tracehold(server, &["analyze", "--storage", trace, "--json"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(of_file, of_storage);
    let report: Value = serde_json::from_str(&of_file).unwrap();
    let rows = report["latencies"].as_array().unwrap();
    let has = |operation: &str, class: &str, cause: &str| {
        rows.iter().any(|row| {
            (&row["operation"], &row["class"], &row["cause"])
                == (&json!(operation), &json!(class), &json!(cause))
        })
    };
    assert!(
        has("write", "data", "ingest") && has("read", "data", "range"),
        "{rows:?}"
    );
    let (code, text, err) = tracehold(server, &["analyze", &path, "--lookups", "--json"]);
    assert_eq!(code, 0, "{err}");
    assert!(text.contains(storage) || text.contains("Index"), "{text}");
}

#[test]
fn a_trace_stops_at_its_limit_and_a_ring_keeps_the_latest() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = push(&mut api, "traced", 3);
    api.finalize(&storage);
    let files = api.files(&storage);
    let (name, ..) = files.iter().max_by_key(|file| file.2).unwrap().clone();
    // One read for each of many ranges: about 200 bytes of trace each.
    let ranges: Vec<_> = (0..100).map(|n| format!("{0}-{0}", n * 500)).collect();
    let ranges = format!("bytes={}", ranges.join(","));
    let read = |requests: usize| {
        let mut connection = server.connect();
        let path = format!("/storage/{storage}/{name}");
        for _ in 0..requests {
            let request = Request::new("GET", &path).header("range", &ranges);
            assert_eq!(connection.send(&request).unwrap().status, 206);
        }
    };
    let ring = json!({"mode": "ring", "bytes_max": 1 << 20});
    api.done("POST", "/io-trace/start", Some(&ring));
    read(150);
    let ended = server.api().done("POST", "/io-trace/stop", None);
    assert!(ended["overwritten"].as_u64().unwrap() > 0, "{ended}");
    assert!(
        ended["bytes"].as_u64().unwrap() <= (1 << 20) + 4096,
        "{ended}"
    );
    let mut api = server.api();
    let stored = api.storage(ended["storage"].as_str().unwrap())["events"].clone();
    let stored = stored.as_u64().unwrap() + ended["overwritten"].as_u64().unwrap();
    assert_eq!(Some(stored), ended["recorded"].as_u64());

    let limited = json!({"bytes_max": 2 << 20, "operations": {"open": 0}});
    api.done("POST", "/io-trace/start", Some(&limited));
    let mut rounds = 0;
    while show(&mut server.api())["state"] == "running" {
        read(50);
        rounds += 1;
        assert!(rounds < 100, "the limit was not noticed");
    }
    let mut api = server.api();
    let ended = show(&mut api);
    assert_eq!(ended["reason"], "limit");
    assert!(ended["bytes"].as_u64().unwrap() <= 2 << 20, "{ended}");
    assert_eq!(
        api.refused("POST", "/io-trace/stop", None).code,
        "io_trace_off"
    );
}

#[test]
fn a_trace_truncated_by_a_crash_is_read_to_its_last_packet() {
    let (folder, mut server, mut api) = Server::fresh();
    let started = api.done("POST", "/io-trace/start", None);
    let trace = started["storage"].as_str().unwrap().to_owned();
    push(&mut api, "traced", 5);
    let mut waited = 0;
    // The packet with these operations is durable a second later.
    while server.api().storage(&trace)["events"].as_u64() < Some(10) {
        std::thread::sleep(Duration::from_millis(50));
        waited += 1;
        assert!(waited < 1200, "no packet came");
    }
    let events = server.api().storage(&trace)["events"].as_u64().unwrap();
    server.kill();
    server.restart();
    let mut api = server.api();
    assert_eq!(api.state(&trace), "OPEN");
    assert_eq!(show(&mut api)["state"], "off");
    let exported = folder.path().join("exported");
    let to = exported.display().to_string();
    let (code, _, err) = tracehold(&server, &["io-trace", "export", &trace, &to]);
    assert_eq!(code, 0, "{err}");
    let read = decoded(&exported);
    assert!(read.len() as u64 >= events, "{} of {events}", read.len());
    let complete = std::fs::read(exported.join("stream")).unwrap();
    let stream = exported.join("stream").display().to_string();
    // All of its packets are whole, but it was interrupted.
    let output = run_tracehold(&["decode".to_owned(), stream.clone()]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("the trace has no end record"), "{told}");
    std::fs::write(exported.join("stream"), &complete[..complete.len() - 5]).unwrap();
    let output = run_tracehold(&["decode".to_owned(), stream]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(lines.lines().count(), read.len() - 1);
}

#[test]
fn a_trace_that_cannot_be_written_is_shown_as_failed() {
    let (_folder, server, mut api) = Server::fresh();
    let (code, out, err) = tracehold(&server, &["io-trace", "start", "--json"]);
    assert_eq!(code, 0, "{err}");
    let started: Value = serde_json::from_str(&out).unwrap();
    let storage = started["storage"].as_str().unwrap();
    api.done("DELETE", &format!("/storages/{storage}"), None);
    let mut waited = 0;
    while show(&mut api)["state"] != "ended" {
        std::thread::sleep(Duration::from_millis(50));
        waited += 1;
        assert!(waited < 1200, "the trace goes on");
    }
    let (code, out, _) = tracehold(&server, &["io-trace", "show"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("there is no storage"), "{out}");
    let other = api.create_storage("other");
    let to = server.data().join("exported").display().to_string();
    let (code, _, err) = tracehold(&server, &["io-trace", "export", &other, &to]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("contains no I/O trace of a server"), "{err}");
}
