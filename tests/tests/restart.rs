//! What a server knows after a restart.

use std::fs;
use std::path::Path;

use harness::{Agent, Problem, Request, Server, Settings, payload};
use serde_json::json;

const STORAGES: u64 = 60;

#[test]
fn finalized_storages_survive_a_restart() {
    let (_folder, mut server, mut api) = Server::fresh();
    let mut storages = Vec::new();
    for number in 0..STORAGES {
        let storage = api.create_storage(&format!("finalized-{number}"));
        let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
        let first = agent.next_sequence(&mut api);
        let receipt = agent.push(&mut api, first, &payload(number, 0, 500));
        api.finalize(&storage);
        storages.push((storage, receipt.number));
    }
    server.kill();
    server.restart();
    check_all(&server, &storages);

    // The catalog contains nothing of its own: without it everything is found in the folders.
    server.kill();
    for entry in fs::read_dir(server.data()).unwrap() {
        let path = entry.unwrap().path();
        if path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .contains("catalog")
        {
            fs::remove_dir_all(path).unwrap();
        }
    }
    server.restart();
    check_all(&server, &storages);
}

#[test]
fn a_storage_without_a_valid_storage_file_is_failed() {
    let (_folder, mut server, mut api) = Server::fresh();
    let damaged = api.create_storage("damaged");
    let intact = api.create_storage("intact");
    assert_eq!(readiness(&server), json!(["ready", 0, []]));
    server.kill();
    let path = server.data().join("storages").join(&damaged);
    for ending in ["storage", "storage-copy"] {
        fs::write(path.join(format!("{damaged}.{ending}")), b"damaged").unwrap();
    }
    server.restart();

    let mut api = server.api();
    let listed = api.done("GET", "/storages", None);
    let states = listed["items"].as_array().unwrap().iter();
    let states: Vec<_> = states.map(|item| (&item["id"], &item["state"])).collect();
    assert_eq!(
        states,
        [
            (&json!(damaged), &json!("FAILED")),
            (&json!(intact), &json!("OPEN"))
        ]
    );
    let failure = api.status(&damaged)["failure"].clone();
    let failed = json!({ "storage": damaged, "reason": failure });
    assert_eq!(readiness(&server), json!(["degraded", 1, [failed]]));
    assert!((api.metric("tracehold_storage_failed_storages") - 1.0).abs() < 0.5);
    let refused = api.refused("POST", &format!("/storages/{damaged}/finalize"), None);
    assert_eq!(refused.document["code"], "storage_failed");
    assert!(
        refused.document["detail"]
            .as_str()
            .unwrap()
            .contains("storage file")
    );
    let refused = api.refused("DELETE", &format!("/storages/{damaged}"), None);
    assert_eq!(refused.document["code"], "labels_unknown");
    let confirmed = format!("/storages/{damaged}?without_labels=true");
    let deleted = api.call("DELETE", &confirmed, None);
    assert_eq!(deleted.status, 204, "{}", deleted.brief());
    assert_eq!(readiness(&server), json!(["ready", 0, []]));
    assert!(!path.exists());
}

/// What `/readyz` says of failures.
fn readiness(server: &Server) -> serde_json::Value {
    let response = server.api().send(&Request::new("GET", "/readyz")).unwrap();
    assert_eq!(response.status, 200, "{}", response.brief());
    let document = response.json();
    json!([
        document["status"],
        document["failed_storages"],
        document["failures"]
    ])
}

