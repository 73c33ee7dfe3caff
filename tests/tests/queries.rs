//! Queries return the same results from files, from a server while it writes and afterwards, and
//! from a mount, with and without chunk indexes; and a mount transfers only what can match.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::{Server, Settings, corpora, run_tracehold, small_traces};
use serde_json::{Value, json};

/// Queries run on every trace; most of them fit only one kind.
const QUERIES: &[&str] = &[
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
const FEW_QUERIES: &[&str] = &["", "dur > 100us", "fname contains 'e' or not name ~ 'e'"];

fn corpus_traces(corpora: &Path) -> [PathBuf; 4] {
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

pub(crate) fn run(arguments: &[&str]) -> (i32, String, String) {
    let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let output = run_tracehold(&arguments);
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

pub(crate) fn push(server: &Server, storage: &str, path: &Path, packet_bytes: &str) {
    let path = path.to_str().unwrap();
    let (code, _, errors) = run(&[
        "push",
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
}

pub(crate) fn mount(server: &Server, storage: &str, folder: &Path) {
    let address = format!("{}/storage/{storage}", server.url());
    let (code, _, errors) = run(&["mount", &address, folder.to_str().unwrap()]);
    assert_eq!(code, 0, "{errors}");
}

/// A query that filters by agent does not apply to a file.
fn filters_by_origin(query: &str) -> bool {
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

/// Files that `tracehold index` writes next to traces of every kind never change results.
fn check_index(path: &Path, queries: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join(path.file_name().unwrap());
    copy_all(path, &copy);
    let file = copy.to_str().unwrap();
    let (code, out, errors) = run(&["index", file, "--chunk-kib", "16", "--json"]);
    let made: Value = serde_json::from_str(&out).unwrap();
    let files = made["files"].as_array().unwrap();
    assert!(!files.is_empty());
    let is_damaged = |file: &Value| !file["fault"].is_null() || file["broken"] != 0;
    let is_damaged = files.iter().any(is_damaged);
    assert_eq!(code, i32::from(is_damaged), "{errors}");
    for query in queries.iter().filter(|query| !filters_by_origin(query)) {
        let expected = answers(&[file, "--no-index"], query);
        assert!(answers(&[file], query) == expected, "{file}: {query}");
    }
    let (_, out, errors) = run(&["query", file, "", "--count", "--explain", "--json"]);
    let answer = errors.lines().find(|line| line.starts_with("{\"explain\""));
    let answer: Value = serde_json::from_str(answer.unwrap()).unwrap();
    let explained = &answer["explain"];
    assert_eq!(
        explained["indexed"].as_u64().unwrap(),
        files.len() as u64,
        "{out} {errors}"
    );
    assert_eq!(explained["fetched_bytes"], 0, "{out} {errors}");
    let (_, out, _) = run(&["index", file, "--chunk-kib", "16", "--json"]);
    assert_eq!(out.matches("\"fresh\"").count(), files.len(), "{out}");
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

#[test]
fn indexes_of_small_traces_change_no_result() {
    for path in small_traces() {
        check_index(&path, QUERIES);
    }
}

#[test]
fn indexes_of_real_traces_change_no_result() {
    let Some(corpora) = corpora() else { return };
    let more = [
        "rocksdb/io_small.trace",
        "rocksdb/io_variants.trace",
        "rocksdb/bc_variants.trace",
        "rocksdb/io_cut_midrecord.trace",
    ];
    let more = more.iter().map(|name| corpora.join(name));
    for path in corpus_traces(&corpora).into_iter().chain(more) {
        check_index(&path, FEW_QUERIES);
    }
}

/// Traces of all available CTF producers. Some cannot be read, and then they cannot be indexed
/// either.
#[test]
fn indexes_of_other_ctf_traces_change_no_result() {
    let Some(corpora) = corpora() else { return };
    for version in ["1", "2"] {
        let folder = corpora
            .join("ctf/babeltrace/ctf-traces")
            .join(version)
            .join("succeed");
        let mut traces: Vec<PathBuf> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        traces.sort();
        assert!(!traces.is_empty());
        let mut indexed = 0;
        for trace in traces {
            let source = tempfile::tempdir().unwrap();
            let copy = source.path().join("trace");
            copy_all(&trace, &copy);
            let file = copy.to_str().unwrap();
            let query = |more: &[&str]| run(&[&["query", file, "not name == 'x'"], more].concat());
            let expected = query(&["--no-index"]);
            let (code, _, _) = run(&["index", file]);
            // 1: the trace has no packets, or damaged ones.
            assert_eq!(code <= 1, expected.0 <= 1, "{}", trace.display());
            let found = query(&[]);
            assert_eq!(found.1, expected.1, "{}", trace.display());
            indexed += usize::from(code == 0);
        }
        assert!(indexed > 10, "{indexed} of version {version}");
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

/// Packets without a chunk index are pruned by the times in the storage's index.
#[test]
fn a_window_reads_few_packets_without_a_chunk_index() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let storage = server.api().create_storage("trace");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/bc_small.trace");
    let file = path.to_str().unwrap();
    push(&server, &storage, &path, "4096");
    let (_, out, _) = run(&["query", file, "", "--format", "ndjson", "--fields", "ts"]);
    let times: Vec<i64> = out
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["ts"]
                .as_i64()
                .unwrap()
        })
        .collect();
    let at = |part: usize| times[times.len() * part / 20].to_string();
    let window = ["--from", &at(9), "--to", &at(10)];
    let query = |source: &[&str], more: &[&str]| {
        run(&[&["query"], source, &["name == 'Data'"], &window, more].concat())
    };
    let expected = query(&[file], &["--format", "ndjson"]);
    assert!(expected.1.lines().count() > 3, "{}", expected.2);
    let check = |source: &[&str], what: &str| {
        let found = query(source, &["--format", "ndjson"]);
        assert_eq!((found.0, &found.1), (0, &expected.1), "{what}: {}", found.2);
        let (_, out, errors) = query(source, &["--count", "--explain", "--json"]);
        let explained = out + &errors;
        let number = |name: &str| {
            let rest = explained.split(&format!("\"{name}\":")).nth(1);
            let digits = rest.unwrap_or_else(|| panic!("{what}: no {name}: {explained}"));
            let end = digits.find([',', '}']).unwrap();
            digits[..end].parse::<u64>().unwrap()
        };
        assert_eq!(number("indexed"), 0, "{what}: {explained}");
        let (timed, out_of_time) = (number("timed"), number("out_of_time"));
        assert!(timed > 20 && out_of_time > timed / 2, "{what}: {explained}");
        assert!(
            number("events") < times.len() as u64 / 2,
            "{what}: {explained}"
        );
    };
    let url = server.url();
    check(
        &["--server", &url, "--storage", &storage],
        "an open storage",
    );
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    let mounted = folder.path().join("mount");
    mount(&server, &storage, &mounted);
    check(
        &["--dir", mounted.to_str().unwrap(), "--no-index"],
        "a mount",
    );
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
fn a_query_for_a_rare_name_transfers_at_most_two_percent() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 40_000);
    let server = Server::start(folder.path(), &settings());
    let storage = server.api().create_storage("big");
    push(&server, &storage, &trace, "16384");
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    let mounted = folder.path().join("mount");
    mount(&server, &storage, &mounted);
    let mounted = mounted.to_str().unwrap();
    let files = server.api().files(&storage);
    let data = files.iter().filter(|file| file.1 == "data");
    let bytes: u64 = data.map(|file| file.2).sum();
    let expected = answers(&[trace.to_str().unwrap()], "name == 'fsync'");
    assert_eq!(answers(&["--dir", mounted], "name == 'fsync'"), expected);
    let (code, _, errors) = run(&[
        "query",
        "--dir",
        mounted,
        "name == 'fsync'",
        "--explain",
        "--json",
    ]);
    assert_eq!(code, 0, "{errors}");
    let moved = errors
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|line| {
            let explain = &line["explain"];
            Some((
                explain["moved_bytes"].as_u64()?,
                explain["requests"].as_u64()?,
            ))
        });
    let (moved, requests) = moved.unwrap();
    assert!(moved > 0 && moved * 50 <= bytes, "{moved} of {bytes} bytes");
    assert_eq!(requests, 1, "one request for one data file");
}

#[test]
fn damaged_indexes_are_ignored_and_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 3_000);
    let mut server = Server::start(folder.path(), &settings());
    let storage = server.api().create_storage("small");
    push(&server, &storage, &trace, "16384");
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    let files = server.api().files(&storage);
    let index = files.iter().find(|file| file.1 == "chunk_index").unwrap();
    let path = server.data().join("storages").join(&storage).join(&index.0);
    let whole = fs::read(&path).unwrap();
    let expected = answers(&[trace.to_str().unwrap()], "name == 'fsync'");
    let url = server.url();
    let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
    assert_eq!(answers(&stored, "name == 'fsync'"), expected);
    for offset in (0..whole.len()).step_by(whole.len() / 12) {
        let mut damaged = whole.clone();
        damaged[offset] ^= 0x55;
        fs::write(&path, &damaged).unwrap();
        // Damage never changes a result and never prevents one.
        assert_eq!(answers(&stored, "name == 'fsync'"), expected, "{offset}");
    }
    let mut damaged = whole.clone();
    damaged[whole.len() - 20] ^= 0x55;
    fs::write(&path, &damaged).unwrap();
    assert_eq!(answers(&stored, "name == 'fsync'"), expected);
    // The damaged indexes are rebuilt.
    let begin = Instant::now();
    while fs::read(&path).unwrap() != whole {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{}",
            server.log()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(answers(&stored, "name == 'fsync'"), expected);
    server.kill();
    server.restart();
    wait_for_indexes(&server, &storage);
    assert_eq!(fs::read(&path).unwrap(), whole);
    assert!(server.api().verify(&storage).is_empty());
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
