//! Queries, ranges and writes in the trace of the server's I/O: blocks of every cache and the
//! request they were read for, read by every program that reads traces.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::{Agent, Api, Connection, Request, Server, Settings, without};
use serde_json::{Value, json};
use trace_kinds::io_trace::packet_bytes;

use crate::io_trace::{decoded, having, push, tracehold};
use crate::queries::wait_for_indexes;

/// So many different keys that the chunk index has filters for them, not dictionaries.
fn dft_trace(folder: &Path) -> String {
    let mut text = String::from("[\n");
    for event in 0_u64..20_000 {
        let key = key(event);
        let _ = writeln!(
            text,
            "{{\"id\":{event},\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":{},\"tid\":1,\
             \"ts\":{},\"dur\":5,\"ph\":\"X\",\"args\":{{\"key\":\"{key}\"}}}}",
            event % 3,
            1_000_000 + event * 10
        );
    }
    let path = folder.join("trace.pfw");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn key(event: u64) -> String {
    let mut random = harness::Random::new(event);
    format!("{:016x}{:016x}", random.number(), random.number())
}

fn settings() -> Settings {
    Settings::with_config(
        "[query]\nchunk_bytes = 131072\nindex_growth_bytes_min = 1\nindex_fields = [\"args.key\"]\n",
    )
}

/// Runs a query with a request id chosen by the test, and returns the count.
fn count(connection: &mut Connection, storage: &str, id: &str, query: &str) -> u64 {
    let path = format!("/api/v1/storages/{storage}/query");
    let body = json!({"query": query, "count": true}).to_string();
    let request = Request::new("POST", &path)
        .header("content-type", "application/json")
        .header("x-request-id", id)
        .body(body.as_bytes());
    let response = connection.send(&request).unwrap();
    assert_eq!(response.status, 200);
    let answer: Value = serde_json::from_slice(&response.body).unwrap();
    answer["count"].as_u64().unwrap()
}

/// The decoded trace of `work`.
fn traced(server: &Server, folder: &Path, work: impl FnOnce(&mut Api)) -> (String, Vec<Value>) {
    let mut api = server.api();
    api.done("POST", "/io-trace/start", None);
    work(&mut api);
    let ended = server.api().done("POST", "/io-trace/stop", None);
    assert_eq!(ended["dropped"], 0, "{ended}");
    let trace = ended["storage"].as_str().unwrap().to_owned();
    let to = folder.join(&trace).display().to_string();
    let (code, _, err) = tracehold(server, &["io-trace", "export", &trace, &to]);
    assert_eq!(code, 0, "{err}");
    (trace.clone(), decoded(&folder.join(trace)))
}

#[test]
fn the_trace_contains_blocks_of_every_cache() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &settings());
    let mut api = server.api();
    let storage = api.create_storage("events");
    let file = dft_trace(folder.path());
    let push = [
        "push",
        "--storage",
        &storage,
        "--agent",
        "host",
        "--packet-bytes",
        "65536",
        &file,
    ];
    let (code, _, err) = tracehold(&server, &push);
    assert_eq!(code, 0, "{err}");
    api.finalize(&storage);
    wait_for_indexes(&server, &storage);
    let query = format!("args.key == '{}' and dur < 7", key(4_321));
    let (trace, events) = traced(&server, folder.path(), |_| {
        let mut connection = server.connect();
        assert_eq!(count(&mut connection, &storage, "query-1", &query), 1);
        // The first result is cached next to the storage and used for the second query.
        let cache = || server.data().join("storages").join(&storage).join("cache");
        wait_until("the result is cached", || {
            std::fs::read_dir(cache()).is_ok_and(|names| {
                names
                    .flatten()
                    .any(|name| name.path().extension().is_some_and(|e| e == "cached"))
            })
        });
        assert_eq!(count(&mut connection, &storage, "query-2", &query), 1);
        let other = query.replace("< 7", "< 8");
        assert_eq!(count(&mut connection, &storage, "query-3", &other), 1);
        server.api().packet(&storage, 3);
    });
    let of = |request: &str, members: &[(&str, Value)]| {
        let mut all = members.to_vec();
        all.push(("/args/request_id", json!(request)));
        all.push(("/args/storage", json!(storage)));
        let found = having(&events, &all);
        found.into_iter().cloned().collect::<Vec<Value>>()
    };
    let has_lookup = |request: &str, block: &str, hit: bool| {
        let members = [
            ("/name", json!("lookup")),
            ("/args/block_type", json!(block)),
            ("/args/is_cache_hit", json!(hit)),
            ("/args/not_inserted", json!(false)),
            ("/args/cause", json!("query")),
        ];
        of(request, &members)
    };
    let filters = has_lookup("query-1", "filter", false);
    assert!(!filters.is_empty(), "the first query loads filters");
    assert!(has_lookup("query-1", "filter", true).is_empty());
    for filter in &filters {
        assert!(
            filter["args"]["block_size"].as_u64() > Some(1000),
            "{filter}"
        );
        assert!(filter["args"]["entries"].as_u64() > Some(0), "{filter}");
        assert_eq!(filter["cat"], "chunk_index");
        assert_ne!(filter["args"]["leaf"], 0);
    }
    assert!(
        !has_lookup("query-3", "filter", true).is_empty(),
        "they are cached for the next query"
    );
    assert!(has_lookup("query-3", "filter", false).is_empty());
    let read = |request: &str, class: &str| {
        of(request, &[("/name", json!("read")), ("/cat", json!(class))])
    };
    assert!(
        !read("query-1", "data").is_empty(),
        "what filters do not rule out is read"
    );
    assert!(
        read("query-1", "data").iter().all(|read| {
            read["args"]["is_cache_hit"].is_boolean() && read["args"]["cause"] == "query"
        }),
        "whether the system had it is known"
    );
    assert!(!read("query-1", "chunk_index").is_empty());
    let known = |block: &str| {
        has_lookup("query-1", block, true).len() + has_lookup("query-1", block, false).len()
    };
    assert!(known("dictionary") > 0 && known("index") > 0);
    assert_eq!(has_lookup("query-1", "answer", false).len(), 1);
    assert_eq!(has_lookup("query-2", "answer", true).len(), 1);
    assert!(
        read("query-2", "data").is_empty(),
        "a cached result reads no events"
    );
    let index_part = [
        ("/name", json!("lookup")),
        ("/cat", json!("index")),
        ("/args/block_type", json!("index")),
        ("/args/found", json!(true)),
    ];
    assert!(!having(&events, &index_part).is_empty());
    analyzed(&server, &trace);
    queried(&server, folder.path(), &trace, &events);
    operator_part(&server, folder.path(), &trace);
}

