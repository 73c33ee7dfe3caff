//! Recordings: packets that arrive are written to the storages that record them, as processors
//! shape them.

use std::collections::BTreeMap;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use harness::spans::{TestSpan, packets, request, send, send_spans, spans};
use harness::{Api, Request, Response, Server, Settings, opentelemetry_python};
use serde_json::{Value, json};

use crate::derived_streams;
use crate::invalid_requests::gzip;

/// A wait that takes longer than this fails.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn span(trace: u64, id: u64, parent: u64, name: &'static str) -> TestSpan {
    TestSpan {
        trace,
        id,
        parent,
        name,
        time: (id * 10, 1000 - id * 10),
    }
}

fn record(api: &mut Api, body: Value) -> (String, String) {
    let recording = api.done("POST", "/recordings", Some(&body));
    let text = |field: &str| recording[field].as_str().unwrap().to_owned();
    (text("id"), text("storage"))
}

pub(super) fn wait_for(api: &mut Api, id: &str, state: &str) -> Value {
    let begin = Instant::now();
    loop {
        let recording = api.done("GET", &format!("/recordings/{id}"), None);
        if recording["state"] == state {
            return recording;
        }
        assert!(begin.elapsed() < LIMIT, "not {state}: {recording}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a recording, which runs when the server answers.
pub(super) fn record_now(api: &mut Api, body: Value) -> (String, String) {
    let recording = api.done("POST", "/recordings", Some(&body));
    assert_eq!(recording["state"], "ON", "{recording}");
    let text = |field: &str| recording[field].as_str().unwrap().to_owned();
    (text("id"), text("storage"))
}

pub(super) fn stop(api: &mut Api, id: &str) -> Value {
    let stopped = api.done("DELETE", &format!("/recordings/{id}"), None);
    assert_eq!(stopped["state"], "OFF", "{stopped}");
    stopped
}

pub(super) fn saver() -> Value {
    json!([{ "type": "saver" }])
}

#[test]
fn spans_are_recorded_cloned_extracted_and_aggregated() {
    let (_folder, server, mut api) = Server::fresh();
    // Before the recording: only in the buffer.
    send_spans(&mut api, "early", &[span(9, 1, 0, "early")]);
    let (id, storage) = record_now(&mut api, json!({ "name": "first" }));
    assert_eq!(api.state(&storage), "RECORDING");
    send_spans(
        &mut api,
        "shop",
        &[span(1, 2, 1, "look"), span(1, 3, 2, "read")],
    );
    send_spans(
        &mut api,
        "shop",
        &[span(1, 1, 0, "buy"), span(2, 1, 0, "buy")],
    );
    // What was acknowledged is already durable.
    let stored = packets(&mut api, &storage);
    let recorded_spans = stored.iter().filter(|(_, stream, _)| stream == "traces");
    assert_eq!(recorded_spans.count(), 2, "{stored:?}");
    let stopped = stop(&mut api, &id);
    assert_eq!(stopped["counts"]["packets"], 2, "{stopped}");
    assert_eq!(api.state(&storage), "OPEN");
    let streams = spans(&mut api, &storage);
    let names = |stream: &str| {
        let mut names: Vec<_> = (streams[stream].iter())
            .map(|row| row["name"].as_str())
            .collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names("traces"), ["buy", "buy", "look", "read"]);
    assert_eq!(names("traces.clones"), ["buy", "buy"]);
    assert_eq!(names("traces.spans"), ["look", "read"]);
    assert_eq!(names("traces.aggregates"), ["buy", "look", "read"]);
    derived_streams::check_omitted(&server, &storage);
    let buy = streams["traces.aggregates"]
        .iter()
        .find(|row| row["name"] == "buy")
        .unwrap();
    assert_eq!(buy["args.count"], "2");
    assert_eq!(buy["args.sum"], (2 * 980).to_string());
    assert_eq!(buy["args.exclusive"], (2 * 980 - 960).to_string());
    assert_eq!(buy["ctx.tracehold.derived"], "aggregate");
    api.finalize(&storage);
    assert!(api.verify(&storage).is_empty());
    // A recording that has ended disappears from the list when it is deleted again.
    api.done("DELETE", &format!("/recordings/{id}"), None);
    assert_eq!(
        api.refused("GET", &format!("/recordings/{id}"), None).code,
        "recording_not_found"
    );
}

#[test]
fn spans_sent_right_after_the_response_are_recorded() {
    let (_folder, _server, mut api) = Server::fresh();
    // As soon as one recording has ended, the next one begins.
    for round in 1..=20 {
        let body = json!({ "name": "at once", "processors": saver() });
        let (id, _) = record_now(&mut api, body);
        send_spans(&mut api, "shop", &[span(round, 1, 0, "buy")]);
        let stopped = stop(&mut api, &id);
        assert_eq!(stopped["counts"]["packets"], 1, "{stopped}");
    }
    // A recording that cannot begin is refused.
    let (id, storage) = record_now(&mut api, json!({ "processors": saver() }));
    let refused = api.refused("POST", "/recordings", Some(&json!({ "storage": storage })));
    assert_eq!(refused.status, 409, "{refused:?}");
    stop(&mut api, &id);
}

#[test]
fn otlp_responses_follow_the_specification() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::with_config("[ingest]\npacket_bytes_max = 100000\n");
    let server = Server::start(folder.path(), &settings);
    let mut api = server.api();
    let check = |api: &mut Api, kind: &str, body: &[u8], status: u16| -> Response {
        let response = send(api, kind, body);
        assert_eq!(response.status, status, "{kind}: {}", response.brief());
        if status != 415 {
            assert_eq!(
                response.header("content-type"),
                Some(kind),
                "{}",
                response.brief()
            );
        }
        response
    };
    let (protobuf, json) = ("application/x-protobuf", "application/json");
    // An empty request is valid.
    assert!(check(&mut api, protobuf, b"", 200).body.is_empty());
    assert_eq!(check(&mut api, json, b"{}", 200).body, b"{}");
    check(&mut api, "text/plain", b"", 415);
    // A permanent refusal has the format of the request.
    let refused = check(&mut api, json, b"{", 400).json();
    assert_eq!(refused["code"], 3, "{refused}");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .starts_with("otlp_malformed")
    );
    let refused = check(&mut api, protobuf, &[0x0a, 9], 400).body;
    assert_eq!(refused[..3], [0x08, 3, 0x12]);
    // Spans without ids are dropped, the others are accepted.
    let bad = request("shop", &[span(1, 0, 0, "bad"), span(1, 1, 0, "good")]);
    let partial = check(&mut api, json, bad.as_bytes(), 200).json();
    assert_eq!(partial["partialSuccess"]["rejectedSpans"], "1", "{partial}");
    // Too large, also after decompression.
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(200_000));
    check(&mut api, json, large.as_bytes(), 413);
    let small = request("shop", &[span(1, 1, 0, "good")]);
    for (text, status) in [(large.as_bytes(), 413), (small.as_bytes(), 200)] {
        let zstd = zstd::stream::encode_all(text, 1).unwrap();
        for (coding, body) in [("zstd", zstd), ("gzip", gzip(text))] {
            let request = Request::new("POST", "/v1/traces")
                .header("content-type", json)
                .header("content-encoding", coding)
                .body(&body);
            // A body that is refused before its end closes the connection.
            let response = server.api().send(&request).unwrap();
            assert_eq!(response.status, status, "{coding}: {}", response.brief());
        }
    }
}

