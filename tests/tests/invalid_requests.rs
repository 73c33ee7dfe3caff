//! Invalid requests: each gets a clear problem document, and nothing is written.

use harness::{Agent, Api, Problem, Request, Server, Settings, payload};
use serde_json::{Value, json};

const CONFIG: &str = "[ingest]\npacket_bytes_max = 65536\nrequest_bytes_max = 262144\n";

/// A server with an open storage, a stream, and one packet in it.
struct Setting {
    _folder: tempfile::TempDir,
    server: Server,
    storage: String,
    agent: Agent,
    next: u64,
}

impl Setting {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path(), &Settings::with_config(CONFIG));
        let mut api = server.api();
        let storage = api.create_storage("bad-input");
        let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
        let first = agent.next_sequence(&mut api);
        agent.push(&mut api, first, b"a packet that stays");
        Self {
            _folder: folder,
            server,
            storage,
            agent,
            next: first + 1,
        }
    }

    /// Sends a request that must be refused with one of these statuses, and checks that the storage
    /// is unchanged.
    fn check(&self, name: &str, statuses: &[u16], request: &Request<'_>) -> Problem {
        let response = self.server.api().send(request).unwrap();
        let brief = response.brief();
        assert!(
            statuses.contains(&response.status),
            "{name}: wanted {statuses:?}, got {brief}"
        );
        let problem = Problem::of(&response);
        self.check_unchanged(name);
        problem
    }

    fn check_unchanged(&self, name: &str) {
        let mut api = self.server.api();
        assert_eq!(api.storage(&self.storage)["packets"], 1, "{name}: packets");
        assert_eq!(
            self.agent.next_sequence(&mut api),
            self.next,
            "{name}: next sequence"
        );
        assert_eq!(api.state(&self.storage), "OPEN", "{name}: state");
    }

    fn push<'a>(&'a self, sequence: &str, body: &'a [u8]) -> Request<'a> {
        Request::new("POST", self.agent.path())
            .header("content-type", "application/octet-stream")
            .header("tracehold-epoch", 1)
            .header("tracehold-sequence", sequence)
            .body(body)
    }

    fn push_next<'a>(&'a self, body: &'a [u8]) -> Request<'a> {
        self.push(&self.next.to_string(), body)
    }
}

#[test]
fn invalid_names() {
    let setting = Setting::new();
    let storage = &setting.storage;
    for (method, path, statuses) in [
        (
            "GET",
            "/api/v1/storages/nonsense".to_owned(),
            &[400, 404][..],
        ),
        (
            "GET",
            "/api/v1/storages/..%2f..%2fetc".to_owned(),
            &[400, 404],
        ),
        (
            "GET",
            "/api/v1/storages/01932c5e-0000-7000-8000-000000000000".to_owned(),
            &[404],
        ),
        (
            "GET",
            format!("/api/v1/storages/{}", storage.to_uppercase()),
            &[400, 404],
        ),
        ("PUT", "/api/v1/agents/..%2Fup".to_owned(), &[400]),
        ("PUT", "/api/v1/agents/%00".to_owned(), &[400]),
        ("PUT", "/api/v1/agents/.hidden".to_owned(), &[400]),
        ("PUT", format!("/api/v1/agents/{}", "a".repeat(129)), &[400]),
        (
            "PUT",
            "/api/v1/agents/host/streams/a%2Fb".to_owned(),
            &[400],
        ),
        (
            "GET",
            format!("/api/v1/storages/{storage}/packets/-1"),
            &[400, 404],
        ),
        (
            "GET",
            format!("/api/v1/storages/{storage}/packets/99999"),
            &[404],
        ),
        (
            "GET",
            format!("/api/v1/storages/{storage}/packets/99999999999999999999"),
            &[400, 404],
        ),
        ("GET", "/api/v1/nothing".to_owned(), &[404]),
        ("BREW", format!("/api/v1/storages/{storage}"), &[405]),
        ("POST", "/livez".to_owned(), &[405]),
    ] {
        let body: &[u8] = if method == "PUT" {
            br#"{"name":"x","host":"y","kind":"raw"}"#
        } else {
            b""
        };
        let request = Request::new(method, &path)
            .header("content-type", "application/json")
            .body(body);
        setting.check(&format!("{method} {path}"), statuses, &request);
    }
}

