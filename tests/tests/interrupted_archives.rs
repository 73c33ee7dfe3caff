//! Imports and exports that are cancelled or cut off leave nothing, or continue where they ended.

use std::time::{Duration, Instant};

use harness::{Agent, Api, Connection, Problem, Request, Response, Server, Settings, payload};
use serde_json::json;

use crate::archives::{check_same, export, filled, imported, names};

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends the head of an import and half of the archive, and waits until the server is processing
/// it.
fn half_sent(server: &Server, archive: &[u8]) -> (Connection, String) {
    let mut connection = server.connect();
    let head = format!(
        "POST /api/v1/storages/import HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/zip\r\ncontent-length: {}\r\n\r\n",
        archive.len()
    );
    let half = &archive[..archive.len() / 2];
    connection.write(&[head.as_bytes(), half]).unwrap();
    let begin = Instant::now();
    loop {
        // First: what the job says of an import that has begun is complete.
        let has_begun = names(server)
            .iter()
            .any(|name| name.starts_with(".import-"));
        let jobs = server.api().done("GET", "/jobs", None);
        let jobs = jobs["items"].as_array().unwrap().clone();
        let running = jobs.iter().find(|job| job["state"] == "RUNNING");
        if let Some(job) = running.filter(|_| has_begun) {
            assert_eq!(job["bytes_total"], json!(archive.len()));
            return (connection, job["id"].as_str().unwrap().to_owned());
        }
        assert!(begin.elapsed() < PATIENCE, "the import does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_import_that_is_cancelled_or_killed_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let here = Server::start(&folder.path().join("here"), &Settings::default());
    let mut there = Server::start(&folder.path().join("there"), &Settings::default());
    let mut api = here.api();
    let storage = filled(&mut api, "cut off");
    let archive = export(&mut api, &storage);

    let (mut connection, job) = half_sent(&there, &archive);
    there.api().done("DELETE", &format!("/jobs/{job}"), None);
    let problem = Problem::of(&connection.read_response(false).unwrap());
    assert_eq!(
        (problem.status, problem.code.as_str()),
        (409, "job_cancelled")
    );
    assert_eq!(names(&there), [] as [String; 0]);
    let job = there.api().done("GET", &format!("/jobs/{job}"), None);
    assert_eq!(job["state"], "CANCELLED");

    // The client disconnects.
    let (connection, job) = half_sent(&there, &archive);
    drop(connection);
    let begin = Instant::now();
    while names(&there) != [] as [String; 0] {
        assert!(begin.elapsed() < PATIENCE, "{:?} stays", names(&there));
        std::thread::sleep(Duration::from_millis(5));
    }
    let job = there.api().done("GET", &format!("/jobs/{job}"), None);
    assert_ne!(job["state"], "DONE");

    let (_connection, _) = half_sent(&there, &archive);
    there.kill();
    assert_eq!(names(&there).len(), 1, "a killed server could not tidy up");
    there.restart();
    assert_eq!(names(&there), [] as [String; 0]);
    imported(&there, &archive);
    check_same(&mut api, &mut there.api(), &storage);
}

#[test]
fn an_export_reports_progress_and_can_be_cancelled() {
    // More than socket buffers can hold, so that a client that does not read blocks the export.
    const PACKET_BYTES: usize = 4 << 20;
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("large");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    for sequence in 0..10 {
        agent.push(&mut api, sequence, &payload(1, sequence, PACKET_BYTES));
    }
    api.finalize(&storage);
    let mut reader = server.connect();
    let head = format!("GET /api/v1/storages/{storage}/export HTTP/1.1\r\nhost: localhost\r\n\r\n");
    reader.write(&[head.as_bytes()]).unwrap();
    let begin = Instant::now();
    let (job, total) = loop {
        let jobs = api.done("GET", "/jobs", None);
        let job = jobs["items"].as_array().unwrap().first().cloned();
        if let Some(job) = job.filter(|job| job["bytes_done"].as_u64() > Some(0)) {
            assert_eq!(
                (&job["state"], &job["storage"]),
                (&json!("RUNNING"), &json!(storage))
            );
            break (
                job["id"].as_str().unwrap().to_owned(),
                job["bytes_total"].clone(),
            );
        }
        assert!(begin.elapsed() < PATIENCE, "the export does not begin");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(total.as_u64() > Some(10 * PACKET_BYTES as u64), "{total}");
    api.done("DELETE", &format!("/jobs/{job}"), None);
    assert!(
        reader.read_response(false).is_err(),
        "a truncated archive looks complete"
    );
    let shown = loop {
        let shown = api.done("GET", &format!("/jobs/{job}"), None);
        if shown["state"] != "RUNNING" {
            break shown;
        }
        assert!(begin.elapsed() < PATIENCE, "the export does not stop");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(
        (&shown["state"], &shown["bytes_total"]),
        (&json!("CANCELLED"), &total)
    );
    assert!(shown["bytes_done"].as_u64() < total.as_u64(), "{shown}");
    assert_eq!(json!(export(&mut api, &storage).len()), total);
    // The second export was read to its end.
    let done = loop {
        let jobs = api.done("GET", "/jobs", None);
        let job = jobs["items"].as_array().unwrap().last().unwrap().clone();
        if job["state"] != "RUNNING" {
            break job;
        }
        assert!(begin.elapsed() < PATIENCE, "the export does not end");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(
        (&done["kind"], &done["state"], &done["bytes_done"]),
        (&json!("export"), &json!("DONE"), &total)
    );
}

/// The response to an export with these header fields.
fn export_with(api: &mut Api, storage: &str, fields: &[(&str, &str)]) -> Response {
    let path = format!("/api/v1/storages/{storage}/export");
    let mut request = Request::new("GET", &path);
    for (name, value) in fields {
        request = request.header(name, value);
    }
    api.send(&request).unwrap()
}

#[test]
fn an_interrupted_export_continues_where_it_ended() {
    let (_folder, _server, mut api) = Server::fresh();
    let storage = api.create_storage("resumed");
    let agent = harness::Agent::declare(&mut api, &storage, "host", "stream", "none");
    for sequence in 0..3 {
        agent.push(&mut api, sequence, &vec![7; 200_000]);
    }
    api.finalize(&storage);
    let whole = export_with(&mut api, &storage, &[]);
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    let etag = whole.header("etag").unwrap().to_owned();
    let whole = whole.body;
    assert_eq!(
        export(&mut api, &storage),
        whole,
        "the bytes are always the same"
    );
    let middle = whole.len() / 2;
    for (range, expected) in [
        (format!("bytes={middle}-"), &whole[middle..]),
        (format!("bytes=0-{}", middle - 1), &whole[..middle]),
        ("bytes=5-9".to_owned(), &whole[5..10]),
        ("bytes=-22".to_owned(), &whole[whole.len() - 22..]),
    ] {
        let fields = [("range", range.as_str()), ("if-range", &etag)];
        let part = export_with(&mut api, &storage, &fields);
        assert_eq!(part.status, 206, "{range}: {}", part.brief());
        assert!(part.body == expected, "{range}");
    }
    let beyond = format!("bytes={}-", whole.len());
    let beyond = export_with(&mut api, &storage, &[("range", &beyond)]);
    assert_eq!(beyond.status, 416);
    let same = export_with(&mut api, &storage, &[("if-none-match", &etag)]);
    assert_eq!((same.status, same.body.len()), (304, 0));
    // Other labels are other bytes.
    let body = serde_json::json!({ "value": "changed" });
    let path = format!("/storages/{storage}/labels/status");
    api.done("PUT", &path, Some(&body));
    let fields = [("range", "bytes=5-9"), ("if-range", etag.as_str())];
    let changed = export_with(&mut api, &storage, &fields);
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag"), Some(etag.as_str()));
}
