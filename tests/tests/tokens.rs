//! Who may do what, with both programs: the first token, roles, scopes and revocation.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::{Agent, Request, Server, Settings, run_tracehold};
use serde_json::{Value, json};
use storage_format::local_file::LocalFile;

use crate::otlp_grpc::{EXPORT, call, framed, status};

/// Exit code, output and errors of `tracehold` with this token.
fn tracehold(server: &Server, token: Option<&str>, arguments: &[&str]) -> (i32, String, String) {
    let mut all: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    all.extend(["--server".to_owned(), server.url()]);
    all.extend(
        token
            .into_iter()
            .flat_map(|token| ["--token".to_owned(), token.to_owned()]),
    );
    let output = run_tracehold(&all);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn create(server: &Server, token: Option<&str>, arguments: &[&str]) -> String {
    let all = [&["token", "create", "--name", "n", "--role"], arguments].concat();
    let (code, text, errors) = tracehold(server, token, &all);
    assert_eq!(code, 0, "{errors}");
    text.trim().to_owned()
}

/// Exit code and output of `traceholdd token create` on this folder.
fn offline(folder: &Path) -> (Option<i32>, String) {
    let output = Command::new(harness::traceholdd())
        .args(["token", "create", "--listen", "0.0.0.0:0", "--data-dir"])
        .arg(folder.join("data"))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn from_the_first_token_on_everybody_needs_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let (code, _, errors) = tracehold(
        &server,
        None,
        &["token", "create", "--name", "n", "--role", "reader"],
    );
    assert!(code == 3 && errors.contains("operator"), "{errors}");
    let operator = create(&server, None, &["operator"]);
    let list = ["storage", "list"];
    let (code, _, errors) = tracehold(&server, None, &list);
    assert!(code == 3 && errors.contains("token"), "{errors}");
    assert_eq!(tracehold(&server, Some(&operator), &list).0, 0);

    let reader = create(&server, Some(&operator), &["reader", "--expires", "1h"]);
    assert_eq!(tracehold(&server, Some(&reader), &list).0, 0);
    let made = ["storage", "create", "--name", "s"];
    let (code, _, errors) = tracehold(&server, Some(&reader), &made);
    assert!(code == 3 && errors.contains("role"), "{errors}");
    let (code, _, errors) = tracehold(&server, Some(&operator), &made);
    assert_eq!(code, 0, "{errors}");

    // The secrets are neither in the list, nor in the log, nor in the data folder.
    let (_, tokens, _) = tracehold(&server, Some(&operator), &["token", "list"]);
    let stored = std::fs::read_to_string(server.data().join("tokens.json")).unwrap();
    for text in [&tokens, &stored, &server.log()] {
        for token in [&operator, &reader] {
            let (_, secret) = token.rsplit_once('_').unwrap();
            assert!(!text.contains(secret), "{text}");
        }
    }
    let id = reader.split('_').nth(1).unwrap();
    assert!(tokens.contains(id), "{tokens}");
    let (code, _, errors) = tracehold(&server, Some(&operator), &["token", "revoke", id]);
    assert_eq!(code, 0, "{errors}");
    // A crash right after the answer changes nothing.
    server.kill();
    server.restart_listening(&Settings::default());
    let (code, _, errors) = tracehold(&server, Some(&reader), &list);
    assert!(code == 3 && errors.contains("revoked"), "{errors}");
    assert_eq!(tracehold(&server, Some(&operator), &list).0, 0);
    assert_eq!(tracehold(&server, None, &list).0, 3);
}

#[test]
fn health_and_metrics_stay_open_and_metrics_can_be_closed() {
    let folder = tempfile::tempdir().unwrap();
    for (config, wanted) in [("", 200), ("[access]\nmetrics_open = false\n", 401)] {
        let server = Server::start(folder.path(), &Settings::with_config(config));
        if wanted == 200 {
            create(&server, None, &["operator"]);
        }
        for (path, wanted) in [("/livez", 200), ("/readyz", 200), ("/metrics", wanted)] {
            let answer = server.connect().send(&Request::new("GET", path)).unwrap();
            assert_eq!(answer.status, wanted, "{path}: {}", answer.brief());
        }
    }
}

#[test]
fn readiness_tells_strangers_only_how_many() {
    let (_folder, server, _api) = Server::fresh();
    let ask = |token: Option<&str>| {
        let mut request = Request::new("GET", "/readyz");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = server.connect().send(&request).unwrap();
        assert_eq!(answer.status, 200);
        answer.json()["disk_total_bytes"].is_number()
    };
    assert!(ask(None));
    let operator = create(&server, None, &["operator"]);
    let reader = create(&server, Some(&operator), &["reader"]);
    let agent = create(&server, Some(&operator), &["agent"]);
    for (token, is_told) in [
        (None, false),
        (Some("tracehold_x"), false),
        (Some(agent.as_str()), false),
        (Some(reader.as_str()), true),
        (Some(operator.as_str()), true),
    ] {
        assert_eq!(ask(token), is_told);
    }
}

#[test]
fn a_storage_out_of_scope_looks_like_one_that_does_not_exist() {
    let (_folder, server, _api) = Server::fresh();
    let ids: Vec<String> = ["own", "other"]
        .iter()
        .map(|name| {
            let body = format!("{{\"name\":\"{name}\",\"open\":true}}");
            let request = Request::new("POST", "/api/v1/storages")
                .header("content-type", "application/json")
                .body(body.as_bytes());
            let made: Value = server.connect().send(&request).unwrap().json();
            made["id"].as_str().unwrap().to_owned()
        })
        .collect();
    let operator = create(&server, None, &["operator"]);
    let token = create(&server, Some(&operator), &["reader", "--storage", "own"]);
    let ask = |path: &str| {
        let request = Request::new("GET", path).header("authorization", format!("Bearer {token}"));
        server.connect().send(&request).unwrap()
    };
    let absent = "01932c5e-0000-7000-8000-000000000000";
    for path in [
        "/api/v1/storages/ID",
        "/api/v1/storages/ID/files",
        "/storage/ID/x.itdata",
    ] {
        let own = ask(&path.replace("ID", &ids[0]));
        assert!(own.status != 403 && own.status != 401, "{}", own.brief());
        let [hidden, unknown] = [ids[1].as_str(), absent].map(|id| {
            let answer = ask(&path.replace("ID", id));
            let mut problem = answer.json();
            assert!(problem["instance"].take().is_string());
            let fields: Vec<_> = (answer.headers.into_iter())
                .filter(|(name, _)| !["x-request-id", "date"].contains(&name.as_str()))
                .collect();
            (answer.status, fields, problem.to_string().replace(id, "ID"))
        });
        assert_eq!(hidden, unknown, "{path}");
        assert_eq!(hidden.0, 404);
    }
    let listed = ask("/api/v1/storages").json();
    let listed: Vec<&str> = (listed["items"].as_array().unwrap().iter())
        .map(|storage| storage["id"].as_str().unwrap())
        .collect();
    assert_eq!(listed, [ids[0].as_str()]);
    assert_eq!(ask("/api/v1/jobs").status, 403);

    // The command line watches the job of a verification.
    let (code, _, errors) = tracehold(&server, Some(&token), &["storage", "verify", "own"]);
    assert_eq!(code, 0, "{errors}");
    let other = format!("/api/v1/storages/{}/verify", ids[1]);
    let request =
        Request::new("POST", &other).header("authorization", format!("Bearer {operator}"));
    let verified = server.connect().send(&request).unwrap();
    let job = verified.header("tracehold-job").unwrap();
    assert_eq!(ask(&format!("/api/v1/jobs/{job}")).status, 404);
}

#[test]
fn an_agent_pushes_with_its_token() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let operator = create(&server, None, &["operator"]);
    let made = ["storage", "create", "--name", "s"];
    assert_eq!(tracehold(&server, Some(&operator), &made).0, 0);
    let file = folder.path().join("file");
    std::fs::write(&file, "some bytes\n").unwrap();
    let push = [
        "push",
        "--storage",
        "s",
        "--agent",
        "web",
        file.to_str().unwrap(),
    ];
    let web = create(&server, Some(&operator), &["agent", "--agent", "web"]);
    let other = create(&server, Some(&operator), &["agent", "--agent", "other"]);
    let reader = create(&server, Some(&operator), &["reader"]);
    for (token, wanted) in [(&other, 3), (&reader, 3), (&web, 0)] {
        let (code, text, errors) = tracehold(&server, Some(token), &push);
        assert_eq!(code, wanted, "{text} {errors}");
    }
    // What it pushed is for readers.
    let query = ["query", "--storage", "s", "--count"];
    assert_eq!(tracehold(&server, Some(&web), &query).0, 3);
}