#[test]
fn retryable_refusals_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[ingest]\npacket_bytes_max = 16384\nin_flight_bytes_max = 16384\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    // The head of a request occupies the entire capacity, and its body does not arrive.
    let mut blocker = server.connect();
    let head = "POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
                content-length: 16384\r\n\r\n{";
    blocker.write(&[head.as_bytes()]).unwrap();
    let mut api = server.api();
    let begin = Instant::now();
    let busy = loop {
        let small = request("shop", &[span(1, 1, 0, "x")]);
        let response = send(&mut api, "application/json", small.as_bytes());
        if response.status != 200 {
            break response;
        }
        assert!(begin.elapsed() < LIMIT, "the capacity is never occupied");
    };
    assert_eq!(busy.status, 429, "{}", busy.brief());
    assert!(busy.header("retry-after").is_some(), "{}", busy.brief());
    assert_eq!(busy.json()["code"], 8);
}

#[test]
fn a_trigger_includes_packets_from_before_it() {
    let (_folder, _server, mut api) = Server::fresh();
    let body = json!({
        "processors": saver(),
        "agents": ["shop"],
        "trigger": { "query": "name == 'boom'" },
    });
    let (id, storage) = record(&mut api, body);
    for trace in 1..=5 {
        send_spans(&mut api, "shop", &[span(trace, 1, 0, "calm")]);
        send_spans(&mut api, "other", &[span(trace, 1, 0, "boom")]);
    }
    let waiting = api.done("GET", &format!("/recordings/{id}"), None);
    assert_eq!(waiting["state"], "SCHEDULED", "{waiting}");
    assert!(packets(&mut api, &storage).is_empty());
    send_spans(&mut api, "shop", &[span(6, 1, 0, "boom")]);
    wait_for(&mut api, &id, "ON");
    send_spans(&mut api, "shop", &[span(7, 1, 0, "after")]);
    stop(&mut api, &id);
    let names: Vec<_> = (spans(&mut api, &storage)["traces"].iter())
        .map(|row| row["name"].clone())
        .collect();
    assert_eq!(
        names,
        ["calm", "calm", "calm", "calm", "calm", "boom", "after"]
    );
}

