//! Files that are damaged or cut off, pushed: a query of the storage finds the events that a query
//! of the file finds, and says that something is missing, now and after it is finalized and
//! indexed. An export gives back what was pushed.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use harness::spans::{TestSpan, request};
use harness::{Server, Settings};
use serde_json::Value;

use crate::queries::{run, wait_for_indexes};

/// The header of a RocksDB trace, and what precedes the payload of a record.
const ROCKSDB_HEADER_BYTES: usize = 38;
const ENVELOPE_BYTES: usize = 13;
/// Where the type and the length of a record are in it.
const TYPE_AT: usize = 8;
const LENGTH_AT: usize = 9;

/// Exit codes of a push: a file that is merely cut off is a note.
const DAMAGED: i32 = 1;
const CUT_OFF: i32 = 0;

/// What an export gives of a file.
const EXACT: &str = "exact";
/// The text of a compressed file, as far as it could be read.
const PART_OF_TEXT: &str = "incomplete";
const TEXT: &str = "text";

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// In frames that are short, so that damage in the middle has text before it.
fn zstd(text: &[u8]) -> Vec<u8> {
    let frame = |text: &[u8]| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    text.chunks(8 << 10).flat_map(frame).collect()
}

fn with(bytes: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    change(&mut changed);
    changed
}

/// These bytes with others in the middle.
fn wrong(bytes: &[u8]) -> Vec<u8> {
    let middle = bytes.len() / 2;
    with(bytes, |bytes| bytes[middle..middle + 8].fill(0xff))
}

/// These bytes with a wrong checksum at the end, as gzip has it.
fn wrong_sum(bytes: &[u8]) -> Vec<u8> {
    let at = bytes.len() - 6;
    with(bytes, |bytes| bytes[at] ^= 0x10)
}