#[test]
fn the_first_token_can_be_made_before_the_server_starts() {
    let folder = tempfile::tempdir().unwrap();
    let far = Settings {
        environment: vec![("TRACEHOLD_BENCH_DISCARD".to_owned(), "false".to_owned())],
        ..Settings::default()
    };
    let (code, text) = offline(folder.path());
    assert_eq!(code, Some(0), "{text}");
    let token = text.trim().to_owned();
    let server = Server::listening(folder.path(), &far).unwrap();
    assert_eq!(tracehold(&server, Some(&token), &["storage", "list"]).0, 0);
    assert_eq!(tracehold(&server, None, &["storage", "list"]).0, 3);
    // A token file is read where no token is given.
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    let listing = ["storage", "list", "--token-file", file.to_str().unwrap()];
    assert_eq!(tracehold(&server, None, &listing).0, 0);
    assert_eq!(tracehold(&server, Some(""), &listing).0, 0);
    let (code, text) = offline(folder.path());
    assert!(
        code == Some(4) && text.contains("tracehold token create"),
        "{text}"
    );
    drop(server);

    // With a token the server may be reached from elsewhere; `config check` says so, too.
    let check = |data: &Path| {
        let output = Command::new(harness::traceholdd())
            .args(["config", "check", "--listen", "0.0.0.0:0", "--data-dir"])
            .arg(data)
            .output();
        output.unwrap().status.code()
    };
    assert_eq!(check(&folder.path().join("data")), Some(0));
    assert_eq!(check(&folder.path().join("none")), Some(2));
}

