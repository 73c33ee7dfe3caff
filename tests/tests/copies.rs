//! Copies of parts of a storage.

use std::time::Instant;

use harness::spans::{send_spans, spans};
use harness::{Agent, Api, Request, Server, Settings, payload, run_tracehold};
use serde_json::{Value, json};

use super::recording::{LIMIT, record_now, saver, span, stop};

#[test]
fn a_copy_contains_the_selection_even_for_an_unknown_agent() {
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

    // A producer that pushes into the target of a copy must start a new epoch.
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

    // A failed copy leaves no storage.
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

#[test]
fn a_copy_applies_a_query_and_processors() {
    let (folder, server, mut api) = Server::fresh();
    let (id, source) = record_now(&mut api, json!({ "processors": saver() }));
    for trace in 1..=5 {
        // The root comes last, in a separate packet.
        send_spans(&mut api, "shop", &[span(trace, 2, 1, "look")]);
        send_spans(&mut api, "shop", &[span(trace, 1, 0, "buy")]);
        send_spans(&mut api, "pump", &[span(trace, 1, 0, "fill")]);
    }
    stop(&mut api, &id);
    let file = folder.path().join("chain.json");
    let chain = json!([{ "type": "invocation_cloner" }, { "type": "aggregator" }]);
    std::fs::write(&file, chain.to_string()).unwrap();
    let url = server.url();
    let run = |arguments: &[&str]| {
        let all = ["storage", "copy", "--json", "--server", &url, &source];
        let all = all.iter().chain(arguments).map(|text| (*text).to_owned());
        let output = run_tracehold(&all.collect::<Vec<_>>());
        let text = String::from_utf8_lossy(&output.stdout);
        let copied: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        (output.status.code(), copied)
    };
    let name = |copied: &Value| copied["storage"].as_str().unwrap().to_owned();
    let names = |api: &mut Api, storage: &str, stream: &str| -> Vec<String> {
        let all = spans(api, storage);
        let rows = all.get(stream).into_iter().flatten();
        rows.map(|row| row["name"].clone()).collect()
    };

    // Part of the spans, unchanged.
    let (code, copied) = run(&["--query", "name == 'look'", "--name", "looks", "--finalize"]);
    assert_eq!((code, &copied["packets"]), (Some(0), &json!(5)), "{copied}");
    let copy_name = name(&copied);
    assert_eq!(names(&mut api, &copy_name, "traces"), ["look"; 5]);
    assert!(api.verify(&copy_name).is_empty());

    // Spans derived for some of the agents; a trace is assembled from several packets.
    let chain = file.to_str().unwrap();
    let (code, copied) = run(&["--processors", chain, "--agent", "shop", "--name", "roots"]);
    assert_eq!(code, Some(0), "{copied}");
    let roots = name(&copied);
    assert_eq!(names(&mut api, &roots, "traces"), [""; 0]);
    assert_eq!(names(&mut api, &roots, "traces.clones"), ["buy"; 5]);
    let mut groups = names(&mut api, &roots, "traces.aggregates");
    groups.sort();
    assert_eq!(groups, ["buy", "look"]);

    // A range without packets, and an invalid chain.
    let early = "2001-01-01T00:00:00Z";
    let (_, copied) = run(&["--query", "dur > 0ns", "--to", early, "--name", "none"]);
    assert_eq!(copied["packets"], 0, "{copied}");
    let before = api.done("GET", "/storages", None);
    assert_eq!(run(&["--query", "name = ="]).0, Some(3));
    assert_eq!(api.done("GET", "/storages", None), before);
}

#[test]
fn a_copy_that_is_cancelled_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[ingest]\npacket_bytes_max = 16384\nin_flight_bytes_max = 16384\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let mut api = server.api();
    let source = api.create_storage("source");
    let agent = Agent::declare(&mut api, &source, "one", "stream", "zstd");
    for sequence in 0..5 {
        agent.push(&mut api, sequence, &payload(1, sequence, 3000));
    }
    let before = api.done("GET", "/storages", None);
    for chain in [None, Some(saver())] {
        // A request occupies the entire capacity, and its body does not arrive: the copy waits.
        let mut blocker = server.connect();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: a\r\ncontent-type: application/octet-stream\r\n\
             tracehold-epoch: 1\r\ntracehold-sequence: 5\r\ncontent-length: 16384\r\n\r\nx",
            agent.path()
        );
        blocker.write(&[head.as_bytes()]).unwrap();
        let begin = Instant::now();
        while api.metric("tracehold_storage_in_flight_bytes") < 16384.0 {
            assert!(begin.elapsed() < LIMIT, "the capacity is never occupied");
        }
        let body = match chain {
            None => json!({}),
            Some(chain) => json!({ "processors": chain }),
        };
        let text = body.to_string();
        let path = format!("/api/v1/storages/{source}/copy");
        let request = Request::new("POST", &path)
            .header("content-type", "application/json")
            .header("prefer", "respond-async")
            .body(text.as_bytes());
        let response = api.send(&request).unwrap();
        assert_eq!(response.status, 202, "{}", response.brief());
        let job = response.header("tracehold-job").unwrap().to_owned();
        let show = |api: &mut Api| api.done("GET", &format!("/jobs/{job}"), None);
        while show(&mut api)["bytes_total"] != 15_000 {
            assert!(begin.elapsed() < LIMIT, "the copy does not begin");
        }
        assert_eq!(show(&mut api)["state"], "RUNNING");
        api.done("DELETE", &format!("/jobs/{job}"), None);
        while show(&mut api)["state"] == "RUNNING" {
            assert!(begin.elapsed() < LIMIT, "the copy does not stop");
        }
        assert_eq!(show(&mut api)["state"], "CANCELLED");
        while api.done("GET", "/storages", None) != before {
            assert!(begin.elapsed() < LIMIT, "the storage stays");
        }
        // Waiting for capacity is not counted as a refusal.
        assert_eq!(api.metric("tracehold_storage_refused_busy_total"), 0.0);
        drop(blocker);
        while api.metric("tracehold_storage_in_flight_bytes") > 0.0 {
            assert!(begin.elapsed() < LIMIT, "the memory is never released");
        }
    }
}