fn check_all(server: &Server, storages: &[(String, u64)]) {
    let mut api = server.api();
    let mut names = Vec::new();
    let mut path = "/storages?state=FINALIZED".to_owned();
    loop {
        let page = api.done("GET", &path, None);
        let items = page["items"].as_array().unwrap();
        names.extend(
            items
                .iter()
                .map(|item| item["name"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/storages?state=FINALIZED&cursor={next}");
    }
    names.sort();
    names.dedup();
    assert_eq!(u64::try_from(names.len()).unwrap(), STORAGES);
    for (number, (storage, packet)) in (0..).zip(storages) {
        assert_eq!(api.packet(storage, *packet), payload(number, 0, 500));
    }
}

#[test]
fn names_labels_and_agents_survive_a_kill() {
    let (_folder, mut server, mut api) = Server::fresh();
    let storage = api.create_storage("before");
    let change = json!({ "name": "after", "labels": { "run": "17" } });
    api.done("PATCH", &format!("/storages/{storage}"), Some(&change));
    api.done(
        "PUT",
        "/agents/host",
        Some(&json!({ "name": "the host", "host": "h" })),
    );
    server.kill();
    server.restart();
    let mut api = server.api();
    let shown = api.storage(&storage);
    assert_eq!(
        (&shown["name"], &shown["labels"]["run"]),
        (&json!("after"), &json!("17"))
    );
    let agents = api.done("GET", "/agents", None);
    assert_eq!(agents["items"][0]["id"], "host");
    assert_eq!(agents["items"][0]["name"], "the host");
}

#[test]
fn one_idempotency_key_creates_one_storage() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let send = |server: &Server, key: &str, body: &[u8]| {
        let request = harness::Request::new("POST", "/api/v1/storages")
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(body);
        server.api().send(&request).unwrap()
    };
    let key = "0190a0e4-0000-7000-8000-000000000001";
    let create = |server: &Server| {
        let response = send(server, key, br#"{"name":"once"}"#);
        assert!(matches!(response.status, 200 | 201), "{}", response.brief());
        response.json()["id"].as_str().unwrap().to_owned()
    };
    let first = create(&server);
    assert_eq!(create(&server), first);
    server.kill();
    server.restart();
    assert_eq!(
        create(&server),
        first,
        "the key is remembered across a kill"
    );
    // Another spelling of the same request is a repeat; another request is not.
    let spelled = send(&server, key, br#"{ "open": false, "name": "once" }"#);
    assert_eq!(spelled.status, 200, "{}", spelled.brief());
    for body in [
        &br#"{"name":"other"}"#[..],
        br#"{"name":"once","open":true}"#,
    ] {
        let refused = Problem::of(&send(&server, key, body));
        let found = (refused.status, refused.code.as_str());
        assert_eq!(found, (422, "idempotency_key_reused"));
    }
    let empty = Problem::of(&send(&server, "", br#"{"name":"once"}"#));
    let found = (empty.status, empty.code.as_str());
    assert_eq!(found, (400, "idempotency_key_malformed"));
    let stored = server.api().done("GET", "/storages", None);
    assert_eq!(stored["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_damaged_list_of_recordings_does_not_stop_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let id = server.api().create_storage("open");
    server.kill();
    let list = server.data().join("recordings.json");
    fs::write(&list, b"{\"version\": 1, \"recordings\": [").unwrap();
    server.restart();
    assert_eq!(server.api().state(&id), "OPEN");
    assert!(server.log().contains("was set aside"), "{}", server.log());
    // The list of before is written with a checksum.
    let text = "{\"version\":1,\"recordings\":[]}\n# crc32c 00000000\n";
    server.kill();
    fs::write(&list, text).unwrap();
    server.restart();
    assert_eq!(server.api().state(&id), "OPEN");
    let names: Vec<String> = fs::read_dir(server.data())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("recordings.json.damaged-"))
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

/// Every small file of the data folder that the server can do without: damaged bytes, or a folder
/// or a pipe in its place, are set aside, and the next change writes it again.
#[test]
fn no_damaged_document_stops_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let id = server.api().create_storage("open");
    let names = [
        "labels.types",
        "quotas",
        "recordings.json",
        "standing_storages.json",
        "agent-usage",
        "scrub",
    ];
    let damages: [fn(&Path); 3] = [
        |path| fs::write(path, b"\0\0\0\0 not this\n").unwrap(),
        |path| fs::create_dir(path).unwrap(),
        make_pipe,
    ];
    for damage in damages {
        server.kill();
        for name in names {
            let path = server.data().join(name);
            // Some of them stay where they are.
            let _ = fs::remove_file(&path);
            let _ = fs::remove_dir(&path);
            damage(&path);
        }
        server.restart();
        assert_eq!(server.api().state(&id), "OPEN");
        let declared = server.api().done(
            "PUT",
            "/label-types/team",
            Some(&serde_json::json!({"value_type": "string"})),
        );
        assert_eq!(declared["name"], "team");
    }
    for name in [
        "labels.types",
        "quotas",
        "recordings.json",
        "standing_storages.json",
    ] {
        let aside = fs::read_dir(server.data()).unwrap().filter(|entry| {
            let file_name = entry.as_ref().unwrap().file_name();
            let file_name = file_name.to_string_lossy();
            file_name.starts_with(&format!("{name}.damaged-"))
        });
        assert_eq!(aside.count(), damages.len(), "{name}");
        assert!(
            server.log().contains(&format!("{name}.damaged-")),
            "{}",
            server.log()
        );
    }
}

fn make_pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

/// A pipe or an endless device in the place of a file is no file: nothing waits for it, nothing
/// reads it into memory, and no line is written into it.
#[test]
fn no_pipe_or_device_stops_the_server() {
    let strangers: [fn(&Path); 2] = [make_pipe, |path| {
        std::os::unix::fs::symlink("/dev/zero", path).unwrap();
    }];
    for put in strangers {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::start(folder.path(), &Settings::default());
        let id = server.api().create_storage("open");
        for name in ["catalog/conf", "catalog/snap.0", "audit/audit.jsonl"] {
            server.kill();
            let path = server.data().join(name);
            let _ = fs::remove_file(&path);
            put(&path);
            server.restart();
            assert_eq!(server.api().state(&id), "OPEN", "{name}");
            server.api().create_storage(name);
            assert!(
                fs::metadata(&path).map_or(true, |found| found.is_file()),
                "{name}"
            );
        }
        let log = server.log();
        assert!(
            log.contains("the catalog is damaged") && log.contains("is not a file"),
            "{log}"
        );
        let noted = fs::read_to_string(server.data().join("audit/audit.jsonl")).unwrap();
        assert!(noted.lines().count() >= 2, "{noted}");

        server.kill();
        let version = server.data().join("VERSION");
        fs::remove_file(&version).unwrap();
        put(&version);
        let Err(refused) = Server::try_start(folder.path(), &Settings::default()) else {
            panic!("a folder without a version is used");
        };
        assert!(refused.contains("does not contain a version"), "{refused}");
    }
}
