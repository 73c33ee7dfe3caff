//! Requests that can be parsed in two ways are refused, and the connection is closed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use harness::{Server, Settings};

/// The statuses of all responses on a connection that sends these bytes, and whether it was closed.
fn exchange(server: &Server, request: &[u8]) -> (Vec<u16>, bool) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    // The server may close the connection before everything is written.
    stream.write_all(request).ok();
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    let closed = loop {
        match stream.read(&mut buffer) {
            Ok(0) => break true,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) => break error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    };
    let text = String::from_utf8_lossy(&answer);
    let statuses = text
        .match_indices("HTTP/1.1 ")
        .filter_map(|(at, mark)| text.get(at + mark.len()..at + mark.len() + 3)?.parse().ok());
    (statuses.collect(), closed)
}

#[test]
fn ambiguous_requests_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let post = "POST /api/v1/storages HTTP/1.1\r\n";
    let many: String = (0..200).map(|number| format!("h{number}: 1\r\n")).collect();
    let call = "Content-Type: application/grpc\r\n";
    let chunks = "Transfer-Encoding: chunked\r\n";
    let padding = " ".repeat(200);
    let zeros = "0".repeat(200);
    let cases: [(&str, String, &[u16]); 26] = [
        ("length and chunks", format!("{post}Host: x\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX"), &[400]),
        ("chunks and a length with a sign", format!("{post}Host: x\r\n{chunks}Content-Length: +6\r\n\r\n0\r\n\r\nX"), &[400]),
        ("chunks and no length", format!("{post}Host: x\r\n{chunks}Content-Length:\r\n\r\n0\r\n\r\nX"), &[400]),
        ("chunks and two lengths", format!("{post}Host: x\r\n{chunks}Content-Length: 6, 6\r\n\r\n0\r\n\r\nX"), &[400]),
        ("chunks and a padded length", format!("{post}Host: x\r\n{chunks}Content-Length:{padding}6\r\n\r\n0\r\n\r\nX"), &[400]),
        ("a padded length", format!("{post}Host: x\r\nContent-Length: {zeros}3\r\n\r\nabc"), &[400]),
        ("an unknown transfer coding", format!("{post}Host: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"), &[400, 501]),
        ("chunked not last", format!("{post}Host: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"), &[400, 501]),
        ("a space before the colon", format!("{post}Host: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n"), &[400]),
        ("two transfer codings", format!("{post}Host: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"), &[400, 501]),
        ("two lengths", format!("{post}Host: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), &[400]),
        ("a length with a sign", format!("{post}Host: x\r\nContent-Length: +3\r\n\r\nabc"), &[400]),
        ("a huge length", format!("{post}Host: x\r\nContent-Length: 18446744073709551616\r\n\r\nabc"), &[400, 413]),
        ("a negative length", format!("{post}Host: x\r\nContent-Length: -1\r\n\r\nabc"), &[400]),
        ("a folded header", format!("{post}Host: x\r\nContent-Length:\r\n 3\r\n\r\nabc"), &[400]),
        ("a bare CR in a value", format!("{post}Host: x\r\nX: a\rb\r\nContent-Length: 3\r\n\r\nabc"), &[400]),
        ("a NUL in a value", format!("{post}Host: x\r\nX: a\0b\r\nContent-Length: 3\r\n\r\nabc"), &[400]),
        ("a chunk size beyond all", format!("{post}Host: x\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000003\r\nabc\r\n0\r\n\r\n"), &[400]),
        ("a chunk size with 0x", format!("{post}Host: x\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n"), &[400]),
        ("no host", format!("{post}Content-Length: 3\r\n\r\nabc"), &[400]),
        ("two hosts", format!("{post}Host: x\r\nHost: y\r\nContent-Length: 3\r\n\r\nabc"), &[400]),
        ("chunks in HTTP/1.0", "POST /api/v1/storages HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_owned(), &[400]),
        ("too many headers", format!("{post}Host: x\r\n{many}Content-Length: 3\r\n\r\nabc"), &[431]),
        ("a call of gRPC with length and chunks", format!("{post}Host: x\r\n{call}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX"), &[400]),
        ("a call of gRPC with too many headers", format!("{post}Host: x\r\n{call}{many}Content-Length: 3\r\n\r\nabc"), &[431]),
        ("a header beyond the limit", format!("{post}Host: x\r\nbig: {}\r\n\r\n", "a".repeat(600_000)), &[431]),
    ];
    for (name, request, wanted) in cases {
        let (statuses, closed) = exchange(&server, request.as_bytes());
        // The connection may be reset after an overlong header, before the response is read.
        let is_cut = statuses.is_empty() && closed;
        let is_refused = statuses.len() == 1 && wanted.contains(&statuses[0]);
        assert!(
            is_refused || is_cut,
            "{name}: {statuses:?}, wanted one of {wanted:?}"
        );
        assert!(closed, "{name}: the connection stays open");
    }
    // The server still serves requests after all of these.
    assert_eq!(
        exchange(
            &server,
            b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .0,
        [200]
    );
}
