//! Windows of a storage at URLs: the same events as a query finds, in every format, without reading
//! the rest; kept by browsers, and open about what they lack.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use harness::{Problem, Request, Response, Server, Settings, tables_python};
use serde_json::{Value, json};

use crate::queries::{push, settings, wait_for_indexes};
use crate::repair::damaged;

/// When the trace begins, in nanoseconds.
const BEGIN: u64 = 1_700_000_000_000_000_000;
const EVENTS: u64 = 40_000;
/// From one event to the next, in microseconds.
const STEP_US: u64 = 100;

/// A storage with one long trace: events of two threads, of which every tenth contains the next
/// three.
fn stored(server: &Server, folder: &std::path::Path) -> String {
    let mut text = String::from("[\n");
    for id in 0..EVENTS {
        let (ts, tid) = (BEGIN / 1000 + id * STEP_US, id % 2);
        let dur = if id % 10 == 0 { 350 } else { 5 };
        let line = format!(
            r#"{{"id":{id},"name":"n{}","cat":"POSIX","pid":7,"tid":{tid},"ts":{ts},"dur":{dur},"ph":"X","args":{{"size":{id}}}}}"#,
            id % 7
        );
        writeln!(text, "{line}").unwrap();
    }
    let path = folder.join("trace.pfw");
    fs::write(&path, text).unwrap();
    let storage = server.api().create_storage("trace");
    push(server, &storage, &path, "16384");
    storage
}

fn get(server: &Server, path: &str, fields: &[(&str, &str)]) -> Response {
    let mut request = Request::new("GET", path).header("te", "trailers");
    for (name, value) in fields {
        request = request.header(name, value);
    }
    server.api().send(&request).unwrap()
}

/// What a query says of the same events: their number and the sum of their durations.
fn expected(server: &Server, storage: &str, body: &Value) -> (u64, i64) {
    let mut body = body.clone();
    body["aggregate"] = json!("count,sum:dur");
    let path = format!("/storages/{storage}/query");
    let row = server.api().call("POST", &path, Some(&body)).json();
    (
        row["count"].as_u64().unwrap(),
        row["sum:dur"].as_i64().unwrap(),
    )
}

/// Number and sum of durations in nanoseconds of the complete events of a Chrome trace.
fn of_chrome(bytes: &[u8]) -> (u64, i64) {
    let trace: Value = serde_json::from_slice(bytes).unwrap();
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let complete: Vec<&Value> = events.filter(|event| event["ph"] == "X").collect();
    let nanos = |event: &&Value| {
        let nanos = event["dur"].as_f64().unwrap() * 1000.0;
        format!("{nanos:.0}").parse::<i64>().unwrap()
    };
    (
        complete.len() as u64,
        complete.iter().map(nanos).sum::<i64>(),
    )
}

