//! Finalizations over HTTP: as jobs, cancelled, and interrupted by a kill.

use std::time::{Duration, Instant};

use harness::{Agent, Api, Request, Server, Settings, payload, small_traces};
use serde_json::Value;

use crate::queries::{push as push_trace, run};

const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const STREAMS: u64 = 5;

/// Pushes packets of all streams in turn.
pub(crate) fn push(api: &mut Api, storage: &str, sequences: std::ops::Range<u64>) {
    let agents: Vec<_> = (0..STREAMS)
        .map(|stream| Agent::declare(api, storage, "a", &format!("s{stream}"), "none"))
        .collect();
    for sequence in sequences {
        for (agent, stream) in agents.iter().zip(0..) {
            agent.push(api, sequence, &payload(stream, sequence, 9000));
        }
    }
}

/// Starts a finalization without waiting for it; returns its job once it is arranging.
pub(crate) fn begin(api: &mut Api, storage: &str) -> String {
    let path = format!("/api/v1/storages/{storage}/finalize");
    let request = Request::new("POST", &path).header("prefer", "respond-async");
    let response = api.send(&request).unwrap();
    assert_eq!(response.status, 202, "{}", response.brief());
    let job = response.header("tracehold-job").unwrap().to_owned();
    let begin = Instant::now();
    while api.status(storage)["arranged_bytes"] == 0 {
        assert!(begin.elapsed() < LIMIT, "the finalization does not begin");
    }
    assert_eq!(api.state(storage), "FINALIZING");
    let shown = api.done("GET", &format!("/jobs/{job}"), None);
    assert_eq!(
        (&shown["kind"], &shown["state"]),
        (&"finalize".into(), &"RUNNING".into())
    );
    assert!(shown["bytes_done"].as_u64() > Some(0), "{shown}");
    job
}

pub(crate) fn wait_for_state(api: &mut Api, storage: &str, state: &str) {
    let begin = Instant::now();
    while api.state(storage) != state {
        assert!(
            begin.elapsed() < LIMIT,
            "the storage does not become {state}"
        );
    }
}

#[test]
fn a_finalization_is_cancelled_and_continues_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let slow = Settings::with_config(
        "[storage]\narranging_bytes_per_second_max = 1\ndata_file_bytes_max = 65536\n\
         full_file_arranging_bytes_per_second_max = 0\n",
    );
    let mut server = Server::start(folder.path(), &slow);
    let mut api = server.api();
    let storage = api.create_storage("interleaved");
    push(&mut api, &storage, 0..20);

    let job = begin(&mut api, &storage);
    api.done("DELETE", &format!("/jobs/{job}"), None);
    wait_for_state(&mut api, &storage, "OPEN");
    let ended = Instant::now();
    while api.done("GET", &format!("/jobs/{job}"), None)["state"] == "RUNNING" {
        assert!(ended.elapsed() < LIMIT, "the job does not end");
    }
    let shown = api.done("GET", &format!("/jobs/{job}"), None);
    assert_eq!(shown["state"], "CANCELLED", "{shown}");
    push(&mut api, &storage, 20..25);

    begin(&mut api, &storage);
    server.kill();
    server.restart_with(&Settings::default());
    let mut api = server.api();
    wait_for_state(&mut api, &storage, "FINALIZED");
    assert_eq!(api.verify(&storage).len(), 0);
    assert_eq!(api.storage(&storage)["packets"], 25 * STREAMS);
    let files = api.files(&storage);
    assert!(
        files.iter().any(|(_, role, _)| role == "checksums"),
        "{files:?}"
    );
}

#[test]
fn a_stop_does_not_wait_for_a_finalization() {
    let folder = tempfile::tempdir().unwrap();
    let slow = Settings::with_config(
        "[storage]\narranging_bytes_per_second_max = 1\ndata_file_bytes_max = 65536\n\
         full_file_arranging_bytes_per_second_max = 0\n",
    );
    let mut server = Server::start(folder.path(), &slow);
    let mut api = server.api();
    let storage = api.create_storage("interleaved");
    push(&mut api, &storage, 0..20);
    begin(&mut api, &storage);
    server.terminate();
    assert!(server.wait(LIMIT).success());
    server.restart_with(&Settings::default());
    let mut api = server.api();
    wait_for_state(&mut api, &storage, "FINALIZED");
    assert_eq!(api.verify(&storage).len(), 0);
}