#[test]
fn a_copy_does_not_mix_packets_with_the_metadata_of_another_agent() {
    let folder = tempfile::tempdir().unwrap();
    let here = Server::start(&folder.path().join("here"), &Settings::default());
    let there = Server::start(&folder.path().join("there"), &Settings::default());
    let metadata = |size: u32| {
        format!(
            "/* CTF 1.8 */\ntypealias integer {{ size = {size}; align = 8; signed = false; }} := u;\n\
             trace {{ major = 1; minor = 8; byte_order = le; }};\n\
             stream {{ event.header := struct {{ u id; }}; }};\n\
             event {{ name = e; id = 0; fields := struct {{ u v; }}; }};\n"
        )
    };
    let declare = |api: &mut Api, size: u32| {
        api.done(
            "PUT",
            "/agents/tracer",
            Some(&json!({ "name": "t", "host": "h" })),
        );
        let text = metadata(size);
        let request = Request::new("PUT", "/api/v1/agents/tracer/metadata").body(text.as_bytes());
        let response = api.send(&request).unwrap();
        assert!(response.status < 300, "{}", response.brief());
        api.done(
            "PUT",
            "/agents/tracer/streams/s",
            Some(&json!({ "kind": "ctf" })),
        );
    };
    let mut api = here.api();
    declare(&mut api, 8);
    let storage = api.create_storage("source");
    let agent = Agent::new(&storage, "tracer", "s");
    agent.push(&mut api, 0, &[0, 7]);
    api.finalize(&storage);
    let archive = api
        .call("GET", &format!("/storages/{storage}/export"), None)
        .body;
    let request = Request::new("POST", "/api/v1/storages/import").body(&archive);
    let mut api = there.api();
    declare(&mut api, 16);
    assert_eq!(there.api().send(&request).unwrap().status, 201);
    let path = format!("/storages/{storage}/copy");
    for body in [json!({}), json!({ "processors": saver() })] {
        let refused = api.refused("POST", &path, Some(&body));
        assert_eq!(
            (refused.status, refused.code.as_str()),
            (409, "agent_metadata_conflict")
        );
    }
    // Equal metadata does not conflict.
    declare(&mut api, 8);
    let copied = api.done("POST", &path, Some(&json!({})));
    assert_eq!(copied["packets"], 1, "{copied}");
}

/// A selection of nothing is told, and an agent that the storage does not have is refused.
#[test]
fn a_copy_of_nothing_is_told() {
    let (_folder, server, mut api) = Server::fresh();
    let source = api.create_storage("source");
    let agent = Agent::declare(&mut api, &source, "one", "stream", "none");
    agent.push(&mut api, 0, &payload(1, 0, 100));
    // An agent that is known, but not in the storage.
    let other = api.create_storage("other");
    Agent::declare(&mut api, &other, "two", "stream", "none").push(
        &mut api,
        0,
        &payload(1, 0, 100),
    );
    let empty = api.create_storage("empty");
    let before = api.done("GET", "/storages", None);
    let path = format!("/storages/{source}/copy");
    for agents in [json!(["nosuch"]), json!(["two"]), json!(["one", "nosuch"])] {
        let body = json!({ "agents": agents });
        let refused = api.refused("POST", &path, Some(&body));
        assert_eq!((refused.status, &*refused.code), (404, "agent_not_found"));
    }
    assert_eq!(api.done("GET", "/storages", None), before);
    let url = server.url();
    for (options, code, told) in [
        (
            vec![source.as_str(), "--agent", "nosuch"],
            3,
            "no packets of agent nosuch",
        ),
        (vec![&source, "--stream", "nosuch"], 1, "nothing was copied"),
        (vec![&source, "--kind", "ctf"], 1, "nothing was copied"),
        (vec![&source, "--agent", "one"], 0, ""),
        (vec![&empty], 0, ""),
    ] {
        let all = ["storage", "copy", "--server", &url];
        let all = all.iter().chain(&options).map(|text| (*text).to_owned());
        let output = run_tracehold(&all.collect::<Vec<_>>());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options:?} {errors}");
        assert!(errors.contains(told), "{options:?} {errors}");
        assert_eq!(errors.is_empty(), told.is_empty(), "{options:?} {errors}");
    }
}
