//! Queries return the same results from files, from a server while it writes and afterwards, and
//! from a mount, with and without chunk indexes.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use harness::{Server, Settings, corpora, run_tracehold, run_tracehold_piped, small_traces};
use serde_json::{Value, json};

/// Queries run on every trace; most of them fit only one kind.
pub(crate) const QUERIES: &[&str] = &[
    "",
    "name == 'read'",
    "dur > 100us",
    "not dur >= 1us or tid == 0",
    "fname contains 'e'",
    "args.len > 1000 or exists(args.block_key)",
    "kind in ['ctf', 'rocksdb-io'] and agent == 'host' and name starts_with 's'",
    "kind in ['dft', 'ctf'] and exists(stream)",
    "ts > 2001-01-01 and pid in [1, 2, 3] or vpid > 5",
];

/// Queries run on the larger traces, where each takes a while.
pub(crate) const FEW_QUERIES: &[&str] =
    &["", "dur > 100us", "fname contains 'e' or not name ~ 'e'"];

pub(crate) fn corpus_traces(corpora: &Path) -> [PathBuf; 4] {
    let names = [
        "ctf/lttng-probe/ust/uid/0/64-bit",
        "dft/polaris/test-trace-dist-3.pfw.gz",
        "dft/plain/test.pfw",
        "rocksdb/bc_small.trace",
    ];
    names.map(|name| corpora.join(name))
}

/// Small chunks, so that small traces have many.
pub(crate) fn settings() -> Settings {
    Settings::with_config("[query]\nchunk_bytes = 16384\nindex_growth_bytes_min = 1\n")
}

/// Exit code, output and errors of the client.
pub(crate) type Ran = (i32, String, String);

pub(crate) fn run(arguments: &[&str]) -> Ran {
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    ran(&run_tracehold(&arguments))
}

/// Runs the client with the bytes of a file coming through a pipe.
pub(crate) fn run_piped(arguments: &[&str], input: &Path) -> Ran {
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    ran(&run_tracehold_piped(&arguments, input))
}

