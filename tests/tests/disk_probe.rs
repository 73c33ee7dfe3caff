//! A disk that fails is known before anybody writes to a storage.

use std::fs;
use std::time::{Duration, Instant};

use harness::{Agent, Request, Server, Settings};

#[test]
fn readiness_says_that_the_disk_fails_and_that_it_works_again() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[storage]\ndisk_probe_seconds = 1\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let mut api = server.api();
    let in_the_way = server.data().join("disk-probe");
    let begin = Instant::now();
    // Between two attempts there is no file.
    while fs::create_dir(&in_the_way).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
    let wait_for = |status: u16| {
        let begin = Instant::now();
        loop {
            let answer = server
                .connect()
                .send(&Request::new("GET", "/readyz"))
                .unwrap();
            if answer.status == status {
                return answer;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "{}",
                answer.brief()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let failed = wait_for(503);
    let document = failed.json();
    assert_eq!(document["code"], "disk_failed", "{document}");
    // Callers without a token read it.
    assert!(
        !document["detail"].to_string().contains("disk-probe"),
        "{document}"
    );
    assert!(failed.header("retry-after").is_some());
    assert_eq!(api.metric("tracehold_storage_disk_failed"), 1.0);
    // It is one answer for the load balancer, and the process is alive.
    let live = server
        .connect()
        .send(&Request::new("GET", "/livez"))
        .unwrap();
    assert_eq!(live.status, 200);
    fs::remove_dir(&in_the_way).unwrap();
    wait_for(200);
    assert_eq!(api.metric("tracehold_storage_disk_failed"), 0.0);
    assert!(api.metric("tracehold_storage_disk_probe_seconds_count") >= 2.0);
}

/// Bytes of a file without a name are gone with the server: they are not acknowledged.
#[test]
fn packets_for_a_removed_folder_are_refused() {
    let (_folder, mut server, mut api) = Server::fresh();
    let storage = api.create_storage("removed");
    Agent::register(&mut api, "host");
    Agent::declare_stream(&mut api, "host", "events", "dft", "none");
    let stream = Agent::new(&storage, "host", "events");
    stream.push(&mut api, 0, b"{\"name\":\"before\"}\n");
    fs::remove_dir_all(server.data()).unwrap();
    let problem = stream.refused(&mut api, 1, b"{\"name\":\"after\"}\n");
    assert_eq!(
        (problem.status, problem.code.as_str()),
        (500, "write_failed")
    );
    assert_eq!(api.metric("tracehold_storage_poisoned_storages"), 1.0);
    server.kill();
}
