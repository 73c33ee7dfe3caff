//! Requests that are small on the wire and would be huge in memory.

use std::io::Write as _;
use std::sync::Barrier;
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use harness::{Agent, Request, Server, Settings};

use crate::otlp_grpc::{EXPORT, call, framed, status};

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
fn millions_of_empty_resources_over_grpc_are_refused() {
    let (_folder, server, _api) = Server::fresh();
    let bomb = framed(1, &gzip(b"\n\0", 30_000_000, "", ""));
    assert!(bomb.len() < 70_000, "{}", bomb.len());
    for _ in 0..3 {
        let refused = call(server.address(), EXPORT, ("grpc-encoding", "gzip"), &bomb);
        assert_eq!(status(&refused).0, 3, "{}", refused.brief());
    }
    let peak = server.peak_bytes();
    println!("peak {} MiB", peak >> 20);
    assert!(peak < PEAK_BYTES_MAX, "{} MiB", peak >> 20);
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

/// The next request of a connection is behind the rest of a body, which nobody wants.
#[test]
fn a_refusal_before_the_end_of_a_body_closes_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::with_config("[ingest]\npacket_bytes_max = 100000\n");
    let server = Server::start(folder.path(), &settings);
    let head = "POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-protobuf\r\n";
    let inflated = gzip(b"a", 200_000, "", "");
    let length = inflated.len();
    for (fields, body, is_closed) in [
        ("content-length: 100001\r\n\r\n".to_owned(), &b""[..], true),
        ("content-length: 100001\r\n\r\n".to_owned(), b"abc", true),
        (
            format!("content-encoding: gzip\r\ncontent-length: {length}\r\n\r\n"),
            &inflated[..],
            false,
        ),
    ] {
        let mut connection = server.connect();
        let sent = [head.as_bytes(), fields.as_bytes(), body].concat();
        connection.write(&[&sent]).unwrap();
        let refused = connection.read_response(false).unwrap();
        assert_eq!(refused.status, 413, "{}", refused.brief());
        let closes = refused.header("connection") == Some("close");
        assert_eq!(closes, is_closed, "{}", refused.brief());
        if !is_closed {
            let next = connection.send(&Request::new("GET", "/livez")).unwrap();
            assert_eq!(next.status, 200);
        }
    }
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

/// The memory of a packet of unknown length grows in steps, the last of which must not count more
/// than the packet may have.
#[test]
fn packets_of_unknown_length_are_accepted_up_to_their_limit() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("large");
    let agent = Agent::declare(&mut api, &storage, "large", "s", "none");
    for (sequence, size, encoding, wanted) in [
        (0, 10 << 20, "gzip", 200),
        (1, 16 << 20, "zstd", 200),
        (2, (16 << 20) + 1, "zstd", 413),
    ] {
        let body = encode(encoding, &vec![7; size]);
        let request = Request::new("POST", agent.path())
            .header("content-type", "application/octet-stream")
            .header("content-encoding", encoding)
            .header("tracehold-epoch", 1)
            .header("tracehold-sequence", sequence)
            .body(&body);
        let answer = server.connect().send(&request).unwrap();
        let case = answer.brief();
        assert_eq!(answer.status, wanted, "{size} {encoding}: {case}");
    }
    let bomb = framed(1, &gzip(b"\0", 70_000_000, "", ""));
    let call = call(server.address(), EXPORT, ("grpc-encoding", "gzip"), &bomb);
    // Too large, and never too much at once.
    assert_eq!(status(&call).0, 3, "{}", call.brief());
}

fn encode(encoding: &str, plain: &[u8]) -> Vec<u8> {
    match encoding {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        }
        _ => zstd::encode_all(plain, 1).unwrap(),
    }
}