fn ran(output: &Output) -> Ran {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Rows and groups of one query, in an order that does not depend on their source.
pub(crate) fn answers(source: &[&str], query: &str) -> Vec<String> {
    let query = |more: &[&str]| {
        let (code, out, errors) = run(&[&["query"], source, &[query], more].concat());
        assert!(code <= 1, "{source:?} {query} {more:?}: {code} {errors}");
        let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let mut answers = query(&["--format", "ndjson"]);
    answers.extend(query(&["--group-by", "name", "--format", "csv"]));
    answers
}

pub(crate) fn wait_for_indexes(server: &Server, storage: &str) {
    wait_for_indexes_of(server, storage, server.api().leaves(storage).len());
}

/// Waits until a storage has its indexes; until it is finalized, those of so many leaves.
pub(crate) fn wait_for_indexes_of(server: &Server, storage: &str, leaves: usize) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        let path = format!("/storages/{storage}/files");
        let listed = server.api().done("GET", &path, None);
        let is_complete = match listed["chunk_indexes"].as_str() {
            Some(state) => state == "complete",
            None => {
                let files = listed["files"].as_array().unwrap().iter();
                let indexes = files.filter(|file| file["role"] == "chunk_index");
                leaves > 0 && indexes.count() == leaves
            }
        };
        if is_complete {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no chunk indexes within a minute:\n{}", server.log());
}

pub(crate) fn push(server: &Server, storage: &str, path: &Path, packet_bytes: &str) -> Value {
    let path = path.to_str().unwrap();
    let (code, report, errors) = run(&[
        "push",
        "--json",
        "--server",
        &server.url(),
        "--storage",
        storage,
        "--agent",
        "host",
        "--packet-bytes",
        packet_bytes,
        path,
    ]);
    assert_eq!(code, 0, "{errors}");
    serde_json::from_str(&report).unwrap()
}

pub(crate) fn mount(server: &Server, storage: &str, folder: &Path) {
    let address = format!("{}/storage/{storage}", server.url());
    let (code, _, errors) = run(&["mount", &address, folder.to_str().unwrap()]);
    assert_eq!(code, 0, "{errors}");
}

/// A query that filters by agent does not apply to a file.
pub(crate) fn filters_by_origin(query: &str) -> bool {
    query.contains("agent")
}

fn check_trace(path: &Path, queries: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &settings());
    let storage = server.api().create_storage("trace");
    push(&server, &storage, path, "4096");
    let url = server.url();
    let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
    let file = path.to_str().unwrap();
    let expected: Vec<Vec<String>> = queries
        .iter()
        .map(|query| {
            if filters_by_origin(query) {
                answers(&stored, query)
            } else {
                answers(&[file, "--no-index"], query)
            }
        })
        .collect();
    assert!(expected[0].len() > 100, "{file} has events");
    let check = |source: &[&str], what: &str| {
        for (query, expected) in queries.iter().zip(&expected) {
            if !source.contains(&file) || !filters_by_origin(query) {
                assert!(
                    answers(source, query) == *expected,
                    "{file} {what}: {query}"
                );
            }
        }
    };
    check(&[file], "as a file");
    check(&stored, "of an open storage");
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    check(&stored, "of a finalized storage with indexes");
    let mounted = folder.path().join("mount");
    mount(&server, &storage, &mounted);
    let mounted = mounted.to_str().unwrap();
    check(&["--dir", mounted], "of a mount");
    check(
        &["--dir", mounted, "--no-index"],
        "of a mount without indexes",
    );
}

#[test]
fn small_traces_give_the_same_results_everywhere() {
    for path in small_traces() {
        check_trace(&path, QUERIES);
    }
}

/// A trace of the corpus, if it is available.
fn check_real(source: usize) {
    let Some(corpora) = corpora() else { return };
    check_trace(&corpus_traces(&corpora)[source], FEW_QUERIES);
}

#[test]
fn lttng_gives_the_same_results_everywhere() {
    check_real(0);
}

#[test]
fn compressed_dftracer_gives_the_same_results_everywhere() {
    check_real(1);
}

#[test]
fn plain_dftracer_gives_the_same_results_everywhere() {
    check_real(2);
}

#[test]
fn rocksdb_gives_the_same_results_everywhere() {
    check_real(3);
}

pub(crate) fn copy_all(from: &Path, to: &Path) {
    if !from.is_dir() {
        fs::write(to, fs::read(from).unwrap()).unwrap();
        return;
    }
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy_all(&entry.path(), &to.join(entry.file_name()));
    }
}

/// A stream file that was cut off, pushed as it is.
#[test]
fn a_count_says_which_damaged_data_it_skipped() {
    let Some(corpora) = corpora() else { return };
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    copy_all(&corpora.join("ctf/lttng-probe/ust/uid/0/64-bit"), &trace);
    let stream = trace.join("chan_1");
    let content = fs::read(&stream).unwrap();
    fs::remove_file(&stream).unwrap();
    fs::write(&stream, &content[..content.len() - 300_000]).unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = server.api().create_storage("trace");
    push(&server, &storage, &trace, "1048576");
    let url = server.url();
    let query = ["query", "--server", &url, "--storage", &storage, "--count"];
    let (code, out, errors) = run(&query);
    assert_eq!(code, 1, "{out}{errors}");
    assert!(out.trim().parse::<u64>().unwrap() > 0, "{out}");
    assert!(errors.contains("the server skipped this data"), "{errors}");
}

/// A DFTracer trace in which one line has a unique name.
pub(crate) fn write_trace(path: &Path, lines: u64) {
    let mut text = String::from("[\n");
    for line in 0..lines {
        let name = match line {
            line if line == lines / 3 => "fsync",
            line if line % 3 == 0 => "write",
            _ => "read",
        };
        let (ts, dur, id) = (
            1_000_000 + line * 10,
            line * 7919 % 1000,
            line * 7919 % 100_003,
        );
        writeln!(
            text,
            "{{\"id\":{line},\"name\":\"{name}\",\"cat\":\"POSIX\",\"pid\":{},\"tid\":{},\"ts\":{ts},\
             \"dur\":{dur},\"ph\":\"X\",\"args\":{{\"ret\":{id},\"offset\":{}}}}}",
            line % 5,
            line % 11,
            id * 4096,
        )
        .unwrap();
    }
    fs::write(path, text).unwrap();
}

