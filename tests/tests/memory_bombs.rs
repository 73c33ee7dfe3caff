//! Requests that are small on the wire and would be huge in memory.

use std::io::Write as _;
use std::sync::Barrier;
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use harness::{Agent, Request, Server, Settings};

/// The server needs a few dozen MiB for itself, and its budget of packets in flight is 64 MiB.
const PEAK_BYTES_MAX: u64 = 400 << 20;

fn gzip(piece: &[u8], count: usize, before: &str, after: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(before.as_bytes()).unwrap();
    let block = piece.repeat(1000);
    for _ in 0..count / 1000 {
        encoder.write_all(&block).unwrap();
    }
    encoder.write_all(after.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Sends a request of spans: it must be refused, in bounded memory, and the next one be accepted.
fn check(media_type: &str, body: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let request = |body| {
        Request::new("POST", "/v1/traces")
            .header("content-type", media_type)
            .header("content-encoding", "gzip")
            .body(body)
    };
    let refused = server.connect().send(&request(body)).unwrap();
    assert!([400, 413].contains(&refused.status), "{}", refused.brief());
    let peak = server.peak_bytes();
    assert!(peak < PEAK_BYTES_MAX, "{} MiB", peak >> 20);
    let empty = if media_type.ends_with("json") {
        "{}"
    } else {
        ""
    };
    let accepted = server
        .connect()
        .send(&request(&gzip(b"", 0, empty, "")))
        .unwrap();
    assert_eq!(accepted.status, 200, "{}", accepted.brief());
}

#[test]
fn millions_of_empty_resources_in_protobuf_are_refused() {
    check("application/x-protobuf", &gzip(b"\n\0", 30_000_000, "", ""));
}

#[test]
fn millions_of_empty_resources_in_json_are_refused() {
    check(
        "application/json",
        &gzip(b"{},", 20_000_000, r#"{"resourceSpans":["#, "{}]}"),
    );
}

#[test]
fn millions_of_empty_spans_in_json_are_refused() {
    check(
        "application/json",
        &gzip(
            b"{},",
            20_000_000,
            r#"{"resourceSpans":[{"scopeSpans":[{"spans":["#,
            "{}]}]}]}",
        ),
    );
}

/// Requests that send their packets at once, and the packets of each.
const REQUESTS: usize = 40;
const PACKETS: usize = 65_536;

/// The bookkeeping of a packet is much larger than a packet of one byte. Each packet counts with
/// it against the budget, so requests wait instead of filling the memory; one that waits too long
/// is refused with the receipts of what it stored.
#[test]
fn millions_of_tiny_packets_wait_for_memory() {
    let (_folder, server, mut api) = Server::fresh();
    let storages: Vec<_> = (0..8)
        .map(|at| api.create_storage(&at.to_string()))
        .collect();
    let agents: Vec<_> = (0..REQUESTS)
        .map(|at| {
            let storage = &storages[at % storages.len()];
            Agent::declare(&mut api, storage, "many", &at.to_string(), "none")
        })
        .collect();
    let packets = vec![vec![7]; PACKETS];
    let start = Barrier::new(REQUESTS);
    let push = |agent: &Agent| {
        let mut api = server.api();
        start.wait();
        let response = agent.post_many(&mut api, 0, &packets).unwrap();
        let receipts = response.json()["receipts"].as_array().unwrap().len();
        match response.status {
            200 => assert_eq!(receipts, PACKETS),
            429 => assert!(receipts < PACKETS, "{}", response.brief()),
            _ => panic!("{}", response.brief()),
        }
        receipts
    };
    let stored: usize = thread::scope(|scope| {
        let pushing: Vec<_> = agents
            .iter()
            .map(|agent| scope.spawn(|| push(agent)))
            .collect();
        pushing.into_iter().map(|each| each.join().unwrap()).sum()
    });
    assert!(stored >= PACKETS, "{stored}");
    let peak = server.peak_bytes();
    println!("peak {} MiB, stored {stored}", peak >> 20);
    assert!(peak < 512 << 20, "{} MiB", peak >> 20);
}