/// A text that does not compress well, so that damage hits some of it only.
fn odd(n: u64) -> u64 {
    n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn event(n: u64) -> String {
    let name = odd(n);
    format!("{{\"ph\":\"X\",\"name\":\"e{name:x}\",\"pid\":1,\"tid\":1,\"ts\":{n},\"dur\":1}}")
}

fn events(from: u64, to: u64) -> String {
    let events: Vec<String> = (from..to).map(event).collect();
    events.join(",\n")
}

fn lines() -> String {
    (0..2000).map(|n| event(n) + "\n").collect()
}

fn spans() -> Vec<String> {
    let span = |id: u64| TestSpan {
        trace: 7,
        id: odd(id) >> 1,
        parent: 0,
        name: "order",
        time: (id, id + 1),
    };
    let requests = (1..400).map(|id| request("shop", &[span(id), span(id + 1000)]));
    requests.collect()
}

type Case = (&'static str, Vec<u8>, i32, &'static str);

fn chrome() -> Vec<Case> {
    let list = format!("[{}]\n", events(0, 600));
    let front = format!("{{\"traceEvents\":[{}", events(0, 600));
    let back = format!(",\n{}]}}\n", events(600, 900));
    let whole = format!("{front}{back}");
    let odd_document = format!("{front}], oops {back}");
    let (front_member, back_member) = (gzip(front.as_bytes()), gzip(back.as_bytes()));
    let third = events(900, 950).into_bytes();
    vec![
        (
            "follows.json",
            format!("{list} and more\n{list}").into(),
            DAMAGED,
            EXACT,
        ),
        (
            "member.json",
            format!("{list},\"a\":{list}").into(),
            DAMAGED,
            EXACT,
        ),
        ("odd.json", odd_document.clone().into(), DAMAGED, EXACT),
        ("cut.json", front.into(), CUT_OFF, EXACT),
        ("odd.json.gz", gzip(odd_document.as_bytes()), DAMAGED, EXACT),
        (
            "wrong.json.gz",
            wrong(&gzip(whole.as_bytes())),
            DAMAGED,
            EXACT,
        ),
        (
            "sum.json.gz",
            wrong_sum(&gzip(whole.as_bytes())),
            DAMAGED,
            EXACT,
        ),
        (
            "second.json.gz",
            [&front_member[..], &wrong(&back_member), &gzip(&third)].concat(),
            DAMAGED,
            EXACT,
        ),
        (
            "garbage.json.gz",
            [&front_member[..], b"garbage", &back_member].concat(),
            DAMAGED,
            EXACT,
        ),
        ("cut.json.gz", front_member, CUT_OFF, EXACT),
        (
            "wrong.json.zst",
            wrong(&zstd(whole.as_bytes())),
            DAMAGED,
            PART_OF_TEXT,
        ),
        ("odd.json.zst", zstd(odd_document.as_bytes()), DAMAGED, TEXT),
    ]
}

fn requests() -> Vec<Case> {
    let spans = spans();
    let whole = spans.join("\n") + "\n";
    let (front, back) = spans.split_at(200);
    let other = format!("{}\nno request\n{}\n", front.join("\n"), back.join("\n"));
    let cut = &whole[..whole.len() - 40];
    vec![
        ("other.jsonl", other.clone().into(), DAMAGED, EXACT),
        ("cut.jsonl", cut.into(), CUT_OFF, EXACT),
        ("other.jsonl.gz", gzip(other.as_bytes()), DAMAGED, TEXT),
        ("other.jsonl.zst", zstd(other.as_bytes()), DAMAGED, TEXT),
        ("cut.jsonl.gz", gzip(cut.as_bytes()), CUT_OFF, TEXT),
        (
            "wrong.jsonl.gz",
            wrong(&gzip(whole.as_bytes())),
            DAMAGED,
            PART_OF_TEXT,
        ),
        (
            "wrong.jsonl.zst",
            wrong(&zstd(whole.as_bytes())),
            DAMAGED,
            PART_OF_TEXT,
        ),
    ]
}

/// Offsets of the records of a RocksDB trace.
fn records(trace: &[u8]) -> Vec<usize> {
    let mut at = ROCKSDB_HEADER_BYTES;
    let mut found = Vec::new();
    while at < trace.len() {
        found.push(at);
        let length = trace[at + LENGTH_AT..at + ENVELOPE_BYTES].try_into();
        at += ENVELOPE_BYTES + u32::from_le_bytes(length.unwrap()) as usize;
    }
    found
}

fn rocksdb() -> Vec<Case> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let read = |name: &str| fs::read(data.join(name)).unwrap();
    let mut cases = Vec::new();
    for (trace, types, lengths, ends) in [
        (
            read("io_small.trace"),
            "io-types",
            "io-lengths",
            ["io-torn", "io-torn-header"],
        ),
        (
            read("bc_small.trace"),
            "bc-types",
            "bc-lengths",
            ["bc-torn", "bc-torn-header"],
        ),
    ] {
        let records = records(&trace);
        let third = records.len() / 3;
        // The first one shows which kind of trace it is.
        let odd_types = with(&trace, |trace| {
            for record in [records[1], records[third], records[2 * third]] {
                trace[record + TYPE_AT] = 99;
            }
        });
        let odd_length = with(&trace, |trace| {
            trace[records[third] + LENGTH_AT..][..4].fill(0xff);
        });
        let last = records[records.len() - 1];
        if types == "io-types" {
            cases.push((types, odd_types, CUT_OFF, EXACT));
        }
        cases.push((lengths, odd_length, DAMAGED, EXACT));
        cases.push((ends[0], trace[..trace.len() - 3].to_vec(), CUT_OFF, EXACT));
        cases.push((ends[1], trace[..last + 4].to_vec(), CUT_OFF, EXACT));
    }
    cases
}

fn count(source: &[&str]) -> (i32, u64, String) {
    let (code, out, errors) = run(&[&["query", "--count"], source].concat());
    let count = out.trim().parse();
    let count = count.unwrap_or_else(|_| panic!("{source:?} {errors}"));
    (code, count, errors)
}

struct World {
    folder: tempfile::TempDir,
    server: Server,
}

