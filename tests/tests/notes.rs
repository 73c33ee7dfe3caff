//! What a reader of a result must know is said: on stderr by the command line, and over HTTP in the
//! header and the last line; the same of files, storages and mounts.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use harness::Server;
use serde_json::{Value, json};

use crate::queries::{mount, push, run, settings, wait_for_indexes, write_trace};

/// A query, and what is said of its result.
struct Case {
    name: &'static str,
    content: String,
    command: &'static [&'static str],
    /// The same over HTTP.
    body: Value,
    note: &'static str,
    count: usize,
}

/// A Chrome trace with one begin that has no end.
fn unpaired() -> String {
    let slice = r#""pid":1,"tid":1,"name":"whole""#;
    format!(
        "{{\"traceEvents\":[{{\"ph\":\"X\",{slice},\"ts\":1,\"dur\":9}},\n\
         {{\"ph\":\"B\",{slice},\"ts\":20}}]}}\n"
    )
}

/// A Chrome trace of several packets. An index rules out that of the begin without an end for long
/// durations.
fn short() -> String {
    let fill = "x".repeat(100);
    let slice = format!(r#""pid":1,"tid":1,"name":"work","args":{{"fill":"{fill}"}}"#);
    let mut text = String::from("[");
    for at in 0..1_500 {
        let (ts, dur) = (at * 10, if at < 600 { 9 } else { 1 });
        writeln!(text, "{{\"ph\":\"X\",{slice},\"ts\":{ts},\"dur\":{dur}}},").unwrap();
    }
    writeln!(text, "{{\"ph\":\"B\",{slice},\"ts\":20000}}]").unwrap();
    text
}

/// A Chrome trace of two packets, whose thread wrote the records of the second too late.
fn disordered() -> String {
    let mark =
        |ph, ts| format!("{{\"ph\":\"{ph}\",\"pid\":1,\"tid\":1,\"name\":\"a\",\"ts\":{ts}}}");
    let mut text = format!("[{},\n{}", mark("B", 0), mark("B", 100));
    let fill = "x".repeat(4_096);
    for ts in 0..400 {
        let args = format!("\"args\":{{\"fill\":\"{fill}\"}}");
        write!(
            text,
            ",\n{{\"ph\":\"i\",\"pid\":1,\"tid\":2,\"ts\":{ts},{args}}}"
        )
        .unwrap();
    }
    writeln!(text, ",\n{},\n{}]", mark("E", 50), mark("E", 200)).unwrap();
    text
}

/// DFTracer lines with these durations and arguments.
fn lines(events: impl Iterator<Item = (&'static str, String)>) -> String {
    let mut text = String::from("[\n");
    for (at, (dur, args)) in events.enumerate() {
        let ts = 1_700_000_000_000_000 + at;
        writeln!(
            text,
            "{{\"id\":{at},\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":2,\"ts\":{ts},\
             \"dur\":{dur},\"ph\":\"X\",\"args\":{{{args}}}}}"
        )
        .unwrap();
    }
    text
}

fn cases() -> Vec<Case> {
    let values = (0..10_100).map(|at| ("5", format!("\"ret\":{at}")));
    let words = [
        ("5", "\"ret\":1".to_owned()),
        ("5", "\"ret\":\"word\"".to_owned()),
    ];
    let odd = [
        ("5", "\"ret\":1".to_owned()),
        ("0.0001", "\"ret\":2".to_owned()),
    ];
    let of_line = |line| -> Vec<_> {
        let field = |at| format!("\"f{line}_{at}\":{at}");
        (0..1_000).map(field).collect()
    };
    let fields = (0..17).map(|line| ("5", of_line(line).join(",")));
    vec![
        Case {
            name: "unpaired.json",
            content: unpaired(),
            command: &["query", "--fields", "name,dur", "--format", "ndjson"],
            body: json!({ "fields": ["name", "dur"], "format": "ndjson" }),
            note: "1 begin events have no duration: their end is missing",
            count: 2,
        },
        Case {
            name: "groups.json",
            content: unpaired(),
            command: &["query", "--group-by", "name", "--format", "ndjson"],
            body: json!({ "group_by": "name", "format": "ndjson" }),
            note: "1 begin events have no duration: their end is missing",
            count: 2,
        },
        Case {
            name: "parquet.json",
            content: unpaired(),
            command: &["query", "--group-by", "name", "--format", "parquet"],
            body: json!({ "group_by": "name", "format": "parquet" }),
            note: "1 begin events have no duration: their end is missing",
            count: 2,
        },
        Case {
            name: "arrow.json",
            content: unpaired(),
            command: &["query", "--group-by", "name", "--format", "arrow"],
            body: json!({ "group_by": "name", "format": "arrow" }),
            note: "1 begin events have no duration: their end is missing",
            count: 2,
        },
        Case {
            name: "rows.json",
            content: unpaired(),
            command: &["query", "--format", "parquet"],
            body: json!({ "format": "parquet" }),
            note: "1 begin events have no duration: their end is missing",
            count: 2,
        },
        Case {
            name: "late.json",
            content: disordered(),
            command: &["query", "--group-by", "name", "--format", "parquet"],
            body: json!({ "group_by": "name", "format": "parquet" }),
            note: "threads did not write their records in the order of their times",
            count: 404,
        },
        Case {
            name: "late-arrow.json",
            content: disordered(),
            command: &["query", "--group-by", "name", "--format", "arrow"],
            body: json!({ "group_by": "name", "format": "arrow" }),
            note: "threads did not write their records in the order of their times",
            count: 404,
        },
        Case {
            // The begin is not among the rows.
            name: "slices.json",
            content: unpaired(),
            command: &["query", "ph == 'X'", "--fields", "name,dur"],
            body: json!({ "query": "ph == 'X'", "fields": ["name", "dur"], "format": "ndjson" }),
            note: "1 begin events have no duration: their end is missing",
            count: 2,
        },
        Case {
            name: "short.json",
            content: short(),
            command: &["query", "dur >= 5us", "--count"],
            body: json!({ "query": "dur >= 5us", "count": true }),
            note: "1 begin events have no duration: their end is missing",
            count: 1_501,
        },
        Case {
            name: "values.pfw",
            content: lines(values),
            command: &["query", "--aggregate", "distinct:ret", "--format", "ndjson"],
            body: json!({ "aggregate": "distinct:ret", "format": "ndjson" }),
            note: "distinct:args.ret is approximate (standard error",
            count: 10_100,
        },
        Case {
            name: "words.pfw",
            content: lines(words.into_iter()),
            command: &["query", "--fields", "ts,ret", "--format", "parquet"],
            body: json!({ "fields": ["ts", "ret"], "format": "parquet" }),
            note: "1 values of ret are not of the type of their column",
            count: 2,
        },
        Case {
            name: "odd.pfw",
            content: lines(odd.into_iter()),
            command: &["query", "--aggregate", "sum:dur", "--format", "ndjson"],
            body: json!({ "aggregate": "sum:dur", "format": "ndjson" }),
            note: "aggregates of ts and dur are without those of 1 events that are not whole",
            count: 2,
        },
        Case {
            name: "fields.pfw",
            content: lines(fields),
            command: &["fields", "--format", "ndjson"],
            body: json!({ "list_fields": true, "format": "ndjson" }),
            note: "there are more than 16384 fields of a kind; the others are not listed",
            count: 17,
        },
    ]
}

/// Checks the command line.
fn check(case: &Case, source: &[&str]) {
    let (name, options) = case.command.split_at(1);
    let (code, out, errors) = run(&[name, source, options].concat());
    let what = format!("{} {source:?}: {errors}", case.name);
    assert_eq!(code, 0, "{what}");
    assert!(!out.is_empty(), "{what}");
    assert_eq!(errors.matches(case.note).count(), 1, "{what}");
    assert_eq!(errors.lines().count(), 1, "{what}");
    assert!(!out.contains("summary"), "{what}");
    if case.command.last() == Some(&"parquet") {
        assert!(out.contains("tracehold.notes"), "{what}");
        assert!(out.contains(case.note), "{what}");
    }
}

/// Checks the answer of the server.
fn check_http(case: &Case, server: &Server, storage: &str) {
    let path = format!("/storages/{storage}/query");
    let answer = server.api().call("POST", &path, Some(&case.body));
    assert_eq!(answer.status, 200, "{}", answer.brief());
    let notes = answer.header("tracehold-notes").unwrap_or_default();
    assert!(notes.contains(case.note), "{}: {notes:?}", case.name);
    if case.body["format"] == "ndjson" {
        let text = String::from_utf8(answer.body.clone()).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let notes = last["summary"]["notes"].to_string();
        assert!(notes.contains(case.note), "{}: {last}", case.name);
    }
    if case.body["format"] == "parquet" {
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(text.contains("tracehold.notes"), "{}", case.name);
        assert!(text.contains(case.note), "{}", case.name);
    }
    // A count needs none of what the notes are about.
    for is_first in [true, false] {
        let count = json!({ "count": true });
        let answer = server.api().call("POST", &path, Some(&count));
        assert_eq!(answer.header("tracehold-notes"), None, "{}", answer.brief());
        let matched = answer.header("tracehold-matched").map(str::to_owned);
        // It is unknown of a result from the cache.
        if is_first || matched.is_some() {
            assert_eq!(matched, Some(case.count.to_string()), "{}", case.name);
        }
        assert_eq!(answer.json()["count"], case.count);
    }
}

#[test]
fn notes_are_the_same_of_files_storages_and_mounts() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let url = server.url();
    for case in cases() {
        let path = folder.path().join(case.name);
        fs::write(&path, &case.content).unwrap();
        let file = path.to_str().unwrap();
        check(&case, &[file]);
        let storage = server.api().create_storage(case.name);
        push(&server, &storage, &path, "65536");
        let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
        check(&case, &stored);
        check_http(&case, &server, &storage);
        server.api().finalize(&storage);
        wait_for_indexes(&server, &storage);
        check(&case, &stored);
        check_http(&case, &server, &storage);
        let mounted = folder.path().join(format!("{}.mount", case.name));
        mount(&server, &storage, &mounted);
        check(&case, &["--dir", mounted.to_str().unwrap()]);
        let (code, _, errors) = run(&["index", file, "--chunk-kib", "16"]);
        assert_eq!(code, 0, "{errors}");
        check(&case, &[file]);
    }
}

/// Damages an index at one place after another. Returns what was said, which is at most one thing
/// a query, without the parts that depend on the place.
fn with_damage(index: &Path, query: &dyn Fn() -> String) -> BTreeSet<&'static str> {
    const NOTES: [&str; 2] = [
        "; the query reads the file without its index",
        "; the query read the data instead",
    ];
    let whole = fs::read(index).unwrap();
    let mut said = BTreeSet::new();
    for at in (8..whole.len()).step_by(whole.len() / 40) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        fs::write(index, damaged).unwrap();
        let errors = query();
        for line in errors.lines() {
            let note = NOTES.iter().find(|note| line.ends_with(**note));
            said.insert(*note.unwrap_or_else(|| panic!("byte {at}: {errors}")));
        }
    }
    fs::write(index, whole).unwrap();
    assert_eq!(query(), "", "the index is whole again");
    said
}

