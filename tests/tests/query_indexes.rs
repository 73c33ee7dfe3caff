//! Indexes never change a result, whatever state they are in, and a query with one reads and
//! transfers only what can match.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::{Server, Settings, corpora, small_traces};
use serde_json::Value;

use crate::queries::{
    FEW_QUERIES, QUERIES, answers, copy_all, corpus_traces, filters_by_origin, mount, push, run,
    settings, wait_for_indexes, write_trace,
};

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
