//! `Prefer: respond-async`: such packets are accepted without delay, dropped in favour of others,
//! and counted.

use std::collections::BTreeMap;
use std::time::Instant;

use harness::{Agent, Api, Request, Response, Server, Settings, payload};
use serde_json::Value;

use super::recording::{LIMIT, record_now, saver, stop};

const PACKET_BYTES: usize = 16 << 10;
/// Capacity for sixteen packets, and a disk that syncs twice a second.
const CONFIG: &str = "[ingest]\npacket_bytes_max = 65536\nin_flight_bytes_max = 262144\n\
                      [storage]\ncommit_window_microseconds = 500000\n";

fn push(api: &mut Api, path: &str, stream: u64, sequence: u64, waits: bool) -> Response {
    let packet = payload(stream, sequence, PACKET_BYTES);
    let request = Request::new("POST", path)
        .header("content-type", "application/octet-stream")
        .header("tracehold-epoch", 1)
        .header("tracehold-sequence", sequence)
        .body(&packet);
    let request = if waits {
        request
    } else {
        request.header("prefer", "respond-async")
    };
    api.send(&request).unwrap()
}

/// Sends droppable packets until the storage has dropped some; returns how many were accepted.
fn push_until_dropped(api: &mut Api, storage: &str, path: &str, durable: &str) -> u64 {
    let begin = Instant::now();
    let (mut accepted, mut durable_next) = (0, 0);
    loop {
        let response = push(api, path, 1, accepted, false);
        match response.status {
            202 => {
                let receipt = &response.json()["receipts"][0];
                assert_eq!(receipt["durable"], false, "{receipt}");
                assert_eq!(response.header("preference-applied"), Some("respond-async"));
                accepted += 1;
            }
            // Durable packets occupy the rest of the capacity.
            429 => assert!(response.header("retry-after").is_some()),
            _ => panic!("{}", response.brief()),
        }
        if accepted % 50 == 49 {
            // Meanwhile durable packets are accepted.
            let response = push(api, durable, 2, durable_next, true);
            assert_eq!(response.status, 200, "{}", response.brief());
            assert_eq!(response.json()["receipts"][0]["durable"], true);
            durable_next += 1;
            let status = api.status(storage);
            if status["dropped_packets"].as_u64().unwrap() > 0 {
                return accepted;
            }
        }
        assert!(begin.elapsed() < LIMIT, "nothing is ever dropped");
    }
}

/// The sequences of the packets of each stream, whose payloads are complete.
fn stored(api: &mut Api, storage: &str, accepted: u64) -> BTreeMap<String, Vec<u64>> {
    let mut found = BTreeMap::<String, Vec<u64>>::new();
    for (_, stream, number) in harness::spans::packets(api, storage) {
        let packet = api.packet(storage, number);
        let of = if stream == "async" { 1 } else { 2 };
        let sequence = (0..=accepted).find(|at| packet == payload(of, *at, PACKET_BYTES));
        found.entry(stream).or_default().push(sequence.unwrap());
    }
    found
}

fn check_counts(api: &mut Api, storage: &str, accepted: u64) {
    let status = api.status(storage);
    let list = status["dropped"].as_array().unwrap();
    let [of_stream] = list.as_slice() else {
        panic!("only one stream dropped packets: {status}");
    };
    let number = |value: &Value| value.as_u64().unwrap();
    let dropped = number(&of_stream["packets"]);
    assert_eq!(
        (of_stream["agent"].as_str(), of_stream["stream"].as_str()),
        (Some("host"), Some("async")),
        "{of_stream}"
    );
    assert_eq!(number(&status["dropped_packets"]), dropped);
    assert_eq!(
        number(&of_stream["bytes"]),
        dropped * PACKET_BYTES as u64,
        "{status}"
    );
    assert_eq!(number(&of_stream["next_sequence"]), accepted);
    let agent = api.done("GET", "/agents/host", None);
    let activity = &agent["streams"][0]["activity"];
    assert_eq!(activity["dropped_packets"], dropped, "{agent}");
    assert_eq!(activity["dropped_bytes"], of_stream["bytes"], "{agent}");
    let found = stored(api, storage, accepted);
    let stored_sequences = &found["async"];
    assert!(stored_sequences.is_sorted(), "{stored_sequences:?}");
    assert_eq!(
        stored_sequences.len() as u64 + dropped,
        accepted,
        "{stored_sequences:?}"
    );
    let durable = &found["durable"];
    assert!(durable.iter().copied().eq(0..durable.len() as u64));
}

#[test]
fn droppable_packets_give_way_and_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::with_config(CONFIG));
    let mut api = server.api();
    let storage = api.create_storage("choice");
    for stream in ["async", "durable"] {
        Agent::declare(&mut api, &storage, "host", stream, "none");
    }
    let path =
        |stream: &str| format!("/api/v1/storages/{storage}/agents/host/streams/{stream}/packets");
    let path = [path("async"), path("durable")];
    let accepted = push_until_dropped(&mut api, &storage, &path[0], &path[1]);
    // A gap left by the producer is refused at once, and a duplicate is recognized.
    let gap = push(&mut api, &path[0], 1, accepted + 3, false);
    assert_eq!(gap.status, 409, "{}", gap.brief());
    assert_eq!(gap.json()["expected_sequence"], accepted);
    let repeat = push(&mut api, &path[0], 1, accepted - 1, false);
    assert_eq!(repeat.json()["receipts"][0]["duplicate"], true);
    // A durable packet follows everything that was accepted, across the gap.
    let durable = push(&mut api, &path[0], 1, accepted, true);
    assert_eq!(durable.status, 200, "{}", durable.brief());
    check_counts(&mut api, &storage, accepted + 1);
    // Dropped packets can no longer be sent, and the producer gets the expected sequence.
    let stored_sequences = &stored(&mut api, &storage, accepted)["async"];
    let missing = (0..accepted)
        .find(|at| !stored_sequences.contains(at))
        .unwrap();
    let late = push(&mut api, &path[0], 1, missing, true);
    assert_eq!(late.status, 409, "{}", late.brief());
    assert_eq!(late.json()["code"], "packet_left_out");
    assert_eq!(late.json()["expected_sequence"], accepted + 1);
    let dropped = api.status(&storage)["dropped_packets"].as_u64().unwrap();
    let counted = api.metric("tracehold_storage_packets_dropped_total");
    assert_eq!(counted, dropped as f64);
    // Packets accepted before finalization are part of the finalized storage.
    let last = push(&mut api, &path[0], 1, accepted + 1, false);
    assert_eq!(last.status, 202, "{}", last.brief());
    api.finalize(&storage);
    let found = stored(&mut api, &storage, accepted + 1);
    assert_eq!(found["async"].last(), Some(&(accepted + 1)));
    assert!(api.verify(&storage).is_empty());
}

#[test]
fn recordings_accept_droppable_packets() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::with_config(CONFIG));
    let mut api = server.api();
    let chain = serde_json::json!({ "processors": saver() });
    let (id, storage) = record_now(&mut api, chain);
    for stream in ["async", "durable"] {
        Agent::declare(&mut api, &storage, "host", stream, "none");
    }
    let path = ["async", "durable"].map(|s| format!("/api/v1/agents/host/streams/{s}/packets"));
    let accepted = push_until_dropped(&mut api, &storage, &path[0], &path[1]);
    let durable = push(&mut api, &path[0], 1, accepted, true);
    assert_eq!(durable.status, 200, "{}", durable.brief());
    check_counts(&mut api, &storage, accepted + 1);
    stop(&mut api, &id);
    api.finalize(&storage);
    assert!(api.verify(&storage).is_empty());
}