/// The trace is queried on the running server, and its files without a server: the events are the
/// same.
fn queried(server: &Server, folder: &Path, trace: &str, events: &[Value]) {
    let exported = folder.join(trace);
    let (exported, stream) = (exported.display().to_string(), exported.join("stream"));
    let stream = stream.display().to_string();
    for (query, members) in [
        (
            "name == 'read' and cat == 'data'",
            vec![("/name", "read"), ("/cat", "data")],
        ),
        (
            "args.block_type == 'filter' and args.cause == 'query'",
            vec![("/args/block_type", "filter"), ("/args/cause", "query")],
        ),
        ("", vec![]),
    ] {
        let members: Vec<_> = members
            .iter()
            .map(|(at, text)| (*at, json!(text)))
            .collect();
        let expected = having(events, &members).len() as u64;
        assert!(expected > 0, "{query}");
        for source in [&["--storage", trace][..], &[&exported], &[&stream]] {
            let query = [&["query"], source, &[query, "--count", "--json"]].concat();
            let (code, out, err) = tracehold(server, &query);
            assert_eq!(code, 0, "{query:?}: {err}");
            let counted: Value = serde_json::from_str(&out).unwrap();
            assert_eq!(counted["count"].as_u64(), Some(expected), "{query:?}");
        }
    }
    // A truncated stream is read up to the last complete packet.
    let complete = std::fs::read(&stream).unwrap();
    let torn = folder.join("torn");
    std::fs::write(&torn, &complete[..complete.len() - 5]).unwrap();
    let torn = torn.display().to_string();
    let (_, out, err) = tracehold(server, &["query", &torn, "", "--count", "--json"]);
    let counted: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        counted["count"].as_u64(),
        Some(events.len() as u64),
        "{err}"
    );
    assert!(err.contains("torn"), "the truncation is reported: {err}");
    let (code, _, err) = tracehold(server, &["decode", &torn]);
    assert!(code == 1 && err.contains(&torn), "{code} {err}");
    let (code, out, err) = tracehold(server, &["analyze", &torn]);
    assert!(code == 1 && out.contains("read"), "{code} {out}");
    assert!(err.contains("packet"), "{err}");
    // Without the last packet, which has the end record, nothing is torn.
    let interrupted = folder.join("interrupted");
    std::fs::write(&interrupted, first_packets(&complete)).unwrap();
    let interrupted = interrupted.display().to_string();
    let (code, _, err) = tracehold(server, &["decode", &interrupted]);
    assert!(code == 1 && err.contains("no end record"), "{code} {err}");
}