#[test]
fn errors_in_a_query_name_their_position() {
    let folder = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let server = Server::start(folder.path(), &Settings::default());
    let mut api = server.api();
    let storage = api.create_storage("mixed");
    push(
        &server,
        &storage,
        &data.join("trace-0-of-1.pfw.gz"),
        "65536",
    );
    push(&server, &storage, &data.join("io_small.trace"), "65536");
    let path = format!("/storages/{storage}/query");
    let problem = api.refused("POST", &path, Some(&json!({ "query": "name ==" })));
    assert_eq!(
        (problem.status, problem.code.as_str()),
        (400, "expression_malformed")
    );
    let detail = problem.document["caret"].as_str().unwrap();
    assert!(detail.lines().nth(1).unwrap().trim() == "^", "{detail}");
    assert_eq!(problem.document["column"], 8);
    // A bare number means microseconds in one of the kinds and nanoseconds in the other.
    let bare = json!({ "query": "dur > 5", "count": true });
    let problem = api.refused("POST", &path, Some(&bare));
    assert_eq!(problem.code, "expression_malformed");
    assert!(
        problem.document["detail"]
            .as_str()
            .unwrap()
            .contains("10ms")
    );
    for body in [
        json!({ "querry": "x" }),
        json!({ "count": true, "group_by": "name" }),
        json!({ "from": "yesterday" }),
        json!({ "storages": [storage] }),
    ] {
        assert_eq!(
            api.refused("POST", &path, Some(&body)).status,
            400,
            "{body}"
        );
    }
    let many = json!({ "storages": ["mixed", storage], "query": "dur >= 0ns", "count": true });
    let answer = api.done("POST", "/query", Some(&many));
    let one = api.done(
        "POST",
        &path,
        Some(&json!({ "query": "dur >= 0ns", "count": true })),
    );
    assert_eq!(answer, one, "a storage named twice is queried once");
    let nobody = json!({ "storages": ["nobody"] });
    assert_eq!(api.refused("POST", "/query", Some(&nobody)).status, 404);
    let left = api.done(
        "GET",
        &format!("/storages/{storage}/descriptors?query=kind%3D%3D'dft'"),
        None,
    );
    let kinds: Vec<&str> = left["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["kind"].as_str().unwrap())
        .collect();
    assert!(
        !kinds.is_empty() && kinds.iter().all(|kind| *kind == "dft"),
        "{kinds:?}"
    );
}

#[test]
fn aggregates_of_finalized_storages_are_cached() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 3_000);
    let server = Server::start(folder.path(), &settings());
    let mut api = server.api();
    let storage = api.create_storage("stored");
    push(&server, &storage, &trace, "16384");
    let path = format!("/storages/{storage}/query");
    let body = json!({ "query": "dur > 500us", "count": true });
    let expected = api.done("POST", &path, Some(&body));
    let cached = |api: &mut harness::Api| api.metric("tracehold_query_cached_total");
    api.done("POST", &path, Some(&body));
    assert_eq!(cached(&mut api), 0.0, "an open storage may still change");
    api.finalize(&storage);
    let cache = server.data().join("storages").join(&storage).join("cache");
    let begin = Instant::now();
    assert_eq!(api.done("POST", &path, Some(&body)), expected);
    let file = loop {
        let files = fs::read_dir(&cache).into_iter().flatten();
        let whole = files.filter_map(|file| Some(file.ok()?.path()));
        let mut whole = whole.filter(|path| path.extension().is_some_and(|end| end == "cached"));
        if let Some(path) = whole.next() {
            break path;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "the result is not cached"
        );
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(api.done("POST", &path, Some(&body)), expected);
    assert_eq!(cached(&mut api), 1.0);
    let mut damaged = fs::read(&file).unwrap();
    let last = damaged.len() - 3;
    damaged[last] ^= 1;
    fs::write(&file, damaged).unwrap();
    assert_eq!(api.done("POST", &path, Some(&body)), expected);
    assert_eq!(cached(&mut api), 1.0, "a damaged answer is not believed");
    assert!(api.verify(&storage).is_empty());
}
