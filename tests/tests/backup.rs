//! The documented backup of a running server, and its restoration on another one.

use harness::{Agent, Api, Request, Server};
use serde_json::{Value, json};

/// The documents of all storages in a state.
fn storages(api: &mut Api, state: &str) -> Vec<Value> {
    let page = api.done("GET", &format!("/storages?state={state}&limit=1000"), None);
    page["items"].as_array().unwrap().clone()
}

fn archive(api: &mut Api, id: &str) -> Vec<u8> {
    let path = format!("/api/v1/storages/{id}/export");
    let response = api.send(&Request::new("GET", &path)).unwrap();
    assert_eq!(response.status, 200, "{}", response.brief());
    response.body
}

/// Archives of everything, as `docs/storages.md` says: finalized storages as they are, and a
/// finalized copy of each one that is written.
fn back_up(api: &mut Api) -> Vec<Vec<u8>> {
    let finalized = storages(api, "FINALIZED");
    let open = storages(api, "OPEN");
    let mut archives = Vec::new();
    for storage in finalized {
        archives.push(archive(api, storage["id"].as_str().unwrap()));
    }
    for storage in open {
        let id = storage["id"].as_str().unwrap();
        let body = json!({ "auto_finalize": true });
        let copy = api.done("POST", &format!("/storages/{id}/copy"), Some(&body));
        let copy = copy["storage"].as_str().unwrap();
        archives.push(archive(api, copy));
        api.done("DELETE", &format!("/storages/{copy}"), None);
    }
    archives
}

fn packet(api: &mut Api, id: &str, number: u64) -> Vec<u8> {
    let path = format!("/api/v1/storages/{id}/packets/{number}");
    let response = api.send(&Request::new("GET", &path)).unwrap();
    assert_eq!(response.status, 200, "{}", response.brief());
    response.body
}

#[test]
fn a_running_server_is_backed_up_and_restored() {
    let (_folder, server, mut api) = Server::fresh();
    let finalized = api.create_storage("finalized");
    let agent = Agent::declare(&mut api, &finalized, "host", "first", "zstd");
    agent.push(&mut api, 0, b"the first packet");
    let label = json!({ "value": "io" });
    let path = format!("/storages/{finalized}/labels/use_case");
    api.done("PUT", &path, Some(&label));
    api.finalize(&finalized);
    let open = api.create_storage("open");
    let writer = Agent::declare(&mut api, &open, "host", "second", "none");
    writer.push(&mut api, 0, b"acknowledged before the backup");
    let archives = std::thread::scope(|scope| {
        let mut pushing = server.api();
        let writing = scope.spawn(move || {
            for sequence in 1..40 {
                writer.push(
                    &mut pushing,
                    sequence,
                    format!("packet {sequence}").as_bytes(),
                );
            }
        });
        let archives = back_up(&mut api);
        writing.join().unwrap();
        archives
    });
    assert_eq!(archives.len(), 2);
    // The original goes on.
    assert_eq!(api.state(&open), "OPEN");

    let (_other_folder, other, mut restored) = Server::fresh();
    for archive in &archives {
        let request = Request::new("POST", "/api/v1/storages/import")
            .header("content-type", "application/zip")
            .body(archive);
        let response = other.api().send(&request).unwrap();
        assert_eq!(response.status, 201, "{}", response.brief());
    }
    let labels = restored.done("GET", &format!("/storages/{finalized}"), None);
    assert_eq!(labels["labels"]["use_case"], "io");
    assert_eq!(packet(&mut restored, &finalized, 0), b"the first packet");
    let found = storages(&mut restored, "FINALIZED");
    let copy = found
        .iter()
        .find(|storage| storage["name"] == "open")
        .unwrap();
    let id = copy["id"].as_str().unwrap();
    assert_eq!(
        packet(&mut restored, id, 0),
        b"acknowledged before the backup"
    );
    let count = copy["packets"].as_u64().unwrap();
    for number in 1..count {
        let expected = format!("packet {number}");
        assert_eq!(packet(&mut restored, id, number), expected.as_bytes());
    }
}