#[test]
fn an_index_that_is_not_used_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 3_000);
    let file = trace.to_str().unwrap();
    let (_, expected, _) = run(&["query", file, "name == 'fsync' and ret > 5"]);
    let query = |source: &[&str]| {
        let (code, out, errors) =
            run(&[&["query"], source, &["name == 'fsync' and ret > 5"]].concat());
        assert_eq!((code, &out), (0, &expected), "{errors}");
        errors
    };
    let (code, _, errors) = run(&["index", file, "--chunk-kib", "16"]);
    assert_eq!(code, 0, "{errors}");
    let index = folder.path().join("trace.pfw.idx");
    let both = [
        "; the query read the data instead",
        "; the query reads the file without its index",
    ];
    let said = with_damage(&index, &|| query(&[file]));
    assert_eq!(said.into_iter().collect::<Vec<_>>(), both);
    // The file is another one.
    write_trace(&trace, 2_999);
    let (_, _, errors) = run(&["query", file, "--count"]);
    assert!(
        errors.ends_with("; the query reads the file without its index\n"),
        "{errors}"
    );
    assert!(errors.contains("trace.pfw"), "{errors}");
    let (_, _, errors) = run(&["query", file, "--count", "--no-index"]);
    assert_eq!(errors, "");
    write_trace(&trace, 3_000);

    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = server.api().create_storage("stored");
    push(&server, &storage, &trace, "16384");
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    let mounted = folder.path().join("mount");
    mount(&server, &storage, &mounted);
    let is_index = |path: &Path| path.extension().is_some_and(|end| end == "idx");
    let index_in = |folder: &Path| {
        let mut entries = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        entries.find(|path| is_index(path)).unwrap()
    };
    let said = with_damage(&index_in(&mounted), &|| {
        query(&["--dir", mounted.to_str().unwrap()])
    });
    assert_eq!(said.into_iter().collect::<Vec<_>>(), both);

    // The server says so, too, and makes the index again, whatever of it is damaged.
    let index = index_in(&server.data().join("storages").join(&storage));
    let whole = fs::read(&index).unwrap();
    let url = server.url();
    let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
    let words = ["name == 'fsync' and ret > 5", "--explain", "--json"];
    let mut rebuilt = 0;
    for at in (8..whole.len()).step_by(whole.len() / 24) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        fs::write(&index, damaged).unwrap();
        let (_, _, errors) = run(&[&["query"], &stored[..], &words].concat());
        let line = errors.lines().find(|line| line.starts_with("{\"explain\""));
        let document: Value = serde_json::from_str(line.unwrap()).unwrap();
        if !document["notes"].to_string().contains("index") {
            // The query did not need what is there.
            fs::write(&index, &whole).unwrap();
            continue;
        }
        let begin = Instant::now();
        while fs::read(&index).unwrap() != whole {
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "{at}: {document}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        rebuilt += 1;
    }
    assert!(rebuilt > 2, "{rebuilt}");
    let log = server.log();
    assert!(
        log.contains("a query read the data instead of an index"),
        "{log}"
    );
}