impl World {
    fn check(&self, (name, bytes, expected_code, fidelity): &Case) {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let path = path.to_str().unwrap();
        let (code, expected, told) = count(&[path]);
        assert_eq!(code, 1, "{name}: {told}");
        assert!(expected > 5, "{name}: {expected}");
        let (url, storage) = (self.server.url(), self.server.api().create_storage(name));
        let target = ["--server", &*url, "--storage", &*storage];
        let words = ["push", path, "--packet-bytes", "4096", "--json"];
        let push = || {
            let (code, out, errors) = run(&[&words[..], &target].concat());
            assert_eq!(code, *expected_code, "{name}: {errors}");
            let report: Value = serde_json::from_str(&out).unwrap();
            report["streams"][0].clone()
        };
        let report = push();
        let key = match *expected_code {
            DAMAGED => "damage",
            _ => "remark",
        };
        // The server tells records that are damaged between others.
        let is_told = report[key].is_string() || report["unreadable_records"].is_u64();
        assert!(is_told, "{name}: {report}");
        assert_eq!(push()["packets"], 0, "{name}");
        self.check_stored(name, expected);
        self.server.api().finalize(&storage);
        self.check_stored(name, expected);
        wait_for_indexes(&self.server, &storage);
        self.check_stored(name, expected);
        self.check_export(name, bytes, fidelity);
    }

    fn check_stored(&self, name: &str, expected: u64) {
        let (url, query) = (self.server.url(), "ts >= 0");
        let from = ["--server", &*url, "--storage", name];
        let (code, found, told) = count(&from);
        assert_eq!((code, found), (1, expected), "{name}: {told}");
        let (code, _, errors) = run(&[&["query", query, "--format", "csv"], &from[..]].concat());
        assert_eq!(code, 1, "{name}: {errors}");
        let (code, _, errors) = run(&[&["query", "--count", "--strict"], &from[..]].concat());
        assert!(code > 0 && !errors.is_empty(), "{name}: {errors}");
    }

    fn check_export(&self, name: &str, bytes: &[u8], fidelity: &str) {
        let target = self.folder.path().join("exported").join(name);
        let (target, url) = (target.to_str().unwrap(), self.server.url());
        let words = ["export", "--server", &url, "--storage", name, "--json"];
        let (code, out, errors) = run(&[&words[..], &[target]].concat());
        assert_eq!(
            code,
            i32::from(fidelity == PART_OF_TEXT),
            "{name}: {errors}"
        );
        let report: Value = serde_json::from_str(&out).unwrap();
        let file = &report["files"][0];
        assert_eq!(file["fidelity"], fidelity, "{name}: {file}");
        let exported = fs::read(file["path"].as_str().unwrap()).unwrap();
        if fidelity == EXACT {
            assert!(exported == bytes, "{name}");
        }
        if fidelity == PART_OF_TEXT {
            let note = file["note"].as_str().unwrap();
            assert!(
                note.contains("as far as it could be read"),
                "{name}: {note}"
            );
        }
    }
}

fn check_all(cases: &[Case]) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &Settings::default());
    let world = World { folder, server };
    for case in cases {
        world.check(case);
    }
}

#[test]
fn chrome_traces_are_told_to_be_damaged_by_every_query() {
    check_all(&chrome());
}

#[test]
fn spans_are_told_to_be_damaged_by_every_query() {
    check_all(&requests());
}

#[test]
fn rocksdb_traces_are_told_to_be_damaged_by_every_query() {
    check_all(&rocksdb());
}

#[test]
fn compressed_lines_are_told_to_be_damaged_by_every_query() {
    let (whole, gzipped) = (zstd(lines().as_bytes()), gzip(lines().as_bytes()));
    check_all(&[
        ("wrong.pfw.zst", wrong(&whole), DAMAGED, PART_OF_TEXT),
        (
            "second.pfw.zst",
            [&whole[..], &wrong(&whole)].concat(),
            DAMAGED,
            PART_OF_TEXT,
        ),
        (
            "cut.pfw.zst",
            whole[..whole.len() / 2].to_vec(),
            CUT_OFF,
            PART_OF_TEXT,
        ),
        // Of many packets, of which only the last one ends inside the member.
        (
            "cut.pfw.gz",
            gzipped[..gzipped.len() / 2].to_vec(),
            CUT_OFF,
            EXACT,
        ),
    ]);
}