/// The packets of a stream but for the last one.
fn first_packets(stream: &[u8]) -> &[u8] {
    let mut end = 0;
    loop {
        let length = packet_bytes(&stream[end..]).unwrap();
        let next = end + usize::try_from(length).unwrap();
        if next >= stream.len() {
            return &stream[..end];
        }
        end = next;
    }
}

/// What an operator does with the trace: tables, files, a timeline, and export for other programs.
fn operator_part(server: &Server, folder: &Path, trace: &str) {
    let out = folder.join("out");
    let picture = folder.join("picture.svg");
    let (files, svg) = (out.display().to_string(), picture.display().to_string());
    let analyze = |more: &[&str]| {
        let (code, out, err) =
            tracehold(server, &[&["analyze", "--storage", trace], more].concat());
        assert_eq!(code, 0, "{more:?}: {err}");
        out
    };
    let report: Value =
        serde_json::from_str(&analyze(&["--json", "--out", &files, "--plot", &svg])).unwrap();
    for part in [
        "latencies",
        "throughput",
        "sequential",
        "heat_maps",
        "slowest",
        "working_set",
    ] {
        let rows = report[part].as_array();
        assert!(
            rows.is_some_and(|rows| !rows.is_empty()),
            "{part} in {report:#}"
        );
    }
    assert!(report["amplification"].is_object(), "{report:#}");
    assert!(report["working_set_read_bytes"].as_u64() > Some(0));
    assert!(std::fs::read_dir(&out).unwrap().count() >= 5);
    let svg_text = std::fs::read_to_string(&picture).unwrap();
    assert!(svg_text.starts_with("<svg") && svg_text.trim_end().ends_with("</svg>"));
    let caches = folder.join("caches");
    let look_ups = ["--lookups", "--all", "--cache-sizes", "16K,1M", "--out"];
    let to = caches.display().to_string();
    analyze(&[&look_ups[..], &[&to, "--plot", &svg]].concat());
    assert!(std::fs::read_dir(&caches).unwrap().count() >= 20);
    assert!(
        std::fs::read_to_string(&picture)
            .unwrap()
            .contains("capacity")
    );
    replayed_by_fio(folder, &report, &analyze);
}