/// A mount that does not wait for the indexes says that they are missing.
#[test]
fn a_mount_without_indexes_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 60_000);
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = server.api().create_storage("stored");
    push(&server, &storage, &trace, "65536");
    server.api().finalize(&storage);
    let url = format!("{}/storage/{storage}", server.url());
    let early = folder.path().join("early");
    let words = [
        "mount",
        &url,
        early.to_str().unwrap(),
        "--index-wait-seconds",
    ];
    let (code, _, errors) = run(&[&words[..], &["0"]].concat());
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("still making chunk indexes"), "{errors}");
    let (code, _, errors) = run(&[&words[..], &["60"]].concat());
    // A long wait is said.
    let waited = errors == "waiting until the server has made the chunk indexes\n";
    assert!(code == 0 && (waited || errors.is_empty()), "{errors}");
}

#[test]
fn a_push_says_what_was_there_and_what_was_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = server.api().create_storage("stored");
    let url = server.url();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 300);
    let lenient = folder.path().join("lenient.json");
    let slice = r#"{"ph":"X","pid":1,"tid":1,"name":"a","ts":1,"dur":9},"#;
    fs::write(&lenient, format!("[{slice}\n{slice}]")).unwrap();
    let push = |path: &Path| {
        let path = path.to_str().unwrap();
        let to = [
            "push",
            "--server",
            &url,
            "--storage",
            &storage,
            "--agent",
            "a",
        ];
        let (code, _, errors) = run(&[&to[..], &["--packet-bytes", "8192", path]].concat());
        assert_eq!(code, 0, "{errors}");
        errors
    };
    let first = push(&trace);
    assert!(!first.contains("resuming"), "{first}");
    let packets = server.api().storage(&storage)["packets"].as_u64().unwrap();
    let again = push(&trace);
    let resumed = format!("resuming after {packets} packets already on the server");
    assert!(packets > 1 && again.contains(&resumed), "{again}");
    assert_eq!(server.api().storage(&storage)["packets"], packets);
    let (_, shown, _) = run(&["storage", "show", "--server", &url, &storage]);
    let begin = format!("{:<22}1970-01-01T00:00:01Z", "begin");
    assert!(shown.lines().any(|line| line == begin), "{shown}");
    let lenient = push(&lenient);
    assert!(
        lenient.contains("note: ") && lenient.contains("comma"),
        "{lenient}"
    );
    for (name, bytes, told) in cut_files(slice) {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let errors = push(&path);
        let begin = format!("note: {}: {told}", path.display());
        assert!(errors.contains(&begin), "{errors} lacks {begin}");
    }
    for (name, text, records) in [
        (
            "broken.json",
            format!("[{slice}{{\"ph\":\"X\",\"ts\":\"x\"}}]"),
            "1 record",
        ),
        (
            "broken.pfw",
            "{\"ph\":\"X\",\"ts\":1}\n\0\0\nnonsense\n".to_owned(),
            "2 records",
        ),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let told = format!("warning: {}: {records} cannot be read", path.display());
        let errors = push(&path);
        assert!(errors.contains(&told), "{errors}");
    }
}