#[test]
fn recordings_survive_a_restart() {
    let (folder, mut server, mut api) = Server::fresh();
    let chain = json!([{ "type": "saver" }, { "type": "invocation_cloner" }]);
    let (on, storage) = record_now(&mut api, json!({ "processors": chain }));
    let late = json!({ "processors": saver(), "delay_seconds": 3600, "auto_finalize": true });
    let (scheduled, _) = record(&mut api, late);
    let planned = api.done("GET", &format!("/recordings/{scheduled}"), None)["started"].clone();
    let short = json!({ "processors": saver(), "duration_seconds": 1, "auto_finalize": true });
    let (ending, ended_storage) = record(&mut api, short);
    send_spans(&mut api, "shop", &[span(1, 1, 0, "before")]);
    drop(api);
    server.terminate();
    assert!(server.wait(LIMIT).success(), "{}", server.log());
    let mut server = Server::start(folder.path(), &Settings::default());
    let mut api = server.api();
    wait_for(&mut api, &on, "ON");
    send_spans(&mut api, "shop", &[span(2, 1, 0, "between")]);
    // Its duration continued while the server was down.
    let ended = wait_for(&mut api, &ending, "OFF");
    assert_eq!(ended["reason"], "the duration is over", "{ended}");
    assert_eq!(api.state(&ended_storage), "FINALIZED");
    let shown = api.done("GET", &format!("/recordings/{scheduled}"), None);
    assert_eq!(
        (&shown["state"], &shown["started"]),
        (&json!("SCHEDULED"), &planned)
    );
    // Also after a kill: what was acknowledged is there.
    drop(api);
    server.kill();
    let server = Server::start(folder.path(), &Settings::default());
    let mut api = server.api();
    wait_for(&mut api, &on, "ON");
    send_spans(&mut api, "shop", &[span(3, 1, 0, "after")]);
    stop(&mut api, &on);
    stop(&mut api, &scheduled);
    let streams = spans(&mut api, &storage);
    let names: Vec<_> = streams["traces"]
        .iter()
        .map(|row| row["name"].as_str())
        .collect();
    assert_eq!(names, ["before", "between", "after"]);
    // The orderly shutdown wrote what was pending; the crash lost at most what was derived from the
    // second request.
    let clones: Vec<_> = streams["traces.clones"]
        .iter()
        .map(|row| row["name"].as_str())
        .collect();
    assert!(
        clones.contains(&"before") && clones.contains(&"after"),
        "{clones:?}"
    );
    api.finalize(&storage);
    assert!(api.verify(&storage).is_empty());
}