#[test]
fn paths_outside_of_a_storage() {
    let setting = Setting::new();
    let storage = &setting.storage;
    for name in [
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/catalog",
        "..%5c..%5csecret",
        "%252e%252e%252fetc",
        "..%c0%afetc",
        "%2fetc%2fpasswd",
        "a%00.index",
        ".",
        "..",
        "no-such-file.itdata",
        "0000000000000000.itdata",
    ] {
        let path = format!("/storage/{storage}/{name}");
        // A plausible name is refused because the storage is still open.
        setting.check(&path, &[400, 404, 409], &Request::new("GET", &path));
    }
}

#[test]
fn sequences_with_gaps() {
    let setting = Setting::new();
    let gap = (setting.next + 1).to_string();
    let problem = setting.check("a gap", &[409], &setting.push(&gap, b"x"));
    assert_eq!(
        problem.document["expected_sequence"], setting.next,
        "{}",
        problem.document
    );
    for sequence in ["", "x", "-1", "1.5", "99999999999999999999999"] {
        let name = format!("sequence {sequence:?}");
        setting.check(&name, &[400], &setting.push(sequence, b"x"));
    }
    let without = Request::new("POST", setting.agent.path())
        .header("content-type", "application/octet-stream")
        .body(b"x");
    setting.check("no sequence", &[400], &without);
}

#[test]
fn unacceptable_bodies() {
    let setting = Setting::new();
    let large = payload(1, 1, 65_537);
    setting.check("too large", &[413], &setting.push_next(&large));
    setting.check("empty", &[400], &setting.push_next(b""));
    let zeros = gzip(&vec![0; 10 << 20]);
    let bomb = setting.push_next(&zeros).header("content-encoding", "gzip");
    setting.check("a gzip bomb", &[413], &bomb);
    let zeros = zstd::bulk::compress(&vec![0; 10 << 20], 3).unwrap();
    let bomb = setting.push_next(&zeros).header("content-encoding", "zstd");
    setting.check("a zstd bomb", &[413], &bomb);
    for coding in ["gzip", "zstd"] {
        let damaged = setting
            .push_next(b"not compressed")
            .header("content-encoding", coding);
        setting.check(&format!("damaged {coding}"), &[400], &damaged);
    }
    let mut cut = gzip(&payload(1, 2, 5000));
    cut.truncate(cut.len() - 9);
    let cut = setting.push_next(&cut).header("content-encoding", "gzip");
    setting.check("gzip that ends early", &[400], &cut);
    let unknown = setting.push_next(b"x").header("content-encoding", "br");
    setting.check("unknown coding", &[415], &unknown);
    let unknown = Request::new("POST", setting.agent.path())
        .header("content-type", "text/plain")
        .header("tracehold-epoch", 1)
        .header("tracehold-sequence", setting.next)
        .body(b"x");
    setting.check("unknown type", &[415], &unknown);
}

#[test]
fn damaged_batches() {
    let setting = Setting::new();
    let record = |checksum: u32, length: u32, sequence: u64, packet: &[u8]| {
        let fields = [length.to_le_bytes(), checksum.to_le_bytes()].concat();
        let sequences = [1_u64.to_le_bytes(), sequence.to_le_bytes()].concat();
        [fields, sequences, packet.to_vec()].concat()
    };
    let next = setting.next;
    for (name, statuses, body) in [
        (
            "a wrong checksum",
            &[400, 422][..],
            record(1, 3, next, b"abc"),
        ),
        (
            "a length beyond the body",
            &[400],
            record(0x364b_3fb7, 30, next, b"abc"),
        ),
        ("a length of nothing", &[400], record(0, 0, next, b"")),
        (
            "half a header",
            &[400],
            record(0x364b_3fb7, 3, next, b"abc")[..10].to_vec(),
        ),
        ("a gap", &[409], record(0x364b_3fb7, 3, next + 1, b"abc")),
        (
            "a huge length",
            &[400, 413],
            record(0, u32::MAX, next, b"abc"),
        ),
    ] {
        let request = Request::new("POST", setting.agent.path())
            .header("content-type", "application/vnd.tracehold.packets")
            .body(&body);
        setting.check(name, statuses, &request);
    }
    // The same record without damage is accepted: the cases above fail for the reason that they
    // name.
    let body = record(0x364b_3fb7, 3, next, b"abc");
    let request = Request::new("POST", setting.agent.path())
        .header("content-type", "application/vnd.tracehold.packets")
        .body(&body);
    let response = setting.server.api().send(&request).unwrap();
    assert_eq!(response.status, 200, "{}", response.brief());
}

