//! Random results of every form and kind, compared with an evaluator over the rows of the trace:
//! from files with and without indexes, from storages that are open, finalized and arranged, and
//! from their mounts.
//!
//! `TRACEHOLD_RANDOM_QUERIES` is the number of queries for each kind.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use harness::spans::send;
use harness::{Agent, Api, Random, Server, small_traces};
use serde_json::{Value, json};

use crate::queries::{Ran, copy_all, mount, push, run, run_piped, settings, wait_for_indexes_of};
use crate::random_arithmetic::add_computed;
use crate::random_results::{Query, Row, check, check_by, query};
use crate::recording::{record_now, saver, stop};

/// Queries for each kind, unless the environment says another number.
const QUERIES: u64 = 8;
/// Fields of arithmetic, which queries use like any other.
const COMPUTED: u64 = 24;
/// Packets of one block each that precede a trace, so that finalization arranges its storage.
const SMALL_PACKETS: u64 = 256;
/// Requests with spans, and spans in each.
const REQUESTS: u64 = 40;
const SPANS: u64 = 15;

/// Random queries over the rows that a source has, which are complete.
pub(crate) fn queries(source: &[&str], seed: u64) -> Vec<Query> {
    queries_by(&run, source, seed)
}

fn queries_by(run: &dyn Fn(&[&str]) -> Ran, source: &[&str], seed: u64) -> Vec<Query> {
    let count = std::env::var("TRACEHOLD_RANDOM_QUERIES");
    let count = count.map_or(QUERIES, |count| count.parse().unwrap());
    let (_, out, errors) = run(&[&["query"], source, &["--format", "ndjson"]].concat());
    assert_eq!(errors, "");
    let rows = out.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut rows: Vec<Row> = rows.collect();
    assert!(rows.len() > 100, "{source:?}");
    let mut random = Random::new(seed);
    add_computed(&mut random, &mut rows, COMPUTED);
    (0..count).map(|_| query(&mut random, &rows)).collect()
}

/// Compares on a storage: open, finalized, and mounted. Some of its leaves are of kind `raw`.
fn check_storage(server: &Server, storage: &str, queries: &[Query], what: &str, raw: usize) {
    let url = server.url();
    let stored = ["--server", url.as_str(), "--storage", storage];
    check(queries, &stored, &format!("an open {what}"));
    let length = |server: &Server| -> u64 {
        let files = server.api().files(storage).into_iter();
        let data = files.filter(|(_, role, _)| role == "data");
        data.map(|(_, _, length)| length).sum()
    };
    let before = length(server);
    server.api().finalize(storage);
    wait_for_indexes_of(server, storage, server.api().leaves(storage).len() - raw);
    let is_arranged = length(server) < before;
    assert!(is_arranged || !what.contains("arranged"), "{what}");
    check(queries, &stored, &format!("a finalized {what}"));
    let mounted = server.data().join(format!("mount-{storage}"));
    mount(server, storage, &mounted);
    let mounted = ["--dir", mounted.to_str().unwrap()];
    check(queries, &mounted, &format!("a mounted {what}"));
}

/// Adds packets without events, each of which occupies a block of the log. Returns their leaves.
fn add_small_packets(api: &mut Api, storage: &str) -> usize {
    let agent = Agent::declare(api, storage, "small", "blocks", "none");
    for sequence in 0..SMALL_PACKETS {
        agent.push(api, sequence, b"raw");
    }
    api.leaves(storage).len()
}

fn check_trace(path: &Path, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join(path.file_name().unwrap());
    copy_all(path, &copy);
    let file = copy.to_str().unwrap();
    let queries = queries(&[file], seed);
    let server = Server::start(&folder.path().join("data"), &settings());
    for what in ["storage", "arranged storage"] {
        let storage = server.api().create_storage(what);
        let mut raw = 0;
        if what.contains("arranged") {
            raw = add_small_packets(&mut server.api(), &storage);
        }
        push(&server, &storage, &copy, "4096");
        check_storage(&server, &storage, &queries, what, raw);
    }
    check(&queries, &[file], file);
    let (_, _, errors) = run(&["index", file, "--chunk-kib", "16"]);
    assert_eq!(errors, "");
    check(&queries, &[file], &format!("{file} with an index"));
    if file.ends_with(".pfw.gz") {
        fs::remove_file(format!("{file}.idx")).unwrap();
        let (code, _, errors) = run(&["index", file, "--chunk-kib", "16", "--columns"]);
        assert_eq!(code, 0, "{errors}");
        check(&queries, &[file], &format!("{file} with columns"));
    }
}

#[test]
fn results_of_ctf_are_those_of_an_independent_evaluator() {
    check_trace(&small_traces()[0], 1);
}

