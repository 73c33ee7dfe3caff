//! HTTP/2 without TLS does what HTTP/1.1 does, and a client that abuses it harms nobody else.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use harness::{Agent, Api, Connection, Problem, Request, Response, Server, Settings, parts};

fn over(server: &Server) -> [Connection; 2] {
    [
        server.connect(),
        Connection::open_http2(server.address()).unwrap(),
    ]
}

/// Status, fields and body, without what differs from response to response.
fn comparable(mut response: Response) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let about_connection = ["connection", "transfer-encoding", "keep-alive"];
    response.headers.retain(|(name, _)| {
        !["date", "x-request-id"].contains(&name.as_str())
            && !about_connection.contains(&name.as_str())
    });
    response.headers.sort();
    if response.status >= 400 {
        let mut document = response.json();
        document["instance"] = serde_json::Value::Null;
        return (response.status, Vec::new(), document.to_string().into());
    }
    (response.status, response.headers, response.body)
}

#[test]
fn both_versions_give_the_same_responses() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("both");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    let mut second = Api::new(Connection::open_http2(server.address()).unwrap());
    // Larger than every window.
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let packets = vec![large, vec![7; 100], b"third".to_vec()];
    let stored = agent.post_many(&mut second, 0, &packets).unwrap();
    assert_eq!(stored.status, 200, "{}", stored.brief());
    assert_eq!(stored.json()["receipts"].as_array().unwrap().len(), 3);
    second.finalize(&storage);
    let files = api.files(&storage);
    let data = &files.iter().find(|file| file.1 == "data").unwrap().0;
    let file = format!("/storage/{storage}/{data}");
    let packet = format!("/api/v1/storages/{storage}/packets/0");
    let query = format!("/api/v1/storages/{storage}/query");
    let [mut first, mut second] = over(&server);
    let mut compare = |request: Request<'_>| {
        let one = comparable(first.send(&request).unwrap());
        let other = comparable(second.send(&request).unwrap());
        assert!(
            one == other,
            "{request:?}: {:?} {:?}",
            (one.0, &one.1),
            (other.0, &other.1)
        );
        one.0
    };
    for (request, status) in [
        (Request::new("GET", &packet), 200),
        (Request::new("HEAD", &packet), 200),
        (
            Request::new("GET", &file).header("range", "bytes=5-1000004"),
            206,
        ),
        (
            Request::new("GET", &file).header("range", "bytes=-70000"),
            206,
        ),
        (
            Request::new("GET", &file).header("range", "bytes=99999999999-"),
            416,
        ),
        (Request::new("GET", "/storage/none/x"), 400),
        (Request::new("GET", "/nothing"), 404),
        (Request::new("DELETE", "/livez"), 405),
        (Request::new("GET", "/api/v1/storages?limit=x"), 400),
        (
            Request::new("POST", &query)
                .header("content-type", "application/json")
                .body(b"{"),
            400,
        ),
        (
            Request::new("POST", &query)
                .header("content-type", "text/plain")
                .body(b"{}"),
            415,
        ),
        (
            Request::new("GET", "/livez").header("origin", "http://evil.example"),
            200,
        ),
        (
            Request::new("DELETE", &packet).header("origin", "http://evil.example"),
            403,
        ),
    ] {
        assert_eq!(compare(request), status);
    }
    // The boundary differs from response to response.
    let request = Request::new("GET", &file).header("range", "bytes=0-70000,90000-200000,-5");
    let bodies = over(&server).map(|mut connection| {
        let response = connection.send(&request).unwrap();
        assert_eq!(response.status, 206);
        parts(&response)
    });
    assert_eq!(bodies[0].len(), 3);
    assert!(bodies[0] == bodies[1]);
}

