//! A response that is sent before the body of its request was read ends the connection, and says
//! so: the next request would be lost without a word.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use harness::{Server, Settings};

/// The status of the next response, and whether it says that the connection ends; `None` if it has
/// ended.
fn response(reader: &mut impl BufRead) -> Option<(u16, bool)> {
    let (mut head, mut line) = (String::new(), String::new());
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        head += &line.to_ascii_lowercase();
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head.split("content-length: ").nth(1).unwrap();
    let length = length.split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Some((status, head.contains("connection: close\r\n")))
}

/// A client that waits for permission sends no body that nobody wants.
#[test]
fn a_refusal_comes_instead_of_a_permission() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let patience = Some(Duration::from_secs(10));
    stream.set_read_timeout(patience).unwrap();
    let head = "POST /api/v1/nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\
                Expect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let answered = response(&mut BufReader::new(stream));
    assert_eq!(answered, Some((404, true)));
}

#[test]
fn what_is_refused_before_it_is_read_says_that_the_connection_ends() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let storage = server.api().create_storage("first");
    let packets = format!("/api/v1/storages/{storage}/agents/a/streams/s/packets");
    let octets = "application/octet-stream";
    for (path, media_type, expected) in [
        (packets.as_str(), octets, 404),
        ("/api/v1/storages/none/finalize", octets, 400),
        ("/api/v1/nothing", octets, 404),
        ("/api/v1/storages", "text/plain", 415),
    ] {
        for length in [1, 5_000, 60_000, 800_000] {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            let patience = Some(Duration::from_secs(10));
            stream.set_read_timeout(patience).unwrap();
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {media_type}\r\n\
                 Content-Length: {length}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            // It may be answered before the body is sent.
            stream.write_all(&vec![b'x'; length]).ok();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let what = format!("{path} with {length} bytes");
            let (status, ends) = response(&mut reader).expect(&what);
            assert_eq!(status, expected, "{what}");
            let next = "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
            stream.write_all(next.as_bytes()).ok();
            let answered = response(&mut reader).map(|(status, _)| status);
            assert_eq!(answered, (!ends).then_some(200), "{what}");
        }
    }
}