const ENDS_IN_FRAME: &str = "the file ends inside a zstd frame";

/// Files whose producer was killed, or whose copy ended early, and what a push says.
fn cut_files(slice: &str) -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let gzip = |text: &str| {
        let mut file = GzEncoder::new(Vec::new(), Compression::fast());
        file.write_all(text.as_bytes()).unwrap();
        file.finish().unwrap()
    };
    let span = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"a"}]}]}]}"#;
    let torn = |text: &str| {
        let frame = zstd::encode_all(text.as_bytes(), 1).unwrap();
        [&frame[..], &frame[..frame.len() / 2]].concat()
    };
    let line = format!("{}\n", slice.trim_end_matches(','));
    let request = format!("{span}\n");
    let requests = format!("{request}{}", &span[..40]);
    let event = format!("{{\"traceEvents\":[{slice}\n{}", &slice[..20]);
    let list = format!("[{slice}\n{slice}");
    vec![
        ("event.json.gz", gzip(&event), "the file ends at byte "),
        ("list.json.gz", gzip(&list), "the list is not closed"),
        ("spans.jsonl", requests.into_bytes(), "at byte 62: "),
        ("spans.jsonl.zst", torn(&request), ENDS_IN_FRAME),
        ("lines.pfw.zst", torn(&line), ENDS_IN_FRAME),
        ("trace.json.zst", torn(&list), ENDS_IN_FRAME),
    ]
}