#[test]
fn copying_the_buffer_applies_processors() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[recording]\nbuffer_bytes_max = 100000\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let mut api = server.api();
    for trace in 1..=10 {
        send_spans(
            &mut api,
            "shop",
            &[span(trace, 1, 0, "buy"), span(trace, 2, 1, "look")],
        );
        send_spans(&mut api, "pump", &[span(trace, 1, 0, "fill")]);
    }
    assert_eq!(api.done("GET", "/buffer", None)["packets"], 20);
    let copy = json!({
        "name": "copy",
        "agents": ["shop"],
        "query": "name == 'look'",
        "processors": [{ "type": "saver" }, { "type": "invocation_cloner" }],
        "auto_finalize": true,
    });
    let copied = api.done("POST", "/buffer/copy", Some(&copy));
    assert_eq!(copied["chosen_packets"], 10, "{copied}");
    let storage = copied["storage"].as_str().unwrap();
    assert_eq!(api.state(storage), "FINALIZED");
    let streams = spans(&mut api, storage);
    assert_eq!(streams["traces"].len(), 10);
    assert!(streams["traces"].iter().all(|row| row["name"] == "look"));
    // The invocations matched and were cloned with their roots.
    assert!(
        streams["traces.clones"]
            .iter()
            .all(|row| row["name"] == "buy")
    );
    assert_eq!(streams["traces.clones"].len(), 10);
    // The buffer is full: the oldest packets are gone.
    for trace in 1..=1000 {
        send_spans(&mut api, "pump", &[span(trace, 1, 0, "fill")]);
    }
    let status = api.done("GET", "/buffer", None);
    assert!(status["bytes"].as_u64().unwrap() <= 100_000, "{status}");
    let copy = json!({ "agents": ["shop"] });
    assert_eq!(
        api.done("POST", "/buffer/copy", Some(&copy))["chosen_packets"],
        0
    );
}

/// Pushes one packet through the recordings.
fn push(api: &mut Api, stream: &str, place: (u64, u64), packet: &[u8]) -> Response {
    let path = format!("/api/v1/agents/host/streams/{stream}/packets");
    let request = Request::new("POST", &path)
        .header("content-type", "application/octet-stream")
        .header("tracehold-epoch", place.0)
        .header("tracehold-sequence", place.1)
        .body(packet);
    api.send(&request).unwrap()
}

#[test]
fn a_packet_gets_a_receipt_from_each_storage() {
    let (_folder, _server, mut api) = Server::fresh();
    api.done(
        "PUT",
        "/agents/host",
        Some(&json!({ "name": "host", "host": "h" })),
    );
    api.done(
        "PUT",
        "/agents/host/streams/s",
        Some(&json!({ "kind": "raw" })),
    );
    let receipts = |response: &Response| response.json()["receipts"].as_array().unwrap().clone();
    // No recording matches: it is in the buffer.
    let first = receipts(&push(&mut api, "s", (1, 0), b"zero"));
    assert_eq!((first.len(), &first[0]["durable"]), (1, &json!(false)));
    let (one, one_storage) = record_now(&mut api, json!({ "processors": saver() }));
    let second = receipts(&push(&mut api, "s", (1, 1), b"one"));
    assert_eq!(
        (second.len(), &second[0]["storage"]),
        (1, &json!(one_storage))
    );
    let (two, two_storage) = record_now(&mut api, json!({ "processors": saver() }));
    let third = receipts(&push(&mut api, "s", (1, 2), b"two"));
    assert!(third.len() == 2 && third.iter().all(|receipt| receipt["durable"] == true));
    // A duplicate gets the first receipts again, from wherever the packet is.
    let again = receipts(&push(&mut api, "s", (1, 1), b"one"));
    assert_eq!(again.len(), 1, "{again:?}");
    assert_eq!(
        (&again[0]["duplicate"], &again[0]["number"]),
        (&json!(true), &second[0]["number"])
    );
    // A gap is refused with the expected sequence.
    let gap = push(&mut api, "s", (1, 9), b"nine");
    assert_eq!(
        (gap.status, &gap.json()["expected_sequence"]),
        (409, &json!(3))
    );
    let head = Request::new("HEAD", "/api/v1/agents/host/streams/s/packets");
    let head = api.send(&head).unwrap();
    assert_eq!(head.header("tracehold-next-sequence"), Some("3"));
    assert_eq!(head.header("tracehold-epoch"), Some("1"));
    // Only one recording at a time writes to a storage.
    let refused_start = api.refused(
        "POST",
        "/recordings",
        Some(&json!({ "storage": two_storage })),
    );
    assert_eq!(refused_start.status, 409, "{refused_start:?}");
    stop(&mut api, &one);
    stop(&mut api, &two);
    assert_eq!(packets(&mut api, &one_storage).len(), 2);
    assert_eq!(api.packet(&two_storage, 0), b"two");
    let refused = api.refused("POST", "/recordings", Some(&json!({ "processors": [] })));
    assert_eq!(refused.code, "recording_invalid", "{refused:?}");
}