#[test]
fn a_truncated_body_writes_nothing() {
    let setting = Setting::new();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/octet-stream\r\n\
         tracehold-epoch: 1\r\ntracehold-sequence: {}\r\ncontent-length: 1000\r\n\r\n",
        setting.agent.path(),
        setting.next,
    );
    let mut connection = setting.server.connect();
    connection.write(&[head.as_bytes(), &[7; 500]]).unwrap();
    connection.finish_writing().unwrap();
    // A response may arrive or not; nothing may be stored.
    if let Ok(response) = connection.read_response(false) {
        assert_eq!(response.status, 400, "{}", response.brief());
    }
    setting.check_unchanged("a body that ends early");
}

#[test]
fn states_that_do_not_allow_the_request() {
    let setting = Setting::new();
    let mut api = setting.server.api();
    let created = {
        let spec = json!({ "name": "created", "open": false });
        api.done("POST", "/storages", Some(&spec))
    };
    let id = created["id"].as_str().unwrap();
    assert_eq!(created["state"], "CREATED");
    let check = |api: &mut Api, path: &str| {
        let problem = api.refused("POST", path, None);
        assert_eq!(problem.status, 409, "{path}: {}", problem.document);
    };
    let unopened = Agent::new(id, "host", "stream");
    assert_eq!(unopened.refused(&mut api, 0, b"x").status, 409);
    api.done("POST", &format!("/storages/{id}/open"), None);
    api.finalize(id);
    check(&mut api, &format!("/storages/{id}/open"));
    let sequence = unopened.next_sequence(&mut api);
    assert_eq!(unopened.refused(&mut api, sequence, b"x").status, 409);
    assert_eq!(api.state(id), "FINALIZED");
}

#[test]
fn invalid_positions() {
    let setting = Setting::new();
    let other = setting.push("0", b"other bytes at the position of a stored packet");
    let problem = setting.check("other bytes", &[409], &other);
    assert_eq!(problem.document["code"], "packet_conflict");
    let last = u64::MAX.to_string();
    let problem = setting.check("the last sequence", &[422], &setting.push(&last, b"x"));
    assert_eq!(problem.document["code"], "position_invalid");
    // It does not enter the buffer either, from which no storage would take it.
    let mut api = setting.server.api();
    let before = api.done("GET", "/buffer", None)["packets"].clone();
    let path = "/api/v1/agents/host/streams/stream/packets";
    let request = Request::new("POST", path)
        .header("content-type", "application/octet-stream")
        .header("tracehold-epoch", &last)
        .header("tracehold-sequence", "0")
        .body(b"x");
    let refused = api.send(&request).unwrap();
    assert_eq!(refused.status, 422);
    assert_eq!(api.done("GET", "/buffer", None)["packets"], before);
}

/// What groups do not have is refused, and not ignored.
#[test]
fn options_of_rows_with_groups() {
    let setting = Setting::new();
    for (name, value) in [
        ("order_by", json!("nosuch")),
        ("fields", json!(["ts"])),
        ("matched_max", json!(9)),
        ("format", json!("perfetto")),
        ("count", json!(true)),
        ("list_fields", json!(true)),
    ] {
        let mut body = json!({ "group_by": "name" });
        body[name] = value;
        let problem = setting.server.api().refused("POST", "/query", Some(&body));
        assert_eq!(problem.status, 400, "{name}: {}", problem.document);
        assert_eq!(problem.document["code"], "query_malformed", "{name}");
    }
}

#[test]
fn a_repeated_finalization_succeeds() {
    let setting = Setting::new();
    let finalize = || setting.server.api().finalize(&setting.storage);
    let first = std::thread::scope(|scope| {
        let finalizing: Vec<_> = (0..3).map(|_| scope.spawn(finalize)).collect();
        let all = finalizing.into_iter().map(|thread| thread.join().unwrap());
        let all: Vec<_> = all.collect();
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
        all[0].clone()
    });
    assert_eq!(first["state"], "FINALIZED");
    assert_eq!(finalize(), first);
}

#[test]
fn undeclared_streams() {
    let setting = Setting::new();
    let unknown = Agent::new(&setting.storage, "host", "unknown");
    let problem = unknown.refused(&mut setting.server.api(), 0, b"x");
    assert!(matches!(problem.status, 404 | 409), "{}", problem.document);
    setting.check_unchanged("an unknown stream");
}

