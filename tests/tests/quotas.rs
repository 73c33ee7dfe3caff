//! What agents may store, each and together, and agents that are deleted.

use std::time::{Duration, Instant};

use harness::spans::{TestSpan, request, send};
use harness::{Agent, Api, Server, Settings, payload, run_tracehold};
use serde_json::{Value, json};

use crate::recording::span;

const LIMIT: Duration = Duration::from_secs(60);

fn agent(api: &mut Api, id: &str) -> Value {
    api.done("GET", &format!("/agents/{id}"), None)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_agent_stores_no_more_than_its_quota() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[quota]\nagent_bytes_max = 50000\ncheck_seconds = 1\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let mut api = server.api();
    let (first, second) = (api.create_storage("first"), api.create_storage("second"));
    let greedy = Agent::declare(&mut api, &first, "greedy", "s", "none");
    let elsewhere = Agent::declare(&mut api, &second, "greedy", "s", "none");
    let modest = Agent::declare(&mut api, &first, "modest", "s", "none");
    greedy.push(&mut api, 0, &payload(1, 0, 30_000));
    elsewhere.push(&mut api, 0, &payload(1, 1, 30_000));
    wait_until("its packets are counted", || {
        agent(&mut api, "greedy")["stored_bytes"] == 60_000
    });
    for of_greedy in [&greedy, &elsewhere] {
        let refused = of_greedy.refused(&mut api, 1, b"more");
        assert_eq!(refused.status, 507);
        assert_eq!(
            refused.document["code"], "quota_used",
            "{}",
            refused.document
        );
        let batch = of_greedy
            .post_many(&mut api, 1, &[b"more".to_vec()])
            .unwrap();
        assert_eq!(batch.status, 507, "{}", batch.brief());
        assert!(batch.header("retry-after").is_some(), "{}", batch.brief());
    }
    modest.push(&mut api, 0, b"still has room");
    assert!(api.metric("tracehold_storage_refused_quota_total") >= 4.0);

    // A quota of its own.
    api.done(
        "PUT",
        "/agents/greedy/quota",
        Some(&json!({"bytes_max": 70_000})),
    );
    greedy.push(&mut api, 1, b"more");
    assert_eq!(agent(&mut api, "greedy")["quota_bytes_max"], 70_000);
    for body in [
        json!({}),
        json!({"bytes_max": -1}),
        json!({"bytes_max": "1"}),
    ] {
        assert_eq!(
            api.refused("PUT", "/agents/greedy/quota", Some(&body))
                .status,
            400
        );
    }
    let unknown = api.refused(
        "PUT",
        "/agents/unknown/quota",
        Some(&json!({"bytes_max": 1})),
    );
    assert_eq!(unknown.status, 404);
}

#[test]
fn quotas_and_what_is_stored_are_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[quota]\nagent_bytes_max = 50000\ncheck_seconds = 1\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let mut api = server.api();
    let (first, second) = (api.create_storage("first"), api.create_storage("second"));
    let greedy = Agent::declare(&mut api, &first, "greedy", "s", "none");
    let elsewhere = Agent::declare(&mut api, &second, "greedy", "s", "none");
    greedy.push(&mut api, 0, &payload(1, 0, 30_000));
    elsewhere.push(&mut api, 0, &payload(1, 1, 30_000));
    api.done(
        "PUT",
        "/agents/greedy/quota",
        Some(&json!({"bytes_max": 10})),
    );
    api.finalize(&second);
    let known = agent(&mut api, "greedy");
    assert_eq!(
        (&known["quota_bytes_max"], &known["has_own_quota"]),
        (&json!(10), &json!(true))
    );
    drop(server);
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let mut api = server.api();
    wait_until("its packets are counted again", || {
        agent(&mut api, "greedy")["stored_bytes"] == 60_000
    });
    assert_eq!(greedy.refused(&mut api, 1, b"more").status, 507);
    api.done(
        "PUT",
        "/agents/greedy/quota",
        Some(&json!({"bytes_max": null})),
    );
    greedy.push(&mut api, 1, b"more");
    api.done("DELETE", "/agents/greedy/quota", None);
    assert_eq!(greedy.refused(&mut api, 2, b"more").status, 507);
    // Deleting a storage makes room.
    api.done("DELETE", &format!("/storages/{second}"), None);
    wait_until("there is room", || {
        greedy.post(&mut api, 2, b"more").unwrap().status == 200
    });
}

