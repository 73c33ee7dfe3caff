//! Wrong answers of released DFTracer tools (TRAPS.md in the corpora), each with the number of
//! its row, tested on a trace in every dialect: as text, as one and as many gzip members, with and
//! without an index, and in a storage.
//!
//! | row | test |
//! | --- | --- |
//! | 1, 2 | `not` over what may match |
//! | 3 | limits compared as numbers |
//! | 4 | a float compared with an integer field |
//! | 5 | hashes above 2^63 − 1 |
//! | 6 | a hash compared with its text |
//! | 7 | an argument by its bare name |
//! | 8 | integer phases of version 2 |
//! | 9 | numbers in quotes of version 0 |
//! | 10 | quantiles over the entire range |
//! | 11 | groups without a second pass: `summaries_answer_without…` of `query-engine` |
//! | 12 | a file whose last member is truncated |
//! | 13 | a file replaced by another with the same name |
//! | 14, 15 | memory, first answer and rebuilding of a server: `server_traps` |
//!
//! The faults listed in its changelog follow after the rows.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use harness::{Server, Settings, run_tracehold};
use serde_json::Value;

const LINES: u64 = 600;
/// Above 2^63 − 1, as version 1 writes hashes.
const HASH: u64 = 0xfff0_0000_0000_0000;

/// Of 600 events 60 are of STDIO, 6 are slow, and each file name occurs in 120.
fn field(line: u64) -> (&'static str, &'static str, u64, u64) {
    let name = match line {
        line if line % 200 == 7 => "fsync",
        line if line % 10 == 3 => "write",
        _ => "read",
    };
    let cat = if line % 10 == 3 { "STDIO" } else { "POSIX" };
    let dur = if line % 100 == 50 {
        6_000_000 + line
    } else {
        line % 97
    };
    (name, cat, dur, 1_028_567 + line / 150 * 3)
}

/// Version 0: every number in quotes.
fn version_0() -> String {
    let mut text = String::from("[\n");
    for line in 0..LINES {
        let (name, cat, dur, pid) = field(line);
        writeln!(
            text,
            "{{\"id\":\"{line}\",\"name\":\"{name}\",\"cat\":\"{cat}\",\"pid\":\"{pid}\",\
             \"tid\":\"1\",\"ts\":\"{}\",\"dur\":\"{dur}\",\"ph\":\"X\",\"args\":{{\"hostname\":\"h\",\
             \"fname\":\"/p/file-{}\",\"epoch\":\"{}\"}}}}",
            line * 10,
            line % 5,
            line % 4,
        )
        .unwrap();
    }
    text
}

/// Version 1: hashes as numbers beyond 2^63.
fn version_1() -> String {
    let mut text = String::from("[\n");
    for line in 0..LINES {
        let (name, cat, dur, pid) = field(line);
        if line < 5 {
            writeln!(
                text,
                "{{\"id\":0,\"name\":\"FH\",\"cat\":\"dftracer\",\"pid\":1,\"tid\":1,\"ph\":\"M\",\
                 \"args\":{{\"name\":\"/p/file-{line}\",\"value\":\"{}\"}}}}",
                HASH + line
            )
            .unwrap();
        }
        writeln!(
            text,
            "{{\"id\":{line},\"name\":\"{name}\",\"cat\":\"{cat}\",\"pid\":{pid},\"tid\":1,\
             \"ts\":{},\"dur\":{dur},\"ph\":\"X\",\"args\":{{\"hhash\":7,\"fhash\":{},\"epoch\":{},\
             \"name\":\"shadow\"}}}}",
            line * 10,
            HASH + line % 5,
            line % 4,
        )
        .unwrap();
    }
    text.push(']');
    text
}

/// Version 2: integer phases and types, hashes as text, no brackets.
fn version_2() -> String {
    let mut text = String::new();
    for line in 0..LINES {
        let (name, cat, dur, pid) = field(line);
        if line < 5 {
            writeln!(
                text,
                "{{\"name\":\"FH\",\"cat\":\"dftracer\",\"type\":1,\"pid\":1,\"tid\":1,\"ph\":4,\
                 \"args\":{{\"name\":\"/p/file-{line}\",\"value\":\"{:016x}\"}}}}",
                HASH + line
            )
            .unwrap();
        }
        writeln!(
            text,
            "{{\"id\":{line},\"name\":\"{name}\",\"cat\":\"{cat}\",\"type\":2,\"pid\":{pid},\
             \"tid\":1,\"ts\":{},\"dur\":{dur},\"ph\":1,\"args\":{{\"fhash\":\"{:016x}\",\"epoch\":{}}}}}",
            line * 10,
            HASH + line % 5,
            line % 4,
        )
        .unwrap();
    }
    text
}

fn gzip(text: &str, member_bytes: usize) -> Vec<u8> {
    let members = text.as_bytes().chunks(member_bytes);
    let members = members.map(|part| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(part).unwrap();
        encoder.finish().unwrap()
    });
    members.flatten().collect()
}

