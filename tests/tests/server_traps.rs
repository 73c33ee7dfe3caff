//! The rows of TRAPS.md about a server that needed gigabytes of memory and 22 s for its first
//! response, because it loaded everything before it responded, and rebuilt an index that existed.
//! No test measures time: memory is counted by the kernel, and order is shown by what had not
//! happened yet.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::{Server, Settings};

use crate::queries::{push, settings, wait_for_indexes, write_trace};

/// Bytes of text in the larger trace, and in the smaller.
const TEXT_BYTES: usize = 48 << 20;
const FEWER_BYTES: usize = 16 << 20;

/// Lines of many lengths and times, together long enough to be visible in memory.
fn write_large(path: &Path, bytes: usize) -> u64 {
    let mut text = String::with_capacity(bytes + 1024);
    let mut line = 0_u64;
    while text.len() < bytes {
        writeln!(
            text,
            "{{\"id\":{line},\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":{},\"tid\":{},\"ts\":{},\
             \"dur\":{},\"ph\":\"X\",\"args\":{{\"ret\":{line},\"fname\":\"/p/{}/{:0>120}\"}}}}",
            line % 5,
            line % 11,
            1_000_000 + line * 10,
            line * 7919 % 1000,
            line % 97,
            line * 104_729 % 1_000_003,
        )
        .unwrap();
        line += 1;
    }
    fs::write(path, text).unwrap();
    line
}

#[test]
fn row_14_rows_leave_before_all_is_read_and_memory_does_not_grow_with_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let (small, large) = (
        folder.path().join("small.pfw"),
        folder.path().join("large.pfw"),
    );
    let fewer = write_large(&small, FEWER_BYTES);
    let lines = write_large(&large, TEXT_BYTES);
    // There is no index, and none is built meanwhile: a response must not wait for one. And ingest
    // has left nothing in memory that would hide the memory of a query.
    let config = "[query]\nthreads = 1\nwaiting_bytes_max = 1048576\n\
                  index_growth_bytes_min = 100000000000\n\
                  [ingest]\npacket_bytes_max = 1048576\nin_flight_bytes_max = 4194304\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let mut api = server.api();
    let (little, much) = (api.create_storage("little"), api.create_storage("much"));
    // The server closes connections that are idle for long.
    let metric = |name| server.api().metric(name);
    push(&server, &little, &small, "262144");
    push(&server, &much, &large, "262144");
    let query = |storage: &str, body: &str| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let request = format!(
            "POST /api/v1/storages/{storage}/query HTTP/1.1\r\nhost: localhost\r\n\
             content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let rows_of = |storage: &str, body: &str| {
        let mut answer = Vec::new();
        query(storage, body).read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    };
    const COUNT: &str = r#"{"query": "ret >= 0", "count": true}"#;
    const GROUP: &str = r#"{"query": "ret >= 0", "group_by": "pid"}"#;
    // From here on the peak contains what any query needs: the larger trace must not need more.
    for body in ["{}", COUNT, GROUP, "{}", "{}"] {
        let answer = rows_of(&little, body);
        assert!(answer.starts_with("HTTP/1.1 200") && fewer < lines);
    }
    let before = server.peak_bytes();
    let decoded_before = metric("tracehold_query_events_decoded_total");

    // There are far more rows than the buffers in between can hold. A client that reads only the
    // first rows sees that the query has not finished, and that it continues only as the client
    // reads.
    let mut stream = query(&much, "{}");
    let mut first = [0; 4096];
    stream.read_exact(&mut first).unwrap();
    let rows = String::from_utf8_lossy(&first).matches("\"name\":").count();
    assert!(rows > 3, "{}", String::from_utf8_lossy(&first));
    assert!(metric("tracehold_queries_running") >= 1.0);
    assert!(
        server
            .api()
            .files(&much)
            .iter()
            .all(|file| file.1 != "chunk_index")
    );
    let mut received = first.len();
    let mut room = vec![0; 1 << 16];
    let last = loop {
        match stream.read(&mut room).unwrap() {
            0 => break received,
            count => received += count,
        }
    };
    assert!(last > TEXT_BYTES / 2, "{last} bytes of rows");

    let counted = rows_of(&much, COUNT);
    assert!(
        counted.contains(&format!("{{\"count\":{lines}}}")),
        "{counted}"
    );
    let grouped = rows_of(&much, GROUP);
    assert_eq!(grouped.matches("\"count\":").count(), 5, "{grouped}");
    let decoded = metric("tracehold_query_events_decoded_total") - decoded_before;
    assert!(decoded >= 3.0 * lines as f64, "{decoded}: it was not read");
    let growth = server.peak_bytes().saturating_sub(before);
    // A server that loaded a trace would need four times the size of its text, as the other one
    // did; rows of one stretch that wait for each other are part of this.
    let more = (TEXT_BYTES - FEWER_BYTES) as u64;
    assert!(
        growth < more,
        "{growth} bytes more in memory for {more} bytes more of text, after {before}"
    );
}

#[test]
fn row_15_indexes_that_are_there_are_not_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 3_000);
    let mut server = Server::start(folder.path(), &settings());
    let storage = server.api().create_storage("indexed");
    push(&server, &storage, &trace, "16384");
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    let begin = Instant::now();
    let mut api = server.api();
    let before_restart: f64 = loop {
        let indexed = api.metric("tracehold_indexed_bytes_total");
        if indexed > 0.0 {
            break indexed;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{}",
            server.log()
        );
        std::thread::sleep(Duration::from_millis(10));
    };
    server.kill();
    server.restart();
    // The indexer works through all storages, older ones first: once the later storage has its
    // index, it has visited this one.
    let mut api = server.api();
    let later = api.create_storage("later");
    let short = folder.path().join("short.pfw");
    write_trace(&short, 200);
    push(&server, &later, &short, "16384");
    api.finalize(&later);
    wait_for_indexes(&server, &later);
    let fetched = |server: &Server| server.api().metric("tracehold_query_events_decoded_total");
    let before = fetched(&server);
    let counted = api.done(
        "POST",
        &format!("/storages/{storage}/query"),
        Some(&serde_json::json!({ "query": "name == 'fsync'", "count": true })),
    );
    assert_eq!(counted["count"], 1);
    // The response uses the index from before the restart: of 3,000 events only those of one chunk
    // were read.
    let decoded = fetched(&server) - before;
    assert!(decoded < 1_000.0, "{decoded} events decoded for one");
    let indexed = api.metric("tracehold_indexed_bytes_total");
    assert!(
        indexed > 0.0 && indexed < before_restart / 2.0,
        "{indexed} bytes indexed after the restart, {before_restart} before it"
    );
}