#[test]
fn a_token_that_cannot_be_printed_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    for words in [&["token", "create"][..], &["config", "check"]] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = Command::new(harness::traceholdd())
            .args(words)
            .arg("--data-dir")
            .arg(folder.path().join("data"))
            .stdout(full)
            .output()
            .unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{words:?}: {errors}");
        assert!(errors.contains("standard output"), "{errors}");
    }
}

#[test]
fn spans_over_grpc_need_the_token_of_an_agent() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let operator = create(&server, None, &["operator"]);
    let agent = create(&server, Some(&operator), &["agent"]);
    let reader = create(&server, Some(&operator), &["reader"]);
    let body = framed(0, &[]);
    for (token, expected) in [
        (String::new(), 16),
        ("Bearer thA".to_owned(), 16),
        (format!("Bearer {reader}"), 7),
        (format!("Bearer {agent}"), 0),
        (format!("Bearer {operator}"), 0),
    ] {
        let answer = call(server.address(), EXPORT, ("authorization", &token), &body);
        let (code, message) = status(&answer);
        assert_eq!(code, expected, "{token:.12}: {message}");
    }
}

/// Answers one request with 401, and returns its head.
fn head_of_one(listener: &TcpListener) -> String {
    listener.set_nonblocking(true).unwrap();
    let begin = Instant::now();
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(_) => assert!(begin.elapsed() < Duration::from_secs(60), "no request came"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    stream.set_nonblocking(false).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let answer = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    stream.write_all(answer.as_bytes()).unwrap();
    String::from_utf8(head).unwrap().to_lowercase()
}

#[test]
fn a_folder_does_not_choose_who_gets_the_token() {
    let (folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("s");
    Agent::register(&mut api, "host");
    Agent::declare_stream(&mut api, "host", "lines", "dft", "none");
    let event = json!({
        "id": 0, "name": "read", "cat": "POSIX", "pid": 1, "tid": 1, "ts": 5, "dur": 1, "ph": "X",
        "args": {},
    });
    Agent::new(&storage, "host", "lines").push(&mut api, 0, format!("{event}\n").as_bytes());
    api.finalize(&storage);
    let mount = folder.path().join("mount");
    let mount = mount.to_str().unwrap();
    let url = format!("{}/storage/{storage}", server.url());
    let (code, _, errors) = tracehold(&server, None, &["mount", &url, mount]);
    assert_eq!(code, 0, "{errors}");

    // Somebody hands over the folder with another server in it.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = format!("http://{}", listener.local_addr().unwrap());
    let path = Path::new(mount).join(format!("{storage}.local"));
    let mut local = LocalFile::decode(&std::fs::read(&path).unwrap()).unwrap();
    local.origin = format!("{other}/storage/{storage}");
    std::fs::write(&path, local.encode().unwrap()).unwrap();
    let output = folder.path().join("output");
    for work in [
        ["query", "--dir", mount, "name == 'read'"],
        ["export", "--dir", mount, output.to_str().unwrap()],
    ] {
        for (configured, is_sent) in [(server.url(), false), (other.clone(), true)] {
            let options = ["--token", "tracehold_secret", "--server", &configured];
            let words = work.iter().chain(&options).map(ToString::to_string);
            let words: Vec<String> = words.collect();
            let (head, ran) = std::thread::scope(|scope| {
                let ran = scope.spawn(|| run_tracehold(&words));
                (head_of_one(&listener), ran.join().unwrap())
            });
            assert_eq!(
                head.contains("tracehold_secret"),
                is_sent,
                "{work:?}: {head}"
            );
            let errors = String::from_utf8(ran.stderr).unwrap();
            assert_eq!(errors.contains("add --server"), !is_sent, "{errors}");
            assert_ne!(ran.status.code(), Some(0), "{errors}");
        }
    }
}

/// The head of a request, and the rest of its body once `meanwhile` is done; returns the status.
fn in_two_parts(
    server: &Server,
    (path, media_type, token): (&str, &str, &str),
    body: [&[u8]; 2],
    meanwhile: impl FnOnce(),
) -> (u16, String) {
    // Without a second part, something is missing for ever.
    let length = body[0].len() + body[1].len().max(1);
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media_type}\r\n\
         content-length: {length}\r\n{token}\r\n"
    );
    let mut connection = server.connect();
    connection.write(&[head.as_bytes(), body[0]]).unwrap();
    // Until the head was admitted.
    std::thread::sleep(std::time::Duration::from_millis(300));
    meanwhile();
    // Whoever is shut out may be answered before, even when nothing comes.
    let _ = connection.write(&[body[1]]);
    let answer = connection.read_response(false).unwrap();
    assert_eq!(
        answer.header("www-authenticate").is_some(),
        answer.status == 401
    );
    (answer.status, String::from_utf8(answer.body).unwrap())
}

