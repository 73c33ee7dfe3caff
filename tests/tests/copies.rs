//! Copies of a part of a storage.

use harness::{Agent, Request, Server, Settings, payload, run_tracehold};
use serde_json::{Value, json};

#[test]
fn a_copy_takes_what_was_asked_for_also_where_the_agent_is_not_known() {
    let folder = tempfile::tempdir().unwrap();
    let here = Server::start(&folder.path().join("here"), &Settings::default());
    let there = Server::start(&folder.path().join("there"), &Settings::default());
    let mut api = here.api();
    let storage = api.create_storage("source");
    for agent in ["one", "two"] {
        let agent = Agent::declare(&mut api, &storage, agent, "stream", "zstd");
        for sequence in 0..20 {
            agent.push(&mut api, sequence, &payload(1, sequence, 3000));
        }
    }
    api.finalize(&storage);
    let archive = api
        .call("GET", &format!("/storages/{storage}/export"), None)
        .body;
    let request = Request::new("POST", "/api/v1/storages/import").body(&archive);
    assert_eq!(there.api().send(&request).unwrap().status, 201);

    let url = there.url();
    let run = |arguments: &[&str]| {
        let all = ["storage", "copy", "--json", "--server", &url];
        let all = all.iter().chain(arguments).map(|text| (*text).to_owned());
        let output = run_tracehold(&all.collect::<Vec<_>>());
        let text = String::from_utf8_lossy(&output.stdout);
        (
            output.status.code(),
            serde_json::from_str(&text).unwrap_or(Value::Null),
        )
    };
    let part = ["source", "--agent", "two", "--name", "part", "--finalize"];
    let (code, copied): (_, Value) = run(&part);
    assert_eq!(
        (code, &copied["packets"]),
        (Some(0), &json!(20)),
        "{copied}"
    );
    let copy = copied["storage"].as_str().unwrap().to_owned();
    let mut there = there.api();
    assert_eq!(there.state(&copy), "FINALIZED");
    assert_eq!(there.verify(&copy), [] as [Value; 0]);
    for number in 0..20 {
        assert_eq!(there.packet(&copy, number), payload(1, number, 3000));
    }
    let agents = there.done("GET", "/agents", None);
    assert_eq!(agents["items"].as_array().unwrap().len(), 1, "{agents}");
    let jobs = there.done("GET", "/jobs", None);
    let jobs = jobs["items"].as_array().unwrap();
    let job = jobs.iter().find(|job| job["kind"] == "copy").unwrap();
    assert_eq!(
        (&job["state"], &job["bytes_done"]),
        (&json!("DONE"), &json!(40 * 3000))
    );

    // A producer that pushes into the target of a copy is told to begin a new epoch.
    let open = there.create_storage("open");
    let mut agent = Agent::new(&open, "two", "stream");
    agent.push(&mut there, 0, &payload(1, 0, 100));
    assert_eq!(
        run(&["source", "--to-storage", "open", "--agent", "two"]).0,
        Some(0)
    );
    let stale = agent.refused(&mut there, 1, &payload(1, 1, 100));
    assert_eq!((stale.status, stale.code.as_str()), (409, "epoch_stale"));
    agent.epoch = stale.document["current_epoch"].as_u64().unwrap() + 1;
    agent.push(&mut there, 0, &payload(1, 1, 100));
    assert_eq!(there.storage(&open)["packets"], 22);

    // What fails leaves no storage behind.
    let before = there.done("GET", "/storages", None);
    let body = json!({ "name": "never", "kinds": ["nonsense"] });
    let path = format!("/storages/{storage}/copy");
    assert_eq!(there.refused("POST", &path, Some(&body)).status, 400);
    assert_eq!(there.done("GET", "/storages", None), before);
    assert_eq!(
        run(&["source", "--to-storage", &copy]).0,
        Some(3),
        "it is finalized"
    );
}
