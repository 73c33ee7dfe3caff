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

const CHROME: &[u8] = b"{\"traceEvents\":[{\"ph\":\"X\",\"ts\":5,\"dur\":2,\"name\":\"x\"}]}";

const SPANS: &[u8] = b"{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"x\",\
    \"startTimeUnixNano\":\"5\"}]}]}]}\n";

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
            &["decode", "query", "index"],
            "a DFTracer file",
        ),
        case(
            "b.bin",
            &gzip(LINES),
            "dft",
            &["decode", "query", "index"],
            "a DFTracer file",
        ),
        case(
            "l.pfw",
            CHROME,
            "chrome",
            &["decode", "query", "index"],
            "Chrome trace",
        ),
        case(
            "m.pfw",
            &gzip(CHROME),
            "chrome",
            &["decode", "query"],
            "Chrome trace",
        ),
        case(
            "n.pfw",
            SPANS,
            "otlp",
            &["decode", "query", "index"],
            "OpenTelemetry spans",
        ),
        case(
            "o.json",
            &gzip(SPANS),
            "otlp",
            &["decode", "query"],
            "OpenTelemetry spans",
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
        case("j.pfw.gz", &gzip(b"hello\n"), "raw", &[], "unknown content"),
        case("k.pfw.gz", &gzip(LINES)[..5], "raw", &[], "unknown content"),
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
            assert_eq!(output.status.code(), Some(2), "{what}");
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

const ALL_COMMANDS: [&str; 6] = ["push", "decode", "query", "index", "analyze", "inspect"];

/// Runs every command on a path and compares exit code and message.
fn check_all(path: &Path, expected: i32, message: &str) {
    check_commands(&ALL_COMMANDS, path, expected, message);
}

fn check_commands(commands: &[&str], path: &Path, expected: i32, message: &str) {
    for command in commands {
        let (code, out, err) = match *command {
            "push" => tracehold(&["push", "--storage", "s"], path),
            command => tracehold(&[command], path),
        };
        let what = format!("{command} {}: {out}{err}", path.display());
        assert_eq!(code, Some(expected), "{what}");
        assert!(err.contains(message), "{what}");
    }
}

#[test]
fn special_files_are_refused_without_being_opened() {
    let folder = tempfile::tempdir().expect("a folder for the file");
    let fifo = folder.path().join("fifo.pfw");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo starts").success());
    // A query reads it, as long as someone writes to it.
    let others = ALL_COMMANDS.map(|command| if command == "query" { "index" } else { command });
    check_commands(&others, &fifo, 2, "this is a FIFO, not a regular file");
    check_all(
        Path::new("/dev/null"),
        2,
        "this is a device, not a regular file",
    );
    check_all(&folder.path().join("missing.pfw"), 4, "missing.pfw");
}

#[test]
fn empty_files_have_nothing_to_read() {
    let folder = tempfile::tempdir().expect("a folder for the file");
    for (name, content) in [("a.bin", vec![]), ("b.bin", gzip(b""))] {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("the file can be written");
        for command in COMMANDS {
            let (code, out, err) = tracehold(&[command], &path);
            assert_eq!(code, Some(1), "{command} {name}: {out}{err}");
            let note = "there is nothing to index; no index was written";
            assert_eq!(err.contains(note), command == "index", "{err}");
        }
        let index = folder.path().join(format!("{name}.idx"));
        assert!(!index.exists(), "{}", index.display());
    }
}

#[test]
fn metadata_alone_has_nothing_to_read() {
    let folder = tempfile::tempdir().expect("a folder for the trace");
    let metadata = "/* CTF 1.8 */\ntrace { major = 1; minor = 8; byte_order = le; };\n";
    std::fs::write(folder.path().join("metadata"), metadata).expect("the file can be written");
    for (command, expected) in [("decode", 1), ("query", 1), ("index", 1), ("analyze", 2)] {
        let (code, out, err) = tracehold(&[command], folder.path());
        assert_eq!(code, Some(expected), "{command}: {out}{err}");
        assert!(!err.contains("/stream"), "{command}: {err}");
        let note = format!("there are no stream files to {command}");
        let says_so = ["decode", "index"].contains(&command);
        assert_eq!(err.contains(&note), says_so, "{command}: {err}");
    }
}

#[test]
fn the_index_of_a_file_that_became_empty_is_removed() {
    let folder = tempfile::tempdir().expect("a folder for the file");
    let path = folder.path().join("a.pfw");
    for (content, expected) in [(LINES, (Some(0), true)), (b"", (Some(1), false))] {
        std::fs::write(&path, content).expect("the file can be written");
        let (code, _, err) = tracehold(&["index"], &path);
        let exists = folder.path().join("a.pfw.idx").exists();
        assert_eq!((code, exists), expected, "{err}");
    }
}

#[test]
fn folders_are_recognized_by_content() {
    let folder = tempfile::tempdir().expect("a folder for the trace");
    let below = folder.path().join("a/b");
    std::fs::create_dir_all(&below).expect("the folder can be made");
    for name in ["metadata", "stream"] {
        std::fs::write(folder.path().join(name), "notes\n").expect("the file can be written");
    }
    // Nothing in the folder is a trace.
    for command in COMMANDS {
        let (code, out, err) = tracehold(&[command], folder.path());
        assert_eq!(code, Some(2), "{command}: {out}{err}");
    }
    // The search continues below a folder whose `metadata` is something else.
    let metadata = "/* CTF 1.8 */\ntrace { major = 1; minor = 8; byte_order = le; };\n";
    std::fs::write(below.join("metadata"), metadata).expect("the file can be written");
    for command in ["decode", "query", "index"] {
        let (code, out, err) = tracehold(&[command], folder.path());
        assert_eq!(code, Some(1), "{command}: {out}{err}");
    }
}

#[test]
fn a_file_named_metadata_makes_no_ctf_trace() {
    let folder = tempfile::tempdir().expect("a folder for the file");
    let path = folder.path().join("a.pfw");
    std::fs::write(&path, LINES).expect("the file can be written");
    std::fs::write(folder.path().join("metadata"), "notes\n").expect("the file can be written");
    let (code, _, err) = tracehold(&["index"], &path);
    assert_eq!(code, Some(0), "{err}");
    assert!(folder.path().join("a.pfw.idx").is_file());
    let plan = Plan::of(&[folder.path().to_owned()], &PlanOptions::default());
    let plan = plan.expect("a folder can be pushed");
    let kinds = plan.sources.iter().map(|source| source.kind.to_string());
    assert!(kinds.clone().any(|kind| kind == "dft") && kinds.clone().all(|kind| kind != "ctf"));
}

#[test]
fn decode_refuses_times_that_it_does_not_apply() {
    let Some(corpus) = corpus() else { return };
    let path = corpus.join("rocksdb/io_small.trace");
    let (code, out, err) = tracehold(&["decode", "--to", "2020-01-01"], &path);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
}

#[test]
fn decode_selects_events_of_files_by_time() {
    let spans = |ts: u64| String::from_utf8_lossy(SPANS).replace("\"5\"", &format!("\"{ts}\""));
    let day = 1_795_219_200_000_000_000;
    let spans = spans(day + 3_600_000_000_000) + &spans(day + 7_200_000_000_000);
    let line = |ts: u64| format!("{{\"name\":\"r\",\"ts\":{ts},\"dur\":1,\"ph\":\"X\"}}\n");
    let lines = line(day / 1_000 + 3_600_000_000) + &line(day / 1_000 + 7_200_000_000);
    let folder = tempfile::tempdir().expect("a folder for the file");
    let output = folder.path().join("out");
    for (name, content) in [("spans", spans), ("lines", lines)] {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("the file can be written");
        for (window, expected) in [
            (&[][..], 2),
            (&["--from", "2026-11-21T02:00:00Z"], 1),
            (&["--to", "02:00"], 1),
            (&["--end", "2026-11-21 02:00"], 2),
            (&["--timerange", "1795222801,1795226399"], 0),
            (&["--begin", "2030-01-01"], 0),
        ] {
            let what = format!("{name} {window:?}");
            let (code, out, err) = tracehold(&[&["decode"][..], window].concat(), &path);
            let printed = (code, out.lines().count());
            assert_eq!(printed, (Some(0), expected), "{what}: {err}");
            let counter = [&["decode", "-o", "counter"][..], window].concat();
            let (_, out, _) = tracehold(&counter, &path);
            let counted = format!("{expected:>15} Event messages\n");
            assert!(out.starts_with(&counted), "{what}: {out}");
            let written = output.to_str().expect("the path is text");
            let (code, out, _) =
                tracehold(&[&["decode", "-w", written][..], window].concat(), &path);
            assert_eq!((code, out.as_str()), (Some(0), ""), "{what}");
            let text = std::fs::read_to_string(&output).expect("the output was written");
            assert_eq!(text.lines().count(), expected, "{what}");
        }
        for refused in [&["--clock-seconds"][..], &["-o", "elements"]] {
            let (code, out, _) = tracehold(&[&["decode"][..], refused].concat(), &path);
            assert_eq!((code, out.as_str()), (Some(2), ""), "{name} {refused:?}");
        }
    }
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

/// Runs a query with this standard input, and compares its exit code and count.
fn check_query(path: &str, input: Option<&[u8]>, code: i32, count: &str) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tracehold"))
        .args(["query", path, "ts >= 0", "--count"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("the input is a pipe");
    // A program that refuses its input closes the pipe.
    let _ = stdin.write_all(input.unwrap_or_default());
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(code), "{path}: {out}{err}");
    assert_eq!(out.trim(), count, "{path}: {err}");
}

#[test]
fn pipes_and_files_compressed_with_zstd_are_queried() {
    let folder = tempfile::tempdir().expect("a folder for the files");
    let zstd = |text: &[u8]| zstd::encode_all(text, 3).expect("memory can be written");
    let many = LINES.repeat(20_000);
    let count = many
        .split(|byte| *byte == b'\n')
        .filter(|line| line.starts_with(b"{"))
        .count();
    let count = count.to_string();
    for text in [many.clone(), gzip(&many), zstd(&many)] {
        check_query("-", Some(&text), 0, &count);
        check_query("/dev/stdin", Some(&text), 0, &count);
    }
    check_query("-", Some(b"no trace\n"), 2, "");
    check_query("-", Some(&zstd(b"no trace\n")), 2, "");
    check_query("-", Some(&[&zstd(b"")[..4], &[9; 50]].concat()), 2, "");
    let path = folder.path().join("trace.pfw.zst");
    let name = path.to_str().expect("the path is text");
    let whole = zstd(&many);
    std::fs::write(&path, &whole).expect("the file can be written");
    check_query(name, None, 0, &count);
    let fifo = folder.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo starts").success());
    let name = fifo.to_str().expect("the path is text");
    std::thread::scope(|scope| {
        scope.spawn(|| std::fs::write(&fifo, &many).expect("the query reads it"));
        check_query(name, None, 0, &count);
    });
}

/// What follows the damage is missing, and the query says so.
#[test]
fn a_cut_zstd_file_is_queried_up_to_the_cut() {
    let folder = tempfile::tempdir().expect("a folder for the file");
    let path = folder.path().join("trace.zst");
    let frame = zstd::encode_all(LINES, 3).expect("memory can be written");
    std::fs::write(&path, [&frame[..], &frame[..frame.len() - 3]].concat()).expect("written");
    let (code, out, err) = tracehold(&["query", "--count"], &path);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(err.contains("cannot be decompressed beyond byte"), "{err}");
    let (code, _, err) = tracehold(&["query", "--count", "--strict"], &path);
    assert_eq!(
        (code, err.contains("would be incomplete")),
        (Some(1), true),
        "{err}"
    );
}

/// All traces in a folder and below it, of any kind; other files and hidden ones are left alone.
#[test]
fn folders_of_traces_are_queried_and_indexed() {
    let folder = tempfile::tempdir().expect("a folder for the files");
    let below = folder.path().join("a/b");
    std::fs::create_dir_all(&below).expect("the folders can be made");
    for (path, text) in [
        ("one.pfw", LINES),
        ("a/two.pfw", LINES),
        ("a/b/three.log", LINES),
        ("a/readme.txt", b"no trace\n"),
        ("a/.hidden.pfw", LINES),
    ] {
        std::fs::write(folder.path().join(path), text).expect("the file can be written");
    }
    let of_one = tracehold(&["query", "--count"], &folder.path().join("one.pfw"));
    let one: u64 = of_one.1.trim().parse().expect("a count");
    for _ in 0..2 {
        let (code, out, err) = tracehold(&["query", "--count"], folder.path());
        assert_eq!(
            (code, out.trim()),
            (Some(0), &*(3 * one).to_string()),
            "{err}"
        );
        let (code, out, err) = tracehold(&["index"], folder.path());
        assert_eq!((code, out.lines().count()), (Some(0), 4), "{out}{err}");
    }
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).expect("the folder can be made");
    check_commands(
        &["query", "index"],
        &empty,
        2,
        "no trace is in it or below it",
    );
}