/// fio accepts the iolog and does as many reads of as many bytes as were recorded.
fn replayed_by_fio(folder: &Path, report: &Value, analyze: &dyn Fn(&[&str]) -> String) {
    let log = folder.join("fio.log");
    analyze(&["--export", &format!("fio={}", log.display())]);
    let fio = Command::new("fio")
        .args([
            "--name=replay",
            "--ioengine=null",
            "--replay_no_stall=1",
            "--output-format=json",
        ])
        .arg(format!("--read_iolog={}", log.display()))
        .current_dir(folder)
        .output();
    let Ok(fio) = fio else {
        without("fio");
        return;
    };
    let text = String::from_utf8_lossy(&fio.stdout).into_owned();
    assert!(
        fio.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&fio.stderr)
    );
    let json = &text[text.find('{').unwrap()..];
    let replayed: Value = serde_json::from_str(json).unwrap();
    let lines = std::fs::read_to_string(&log).unwrap();
    let reads: Vec<u64> = lines
        .lines()
        .filter(|line| line.split(' ').nth(2) == Some("read"))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    let read = &replayed["jobs"][0]["read"];
    assert_eq!(
        read["total_ios"].as_u64(),
        Some(reads.len() as u64),
        "{text}"
    );
    assert_eq!(
        read["io_bytes"].as_u64(),
        Some(reads.iter().sum()),
        "{text}"
    );
    let rows = report["latencies"].as_array().unwrap();
    let of_reads = rows.iter().filter(|row| row["operation"] == "read");
    let known: u64 = of_reads.map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(reads.len() as u64, known, "{rows:#?}");
}