#[test]
fn a_window_has_the_events_of_a_query_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &settings());
    let storage = stored(&server, folder.path());
    let (from, to) = (BEGIN + 1_000_000_000, BEGIN + 1_500_000_000);
    let window = json!({ "from": from, "to": to });
    let all = json!({});
    let late = json!({ "from": to });
    let some = json!({ "from": from, "to": to, "query": "name == 'n3' and stream != 'x'" });
    let name = "where=name%20%3D%3D%20'n3'%20and%20stream%20!%3D%20'x'";
    for base in ["/storage", "/api/v1/storages"] {
        for (times, more, body) in [
            (format!("{from}-{to}"), "", &window),
            ("-".to_owned(), "", &all),
            (format!("{to}-"), "", &late),
            (format!("{from}-{to}"), name, &some),
        ] {
            let (count, sum) = expected(&server, &storage, body);
            assert!(count > 0);
            let view = |ending: &str| {
                let path = format!("{base}/{storage}/view/{times}.{ending}?{more}");
                let response = get(&server, &path, &[]);
                assert_eq!(response.status, 200, "{path}: {}", response.brief());
                assert_eq!(
                    response.trailer("tracehold-rows"),
                    Some(&*count.to_string())
                );
                assert_eq!(response.header("cache-control"), Some("no-store"));
                response
            };
            let chrome = view("json");
            assert_eq!(of_chrome(&chrome.body), (count, sum), "{body}");
            assert_eq!(chrome.header("content-type"), Some("application/json"));
            if let Some(python) = tables_python() {
                let mut reader = Command::new(python);
                reader.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/data/read_format.py"));
                for (format, ending) in [
                    ("perfetto", "pftrace"),
                    ("arrow", "arrow"),
                    ("parquet", "parquet"),
                ] {
                    let path = folder.path().join(ending);
                    fs::write(&path, view(ending).body).unwrap();
                    reader.arg(format).arg(path);
                }
                let read = reader.output().unwrap();
                assert!(read.status.success(), "{read:?}");
                for line in String::from_utf8(read.stdout).unwrap().lines() {
                    let found: Value = serde_json::from_str(line).unwrap();
                    let found = (
                        found["count"].as_u64().unwrap(),
                        found["dur_sum"].as_i64().unwrap(),
                    );
                    assert_eq!(found, (count, sum), "{body}: {line}");
                }
            }
        }
    }
}

#[test]
fn a_window_of_a_finalized_storage_is_kept_and_reads_only_its_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &settings());
    let storage = stored(&server, folder.path());
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    let files = server.api().files(&storage);
    let of_data = files.iter().filter(|file| file.1 == "data");
    let data: u64 = of_data.map(|file| file.2).sum();
    let (from, to) = (BEGIN + 1_000_000_000, BEGIN + 1_010_000_000);
    let path = format!("/storage/{storage}/view/{from}-{to}.pftrace");

    let fetched = || server.api().metric("tracehold_query_fetched_bytes_total");
    let before = fetched();
    let head = Request::new("HEAD", &path);
    let head = server.api().send(&head).unwrap();
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert!((fetched() - before).abs() < 1.0, "a HEAD reads nothing");
    let first = get(&server, &path, &[]);
    let read = fetched() - before;
    assert_eq!(first.status, 200);
    assert_eq!(first.trailer("tracehold-rows"), Some("100"));
    assert!(read > 0.0 && read < data as f64 / 10.0, "{read} of {data}");
    let etag = first.header("etag").unwrap().to_owned();
    for (field, value) in [
        ("etag", &*etag),
        ("cache-control", "public, no-cache"),
        ("content-type", "application/x-protobuf"),
    ] {
        assert_eq!(first.header(field), Some(value));
        assert_eq!(head.header(field), Some(value));
    }

    let fetched_once = fetched();
    let again = get(&server, &path, &[("if-none-match", &etag)]);
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert_eq!(again.header("etag"), Some(&*etag));
    assert!((fetched() - fetched_once).abs() < 1.0, "nothing is read");
    for other in [
        format!("/storage/{storage}/view/{from}-{to}.json"),
        format!("/storage/{storage}/view/{from}-{}.pftrace", to + 1),
        format!("{path}?where=tid%3D%3D1"),
    ] {
        let other = get(&server, &other, &[("if-none-match", &etag)]);
        assert_eq!(other.status, 200, "{}", other.brief());
        assert_ne!(other.header("etag"), Some(&*etag));
    }
    server.kill();
    server.restart_with(&settings());
    let restarted = get(&server, &path, &[("if-none-match", &etag)]);
    assert_eq!(restarted.status, 200, "damage may not be known any more");
    assert_eq!(restarted.body, first.body);
}

/// Bytes of the files in a folder and the folders in it.
fn bytes_in(folder: &std::path::Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let bytes = entries.map(|entry| match entry.metadata().unwrap() {
        folder if folder.is_dir() => bytes_in(&entry.path()),
        file => file.len(),
    });
    bytes.sum()
}