#[test]
fn results_of_dftracer_are_those_of_an_independent_evaluator() {
    check_trace(&small_traces()[1], 2);
    check_piped(&small_traces()[1], 16);
}

#[test]
fn results_of_rocksdb_operations_are_those_of_an_independent_evaluator() {
    check_trace(&small_traces()[2], 3);
}

#[test]
fn results_of_chrome_are_those_of_an_independent_evaluator() {
    check_trace(&small_traces()[4], 5);
    check_compressed(&small_traces()[4], 12);
}

/// Compares on the bytes of a file that come through standard input, which cannot be read twice.
fn check_piped(path: &Path, seed: u64) {
    let piped = |arguments: &[&str]| run_piped(arguments, path);
    let queries = queries_by(&piped, &["-"], seed);
    check_by(
        &piped,
        &queries,
        &["-"],
        &format!("{} piped", path.display()),
    );
}

/// Compares on compressed copies of a file, which have its name, because that is the stream.
fn check_compressed(path: &Path, seed: u64) {
    let queries = queries(&[path.to_str().unwrap()], seed);
    let text = fs::read(path).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&text).unwrap();
    for bytes in [
        gzip.finish().unwrap(),
        zstd::encode_all(text.as_slice(), 1).unwrap(),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join(path.file_name().unwrap());
        fs::write(&copy, &bytes).unwrap();
        check_piped(&copy, seed);
        let copy = copy.to_str().unwrap();
        check(&queries, &[copy], &format!("{copy}, compressed"));
    }
}

/// A Chrome trace of nested slices of three threads and of overlapping requests, each of them two
/// records. Blanks make it longer than two packets of a file.
pub(crate) fn slices(random: &mut Random) -> String {
    let mut records = Vec::new();
    let mut open: [Vec<u64>; 4] = Default::default();
    let mut put = |ts: u64, phase: &str, track: usize, id: u64| {
        let own = match track {
            3 => format!("\"cat\":\"http\",\"id\":\"0x{id}\""),
            _ => format!("\"tid\":{track}"),
        };
        let name = ["main", "step", "read", "7"][usize::try_from(id % 4).unwrap()];
        let blanks = " ".repeat(1500);
        records.push(format!(
            "{{\"ph\":\"{phase}\",\"ts\":{ts}.5,{blanks}\"pid\":1,{own},\"name\":\"{name}\",\
             \"args\":{{\"ret\":{id}}}}}"
        ));
    };
    for ts in 0..1_400 {
        let track = usize::try_from(random.below(4)).unwrap();
        let stack = &mut open[track];
        let (begin, end) = if track == 3 { ("b", "e") } else { ("B", "E") };
        if stack.len() < 6 && random.below(5) < 3 || stack.is_empty() {
            stack.push(ts);
            put(ts, begin, track, ts);
        } else {
            let at = match track {
                3 => usize::try_from(random.below(stack.len() as u64)).unwrap(),
                _ => stack.len() - 1,
            };
            let id = stack.remove(at);
            put(ts, end, track, id);
        }
    }
    let mut now = 2_000;
    for (track, stack) in open.iter().enumerate() {
        for id in stack.iter().rev() {
            put(now, if track == 3 { "e" } else { "E" }, track, *id);
            now += 1;
        }
    }
    format!("{{\"traceEvents\":[{}]}}", records.join(",\n"))
}

#[test]
fn results_of_slices_over_many_packets_are_those_of_an_independent_evaluator() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slices.json");
    fs::write(&path, slices(&mut Random::new(7))).unwrap();
    check_trace(&path, 7);
    check_compressed(&path, 11);
}

#[test]
fn results_of_rocksdb_look_ups_are_those_of_an_independent_evaluator() {
    check_trace(&small_traces()[3], 4);
}

/// A span with random attributes, of which each may be missing.
fn span(random: &mut Random, id: u64) -> Value {
    let begin = 1_760_000_000_000_000_000 + random.below(5_000_000_000);
    let one = |random: &mut Random, texts: &[&str]| {
        texts[usize::try_from(random.below(texts.len() as u64)).unwrap()].to_owned()
    };
    let number = i64::try_from(random.below(600)).unwrap() - 100;
    let values = [
        (
            "http.response.status_code",
            json!({ "intValue": number.to_string() }),
        ),
        (
            "ratio",
            json!({ "doubleValue": random.below(9) as f64 / 4.0 }),
        ),
        ("cached", json!({ "boolValue": random.below(2) == 0 })),
        (
            "db.system",
            json!({ "stringValue": one(random, &["redis", "12", "mysql", "1.50"]) }),
        ),
        (
            "http.route",
            json!({ "stringValue": one(random, &["/cart", "/cart/{id}", "/pay", ""]) }),
        ),
    ];
    let mut attributes = Vec::new();
    for (key, value) in values {
        if random.below(3) > 0 {
            attributes.push(json!({ "key": key, "value": value }));
        }
    }
    let parent = match random.below(3) {
        0 => String::new(),
        _ => format!("{:016x}", id / 2 + 1),
    };
    let retry = json!({ "name": "retry", "timeUnixNano": begin.to_string() });
    let events: Vec<Value> = (0..random.below(3)).map(|_| retry.clone()).collect();
    json!({
        "traceId": format!("{:032x}", random.below(40) + 1),
        "spanId": format!("{id:016x}"),
        "parentSpanId": parent,
        "name": one(random, &["GET /cart", "charge", "encode", "SELECT cart"]),
        "kind": random.below(6),
        "startTimeUnixNano": begin.to_string(),
        "endTimeUnixNano": (begin + random.below(60_000_000)).to_string(),
        "attributes": attributes,
        "status": { "code": random.below(3) },
        "events": events,
    })
}

