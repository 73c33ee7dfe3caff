//! A client can detect that a response is incomplete, and a query stops when its client
//! disconnects.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use harness::{Connection, Request, Server, Settings, run_tracehold, without};
use serde_json::Value;

use crate::incomplete_results::pushed;
use crate::queries::run;

fn write_trace(path: &Path, lines: u64) {
    let mut text = String::new();
    for line in 0..lines {
        writeln!(
            text,
            "{{\"id\":{line},\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":2,\"ts\":{},\
             \"dur\":{},\"ph\":\"X\",\"args\":{{\"ret\":{line}}}}}",
            1_000_000 + line * 10,
            line % 7,
        )
        .unwrap();
    }
    fs::write(path, text).unwrap();
}

fn push(server: &Server, storage: &str, trace: &Path) {
    let trace = trace.to_str().unwrap();
    let url = server.url();
    let words = [
        "push",
        "--server",
        &url,
        "--storage",
        storage,
        "--packet-bytes",
        "65536",
        trace,
    ];
    let output = run_tracehold(&words.map(str::to_owned));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
}

#[test]
fn a_truncated_response_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 60_000);
    // No index, and one thread: rows are sent as they are read, long before the damage is reached.
    let settings =
        "[query]\nthreads = 1\nindex_growth_bytes_min = 1000000000\nwaiting_bytes_max = 1\n";
    let server = Server::start(folder.path(), &Settings::with_config(settings));
    let mut api = server.api();
    let storage = api.create_storage("damaged");
    push(&server, &storage, &trace);
    let files = api.files(&storage);
    let data = files.iter().find(|file| file.1 == "data").unwrap();
    let path = server.data().join("storages").join(&storage).join(&data.0);
    // A strict query skips nothing, and fails when its first rows are sent already.
    let bytes = fs::read(&path).unwrap();
    let frames_end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    fs::write(&path, &bytes[..frames_end - 20]).unwrap();
    let url = server.url();
    for format in [
        "ndjson", "csv", "text", "arrow", "parquet", "perfetto", "chrome",
    ] {
        let body = format!("{{\"format\": \"{format}\", \"strict\": true}}");
        let target = format!("/api/v1/storages/{storage}/query");
        let mut connection = Connection::open(server.address()).unwrap();
        let request = Request::new("POST", &target)
            .header("content-type", "application/json")
            .body(body.as_bytes());
        match connection.send(&request) {
            Err(_broken_off) => {}
            Ok(response) => assert_eq!(response.status, 409, "{format}: {}", response.brief()),
        }
        let words = [
            "query",
            "--server",
            &url,
            "--storage",
            &storage,
            "--format",
            format,
            "--strict",
        ];
        let output = run_tracehold(&words.map(str::to_owned));
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code().unwrap() >= 3, "{format}: {complaint}");
        assert!(!complaint.is_empty());
    }
}

