//! A server keeps the spans that arrive without a request to do so, within bounds of bytes and age,
//! and says which spans it does not keep.

use std::time::Instant;

use harness::spans::{TestSpan, packets, request, send, send_spans};
use harness::{Api, Server, Settings};
use serde_json::{Value, json};

use super::recording::{LIMIT, record_now, saver, span, stop};

/// The storages of the standing recording, oldest first.
fn storages(api: &mut Api) -> Vec<Value> {
    let all = api.done("GET", "/storages?limit=1000", None);
    let is_standing = |storage: &&Value| storage["name"].as_str().unwrap().starts_with("spans-");
    let all = all["items"].as_array().unwrap();
    all.iter().filter(is_standing).cloned().collect()
}

fn id(storage: &Value) -> &str {
    storage["id"].as_str().unwrap()
}

fn poll<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < LIMIT, "nothing changed");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_fresh_server_keeps_spans() {
    let (_folder, mut server, mut api) = Server::fresh();
    assert!(storages(&mut api).is_empty(), "no span, no storage");
    send_spans(&mut api, "shop", &[span(1, 1, 0, "first")]);
    let list = api.done("GET", "/recordings", None)["items"].clone();
    assert_eq!(list[0]["standing"], true, "{list}");
    assert_eq!(list[0]["state"], "ON", "{list}");
    let [storage] = &storages(&mut api)[..] else {
        panic!("one storage");
    };
    assert_eq!(storage["state"], "RECORDING");
    // Acknowledged is durable, and the same recording continues after a crash.
    drop(api);
    server.kill();
    server.restart();
    let mut api = server.api();
    send_spans(&mut api, "shop", &[span(2, 1, 0, "second")]);
    let stored = packets(&mut api, id(storage));
    let days = storages(&mut api).len();
    assert!(stored.len() == 2 || days == 2, "{stored:?}, {days} days");
    assert_eq!(api.metric("tracehold_ingest_spans_accepted_total"), 1.0);
    // Stopped by request, it is off for the rest of its period.
    let list = api.done("GET", "/recordings", None)["items"].clone();
    let running = list.as_array().unwrap().last().unwrap()["id"].clone();
    stop(&mut api, running.as_str().unwrap());
    let body = request("shop", &[span(3, 1, 0, "third")]);
    let answer = send(&mut api, "application/json", body.as_bytes()).json();
    if storages(&mut api).len() == days {
        assert_eq!(answer["partialSuccess"]["rejectedSpans"], "1", "{answer}");
    }
}

#[test]
fn spans_that_no_recording_accepts_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        folder.path(),
        &Settings::with_config("[recording]\nstanding = false\n"),
    );
    let mut api = server.api();
    let good: Vec<TestSpan> = (1..=3).map(|id| span(1, id, 0, "lost")).collect();
    let bad = [&good[..], &[span(1, 0, 0, "bad")]].concat();
    for (spans, rejected, part) in [(&good, 3, "record start"), (&bad, 4, "span id is not 8")] {
        let body = request("shop", spans);
        let answer = send(&mut api, "application/json", body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.brief());
        let partial = answer.json()["partialSuccess"].clone();
        assert_eq!(partial["rejectedSpans"], rejected.to_string(), "{partial}");
        assert!(
            partial["errorMessage"].as_str().unwrap().contains(part),
            "{partial}"
        );
        let protobuf = trace_kinds::otlp::to_protobuf(body.as_bytes()).unwrap();
        let answer = send(&mut api, "application/x-protobuf", &protobuf).body;
        // Field 1, a message with a length of two bytes: field 1, the number of spans.
        assert_eq!((answer[0], &answer[3..5]), (0x0a, &[8, rejected][..]));
    }
    assert!(storages(&mut api).is_empty());
    assert_eq!(api.metric("tracehold_ingest_spans_rejected_total"), 14.0);
    assert_eq!(api.metric("tracehold_ingest_spans_accepted_total"), 0.0);
    let (recording, _) = record_now(&mut api, json!({ "processors": saver() }));
    send_spans(&mut api, "shop", &good);
    assert_eq!(api.metric("tracehold_ingest_spans_accepted_total"), 3.0);
    stop(&mut api, &recording);
    // The storage is deleted under the recording: nothing is accepted and lost.
    let (_, storage) = record_now(&mut api, json!({ "processors": saver() }));
    api.done("DELETE", &format!("/storages/{storage}"), None);
    let answer = send(
        &mut api,
        "application/json",
        request("shop", &good).as_bytes(),
    );
    let partial = answer.json()["partialSuccess"].clone();
    assert_eq!(partial["rejectedSpans"], "3", "{partial}");
    // A recording that waits for its trigger will have them.
    let armed = json!({ "processors": saver(), "trigger": { "query": "name == 'boom'" } });
    api.done("POST", "/recordings", Some(&armed));
    send_spans(&mut api, "shop", &good);
}