#[test]
fn a_server_that_just_started_reads_little_for_a_window() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &settings());
    let storage = stored(&server, folder.path());
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    let all = bytes_in(&server.data().join("storages").join(&storage));
    // What was read and remembered before is read again.
    server.kill();
    server.restart_with(&settings());

    let (from, to) = (BEGIN + 1_000_000_000, BEGIN + 1_010_000_000);
    let path = format!("/storage/{storage}/view/{from}-{to}.pftrace");
    let fetched = || server.api().metric("tracehold_query_fetched_bytes_total");
    let (counted, before) = (fetched(), server.read_bytes());
    let view = get(&server, &path, &[]);
    let read = server.read_bytes() - before;
    assert_eq!(view.trailer("tracehold-rows"), Some("100"));
    let counted = fetched() - counted;
    assert!(
        counted > 0.0 && read as f64 >= counted,
        "{read} < {counted}"
    );
    // In a storage as small as this one, the indexes are a large part.
    assert!(read < all / 5, "{read} of {all} bytes");
}

#[test]
fn a_window_that_cannot_be_answered_is_refused() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("empty");
    let check = |path: &str, status: u16, code: &str| {
        let response = get(&server, path, &[]);
        let problem = Problem::of(&response);
        assert_eq!((problem.status, &*problem.code), (status, code), "{path}");
    };
    for base in ["/storage", "/api/v1/storages"] {
        let view = |window: &str| format!("{base}/{storage}/view/{window}");
        check(&view("5-5.json"), 400, "query_malformed");
        check(&view("1-2.csv"), 400, "query_malformed");
        check(&view("2025-11-21.json"), 400, "query_malformed");
        check(&view("-.json?were=x"), 400, "query_malformed");
        check(
            &view("-.json?where=name%20%3D"),
            400,
            "expression_malformed",
        );
        let other = format!("{base}/01932c5e-0000-7000-8000-000000000000/view/-.json");
        check(&other, 404, "storage_not_found");
    }
    let empty = get(&server, &format!("/storage/{storage}/view/-.json"), &[]);
    assert_eq!(empty.status, 200);
    assert_eq!(empty.json()["traceEvents"], json!([]));
}

#[test]
fn a_window_says_what_could_not_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let storage = damaged(&mut server, "repaired");
    let repair = format!("/storages/{storage}/verify?repair=confirm");
    server.api().done("POST", &repair, None);
    let view = |ending: &str| {
        let response = get(&server, &format!("/storage/{storage}/view/-.{ending}"), &[]);
        assert_eq!(response.status, 200, "{}", response.brief());
        let reasons = response.trailer("tracehold-skipped-reasons").unwrap();
        assert!(reasons.contains("missing"), "{reasons}");
        response.body
    };
    let chrome: Value = serde_json::from_slice(&view("json")).unwrap();
    let said = chrome["otherData"]["tracehold.skipped"][0].as_str();
    assert!(said.unwrap().contains("missing"), "{chrome}");
    let events = chrome["traceEvents"].as_array().unwrap();
    let last = events.last().unwrap();
    assert_eq!(last["name"], "Not everything could be read");
    for ending in ["pftrace", "parquet"] {
        let bytes = view(ending);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("packets are missing"), "{ending}");
    }
}

#[test]
fn pages_of_other_servers_read_a_window_if_they_may() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[http]\ncors_origins = \"https://ui.perfetto.dev\"\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let storage = server.api().create_storage("empty");
    let path = format!("/storage/{storage}/view/-.pftrace");
    for (origin, allowed) in [
        ("https://ui.perfetto.dev", Some("https://ui.perfetto.dev")),
        ("https://example.org", None),
    ] {
        let response = get(&server, &path, &[("origin", origin)]);
        let found = response.header("access-control-allow-origin");
        assert_eq!((response.status, found), (200, allowed), "{origin}");
    }
}