#[test]
fn a_head_that_is_too_large_or_names_a_foreign_host_is_refused() {
    let (_folder, server, _api) = Server::fresh();
    let send = |request: &Request<'_>| {
        Connection::open_http2(server.address())
            .unwrap()
            .send(request)
    };
    let mut many = Request::new("GET", "/livez");
    let names: Vec<String> = (0..150).map(|at| format!("x-{at}")).collect();
    for name in &names {
        many = many.header(name, "y");
    }
    let refused = send(&many).unwrap();
    assert_eq!(Problem::of(&refused).code, "header_too_large");
    let large = "y".repeat(1 << 20);
    let refused = send(&Request::new("GET", "/livez").header("x", &large));
    assert!(refused.is_err() || refused.unwrap().status == 431);
    let foreign = Request::new("GET", "/livez").header("host", "evil.example");
    assert_eq!(send(&foreign).unwrap().status, 421);
}

/// What a client sends first: the preface and empty settings.
const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// One frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Header fields of a request, not compressed (RFC 7541 section 6.2.2).
fn fields(method: &str, path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", method),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
    ] {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    block
}

/// How long health takes to be answered.
fn health(server: &Server) -> Duration {
    let begin = Instant::now();
    let response = server.connect().send(&Request::new("GET", "/livez"));
    assert_eq!(response.unwrap().status, 200);
    begin.elapsed()
}

/// Sends what `piece` gives until the server closes the connection, which it must do before
/// `bytes_max` bytes; health is answered and memory is bounded meanwhile.
fn check_closed(server: &Server, bytes_max: usize, mut piece: impl FnMut(u32) -> Vec<u8>) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(BEGIN).unwrap();
    // What the server answers is read, so that it is not held back by this client.
    let mut answers = stream.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while answers.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    let mut sent = 0;
    for index in 0.. {
        let bytes = piece(index);
        sent += bytes.len();
        if stream.write_all(&bytes).is_err() {
            break;
        }
        assert!(sent < bytes_max, "the server accepted {sent} bytes");
        if index % 1000 == 0 {
            health(server);
        }
    }
    reader.join().unwrap();
    health(server);
    let peak = server.peak_bytes() >> 20;
    assert!(peak < 200, "{peak} MiB");
}

#[test]
fn floods_end_their_connection() {
    let (_folder, server, _api) = Server::fresh();
    let max = 64 << 20;
    // CVE-2023-44487: requests that are cancelled at once.
    check_closed(&server, max, |index| {
        let mut bytes = frame(1, 5, index * 2 + 1, &fields("GET", "/api/v1/storages"));
        bytes.extend(frame(3, 0, index * 2 + 1, &[0, 0, 0, 8]));
        bytes
    });
    // Header fields that never end.
    check_closed(&server, max, |index| match index {
        0 => frame(1, 1, 1, &fields("GET", "/livez")),
        _ => frame(9, 0, 1, &[&[0, 1, b'x', 100][..], &[b'y'; 100]].concat()),
    });
    check_closed(&server, max, |index| match index {
        0 => frame(1, 1, 1, &fields("GET", "/livez")),
        _ => frame(9, 0, 1, b""),
    });
    // Frames that want an answer, and frames of nothing.
    for nothing in [
        frame(6, 0, 0, &[0; 8]),
        frame(4, 0, 0, b""),
        frame(2, 0, 1, &[0; 5]),
        frame(8, 0, 0, &[0, 0, 0, 1]),
        frame(0xfb, 0, 0, b""),
    ] {
        check_closed(&server, max, |_| nothing.repeat(100));
    }
    check_closed(&server, max, |index| match index {
        0 => frame(1, 4, 1, &fields("POST", "/v1/traces")),
        _ => frame(0, 0, 1, b""),
    });
}

