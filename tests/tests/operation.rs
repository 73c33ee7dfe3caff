//! What an operator sees of a server.

use harness::Server;

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
    let ready = server.api().send(&harness::Request::new("GET", "/readyz"));
    let ready: serde_json::Value = serde_json::from_slice(&ready.unwrap().body).unwrap();
    assert_eq!(ready["status"], "ready", "{ready}");
    assert_eq!(ready["poisoned_storages"], 0);
    assert_eq!(ready["ended_tasks"], serde_json::json!([]));
    assert!(ready["disk_total_bytes"].as_u64() >= ready["disk_free_bytes"].as_u64());
}