/// The block caches in the trace, evaluated by the analysis of block caches.
fn analyzed(server: &Server, trace: &str) {
    let report = |more: &[&str]| {
        let look_ups = ["analyze", "--storage", trace, "--lookups", "--json"];
        let (code, out, err) = tracehold(server, &[&look_ups, more].concat());
        assert_eq!(code, 0, "{err}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let accesses = |report: &Value| report["accesses"].as_u64().unwrap();
    let all = report(&["--cache-sizes", "64K,1M"]);
    let mut sum = 0;
    for blocks in ["index", "filter", "data", "dictionary", "answer"] {
        let of_type = accesses(&report(&["--blocks", blocks]));
        assert!(of_type > 0, "no look-up of {blocks} blocks");
        sum += of_type;
    }
    assert_eq!(sum, accesses(&all));
    let pages = report(&["--blocks", "data", "--page-bytes", "65536"]);
    assert!(accesses(&pages) < accesses(&report(&["--blocks", "data"])));
    let (code, _, err) = tracehold(
        server,
        &[
            "analyze",
            "--storage",
            trace,
            "--lookups",
            "--blocks",
            "teleport",
        ],
    );
    assert_eq!(code, 2, "{err}");
}

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "not within a minute: {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A write or a sync serves several requests: the trace names the first and counts all.
#[test]
fn writes_name_the_requests_they_serve() {
    let (folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("written");
    let agent = Agent::declare(&mut api, &storage, "a", "s", "none");
    let push = |sequence: u64| {
        let packet = harness::payload(1, sequence, 5_000);
        let request = Request::new("POST", agent.path())
            .header("content-type", "application/octet-stream")
            .header("tracehold-epoch", 1)
            .header("tracehold-sequence", sequence)
            .header("x-request-id", format!("push-{sequence}"))
            .body(&packet);
        assert_eq!(server.connect().send(&request).unwrap().status, 200);
    };
    let (_, events) = traced(&server, folder.path(), |_| (0..6).for_each(push));
    for sequence in 0..6 {
        for name in ["write", "sync"] {
            let members = [
                ("/name", json!(name)),
                ("/cat", json!("data")),
                ("/args/cause", json!("ingest")),
                ("/args/storage", json!(storage)),
                ("/args/request_id", json!(format!("push-{sequence}"))),
            ];
            let found = having(&events, &members);
            assert_eq!(found.len(), 1, "{name} {sequence} of {events:#?}");
            assert_eq!(found[0]["args"]["requests"], 1);
        }
    }
}

/// Only the selected operations and storages are recorded, and dropped records are counted.
#[test]
fn selected_operations_are_recorded_and_drops_counted() {
    const READS: u64 = 200;
    let (folder, mut server, mut api) = Server::fresh();
    let storages = ["wanted", "other"].map(|name| {
        let storage = push(&mut api, name, 8);
        api.finalize(&storage);
        storage
    });
    let [wanted, _] = &storages;
    let read = |server: &Server| {
        for storage in &storages {
            let files = server.api().files(storage);
            let (name, ..) = files.iter().max_by_key(|file| file.2).unwrap();
            // Far enough apart to be read separately.
            let ranges: Vec<_> = (0..READS).map(|n| format!("{0}-{0}", n * 700)).collect();
            let ranges = format!("bytes={}", ranges.join(","));
            let path = format!("/storage/{storage}/{name}");
            let request = Request::new("GET", &path).header("range", &ranges);
            assert_eq!(server.connect().send(&request).unwrap().status, 206);
        }
    };
    let trace = |server: &Server, wish: &Value| {
        server.api().done("POST", "/io-trace/start", Some(wish));
        read(server);
        let ended = server.api().done("POST", "/io-trace/stop", None);
        let trace = ended["storage"].as_str().unwrap().to_owned();
        let to = folder.path().join(&trace);
        let path = to.display().to_string();
        let (code, _, err) = tracehold(server, &["io-trace", "export", &trace, &path]);
        assert_eq!(code, 0, "{err}");
        (ended, to)
    };
    let reads = [("/name", json!("read")), ("/cat", json!("data"))];
    let (all, to) = trace(
        &server,
        &json!({"storages": [wanted], "operations": {"open": 0}}),
    );
    let events = decoded(&to);
    assert_eq!(all["dropped"], 0, "{all}");
    assert!(
        events
            .iter()
            .all(|event| event["args"]["storage"] == json!(wanted))
    );
    assert!(having(&events, &[("/name", json!("open"))]).is_empty());
    let known = having(&events, &reads).len() as u64;
    assert!(known >= READS, "{known} reads");

    let sampled = json!({"storages": [wanted], "operations": {"read": 10}});
    let (_, to) = trace(&server, &sampled);
    let recorded = having(&decoded(&to), &reads).len() as u64;
    // Each thread counts separately and records its first one.
    assert!(
        (known / 10..known / 2).contains(&recorded),
        "{recorded} of {known}"
    );

    let stretches = json!({"storages": [wanted], "blocks_one_in": 1_000_000});
    let (_, to) = trace(&server, &stretches);
    assert!(
        having(&decoded(&to), &reads).is_empty(),
        "one stretch in a million"
    );

    server.terminate();
    assert!(server.wait(Duration::from_secs(60)).success());
    let small = "[io_trace]\nthread_records_max = 1\n";
    server.restart_with(&Settings::with_config(small));
    let (full, to) = trace(
        &server,
        &json!({"storages": [wanted], "operations": {"open": 0}}),
    );
    let events = decoded(&to);
    let dropped = full["dropped_by_operation"]["read"].as_u64().unwrap();
    assert!(dropped > 0, "{full}");
    assert_eq!(full["recorded"].as_u64(), Some(events.len() as u64));
    let stream = to.join("stream").display().to_string();
    let (code, text, err) = tracehold_alone(&["decode", &stream]);
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = tracehold_alone(&["analyze", &stream]);
    let told = format!("the server dropped {} operations", full["dropped"]);
    assert!(code == 0 && err.contains(&told), "{code} {err}");
    let message = format!("{} dropped", full["dropped"]);
    assert!(
        text.lines().last().unwrap().contains(&message),
        "{message}: {text}"
    );
}

fn tracehold_alone(arguments: &[&str]) -> (i32, String, String) {
    let all: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let output = harness::run_tracehold(&all);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}