#[test]
fn a_client_that_sends_or_reads_too_slowly_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[http]\nheader_read_seconds = 1\nwrite_stall_seconds = 1\n\
                    keep_alive_seconds = 1\nbody_idle_seconds = 1\n";
    let server = Server::start(folder.path(), &Settings::with_config(settings));
    let mut api = server.api();
    let storage = api.create_storage("slow");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    // It cannot be compressed, so that the file is larger than every window.
    let mut state = 1_u64;
    let random: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    })
    .take(4 << 20)
    .collect();
    agent.push(&mut api, 0, &random);
    api.finalize(&storage);
    let files = api.files(&storage);
    let data = files.iter().find(|file| file.1 == "data").unwrap();
    assert!(data.2 > 4 << 20, "{data:?}");
    let file = format!("/storage/{storage}/{}", data.0);
    let begun = |frames: &[u8]| [BEGIN, frames].concat();
    let ping = frame(6, 0, 0, &[0; 8]);
    let part = fields("GET", "/livez");
    let ask = frame(1, 5, 1, &fields("GET", &file));
    let post = frame(1, 4, 1, &fields("POST", "/v1/traces"));
    for (name, bytes, again) in [
        ("half a preface", BEGIN[..10].to_vec(), &b""[..]),
        ("half a frame", begun(&ask[..20]), b""),
        (
            "half of the fields",
            begun(&frame(1, 1, 1, &part[..9])),
            b"",
        ),
        ("no request", BEGIN.to_vec(), &ping),
        ("a response that is not taken", begun(&ask), &ping),
        // It is answered, and then there is no further request.
        ("half a body", begun(&post), &ping),
    ] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(&bytes).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let begin = Instant::now();
        let mut buffer = [0; 16 << 10];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    // The server may have closed the connection meanwhile.
                    let _ = stream.write_all(again);
                }
                Err(_) => break,
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "{name}");
        }
    }
}