fn run(words: &[&str]) -> (i32, String) {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let output = run_tracehold(&words);
    let code = output.status.code().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(code <= 1, "{words:?}: {complaint}");
    (code, String::from_utf8(output.stdout).unwrap())
}

fn index(path: &Path) {
    let path = path.to_str().unwrap();
    run(&[
        "index",
        "--chunk-kib",
        "16",
        "--spacing-kib",
        "64",
        "--field",
        "epoch",
        path,
    ]);
}

fn count(source: &[&str], query: &str) -> u64 {
    let (_, out) = run(&[&["query"], source, &[query, "--count"]].concat());
    out.trim().parse().unwrap()
}

/// The trace as text and as gzip, each with an index.
fn forms(folder: &Path, name: &str, text: &str) -> Vec<PathBuf> {
    let forms = [
        ("text", text.as_bytes().to_vec()),
        ("one", gzip(text, usize::MAX)),
        // Members end within lines.
        ("many", gzip(text, 7_001)),
    ];
    let write = |(form, bytes): (&str, Vec<u8>)| {
        let path = folder.join(format!("{name}-{form}.pfw"));
        fs::write(&path, bytes).unwrap();
        index(&path);
        path
    };
    forms.map(write).into()
}

/// The queries for every version: the row of the table, the query, the number of matching events.
const TRAPS: &[(&str, &str, u64)] = &[
    ("1", "not (cat == 'POSIX')", 60),
    ("2", "not (name == 'fsync')", 597),
    ("3", "dur > 5000000", 6),
    ("3", "not (dur > 5000000)", 594),
    ("3", "dur > 99", 6),
    ("4", "pid == 1028570.0", 150),
    ("4", "pid > 1028570.5", 300),
    ("7", "epoch == 3", 150),
    ("7", "args.epoch == 3", 150),
    ("8", "exists(ph) and not (ph == 'M' or ph == 4)", 600),
    ("9", "dur > 100", 6),
    ("9", "pid == 1028567", 150),
    ("6", "fname == '/p/file-2'", 120),
    ("6", "not (fname == '/p/file-2')", 480),
    // From the changelog: missing fields, ts == 0, a name that an argument shadows, every line
    // counted once.
    ("0.0.11", "not (nosuch == 1)", 600),
    ("0.0.11", "nosuch != 1", 0),
    ("0.0.11", "ts == 0", 1),
    (
        "0.0.12",
        "name == 'read' or name == 'write' or name == 'fsync'",
        600,
    ),
    ("0.0.12", "dur < 0.5 or dur > 0.5", 600),
    ("0.0.13", "ts >= 0", 600),
    ("0.0.14", "ok == true", 0),
];

#[test]
fn every_trap_is_avoided_in_every_dialect_and_form() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        folder.path(),
        &Settings::with_config("[query]\nchunk_bytes = 16384\nindex_growth_bytes_min = 1\n"),
    );
    let url = server.url();
    let versions = [
        ("v0", version_0()),
        ("v1", version_1()),
        ("v2", version_2()),
    ];
    for (version, text) in versions {
        let forms = forms(folder.path(), version, &text);
        let storage = server.api().create_storage(version);
        let last = forms[2].to_str().unwrap();
        let push = [
            "push",
            "--server",
            &url,
            "--storage",
            &storage,
            "--packet-bytes",
            "16384",
            last,
        ];
        assert_eq!(run(&push).0, 0);
        server.api().finalize(&storage);
        let mut sources: Vec<Vec<&str>> = vec![vec!["--server", &url, "--storage", &storage]];
        for form in &forms {
            sources.push(vec![form.to_str().unwrap()]);
        }
        sources.push(vec![last, "--no-index"]);
        for (row, query, expected) in TRAPS {
            // An index for every form, and one plain scan.
            for source in &sources {
                let found = count(source, query);
                assert_eq!(
                    found, *expected,
                    "row {row}: {query} of {version} {source:?}"
                );
            }
        }
    }
}

#[test]
fn hashes_beyond_63_bits_and_the_text_that_they_stand_for() {
    let folder = tempfile::tempdir().unwrap();
    for (version, text) in [("v1", version_1()), ("v2", version_2())] {
        for path in forms(folder.path(), version, &text) {
            for more in [&[][..], &["--no-index"]] {
                let source = [&[path.to_str().unwrap()], more].concat();
                let hash = match version {
                    "v1" => (HASH + 2).to_string(),
                    _ => format!("'{:016x}'", HASH + 2),
                };
                let what = format!("{version} {source:?}");
                assert_eq!(
                    count(&source, &format!("fhash == {hash}")),
                    120,
                    "row 5: {what}"
                );
                assert_eq!(count(&source, "fhash == '/p/file-2'"), 120, "row 6: {what}");
                assert_eq!(
                    count(&source, "not (fhash == '/p/file-2')"),
                    480,
                    "row 6: {what}"
                );
            }
        }
    }
}