/// Whichever comes first, no request fails because the files of the storage are gone.
#[test]
fn a_storage_is_deleted_while_it_is_finalized() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    for round in 0..30 {
        let storage = server.api().create_storage(&format!("short-lived {round}"));
        push(&mut server.api(), &storage, 0..2);
        let path = format!("/storages/{storage}");
        let finalize = format!("{path}/finalize");
        let requests = [("POST", finalize), ("DELETE", path)];
        let [finalized, deleted] = std::thread::scope(|scope| {
            let call = |(method, path): &(&str, String)| server.api().call(method, path, None);
            let threads = requests
                .each_ref()
                .map(|request| scope.spawn(move || call(request)));
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(
            matches!(finalized.status, 200 | 404),
            "{}",
            finalized.brief()
        );
        assert_eq!(deleted.status, 204, "{}", deleted.brief());
    }
}

/// The names of the chunk indexes of the data files of a storage in which leaves begin.
fn index_names(api: &mut Api, storage: &str) -> Vec<String> {
    let files = api.files(storage);
    let data = files.iter().filter(|file| file.1 == "data");
    data.map(|(name, ..)| name.replace(".itdata", ".idx"))
        .collect()
}

/// What a reader finds right after a finalization: each chunk index, or that it is being made.
fn check_chunk_indexes(server: &Server, storage: &str, folder: &std::path::Path) {
    let mut api = server.api();
    api.finalize(storage);
    let mount = format!("{}/storage/{storage}", server.url());
    let (code, out, errors) = run(&["mount", &mount, folder.to_str().unwrap(), "--json"]);
    assert_eq!(code, 0, "{errors}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["chunk_indexes"], "complete", "{out}");
    for name in index_names(&mut api, storage) {
        let path = folder.join(name);
        assert!(path.exists(), "the mount lacks {}", path.display());
    }
}

#[test]
fn a_mount_right_after_a_finalization_has_the_chunk_indexes() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    for (at, path) in small_traces().iter().enumerate() {
        let storage = server.api().create_storage(&format!("trace-{at}"));
        push_trace(&server, &storage, path, "4096");
        check_chunk_indexes(&server, &storage, &folder.path().join(at.to_string()));
    }
}

#[test]
fn a_chunk_index_is_announced_until_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let mut api = server.api();
    for (at, path) in small_traces().iter().enumerate() {
        let storage = api.create_storage(&format!("trace-{at}"));
        push_trace(&server, &storage, path, "4096");
        let listed = api.done("GET", &format!("/storages/{storage}/files"), None);
        assert!(listed["chunk_indexes"].is_null(), "{listed}");
        api.finalize(&storage);
        for name in index_names(&mut api, &storage) {
            let path = format!("/storage/{storage}/{name}");
            let begin = Instant::now();
            loop {
                let response = api.send(&Request::new("GET", &path)).unwrap();
                if response.status == 200 {
                    break;
                }
                assert_eq!(response.status, 503, "{}", response.brief());
                assert_eq!(response.json()["code"], "chunk_index_in_progress");
                assert!(response.header("retry-after").is_some());
                assert!(begin.elapsed() < LIMIT, "the index is not made");
            }
        }
        let begin = Instant::now();
        while api.done("GET", &format!("/storages/{storage}/files"), None)["chunk_indexes"]
            != "complete"
        {
            assert!(begin.elapsed() < LIMIT, "the indexes are not complete");
        }
        // Nothing is made of a leaf that does not exist.
        let path = format!("/storage/{storage}/00000000000000aa.idx");
        assert_eq!(api.send(&Request::new("GET", &path)).unwrap().status, 404);
    }
}

/// A server arranges full files by itself, and its metrics say so.
#[test]
fn full_files_are_arranged_before_the_finalization() {
    let folder = tempfile::tempdir().unwrap();
    let small = Settings::with_config(
        "[storage]\ndata_file_bytes_max = 262144\nlive_index_packets_max = 8\n",
    );
    let server = Server::start(folder.path(), &small);
    let mut api = server.api();
    let storage = api.create_storage("open");
    let metric = "tracehold_storage_files_arranged_total";
    push(&mut api, &storage, 0..40);
    let (begin, mut pushed) = (Instant::now(), 40);
    while api.metric(metric) < 3.0 {
        assert!(begin.elapsed() < LIMIT, "no file is arranged");
        push(&mut api, &storage, pushed..pushed + 1);
        pushed += 1;
    }
    assert_eq!(api.state(&storage), "OPEN");
    let check = |api: &mut Api| {
        for number in 0..pushed * STREAMS {
            let (sequence, stream) = (number / STREAMS, number % STREAMS);
            let packet = api.packet(&storage, number);
            assert_eq!(packet, payload(stream, sequence, 9000), "packet {number}");
        }
        assert!(api.verify(&storage).is_empty());
    };
    check(&mut api);
    api.finalize(&storage);
    check(&mut api);
}