/// Reads the frames that arrive until `until`: type, flags and stream of each.
fn frames_until(stream: &mut TcpStream, rest: &mut Vec<u8>, until: Instant) -> Vec<(u8, u8, u32)> {
    let mut found = Vec::new();
    let mut buffer = [0; 64 << 10];
    loop {
        while let Some(head) = rest.get(..9) {
            let length =
                usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap();
            let (kind, flags) = (head[3], head[4]);
            let id = u32::from_be_bytes(head[5..9].try_into().unwrap());
            if rest.len() < 9 + length {
                break;
            }
            rest.drain(..9 + length);
            found.push((kind, flags, id));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return found;
        }
        stream.set_read_timeout(Some(left)).unwrap();
        match stream.read(&mut buffer) {
            Ok(0) => panic!("the server closed the connection"),
            Ok(count) => rest.extend(&buffer[..count]),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
}

#[test]
fn a_response_that_is_not_taken_ends_alone() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::with_config("[http]\nwrite_stall_seconds = 3\n");
    let server = Server::start(folder.path(), &settings);
    let mut api = server.api();
    let storage = api.create_storage("slow");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    agent.push(&mut api, 0, &harness::payload(1, 1, 1 << 20));
    api.finalize(&storage);
    let files = api.files(&storage);
    let data = files.iter().find(|file| file.1 == "data").unwrap();
    let file = format!("/storage/{storage}/{}", data.0);
    let ask = |id| frame(1, 5, id, &fields("GET", &file));
    let window = |id, bytes: u32| frame(8, 0, id, &bytes.to_be_bytes());
    let mut stream = TcpStream::connect(server.address()).unwrap();
    // Nobody takes the first response; the second one is taken slowly, slower than what the server
    // hands over at once fits into the limit.
    let begin = [BEGIN, &window(0, 1 << 30), &ask(1), &ask(3)].concat();
    stream.write_all(&begin).unwrap();
    let (mut rest, mut found) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(9) {
        stream.write_all(&window(3, 4 << 10)).unwrap();
        let until = Instant::now() + Duration::from_millis(100);
        found.extend(frames_until(&mut stream, &mut rest, until));
    }
    let resets: Vec<u32> = (found.iter().filter(|(kind, ..)| *kind == 3))
        .map(|(_, _, id)| *id)
        .collect();
    assert_eq!(resets, [1]);
    stream.write_all(&window(3, 1 << 30)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !found.contains(&(0, 1, 3)) {
        assert!(
            Instant::now() < deadline,
            "the second response does not end"
        );
        let until = Instant::now() + Duration::from_millis(100);
        found.extend(frames_until(&mut stream, &mut rest, until));
    }
}

#[test]
fn a_shutdown_completes_requests_over_http2() {
    let (_folder, mut server, mut api) = Server::fresh();
    let storage = api.create_storage("drained");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    agent.push(&mut api, 0, &vec![1; 4 << 20]);
    let mut connection = Connection::open_http2(server.address()).unwrap();
    let alive = connection.send(&Request::new("GET", "/livez")).unwrap();
    assert_eq!(alive.status, 200);
    server.terminate();
    assert!(server.wait(Duration::from_secs(15)).success());
    assert!(connection.send(&Request::new("GET", "/livez")).is_err());
}

/// What hyper is done with may still wait in the server for its client.
#[test]
fn a_shutdown_waits_for_a_client_that_pauses_at_the_end_of_a_response() {
    let (_folder, mut server, mut api) = Server::fresh();
    let storage = api.create_storage("paused");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    let packet = harness::payload(1, 1, 64 << 10);
    agent.push(&mut api, 0, &packet);
    let path = format!("/api/v1/storages/{storage}/packets/0");
    // The server is done with its last piece when three and a bit have room.
    let window: u32 = 50_000;
    let setting = [&[0, 4][..], &window.to_be_bytes()].concat();
    let request = frame(1, 5, 1, &fields("GET", &path));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let (preface, _) = BEGIN.split_at(24);
    let whole = frame(8, 0, 0, &(1_u32 << 20).to_be_bytes());
    let begin = [preface, &frame(4, 0, 0, &setting), &whole, &request].concat();
    stream.write_all(&begin).unwrap();
    let mut rest = Vec::new();
    let soon = Instant::now() + Duration::from_secs(1);
    let found = frames_until(&mut stream, &mut rest, soon);
    assert!(
        found.contains(&(1, 4, 1)) && !found.contains(&(0, 1, 1)),
        "{found:?}"
    );
    server.terminate();
    let paused = Instant::now() + Duration::from_secs(4);
    let found = frames_until(&mut stream, &mut rest, paused);
    assert!(!found.contains(&(0, 1, 1)), "{found:?}");
    let update = frame(8, 0, 1, &(1_u32 << 20).to_be_bytes());
    stream.write_all(&update).unwrap();
    let mut found = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !found.contains(&(0, 1, 1)) {
        assert!(Instant::now() < deadline, "the response does not end");
        let until = Instant::now() + Duration::from_millis(50);
        found.extend(frames_until(&mut stream, &mut rest, until));
    }
    // Then nothing is left to wait for.
    assert!(server.wait(Duration::from_secs(8)).success());
}

/// As HTTP/1, a client has no say in whether its idle connection is closed for another one.
#[test]
fn connections_without_requests_make_room_for_others() {
    let folder = tempfile::tempdir().unwrap();
    // Longer than this test waits for an answer.
    let config = "[http]\nconnections_max = 16\nheader_read_seconds = 3600\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let request = frame(1, 5, 1, &fields("GET", "/livez"));
    for sent in [BEGIN.to_vec(), [BEGIN, &request].concat()] {
        let silent: Vec<_> = (0..120)
            .map(|_| {
                let mut stream = TcpStream::connect(server.address()).unwrap();
                stream.write_all(&sent).unwrap();
                stream
            })
            .collect();
        for path in ["/readyz", "/api/v1/storages"] {
            let response = server.connect().send(&Request::new("GET", path)).unwrap();
            assert!(
                response.status == 200 || path != "/readyz" && response.status == 503,
                "{}",
                response.brief()
            );
        }
        drop(silent);
    }
}