#[test]
fn malformed_json() {
    let setting = Setting::new();
    for (name, statuses, body) in [
        ("no JSON", &[400][..], &b"{"[..]),
        ("a number for a name", &[400, 422], br#"{"name":7}"#),
        (
            "an unknown field",
            &[400, 422],
            br#"{"name":"x","colour":"red"}"#,
        ),
        ("a name without end", &[400, 413, 422], &[b'"'; 2 << 20]),
    ] {
        let request = Request::new("POST", "/api/v1/storages")
            .header("content-type", "application/json")
            .body(body);
        setting.check(name, statuses, &request);
    }
    let query = format!("/api/v1/storages/{}/query", setting.storage);
    for body in [
        r#"[]"#,
        r#"["x"]"#,
        r#"null"#,
        r#"{"histogram":""}"#,
        r#"{"histogram":" ","group_by":"name"}"#,
        r#"{"aggregate":""}"#,
    ] {
        let request = Request::new("POST", &query)
            .header("content-type", "application/json")
            .body(body.as_bytes());
        setting.check(body, &[400], &request);
    }
    let text = Request::new("POST", "/api/v1/storages")
        .header("content-type", "text/plain")
        .body(br#"{"name":"x"}"#);
    setting.check("JSON that is not called so", &[415], &text);
    let compressed = gzip(br#"{"name":"n","host":"h"}"#);
    let encoded = Request::new("PUT", "/api/v1/agents/encoded")
        .header("content-type", "application/json")
        .header("content-encoding", "gzip")
        .body(&compressed);
    setting.check("encoded JSON", &[415], &encoded);
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::{Read, Write};
    let mut child = std::process::Command::new("gzip")
        .arg("-c")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(bytes).unwrap());
        let mut compressed = Vec::new();
        output.read_to_end(&mut compressed).unwrap();
        child.wait().unwrap();
        compressed
    })
}

#[test]
fn invalid_ids_are_shown_with_an_example() {
    let setting = Setting::new();
    let mut api = setting.server.api();
    for path in ["/recordings/nonsense", "/jobs/99"] {
        let refused = api.refused("DELETE", path, None);
        let detail = refused.document["detail"].as_str().unwrap();
        let id = path.rsplit('/').next().unwrap();
        assert_eq!((refused.status, refused.code.as_str()), (400, "invalid_id"));
        for part in [id, "expected a UUID such as 0193"] {
            assert!(detail.contains(part), "{detail}");
        }
    }
}

#[test]
fn invalid_times_name_the_parameter_and_what_is_expected() {
    let setting = Setting::new();
    let mut api = setting.server.api();
    let storage = format!("/storages/{}", setting.storage);
    let frame = |time: &Value| {
        let saver = json!([{ "type": "saver" }]);
        json!([{ "type": "time_frame", "from": time, "processors": saver }])
    };
    let mut check = |time: Value, parts: &[&str]| {
        for (path, body) in [
            ("/query".to_owned(), json!({ "from": time })),
            (format!("{storage}/copy"), json!({ "from": time })),
            ("/buffer/copy".to_owned(), json!({ "from": time })),
            (
                "/recordings".to_owned(),
                json!({ "processors": frame(&time) }),
            ),
        ] {
            let refused = api.refused("POST", &path, Some(&body));
            let detail = refused.document["detail"].as_str().unwrap();
            assert_eq!(refused.status, 400, "{path} {time}: {detail}");
            for part in parts.iter().chain(&["2026-"]) {
                assert!(detail.contains(part), "{path} {time}: {detail}");
            }
        }
    };
    check(json!("02:01"), &["from: \"02:01\": "]);
    check(json!("soon"), &["from: \"soon\": "]);
    check(json!(true), &["boolean `true`, expected a time"]);
    for time in [
        json!(1_795_226_501.877),
        json!("2026-11-21 02:01"),
        json!(5),
    ] {
        api.done("POST", "/query", Some(&json!({ "from": time })));
    }
    let path = format!("{storage}/descriptors?from=2026-11-21T01:00:00+01:00");
    let detail = api.refused("GET", &path, None).document["detail"].clone();
    assert!(detail.as_str().unwrap().contains("%2B"), "{detail}");
}