/// The integer part of a number of microseconds or of a rank.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the numbers of this test are positive and small"
)]
fn truncated(number: f64) -> u64 {
    number as u64
}

/// Durations whose quantiles are those of `read` in the generated corpus (54, 288 and 1,126 µs),
/// from 1 µs to 13.8 s, unordered.
fn durations(count: u64) -> Vec<u64> {
    // In between they grow by equal ratios.
    let known = [
        (0.0, 1.0_f64),
        (0.5, 54.0),
        (0.9, 288.0),
        (0.99, 1126.0),
        (0.9999, 9e5),
        (1.0, 1.38e7),
    ];
    let at = |rank: u64| {
        let part = rank as f64 / (count - 1) as f64;
        let above = known
            .iter()
            .position(|(end, _)| part <= *end)
            .unwrap()
            .max(1);
        let ((begin, low), (end, high)) = (known[above - 1], known[above]);
        let share = (part - begin) / (end - begin);
        truncated((low * (high / low).powf(share)).round())
    };
    // A prime that does not divide the count visits every rank once.
    (0..count).map(|line| at(line * 7919 % count)).collect()
}

#[test]
fn quantiles_are_exact_to_one_percent() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        folder.path(),
        &Settings::with_config("[query]\nchunk_bytes = 16384\nindex_growth_bytes_min = 1\n"),
    );
    let durations = durations(10_001);
    let mut text = String::new();
    for (line, dur) in durations.iter().enumerate() {
        writeln!(
            text,
            "{{\"id\":{line},\"name\":\"read\",\"cat\":\"c\",\"type\":2,\"pid\":1,\"tid\":1,\
             \"ts\":{line},\"dur\":{dur},\"ph\":1,\"args\":{{}}}}"
        )
        .unwrap();
    }
    let mut sorted = durations;
    sorted.sort_unstable();
    let exact = [(0.5, 54), (0.9, 288), (0.99, 1126)].map(|(part, micros)| {
        let rank = usize::try_from(truncated(part * (sorted.len() - 1) as f64)).unwrap();
        assert_eq!(sorted[rank], micros, "the corpus");
        micros as f64 * 1000.0
    });
    let forms = forms(folder.path(), "wide", &text);
    let storage = server.api().create_storage("wide");
    let (url, first) = (server.url(), forms[0].to_str().unwrap());
    let stored = ["--server", &url, "--storage", &storage];
    let words = [&["push"], &stored[..], &["--packet-bytes", "16384", first]].concat();
    assert_eq!(run(&words).0, 0);
    server.api().finalize(&storage);
    // From many merged summaries, and from the events.
    let mut sources: Vec<Vec<&str>> = forms
        .iter()
        .map(|form| vec![form.to_str().unwrap()])
        .collect();
    sources.extend([stored.to_vec(), vec![first, "--no-index"]]);
    for source in sources {
        let query = ["name == 'read'", "--group-by", "name", "--format", "ndjson"];
        let (_, out) = run(&[&["query"], &source[..], &query].concat());
        let group: Value = serde_json::from_str(out.trim()).unwrap();
        for (field, exact) in ["dur_p50", "dur_p90", "dur_p99"].into_iter().zip(exact) {
            let found = group[field].as_f64().unwrap();
            let error = (found - exact).abs() / exact;
            // The sketch promises one percent, to the nearest nanosecond.
            assert!(
                error <= 0.010_01,
                "row 10: {source:?}: {field} is {found}, not {exact}"
            );
        }
        assert_eq!(group["dur_max"], 13_800_000_000_u64);
        assert_eq!(group["count"], sorted.len());
    }
}

#[test]
fn truncated_and_replaced_files_are_read_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pfw.gz");
    let complete = gzip(&version_2(), 7_001);
    fs::write(&path, &complete).unwrap();
    index(&path);
    let source = [path.to_str().unwrap()];
    assert_eq!(count(&source, ""), 600);
    // Row 12: the last member is truncated.
    fs::write(&path, &complete[..complete.len() - 50]).unwrap();
    let stale = count(&source, "");
    let plain = count(&[source[0], "--no-index"], "");
    assert_eq!(stale, plain);
    assert!(plain > 500 && plain < 600, "{plain}");
    index(&path);
    assert_eq!(count(&source, ""), plain);
    assert_eq!(count(&source, "not (name == 'nosuch')"), plain);
    // Row 13: another file with the same name; indexing twice counts nothing twice.
    let other: String = version_2()
        .lines()
        .take(300)
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(&path, gzip(&other, 5_000)).unwrap();
    assert_eq!(count(&source, ""), 295);
    index(&path);
    index(&path);
    assert_eq!(count(&source, ""), 295);
}