/// What was admitted before the first token, or before a revocation, ends with it.
#[test]
fn a_body_that_arrives_after_its_caller_was_shut_out_does_nothing() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("s");
    let stream = harness::Agent::declare(&mut api, &storage, "web", "t", "none");
    let create: [&[u8]; 2] = [b"{\"name\":", b"\"evil\",\"role\":\"operator\"}"];
    let json = "application/json";
    let tokens = "/api/v1/tokens";
    let mut operator = String::new();
    let (status, body) = in_two_parts(&server, (tokens, json, ""), create, || {
        operator = self::create(&server, None, &["operator"]);
    });
    assert!(status == 401 && body.contains("token_required"), "{body}");

    let revoked = |role: &str, path: &str, media_type: &str, body: [&[u8]; 2]| {
        let token = self::create(&server, Some(&operator), &[role]);
        let field = format!("authorization: Bearer {token}\r\n");
        let id = token.split('_').nth(1).unwrap();
        in_two_parts(&server, (path, media_type, &field), body, || {
            let revoke = ["token", "revoke", id];
            assert_eq!(tracehold(&server, Some(&operator), &revoke).0, 0);
        })
    };
    let (status, body) = revoked("operator", tokens, json, create);
    assert!(status == 401 && body.contains("token_invalid"), "{body}");
    let record = |sequence| {
        let payload = b"packet";
        let position = storage_format::StreamPosition::new(1, sequence);
        let header = storage_format::batch::RecordHeader::of(payload, position);
        [&header.encode()[..], payload].concat()
    };
    let (first, rest) = (record(0), [record(1), record(2)].concat());
    let batch = storage_format::batch::MEDIA_TYPE;
    let (status, body) = revoked("agent", stream.path(), batch, [&first, &rest]);
    assert!(status == 401 && body.contains("token_invalid"), "{body}");
    // Also when nothing more comes, for less than the time that a silent body has.
    let begin = Instant::now();
    let (status, body) = revoked("operator", tokens, json, [create[0], b""]);
    assert!(status == 401 && body.contains("token_invalid"), "{body}");
    let brief = self::create(&server, Some(&operator), &["operator", "--expires", "2s"]);
    let field = format!("authorization: Bearer {brief}\r\n");
    let unfinished = [create[0], b""];
    let (status, body) = in_two_parts(&server, (tokens, json, &field), unfinished, || {});
    assert!(status == 401 && body.contains("token_invalid"), "{body}");
    assert!(
        begin.elapsed() < Duration::from_secs(15),
        "{:?}",
        begin.elapsed()
    );
    let ask = Request::new("HEAD", stream.path());
    let ask = ask.header("authorization", format!("Bearer {operator}"));
    let next = server.connect().send(&ask).unwrap();
    assert_eq!(next.header("tracehold-next-sequence"), Some("1"));
    let list = tracehold(&server, Some(&operator), &["token", "list"]).1;
    assert!(!list.contains("evil"), "{list}");
}