/// Sends a query over HTTP/1.0; returns the head of the response and all bytes until the connection
/// closed.
fn query_http_1_0(server: &Server, target: &str, body: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let length = body.len();
    let request = format!(
        "POST {target} HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         \r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let body = answer.split_off(end.expect("a head") + 4);
    (String::from_utf8(answer).unwrap().to_lowercase(), body)
}

#[test]
fn http_1_0_gets_complete_responses_with_a_length() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 2000);
    let settings = "[query]\nwhole_answer_bytes_max = 20000\n";
    let server = Server::start(folder.path(), &Settings::with_config(settings));
    let mut api = server.api();
    let storage = api.create_storage("old");
    push(&server, &storage, &trace);
    let target = format!("/api/v1/storages/{storage}/query");
    let response_to = |body: &str| {
        let request = Request::new("POST", &target)
            .header("content-type", "application/json")
            .body(body.as_bytes());
        server.api().send(&request).unwrap()
    };
    for short in [
        r#"{"count": true}"#,
        r#"{"query": "ret == 5"}"#,
        r#"{"query": "ret == 5000"}"#,
        r#"{"query": "ret < 50", "format": "arrow", "fields": ["ret"]}"#,
        r#"{"group_by": "name"}"#,
    ] {
        let (head, body) = query_http_1_0(&server, &target, short);
        assert!(head.starts_with("http/1.0 200"), "{head}");
        assert_eq!(body, response_to(short).body, "{short}");
        let length = format!("content-length: {}\r\n", body.len());
        assert!(head.contains(&length), "{head}");
        assert!(!head.contains("transfer-encoding"), "{head}");
    }
    // Longer than allowed: some rows had been found, and none of them is sent.
    for long in ["{}", r#"{"format": "csv"}"#, r#"{"format": "parquet"}"#] {
        let refusal = response_to(long);
        assert!(
            refusal.status == 200 && refusal.body.len() > 20_000,
            "{long}"
        );
        let (head, body) = query_http_1_0(&server, &target, long);
        assert!(head.starts_with("http/1.0 505"), "{head}");
        let problem: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["code"], "http_version_not_supported");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("20000 bytes"), "{detail}");
        let remedy = problem["remedy"].as_str().unwrap();
        assert!(remedy.contains("proxy_http_version 1.1"), "{remedy}");
    }
    let together = format!("/api/v1/storages/{storage}/queries");
    for (queries, status) in [
        (
            r#"{"queries": [{"count": true}, {"group_by": "name"}]}"#,
            "200",
        ),
        (r#"{"queries": [{"count": true}, {}]}"#, "505"),
    ] {
        let (head, body) = query_http_1_0(&server, &together, queries);
        assert!(head.starts_with(&format!("http/1.0 {status}")), "{head}");
        let length = format!("content-length: {}\r\n", body.len());
        assert!(head.contains(&length), "{head}");
    }
    let (head, body) = query_http_1_0(&server, &target, r#"{"query": "ret =="}"#);
    assert!(head.starts_with("http/1.0 400"), "{head}");
    assert!(body.starts_with(b"{"));
}

/// nginx in front of a server, with default settings for its connections to the server.
struct Nginx {
    child: Child,
    socket: PathBuf,
}

impl Nginx {
    /// Prints a note and returns `None` if nginx is not installed.
    fn start(folder: &Path, server: &Server) -> Option<Self> {
        fs::create_dir(folder).unwrap();
        let socket = folder.join("socket");
        let (root, address) = (folder.display(), server.address());
        let mut temporary = String::new();
        for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
            writeln!(temporary, "{kind}_temp_path {root}/{kind};").unwrap();
        }
        let config = format!(
            "daemon off; master_process off; worker_processes 1; pid {root}/pid;\n\
             error_log {root}/errors;\nevents {{ }}\nhttp {{\naccess_log off;\n{temporary}\
             server {{ listen unix:{}; location / {{ proxy_pass http://{address}; }} }}\n}}\n",
            socket.display(),
        );
        let path = folder.join("nginx.conf");
        fs::write(&path, config).unwrap();
        let started = Command::new("nginx")
            .args(["-e", "stderr", "-p"])
            .arg(folder)
            .arg("-c")
            .arg(&path)
            .spawn();
        match started {
            Ok(child) => {
                let nginx = Self { child, socket };
                let begin = Instant::now();
                while UnixStream::connect(&nginx.socket).is_err() {
                    assert!(
                        begin.elapsed() < Duration::from_secs(60),
                        "nginx is not there"
                    );
                    std::thread::sleep(Duration::from_millis(10));
                }
                Some(nginx)
            }
            Err(_) => {
                without("nginx");
                None
            }
        }
    }

    /// The status and all bytes of a response.
    fn query(&self, target: &str, body: &str) -> (u16, Vec<u8>) {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let length = body.len();
        let request = format!(
            "POST {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let status = std::str::from_utf8(&answer[9..12]).unwrap().parse();
        (status.unwrap(), answer)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_proxy_with_default_settings_passes_complete_responses() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 2000);
    let settings = "[query]\nwhole_answer_bytes_max = 20000\n";
    let server = Server::start(
        &folder.path().join("server"),
        &Settings::with_config(settings),
    );
    let Some(nginx) = Nginx::start(&folder.path().join("nginx"), &server) else {
        return;
    };
    let mut api = server.api();
    let storage = api.create_storage("proxied");
    push(&server, &storage, &trace);
    let target = format!("/api/v1/storages/{storage}/query");
    let (status, answer) = nginx.query(&target, r#"{"count": true}"#);
    assert_eq!(status, 200);
    assert!(answer.ends_with(b"{\"count\":2000}\n"), "{answer:?}");
    let (status, answer) = nginx.query(&target, "{}");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(
        status == 505 && answer.contains("proxy_http_version 1.1"),
        "{answer}"
    );
}

#[test]
fn a_query_stops_when_its_client_disconnects() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 200_000);
    let settings = "[query]\nthreads = 1\nindex_growth_bytes_min = 1000000000\n";
    let server = Server::start(folder.path(), &Settings::with_config(settings));
    let mut api = server.api();
    let storage = api.create_storage("big");
    push(&server, &storage, &trace);
    let body = br#"{"query": "ret ~ '99(9|8)' and name ~ 'r.*d'", "group_by": "ret"}"#;
    let target = format!("/api/v1/storages/{storage}/query");
    let head = format!(
        "POST {target} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let begin = Instant::now();
    // A fast machine may finish some of them before it notices that the client disconnected.
    while api.metric("tracehold_queries_cancelled_total") == 0.0 {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{}",
            server.log()
        );
        let mut connection = Connection::open(server.address()).unwrap();
        connection.write(&[head.as_bytes(), body]).unwrap();
        let running = Instant::now();
        while api.metric("tracehold_queries_running") == 0.0
            && running.elapsed() < Duration::from_secs(2)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(connection);
        std::thread::sleep(Duration::from_millis(50));
    }
    let running = Instant::now();
    while api.metric("tracehold_queries_running") > 0.0 {
        assert!(
            running.elapsed() < Duration::from_secs(60),
            "{}",
            server.log()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a long result lacks is known when it ends, and HTTP/1.0 has no trailer fields.
#[test]
fn http_1_0_gets_what_a_long_result_lacks_in_its_head() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 20_000);
    let mut file = fs::File::options().append(true).open(&trace).unwrap();
    file.write_all(b"{\"name\":\n").unwrap();
    let settings = Settings::with_config("[query]\nwhole_answer_bytes_max = 10000000\n");
    let server = Server::start(&folder.path().join("server"), &settings);
    let storage = server.api().create_storage("lacking");
    push(&server, &storage, &trace);
    let target = format!("/api/v1/storages/{storage}/query");
    let (head, body) = query_http_1_0(&server, &target, "{}");
    assert!(head.starts_with("http/1.0 200"), "{head}");
    assert!(body.len() > 1_000_000, "{}", body.len());
    for field in ["tracehold-skipped: 1\r\n", "tracehold-skipped-reasons: ["] {
        assert!(head.contains(field), "{head}");
    }
}

/// Passes bytes on, with others of the same length for a part of them.
fn pass(mut from: TcpStream, mut to: TcpStream, part: &[u8], other: &[u8]) {
    let mut buffer = [0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = &mut buffer[..length];
        for at in 0..length.saturating_sub(part.len()) {
            if bytes[at..].starts_with(part) {
                bytes[at..at + part.len()].copy_from_slice(other);
            }
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    // Either end may be closed already.
    let _closed = to.shutdown(std::net::Shutdown::Write);
}

/// The address of a proxy that requests no trailer, and hides a field of the header.
fn proxy_without(server: &Server, field: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let upstream = server.url().trim_start_matches("http://").to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&upstream).unwrap());
            let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(|| pass(ends.0, ends.1, b"te: trailers", b"tx: trailers"));
            let hidden = field.replace('-', "x");
            std::thread::spawn(move || pass(server, client, field.as_bytes(), hidden.as_bytes()));
        }
    });
    format!("http://{address}")
}

