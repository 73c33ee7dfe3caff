//! An answer that cannot be finished is seen to be unfinished, and a query that nobody waits for
//! ends.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::{Connection, Request, Server, Settings, run_tracehold};

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
fn an_answer_that_breaks_off_is_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 60_000);
    // No index, and one thread: rows leave as they are read, long before the damage is met.
    let settings =
        "[query]\nthreads = 1\nindex_growth_bytes_min = 1000000000\nwaiting_bytes_max = 1\n";
    let server = Server::start(folder.path(), &Settings::with_config(settings));
    let mut api = server.api();
    let storage = api.create_storage("damaged");
    push(&server, &storage, &trace);
    let files = api.files(&storage);
    let data = files.iter().find(|file| file.1 == "data").unwrap();
    let path = server.data().join("storages").join(&storage).join(&data.0);
    let mut bytes = fs::read(&path).unwrap();
    let frames_end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[frames_end - 20] ^= 0x55;
    fs::write(&path, bytes).unwrap();
    let url = server.url();
    for format in ["ndjson", "csv", "text", "arrow", "parquet", "perfetto"] {
        let body = format!("{{\"format\": \"{format}\"}}");
        let target = format!("/api/v1/storages/{storage}/query");
        let mut connection = Connection::open(server.address()).unwrap();
        let request = Request::new("POST", &target)
            .header("content-type", "application/json")
            .body(body.as_bytes());
        match connection.send(&request) {
            Err(_broken_off) => {}
            Ok(response) => assert_eq!(response.status, 500, "{format}: {}", response.brief()),
        }
        let words = [
            "query",
            "--server",
            &url,
            "--storage",
            &storage,
            "--format",
            format,
        ];
        let output = run_tracehold(&words.map(str::to_owned));
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code().unwrap() >= 3, "{format}: {complaint}");
        assert!(!complaint.is_empty());
    }
}

#[test]
fn old_framing_that_hides_a_cut_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let storage = server.api().create_storage("empty");
    let mut connection = Connection::open(server.address()).unwrap();
    let head = format!(
        "POST /api/v1/storages/{storage}/query HTTP/1.0\r\ncontent-type: application/json\r\n\
         content-length: 2\r\n\r\n{{}}"
    );
    connection.write(&[head.as_bytes()]).unwrap();
    let response = connection.read_response(false).unwrap();
    assert_eq!(response.status, 505, "{}", response.brief());
    assert_eq!(response.json()["code"], "http_version_not_supported");
}

#[test]
fn a_query_of_a_client_that_left_ends() {
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
    // A fast machine may finish some of them before it sees that the client is gone.
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