/// A folder that names another server than the command line.
#[test]
fn a_token_that_is_not_sent_to_the_server_of_a_folder_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let path = folder.path().join("trace.pfw");
    write_trace(&path, 100);
    let storage = server.api().create_storage("trace");
    push(&server, &storage, &path, "4096");
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    let mounted = folder.path().join("mount");
    mount(&server, &storage, &mounted);
    let (mounted, url) = (mounted.to_str().unwrap(), server.url());
    let exported = folder.path().join("exported");
    let other = "http://127.0.0.1:1";
    for command in [
        &["query", "--count", "--dir", mounted][..],
        &["export", "--dir", mounted, exported.to_str().unwrap()],
    ] {
        for (server, is_told) in [(other, true), (&*url, false)] {
            let words = ["--server", server, "--token", "of-another", "--force"];
            let words = &words[..if command[0] == "export" { 5 } else { 4 }];
            let (_, _, errors) = run(&[command, words].concat());
            let told = "no token or certificate is sent to it";
            assert_eq!(errors.contains(told), is_told, "{command:?}: {errors}");
        }
    }
}

#[test]
fn an_index_removes_what_killed_runs_left_beside_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (path, left) = (
        folder.path().join("t.pfw"),
        folder.path().join(".tracehold-a.idx.tmp"),
    );
    write_trace(&path, 100);
    fs::write(&left, "").unwrap();
    let (code, _, errors) = run(&["index", path.to_str().unwrap()]);
    assert_eq!(code, 0, "{errors}");
    assert!(!left.exists());
}