#[test]
fn what_a_proxy_hides_of_damage_is_told_by_what_it_passes() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &Settings::default());
    let storage = pushed(&server, folder.path());
    let reasons = "cannot be read; the server skipped this data";
    let number = "the server skipped 4 records that cannot be read";
    for (hidden, form, told) in [
        ("tracehold-skipped", &["--count"][..], reasons),
        ("tracehold-skipped", &["--format", "ndjson"], reasons),
        ("tracehold-skipped", &["--group-by", "name"], reasons),
        ("tracehold-skipped-reasons", &["--format", "ndjson"], number),
        ("tracehold-skipped-reasons", &["--format", "csv"], number),
        (
            "tracehold-skipped-reasons",
            &["--format", "arrow", "--fields", "tid"],
            number,
        ),
    ] {
        let url = proxy_without(&server, hidden);
        let source = ["query", "--server", &url, "--storage", &storage];
        let (code, _, errors) = run(&[&source[..], form].concat());
        assert_eq!(code, 1, "{hidden} {form:?}: {errors}");
        assert!(errors.contains(told), "{hidden} {form:?}: {errors}");
    }
}

/// Commands that read a mount do not wait for a server that is not there.
#[test]
fn a_mount_whose_server_is_gone_fails_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 20_000);
    let mut server = Server::start(&folder.path().join("data"), &Settings::default());
    let storage = server.api().create_storage("gone");
    crate::queries::push(&server, &storage, &trace, "65536");
    server.api().finalize(&storage);
    let mounted = folder.path().join("mount");
    crate::queries::mount(&server, &storage, &mounted);
    server.kill();
    let mounted = mounted.to_str().unwrap();
    for more in [
        &["ret > 7"][..],
        &["--order-by", "ret"],
        &["--no-index", "dur == 3"],
    ] {
        let begin = Instant::now();
        let (code, _, errors) = run(&[&["query", "--dir", mounted], more].concat());
        assert_eq!(code, 4, "{more:?} {errors}");
        assert!(errors.contains("no connection to the server"), "{errors}");
        assert!(begin.elapsed() < Duration::from_secs(20), "{more:?}");
    }
}
