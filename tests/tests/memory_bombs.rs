//! Requests that are small on the wire and would be huge in memory.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use harness::{Request, Server, Settings};

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