/// A request with spans of one service.
pub(crate) fn request_with_spans(random: &mut Random, request: u64) -> Value {
    let spans = (0..SPANS).map(|at| span(random, request * SPANS + at + 1));
    let scope = json!({
        "scope": { "name": "checkout", "version": format!("1.{}", request % 3) },
        "spans": spans.collect::<Vec<_>>(),
    });
    let names = ["shop", "cart", "7"];
    let service = json!({ "stringValue": names[usize::try_from(request % 3).unwrap()] });
    json!({ "resourceSpans": [{
        "resource": { "attributes": [{ "key": "service.name", "value": service }] },
        "scopeSpans": [scope],
    }]})
}

#[test]
fn results_of_files_of_spans_are_those_of_an_independent_evaluator() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spans.jsonl");
    let mut random = Random::new(8);
    let requests = (0..REQUESTS).map(|request| {
        let request = request_with_spans(&mut random, request);
        format!("{request}\n")
    });
    fs::write(&path, requests.collect::<String>()).unwrap();
    check_trace(&path, 8);
    check_compressed(&path, 13);
}

#[test]
fn results_of_spans_are_those_of_an_independent_evaluator() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let mut api = server.api();
    let storage = api.create_storage("spans");
    let recording = json!({ "storage": storage, "processors": saver() });
    let (recording, _) = record_now(&mut api, recording);
    let mut random = Random::new(6);
    for request in 0..REQUESTS {
        let body = request_with_spans(&mut random, request);
        let response = send(&mut api, "application/json", body.to_string().as_bytes());
        assert_eq!(response.body, b"{}", "{}", response.brief());
    }
    stop(&mut api, &recording);
    let url = server.url();
    let queries = queries(&["--server", &url, "--storage", &storage], 6);
    check_storage(&server, &storage, &queries, "arranged storage of spans", 0);
}

/// The trace that a server writes of its own disk and blocks, and its copy as a CTF folder.
#[test]
fn results_of_io_traces_are_those_of_an_independent_evaluator() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let mut api = server.api();
    api.done("POST", "/io-trace/start", None);
    let traced = api.create_storage("traced");
    push(&server, &traced, &small_traces()[1], "4096");
    api.finalize(&traced);
    wait_for_indexes_of(&server, &traced, 1);
    let url = server.url();
    let source = ["--server", url.as_str(), "--storage", traced.as_str()];
    for query in ["dur > 10us", "name == 'read'", "exists(args.mode)"] {
        let (code, _, errors) = run(&[&["query"], &source[..], &[query]].concat());
        assert_eq!(code, 0, "{errors}");
    }
    let ended = api.done("POST", "/io-trace/stop", None);
    let storage = ended["storage"].as_str().unwrap();
    let stored = ["--server", url.as_str(), "--storage", storage];
    let queries = queries(&stored, 17);
    check(&queries, &stored, "an I/O trace");
    wait_for_indexes_of(&server, storage, server.api().leaves(storage).len());
    check(&queries, &stored, "an I/O trace with an index");
    let mounted = folder.path().join("mounted");
    mount(&server, storage, &mounted);
    check(
        &queries,
        &["--dir", mounted.to_str().unwrap()],
        "a mounted I/O trace",
    );
    let exported = folder.path().join("exported");
    let exported = exported.to_str().unwrap();
    let (code, _, errors) = run(&["io-trace", "export", "--server", &url, storage, exported]);
    assert_eq!(code, 0, "{errors}");
    check(&queries, &[exported], "an exported I/O trace");
    let files = folder.path().join("files");
    let files = files.to_str().unwrap();
    let (code, _, errors) = run(&[&["export"], &stored[..], &[files]].concat());
    assert_eq!((code, errors.as_str()), (0, ""));
    check(&queries, &[files], "an I/O trace exported with others");
}