#[test]
fn a_new_storage_begins_with_each_period() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::with_config("[recording]\nstanding_period_seconds = 1\n");
    let server = Server::start(folder.path(), &settings);
    let mut api = server.api();
    let mut sent = 0;
    while storages(&mut api).len() < 3 {
        sent += 1;
        send_spans(&mut api, "shop", &[span(sent, 1, 0, "kept")]);
    }
    poll(|| {
        let all = storages(&mut api);
        let is_finalized = |storage: &Value| storage["state"] == "FINALIZED";
        all.iter().all(is_finalized).then_some(())
    });
    let all = storages(&mut api);
    let stored: usize = (all.iter())
        .map(|storage| packets(&mut api, id(storage)).len())
        .sum();
    assert_eq!(stored as u64, sent, "each span is in one storage");
}

#[test]
fn old_storages_of_spans_are_deleted() {
    let check = |bound: &str| {
        let folder = tempfile::tempdir().unwrap();
        let config = format!("[recording]\nstanding_period_seconds = 1\n{bound}\n");
        let mut server = Server::start(folder.path(), &Settings::with_config(&config));
        let mut api = server.api();
        let unrelated = api.create_storage("spans-1999-01-01");
        send_spans(&mut api, "shop", &[span(1, 1, 0, "labelled")]);
        let kept = storages(&mut api)
            .into_iter()
            .find(|each| id(each) != unrelated);
        let kept = id(&kept.unwrap()).to_owned();
        api.done(
            "PATCH",
            &format!("/storages/{kept}"),
            Some(&json!({ "labels": { "rating": "5" } })),
        );
        let mut seen = std::collections::BTreeSet::new();
        let mut trace = 1;
        let is_one_gone = |api: &mut Api, seen: &mut std::collections::BTreeSet<String>| {
            let all: Vec<String> = (storages(api).iter())
                .map(|each| id(each).to_owned())
                .collect();
            seen.extend(all.iter().cloned());
            seen.iter().any(|each| !all.contains(each))
        };
        poll(|| {
            trace += 1;
            send_spans(&mut api, "shop", &[span(trace, 1, 0, "deleted")]);
            is_one_gone(&mut api, &mut seen).then_some(())
        });
        // The list survives a restart.
        drop(api);
        server.terminate();
        assert!(server.wait(LIMIT).success());
        server.restart();
        let mut api = server.api();
        poll(|| (storages(&mut api).len() == 2).then_some(()));
        let left: Vec<_> = storages(&mut api);
        let left: Vec<_> = left.iter().map(id).collect();
        assert!(left.contains(&kept.as_str()), "a label protects");
        assert!(left.contains(&unrelated.as_str()), "only its own storages");
    };
    check("standing_bytes_max = 1");
    check("standing_age_seconds_max = 1");
}

#[test]
fn the_storage_being_filled_is_listed_again_after_damage() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let mut api = server.api();
    let unrelated = api.create_storage("spans-1999-01-01");
    send_spans(&mut api, "shop", &[span(1, 1, 0, "kept")]);
    drop(api);
    server.kill();
    let list = server.data().join("standing_storages.json");
    std::fs::write(&list, "{").unwrap();
    server.restart();
    assert_eq!(storages(&mut server.api()).len(), 2);
    server.kill();
    let settings = Settings::with_config(
        "[recording]\nstanding_period_seconds = 1\nstanding_age_seconds_max = 1\n",
    );
    let server = Server::start(folder.path(), &settings);
    let mut api = server.api();
    poll(|| (storages(&mut api).len() == 1).then_some(()));
    assert_eq!(id(&storages(&mut api)[0]), unrelated);
}
