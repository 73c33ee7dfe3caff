//! What an operator sees of a server.

use harness::{Request, Server, Settings};

#[test]
fn metrics_have_the_process_the_disk_and_storages_by_state() {
    let (_folder, _server, mut api) = Server::fresh();
    let open = api.create_storage("open");
    let finalized = api.create_storage("finalized");
    api.finalize(&finalized);
    assert_eq!(api.state(&open), "OPEN");
    for (name, least) in [
        ("tracehold_storage_storages{state=\"OPEN\"}", 1.0),
        ("tracehold_storage_storages{state=\"FINALIZED\"}", 1.0),
        ("tracehold_storage_disk_total_bytes", 1.0),
        (
            "tracehold_http_responses_total{route=\"storages\",status=\"201\"}",
            2.0,
        ),
        ("process_resident_memory_bytes", 1.0),
        ("process_open_fds", 1.0),
        ("process_start_time_seconds", 1.0),
    ] {
        assert!(api.metric(name) >= least, "{name}");
    }
    assert!(api.metric("tracehold_storage_poisoned_storages") < 1.0);
}

#[test]
fn readiness_has_details() {
    let (_folder, server, _api) = Server::fresh();
    let ready = server.api().send(&Request::new("GET", "/readyz"));
    let ready: serde_json::Value = serde_json::from_slice(&ready.unwrap().body).unwrap();
    assert_eq!(ready["status"], "ready", "{ready}");
    assert_eq!(ready["poisoned_storages"], 0);
    assert_eq!(ready["ended_tasks"], serde_json::json!([]));
    assert!(ready["disk_total_bytes"].as_u64() >= ready["disk_free_bytes"].as_u64());
}

#[test]
fn the_access_log_has_requests_and_no_secrets() {
    for (config, is_written) in [("access = true", true), ("access = false", false)] {
        for level in ["warn", "debug,server=info"] {
            let folder = tempfile::tempdir().unwrap();
            let config = format!("[log]\nlevel = \"{level}\"\nformat = \"json\"\n{config}\n");
            let server = Server::start(folder.path(), &Settings::with_config(&config));
            let request = Request::new("GET", "/nothing?token=secret");
            let request = request.header("authorization", "Bearer secret");
            assert_eq!(server.api().send(&request).unwrap().status, 404);
            let log = server.log();
            let mut lines = log.lines();
            let line = lines.find(|line| line.contains("\"path\":\"/nothing\""));
            assert_eq!(line.is_some(), is_written, "{log}");
            if let Some(line) = line {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(
                    (&line["status"], &line["method"]),
                    (&404.into(), &"GET".into())
                );
                assert_eq!(line["target"], "access");
            }
            assert!(!log.contains("secret"), "{log}");
        }
    }
}

#[test]
fn files_have_their_checksum_in_the_head() {
    let (_folder, _server, mut api) = Server::fresh();
    let storage = api.create_storage("checksums");
    let agent = harness::Agent::declare(&mut api, &storage, "host", "stream", "none");
    agent.push(&mut api, 0, b"bytes");
    api.finalize(&storage);
    let files = api.done("GET", &format!("/storages/{storage}/files"), None);
    let mut checked = 0;
    for file in files["files"].as_array().unwrap() {
        let is_fixed = matches!(
            file["role"].as_str(),
            Some("data" | "index" | "agent" | "checksums")
        );
        let path = format!("/storage/{storage}/{}", file["name"].as_str().unwrap());
        for range in ["bytes=0-", "bytes=0-1", "none"] {
            let request = Request::new("GET", &path).header("range", range);
            let response = api.send(&request).unwrap();
            let found = response.header("x-checksum-crc32c");
            let expected = file["checksum"].as_str().filter(|_| is_fixed);
            assert_eq!(found, expected, "{file}");
            assert_eq!(response.header("repr-digest").is_some(), is_fixed);
        }
        checked += usize::from(is_fixed);
    }
    assert!(checked >= 3, "{files}");
}

/// More idle connections than descriptors: they make room, and files can still be opened.
#[test]
fn a_low_limit_of_open_files_is_not_the_end() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("limited");
    let path = harness::traceholdd();
    let script = format!(
        "#!/bin/sh\nulimit -n 256\nexec '{}' \"$@\"\n",
        path.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let settings = Settings {
        program: Some(program),
        ..Settings::default()
    };
    let server = Server::start(folder.path(), &settings);
    let idle: Vec<_> = (0..300).map(|_| server.connect()).collect();
    // Connections that make room take a moment; until then new ones are for health alone.
    let begin = std::time::Instant::now();
    let mut api = loop {
        let mut api = server.api();
        if api.call("GET", "/storages", None).status == 200 {
            break api;
        }
        assert!(begin.elapsed() < std::time::Duration::from_secs(60));
    };
    let storage = api.create_storage("made");
    assert_eq!(api.state(&storage), "OPEN");
    let told = "has no room for http.connections_max";
    assert!(server.log().contains(told), "{}", server.log());
    drop(idle);
}

#[test]
fn a_packet_that_can_take_most_of_the_memory_is_told() {
    let told = "one packet can take more than half of the memory for packets";
    for (half, is_told) in [(8 << 20, false), ((8 << 20) + 1, true)] {
        let folder = tempfile::tempdir().unwrap();
        let config =
            format!("[ingest]\npacket_bytes_max = {half}\nin_flight_bytes_max = 16777216\n");
        let server = Server::start(folder.path(), &Settings::with_config(&config));
        assert_eq!(server.log().contains(told), is_told, "{}", server.log());
    }
}