#[test]
fn all_agents_together_store_no_more_than_the_quota() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[quota]\nbytes_max = 50000\ncheck_seconds = 1\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let mut api = server.api();
    let storage = api.create_storage("all");
    let first = Agent::declare(&mut api, &storage, "first", "s", "none");
    let second = Agent::declare(&mut api, &storage, "second", "s", "none");
    first.push(&mut api, 0, &payload(1, 0, 30_000));
    second.push(&mut api, 0, &payload(1, 1, 30_000));
    wait_until("both are refused", || {
        second.post(&mut api, 1, b"more").unwrap().status == 507
    });
    assert_eq!(first.refused(&mut api, 1, b"more").status, 507);
    let spans: [TestSpan; 1] = [span(1, 1, 0, "x")];
    let refused = send(
        &mut api,
        "application/json",
        request("third", &spans).as_bytes(),
    );
    assert_eq!(refused.status, 503, "{}", refused.brief());
    assert!(refused.header("retry-after").is_some());
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(text.contains("quota_used"), "{text}");
}

#[test]
fn a_deleted_agent_stays_in_finalized_storages() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let mut api = server.api();
    let storage = api.create_storage("kept");
    let leaving = Agent::declare(&mut api, &storage, "leaving", "s", "none");
    let receipt = leaving.push(&mut api, 0, b"kept");
    let refused = api.refused("DELETE", "/agents/leaving", None);
    assert_eq!(refused.status, 409);
    assert_eq!(refused.document["code"], "agent_in_use");
    assert!(
        refused.document["detail"].to_string().contains(&storage),
        "{}",
        refused.document
    );
    leaving.push(&mut api, 1, b"a refusal changes nothing");
    api.finalize(&storage);
    api.done("DELETE", "/agents/leaving", None);
    assert_eq!(api.refused("GET", "/agents/leaving", None).status, 404);
    assert_eq!(api.refused("DELETE", "/agents/leaving", None).status, 404);
    assert_eq!(api.packet(&storage, receipt.number), b"kept");
    assert_eq!(api.verify(&storage), Vec::<Value>::new());
    drop(server);
    let server = Server::start(folder.path(), &Settings::default());
    let mut api = server.api();
    assert_eq!(api.refused("GET", "/agents/leaving", None).status, 404);
    assert_eq!(api.packet(&storage, receipt.number), b"kept");
    // Spans register their agent again, as often as it is deleted.
    let spans = [span(1, 1, 0, "x")];
    for _ in 0..2 {
        let sent = send(
            &mut api,
            "application/json",
            request("shop", &spans).as_bytes(),
        );
        assert_eq!(sent.status, 200, "{}", sent.brief());
        let recorded = api.done("GET", "/recordings", None);
        for recording in recorded["items"].as_array().unwrap() {
            let id = recording["id"].as_str().unwrap();
            api.call("DELETE", &format!("/recordings/{id}"), None);
        }
        wait_until("no open storage has its packets", || {
            api.call("DELETE", "/agents/shop", None).status == 204
        });
    }
}

#[test]
fn the_command_line_lists_limits_and_deletes_agents() {
    let (_folder, server, mut api) = Server::fresh();
    Agent::register(&mut api, "one");
    Agent::register(&mut api, "two");
    let run = |arguments: &[&str]| {
        let url = server.url();
        let all = ["--server", &url, "agent"];
        let all: Vec<String> = all
            .iter()
            .chain(arguments)
            .map(ToString::to_string)
            .collect();
        let output = run_tracehold(&all);
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    assert_eq!(run(&["quota", "one", "5M"]).0, Some(0));
    assert_eq!(agent(&mut api, "one")["quota_bytes_max"], 5 << 20);
    let (code, listed) = run(&["list"]);
    assert_eq!(code, Some(0));
    assert!(
        listed.contains("(own)") && listed.contains("two"),
        "{listed}"
    );
    assert_eq!(run(&["quota", "one", "none"]).0, Some(0));
    assert_eq!(agent(&mut api, "one")["quota_bytes_max"], Value::Null);
    assert_eq!(run(&["quota", "one", "default"]).0, Some(0));
    assert_eq!(agent(&mut api, "one")["has_own_quota"], false);
    assert_eq!(run(&["delete", "one", "two"]).0, Some(0));
    assert_eq!(run(&["delete", "one"]).0, Some(3));
    assert!(!run(&["list"]).1.contains("one"));
}
