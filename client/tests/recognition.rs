//! Push, decode, query, index and analyze recognize files by content, whatever their names.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use client::push::{Plan, PlanOptions};
use flate2::Compression;
use flate2::write::GzEncoder;

/// A file, the kind that it is pushed as, and the commands that accept it.
struct Case {
    /// A name that suggests something else.
    name: &'static str,
    content: Vec<u8>,
    kind: &'static str,
    accepted_by: &'static [&'static str],
    /// What the commands that refuse the file call it.
    found: &'static str,
}

const COMMANDS: [&str; 4] = ["decode", "query", "index", "analyze"];

/// The folder of real traces; `None`, with a message, if it does not exist.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn corpus() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora");
    if !folder.exists() {
        println!("skipped: ../shared/corpora is not here");
        return None;
    }
    Some(folder)
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).expect("a vector can be written");
    encoder.finish().expect("a vector can be written")
}

const LINES: &[u8] =
    b"[\n{\"id\":1,\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":1,\"ts\":5,\
    \"dur\":2,\"ph\":\"X\",\"args\":{}}\n";

fn made() -> Vec<Case> {
    let case = |name, content: &[u8], kind, accepted_by, found| Case {
        name,
        content: content.to_vec(),
        kind,
        accepted_by,
        found,
    };
    let packet = [&0xc1fc_1fc1_u32.to_le_bytes()[..], &[0; 60]].concat();
    vec![
        case(
            "a.log",
            LINES,
            "dft",
            &["query", "index"],
            "a DFTracer file",
        ),
        case(
            "b.bin",
            &gzip(LINES),
            "dft",
            &["query", "index"],
            "a DFTracer file",
        ),
        case("c.pfw", b"plain text\n", "raw", &[], "unknown content"),
        case("d.pfw", &[7; 100], "raw", &[], "unknown content"),
        case(
            "e.trace",
            b"/* CTF 1.8 */\n",
            "raw",
            &[],
            "metadata of a CTF trace",
        ),
        case(
            "f.trace",
            &packet,
            "raw",
            &[],
            "data stream file of a CTF trace",
        ),
        case("g.pfw", b"THITDATA\0\0\0\0", "raw", &[], "a Tracehold file"),
    ]
}

fn recorded(corpus: &Path) -> Vec<Case> {
    let case = |name, file: &str, kind, accepted_by| Case {
        name,
        content: std::fs::read(corpus.join(file)).expect("the corpus is complete"),
        kind,
        accepted_by,
        found: "of RocksDB",
    };
    vec![
        case("h.pfw", "rocksdb/io_small.trace", "rocksdb-io", &COMMANDS),
        case(
            "i.txt",
            "rocksdb/bc_small.trace",
            "rocksdb-block-cache",
            &COMMANDS,
        ),
    ]
}

fn check(case: &Case) {
    let folder = tempfile::tempdir().expect("a folder for the file");
    let path = folder.path().join(case.name);
    std::fs::write(&path, &case.content).expect("the file can be written");
    let plan = Plan::of(std::slice::from_ref(&path), &PlanOptions::default());
    let plan = plan.expect("any file can be pushed");
    assert_eq!(plan.sources[0].kind.to_string(), case.kind, "{}", case.name);
    for command in COMMANDS {
        let output = Command::new(env!("CARGO_BIN_EXE_tracehold"))
            .arg(command)
            .arg(&path)
            .output()
            .expect("the program starts");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        let what = format!("{command} {}: {message}", case.name);
        if case.accepted_by.contains(&command) {
            assert!(output.status.success(), "{what}");
        } else {
            assert!(!output.status.success(), "{what}");
            assert!(message.contains(case.found), "{what}");
            let says_what_is_accepted = message.contains("expected") || message.contains("read");
            assert!(says_what_is_accepted, "{what}");
        }
    }
}

fn tracehold(arguments: &[&str], path: &Path) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tracehold"))
        .arg(arguments[0])
        .arg(path)
        .args(&arguments[1..])
        .output()
        .expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output.status.code(), out, err)
}

#[test]
fn damage_is_reported_with_exit_code_1() {
    let folder = tempfile::tempdir().expect("a folder for the file");
    let path = folder.path().join("a.pfw.gz");
    let (first, mut second) = (gzip(LINES), gzip(LINES));
    second[20] ^= 0x55;
    let content = [&first[..], &second, &first].concat();
    std::fs::write(&path, content).expect("the file can be written");
    let location = format!("byte {}: the gzip member is damaged", first.len());
    // The second query uses the index, and the second index is up to date.
    for arguments in [
        &["query", "--count"][..],
        &["index"],
        &["query", "--count"],
        &["index"],
    ] {
        let (code, out, err) = tracehold(arguments, &path);
        let what = format!("{arguments:?}: {code:?} {out} {err}");
        assert_eq!(code, Some(1), "{what}");
        assert!(err.contains(&location), "{what}");
        assert!(arguments[0] != "query" || out == "2\n", "{what}");
    }
}

#[test]
fn the_exit_code_says_whether_something_matched() {
    let folder = tempfile::tempdir().expect("a folder for the file");
    let path = folder.path().join("a.pfw");
    std::fs::write(&path, LINES).expect("the file can be written");
    for form in [
        &["--count"][..],
        &["--count", "--json"],
        &["--count", "--format", "csv"],
        &["--group-by", "name"],
        &[],
    ] {
        for (query, expected) in [("dur > 1", 0), ("dur > 9", 1)] {
            let arguments = [&["query", query][..], form].concat();
            let (code, out, err) = tracehold(&arguments, &path);
            assert_eq!(code, Some(expected), "{arguments:?}: {out}{err}");
        }
    }
}

#[test]
fn all_commands_recognize_the_same_file() {
    made().iter().for_each(check);
    if let Some(corpus) = corpus() {
        recorded(&corpus).iter().for_each(check);
    }
}