#[test]
fn the_opentelemetry_sdk_can_send_spans() {
    let Some(python) = opentelemetry_python() else {
        return;
    };
    let (_folder, server, mut api) = Server::fresh();
    let (id, storage) = record_now(&mut api, json!({ "name": "sdk" }));
    let mut expected = BTreeMap::<String, u64>::new();
    for (rounds, compression) in [(40, "none"), (60, "gzip")] {
        let output = Command::new(&python)
            .arg(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/data/opentelemetry_sender.py"
            ))
            .args([
                &format!("{}/v1/traces", server.url()),
                &rounds.to_string(),
                compression,
            ])
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}{complaint}");
        let sent: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(sent["failed"], 0, "{sent} {complaint}");
        for field in ["roots", "spans", "errors", "exceptions"] {
            *expected.entry(field.to_owned()).or_default() += sent[field].as_u64().unwrap();
        }
        for (name, count) in sent["names"].as_object().unwrap() {
            *expected.entry(format!("name {name}")).or_default() += count.as_u64().unwrap();
        }
    }
    stop(&mut api, &id);
    let agents: Vec<_> = packets(&mut api, &storage)
        .into_iter()
        .map(|(agent, ..)| agent)
        .collect();
    assert!(agents.iter().all(|agent| agent == "peer"), "{agents:?}");
    let streams = spans(&mut api, &storage);
    let count = |stream: &str| streams[stream].len() as u64;
    let of = |field: &str| expected[field];
    assert_eq!(count("traces"), of("spans"));
    assert_eq!(count("traces.clones"), of("roots"));
    assert_eq!(count("traces.spans"), of("spans") - of("roots"));
    assert_eq!(count("traces.exceptions"), of("exceptions"));
    let errors = streams["traces"]
        .iter()
        .filter(|row| row["args.status"] == "error");
    assert_eq!(errors.count() as u64, of("errors"));
    let exceptions = &streams["traces.exceptions"];
    assert!(exceptions.iter().all(|row| row["name"] == "ValueError"));
    assert!(
        exceptions
            .iter()
            .all(|row| row["args.exception.message"] == "card refused")
    );
    assert!(
        streams["traces.clones"]
            .iter()
            .all(|row| row["args.http.route"] == "/cart")
    );
    let mut groups = BTreeMap::<&str, [u64; 3]>::new();
    for row in &streams["traces.aggregates"] {
        let group = groups.entry(&row["name"]).or_default();
        for (sum, field) in group.iter_mut().zip(["count", "sum", "exclusive"]) {
            *sum += row[&format!("args.{field}")].parse::<u64>().unwrap();
        }
    }
    for (name, [counted, sum, exclusive]) in &groups {
        assert_eq!(*counted, of(&format!("name {name}")), "{name}");
        let durations = streams["traces"].iter().filter(|row| row["name"] == *name);
        let total: u64 = durations
            .map(|row| row["dur"].parse::<u64>().unwrap())
            .sum();
        assert_eq!(*sum, total, "{name}");
        assert!(exclusive <= sum, "{name}");
    }
    assert_eq!(groups.len(), 4, "{groups:?}");
}

#[test]
fn the_command_line_controls_recordings() {
    let (_folder, server, mut api) = Server::fresh();
    let run = |words: &[&str]| -> String {
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        words.extend(["--server".to_owned(), server.url(), "--json".to_owned()]);
        let output = harness::run_tracehold(&words);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{words:?}: {printed}{:?}",
            output.stderr
        );
        printed
    };
    let started: Value = serde_json::from_str(&run(&["record", "start", "--name", "cli"])).unwrap();
    let id = started["id"].as_str().unwrap();
    wait_for(&mut api, id, "ON");
    send_spans(&mut api, "shop", &[span(1, 1, 0, "buy")]);
    let list: Value = serde_json::from_str(&run(&["record", "list"])).unwrap();
    assert_eq!(list["items"][0]["counts"]["packets"], 1, "{list}");
    let stopped: Value = serde_json::from_str(&run(&["record", "stop", id])).unwrap();
    assert_eq!(stopped["state"], "OFF", "{stopped}");
    let storage = stopped["storage"].as_str().unwrap();
    assert_eq!(api.storage(storage)["name"], "cli");
}
