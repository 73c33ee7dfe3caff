//! Retention deletes what is beyond its bounds, says so before, and leaves what is held.

use std::time::{Duration, Instant};

use harness::{Agent, Api, Server, Settings};
use serde_json::{Value, json};

/// A finalized storage with one packet and these labels.
fn storage(api: &mut Api, name: &str, labels: &[(&str, &str)]) -> String {
    let id = api.create_storage(name);
    let agent = Agent::declare(api, &id, "host", name, "none");
    agent.push(api, 0, b"bytes");
    for (label, value) in labels {
        let body = json!({ "value": value });
        api.done(
            "PUT",
            &format!("/storages/{id}/labels/{label}"),
            Some(&body),
        );
    }
    api.finalize(&id);
    id
}

fn names(document: &Value) -> Vec<&str> {
    let deletions = document["deletions"].as_array().unwrap();
    let names = deletions.iter().map(|each| each["name"].as_str().unwrap());
    names.collect()
}

#[test]
fn a_look_ahead_deletes_nothing_and_a_hold_prevents_deletion() {
    let (_folder, _server, mut api) = Server::fresh();
    let old = ("use_case", "old");
    let first = storage(&mut api, "first", &[old]);
    let held = storage(&mut api, "held", &[old, ("legal_hold", "case 7")]);
    storage(&mut api, "other", &[]);
    let settings = api.done("GET", "/retention", None);
    assert_eq!(
        (&settings["enforced"], &settings["ages_trusted"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(names(&settings), [""; 0]);
    let plan = api.done("GET", "/retention?bytes_max=1&label=use_case:old", None);
    assert_eq!(names(&plan), ["first"]);
    assert_eq!(
        (&plan["enforced"], &plan["held"]),
        (&json!(false), &json!(1))
    );
    assert_eq!(plan["deletions"][0]["reason"], "bytes");
    assert!(plan["bytes"].as_u64().unwrap() > 0, "{plan}");
    let plan = api.done("GET", "/retention?bytes_max=1", None);
    assert_eq!(names(&plan), ["first", "other"]);
    let unknown = api.refused("GET", "/retention?label=nothing", None);
    assert_eq!(unknown.status, 400);
    assert_eq!(api.state(&first), "FINALIZED");

    let refused = api.refused("DELETE", &format!("/storages/{held}"), None);
    assert_eq!(refused.status, 409);
    assert_eq!(refused.document["code"], "storage_held");
    assert_eq!(api.state(&held), "FINALIZED");
    let fixed = api.refused("DELETE", "/label-types/legal_hold?remove=true", None);
    assert_eq!(fixed.document["code"], "label_type_fixed");
    // Not even from all storages at once.
    let case = "/label-types/legal_hold/values/case%207?remove=true";
    let kept = api.refused("DELETE", case, None);
    assert_eq!(kept.document["code"], "label_in_use");
    api.done(
        "DELETE",
        &format!("/storages/{held}/labels/legal_hold"),
        None,
    );
    api.done("DELETE", &format!("/storages/{held}"), None);
}

#[test]
fn what_is_too_large_is_deleted() {
    check_deleted("bytes_max = 1");
}

#[test]
fn what_is_too_old_is_deleted() {
    check_deleted("age_seconds_max = 1");
}

fn check_deleted(bound: &str) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let mut api = server.api();
    let old = ("use_case", "old");
    let first = storage(&mut api, "first", &[old]);
    let held = storage(&mut api, "held", &[old, ("legal_hold", "case 7")]);
    let other = storage(&mut api, "other", &[]);
    let open = api.create_storage("open");
    drop(server);
    let config = "label = \"use_case:old\"\ncheck_seconds = 1\n";
    let config = format!("[retention]\n{bound}\n{config}");
    let server = Server::start(folder.path(), &Settings::with_config(&config));
    let mut api = server.api();
    let deadline = Instant::now() + Duration::from_secs(60);
    let path = format!("/storages/{first}");
    while api.metric("tracehold_retention_deleted_storages_total") < 1.0 {
        assert!(Instant::now() < deadline, "the storage is not deleted");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(api.refused("GET", &path, None).status, 404);
    for id in [&held, &other] {
        assert_eq!(api.state(id), "FINALIZED");
    }
    assert_eq!(api.state(&open), "OPEN");
    assert!(api.metric("tracehold_retention_deleted_bytes_total") > 0.0);
}