#[test]
fn a_token_of_an_agent_sends_spans_of_that_agent_alone() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let operator = create(&server, None, &["operator"]);
    let token = create(&server, Some(&operator), &["agent", "--agent", "shop"]);
    let of_storage = [
        &["storage", "create", "s"][..],
        &[
            "token",
            "create",
            "--name",
            "n",
            "--role",
            "agent",
            "--storage",
            "s",
        ],
    ];
    let [_, (code, other, errors)] =
        of_storage.map(|words| tracehold(&server, Some(&operator), words));
    assert_eq!(code, 0, "{errors}");
    let span = |id| harness::spans::TestSpan {
        trace: 1,
        id,
        parent: 0,
        name: "x",
        time: (0, 1),
    };
    let of = |service: &str| harness::spans::request(service, &[span(1)]);
    let both = {
        let mut both: Value = serde_json::from_str(&of("shop")).unwrap();
        let mut stranger: Value = serde_json::from_str(&of("bank")).unwrap();
        let resources = both["resourceSpans"].as_array_mut().unwrap();
        resources.append(stranger["resourceSpans"].as_array_mut().unwrap());
        both.to_string()
    };
    for (token, body, http, grpc) in [
        (&token, of("bank"), 403, 7),
        (&token, both, 403, 7),
        (&other.trim().to_owned(), of("shop"), 403, 7),
        (&token, of("shop"), 200, 0),
        (&operator, of("free"), 200, 0),
    ] {
        let bearer = format!("Bearer {token}");
        let request = Request::new("POST", "/v1/traces")
            .header("content-type", "application/json")
            .header("authorization", &bearer)
            .body(body.as_bytes());
        let answer = server.connect().send(&request).unwrap();
        assert_eq!(answer.status, http, "{body}: {}", answer.brief());
        let message = trace_kinds::otlp::to_protobuf(body.as_bytes()).unwrap();
        let message = framed(0, &message);
        let answer = call(
            server.address(),
            EXPORT,
            ("authorization", &bearer),
            &message,
        );
        assert_eq!(status(&answer).0, grpc, "{body}: {}", answer.brief());
    }
    let ask = Request::new("GET", "/api/v1/agents");
    let ask = ask.header("authorization", format!("Bearer {operator}"));
    let agents = server.connect().send(&ask).unwrap().json();
    let agents = agents["items"].as_array().unwrap().iter();
    let agents: Vec<_> = agents.map(|agent| agent["id"].as_str().unwrap()).collect();
    assert_eq!(agents, ["free", "shop"]);
}
