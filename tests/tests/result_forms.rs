//! Exit codes, explanations, output files and lists of fields are the same for files, mounts and
//! servers.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use harness::{Server, small_traces};
use serde_json::{Value, json};

use crate::queries::{copy_all, mount, push, run, settings, wait_for_indexes, write_trace};

/// Every form of a result.
const FORMS: &[&[&str]] = &[
    &["--count"],
    &["--count", "--json"],
    &["--format", "text"],
    &["--format", "ndjson"],
    &["--format", "csv"],
    &["--format", "arrow"],
    &["--format", "parquet"],
    &["--format", "perfetto"],
    &["--format", "chrome"],
    &["--order-by", "dur desc", "--limit", "3"],
    &["--order-by", "dur desc", "--format", "parquet"],
    &["--limit", "1", "--format", "arrow"],
    &["--group-by", "name"],
    &["--group-by", "name,tid", "--format", "csv"],
    &["--group-by", "name", "--format", "parquet"],
    &["--aggregate", "sum:dur", "--json"],
    &["--aggregate", "sum:dur", "--format", "parquet"],
    &["--every", "1s", "--histogram", "dur"],
];

fn check_exit(source: &[&str], expression: &str, more: &[&str], expected: i32) {
    for form in FORMS {
        let is_count = form[0] == "--count";
        if is_count && more.contains(&"--offset") {
            continue;
        }
        let all = [&["query"], source, &[expression], form, more].concat();
        let (code, out, errors) = run(&all);
        assert_eq!(code, expected, "{all:?}: {errors}{out}");
        assert_eq!(errors, "", "{all:?}");
    }
}

/// The keys of an explanation as JSON.
fn explained(source: &[&str], form: &[&str]) -> Value {
    let all = [
        &["query"],
        source,
        &["dur >= 0us", "--explain", "--json"],
        form,
    ]
    .concat();
    let (code, _, errors) = run(&all);
    assert_eq!(code, 0, "{all:?}: {errors}");
    serde_json::from_str(&errors).unwrap_or_else(|error| panic!("{all:?}: {error}: {errors}"))
}

fn check_explanation(source: &[&str], form: &[&str], expected: &BTreeSet<String>) {
    let document = explained(source, form);
    let explain = document["explain"].as_object().unwrap();
    let keys: BTreeSet<String> = explain.keys().cloned().collect();
    let missing: Vec<&String> = expected.difference(&keys).collect();
    assert!(missing.is_empty(), "{source:?} {form:?}: {missing:?}");
    assert!(document["notes"].is_array() && document["skipped"].is_array());
    let all = [&["query"], source, &["dur >= 0us", "--explain"], form].concat();
    let (_, _, errors) = run(&all);
    assert!(errors.starts_with("sources: 1, "), "{all:?}: {errors}");
    assert!(errors.contains("\nevents matched: "), "{all:?}: {errors}");
}

#[test]
fn exit_codes_and_explanations_do_not_depend_on_the_form_or_source() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 3_000);
    let file = trace.to_str().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = server.api().create_storage("stored");
    push(&server, &storage, &trace, "16384");
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    let url = server.url();
    let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
    let mounted = folder.path().join("mount");
    mount(&server, &storage, &mounted);
    let mounted = ["--dir", mounted.to_str().unwrap()];
    // How many events match is known of a result for which all were read.
    let path = format!("/storages/{storage}/query");
    for (body, matched) in [
        (json!({ "query": "name == 'fsync'" }), Some("1")),
        (json!({ "limit": 1 }), None),
    ] {
        let answer = server.api().call("POST", &path, Some(&body));
        assert_eq!(answer.header("tracehold-matched"), matched, "{body}");
    }
    let document = explained(&[file], &["--count"]);
    let expected = document["explain"].as_object().unwrap();
    let expected: BTreeSet<String> = expected.keys().cloned().collect();
    for source in [&[file][..], &stored, &mounted] {
        // Twice, because a server caches aggregates.
        for _ in 0..2 {
            check_exit(source, "dur >= 0us", &[], 0);
            check_exit(source, "dur < 0us", &[], 1);
        }
        check_exit(source, "dur >= 0us", &["--offset", "1000000"], 1);
        for form in [
            &["--count"][..],
            &["--group-by", "name"],
            &["--format", "ndjson"],
        ] {
            check_explanation(source, form, &expected);
        }
    }
}

#[test]
fn an_output_file_is_complete_or_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 300);
    let (file, out) = (trace.to_str().unwrap(), folder.path().join("rows"));
    let out_name = out.to_str().unwrap();
    let (_, expected, _) = run(&["query", file, "--format", "csv"]);
    let (code, printed, errors) = run(&["query", file, "--format", "csv", "-o", out_name]);
    assert_eq!((code, printed.as_str(), errors.as_str()), (0, "", ""));
    assert_eq!(fs::read_to_string(&out).unwrap(), expected);
    // The line that cannot be read is found after rows were written.
    let mut damaged = fs::read(&trace).unwrap();
    damaged.extend_from_slice(b"{\"name\":\n");
    fs::write(&trace, damaged).unwrap();
    let (code, _, errors) = run(&["query", file, "--strict", "-o", out_name]);
    assert_eq!(code, 1, "{errors}");
    assert_eq!(fs::read_to_string(&out).unwrap(), expected);
    let names = fs::read_dir(folder.path()).unwrap();
    assert_eq!(names.count(), 2, "nothing unfinished remains");
    for (program, path) in [
        ("query", "/nonexistent/rows"),
        ("query", "/dev/full"),
        ("decode", "/dev/full"),
    ] {
        let option = if program == "decode" { "-w" } else { "-o" };
        let (code, _, errors) = run(&[program, file, option, path]);
        assert_eq!(code, 4, "{errors}");
        assert!(errors.contains(&format!("{path}: ")), "{errors}");
    }
}

#[test]
fn a_refused_decode_leaves_its_output_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (trace, notes, out) = (path("trace.pfw"), path("notes.txt"), path("out"));
    write_trace(Path::new(&trace), 30);
    fs::write(&notes, "no trace\n").unwrap();
    let ctf = path("lttng");
    copy_all(&small_traces()[0], Path::new(&ctf));
    let io_trace = path("io.trace");
    fs::copy(&small_traces()[2], &io_trace).unwrap();
    fs::write(&out, "earlier").unwrap();
    let day = ["--from", "2026-01-01"];
    let cases: [(&[&str], &str); 7] = [
        (&[&notes], "notes.txt"),
        (&["/nonexistent"], "/nonexistent"),
        (&[&ctf, "--details", "--clock-date"], "--details prints"),
        (&[&ctf, "-p", "compact=yes"], "--params is of --details"),
        (&[&ctf, "--json", "-o", "ctf"], "--json prints events"),
        (&[&io_trace, day[0], day[1]], "times and counts apply"),
        (&[&trace, &notes], "notes.txt"),
    ];
    for (arguments, expected) in cases {
        let (code, printed, errors) = run(&[&["decode"], arguments, &["-w", &out]].concat());
        assert!(code >= 2 && printed.is_empty(), "{arguments:?}: {errors}");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
        assert_eq!(
            fs::read_to_string(&out).unwrap(),
            "earlier",
            "{arguments:?}"
        );
    }
    let (code, printed, errors) = run(&["decode", &trace, "-w", &out]);
    assert_eq!((code, printed.as_str()), (0, ""), "{errors}");
    let (_, expected, _) = run(&["decode", &trace]);
    assert_eq!(fs::read_to_string(&out).unwrap(), expected);
    let names = fs::read_dir(folder.path()).unwrap();
    assert_eq!(names.count(), 5, "nothing unfinished remains");
    // Two traces of one name: nothing is written of the first.
    let (one, two, both) = (path("one/lttng"), path("two/lttng"), path("both"));
    for copy in [&one, &two] {
        copy_all(&small_traces()[0], Path::new(copy));
    }
    let (code, _, errors) = run(&["decode", "-o", "ctf", "-w", &both, &one, &two]);
    assert!(code == 2 && errors.contains("two traces"), "{errors}");
    assert!(!Path::new(&both).exists());
}

#[test]
fn an_output_file_is_none_of_the_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let trace = path("traces/trace.pfw");
    fs::create_dir(folder.path().join("traces")).unwrap();
    write_trace(Path::new(&trace), 30);
    let ctf = path("traces/lttng");
    copy_all(&small_traces()[0], Path::new(&ctf));
    let stream = fs::read_dir(&ctf).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        (path.is_file() && !path.ends_with("metadata")).then_some(path)
    });
    let stream = stream.unwrap().to_str().unwrap().to_owned();
    let (link, hard_link) = (path("link"), path("hard_link"));
    symlink(&trace, &link).unwrap();
    fs::hard_link(&trace, &hard_link).unwrap();
    let (trace_bytes, stream_bytes) = (fs::read(&trace).unwrap(), fs::read(&stream).unwrap());
    let traces = path("traces");
    for arguments in [
        ["query", &trace, "-o", &trace],
        ["query", &trace, "-o", &link],
        ["query", &link, "-o", &trace],
        ["query", &trace, "-o", &hard_link],
        ["query", &traces, "-o", &trace],
        ["query", &traces, "-o", &link],
        ["query", &traces, "-o", &stream],
        ["decode", &ctf, "-w", &stream],
        ["decode", &traces, "-w", &stream],
    ] {
        let (code, _, errors) = run(&arguments);
        assert_eq!(code, 2, "{arguments:?}: {errors}");
        assert!(errors.contains("would replace an input"), "{errors}");
        assert_eq!(fs::read(&trace).unwrap(), trace_bytes, "{arguments:?}");
        assert_eq!(fs::read(&stream).unwrap(), stream_bytes, "{arguments:?}");
    }
    let io_trace = path("traces/io.trace");
    fs::copy(&small_traces()[2], &io_trace).unwrap();
    let export = format!("csv={io_trace}");
    let (code, _, errors) = run(&["analyze", &io_trace, "--export", &export]);
    assert_eq!(code, 2, "{errors}");
    // A result may be next to the traces, also the second time.
    let result = path("traces/rows.csv");
    for _ in 0..2 {
        let (code, _, errors) = run(&["query", &trace, "--format", "csv", "-o", &result]);
        assert_eq!(code, 0, "{errors}");
        let (code, _, errors) = run(&["query", &traces, "--format", "csv", "-o", &result]);
        assert_eq!(code, 0, "{errors}");
    }
}

#[test]
fn an_output_file_is_written_through_links() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let trace = path("trace.pfw");
    write_trace(&trace, 30);
    fs::create_dir(path("below")).unwrap();
    symlink("below/second", path("first")).unwrap();
    symlink("../rows", path("below/second")).unwrap();
    let first = path("first");
    let (file, first) = (trace.to_str().unwrap(), first.to_str().unwrap());
    // The file behind the links does not exist at first.
    for _ in 0..2 {
        let (code, _, errors) = run(&["query", file, "-o", first]);
        assert_eq!(code, 0, "{errors}");
        assert!(fs::symlink_metadata(path("rows")).unwrap().is_file());
        for link in [path("first"), path("below/second")] {
            assert!(fs::symlink_metadata(link).unwrap().is_symlink());
        }
    }
    symlink("circle", path("circle")).unwrap();
    let (code, _, _) = run(&["query", file, "-o", path("circle").to_str().unwrap()]);
    assert_eq!(code, 4);
    assert!(fs::symlink_metadata(path("circle")).unwrap().is_symlink());
}

/// The fields of a source, and the same from a storage with its packets.
fn check_fields(path: &Path, kind: &str, expected: &[(&str, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join(path.file_name().unwrap());
    copy_all(path, &copy);
    let file = copy.to_str().unwrap();
    let (code, listed, errors) = run(&["fields", file, "--json"]);
    assert_eq!((code, errors.as_str()), (0, ""), "{file}");
    let fields: Vec<Value> = listed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for (name, types) in expected {
        let found = fields.iter().find(|field| field["field"] == json!(name));
        let found = found.unwrap_or_else(|| panic!("{file}: no {name}: {listed}"));
        assert_eq!(
            (&found["kind"], &found["types"]),
            (&json!(kind), &json!(types))
        );
        let exists = format!("exists(`{name}`)");
        let (_, count, _) = run(&["query", file, &exists, "--count"]);
        assert_eq!(found["events"].to_string(), count.trim(), "{file}: {name}");
    }
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = server.api().create_storage("stored");
    push(&server, &storage, &copy, "16384");
    let url = server.url();
    let stored = ["--server", &url, "--storage", &storage, "--json"];
    let (code, of_storage, errors) = run(&[&["fields"], &stored[..]].concat());
    assert_eq!(
        (code, of_storage.as_str(), errors.as_str()),
        (0, listed.as_str(), "")
    );
    let (_, table, _) = run(&["fields", file]);
    assert!(table.starts_with("KIND"), "{table}");
}

#[test]
fn fields_are_listed_by_kind() {
    let traces = small_traces();
    check_fields(&traces[1], "dft", &[("name", "text"), ("dur", "integer")]);
    check_fields(
        &traces[2],
        "rocksdb-io",
        &[("args.len", "integer"), ("ts", "integer")],
    );
    check_fields(&traces[3], "rocksdb-block-cache", &[("name", "text")]);
    check_fields(&traces[0], "ctf", &[("name", "text")]);
    let (code, _, errors) = run(&["fields"]);
    assert_eq!(code, 2, "{errors}");
}

#[test]
fn summaries_answer_aggregates_and_intervals_without_reading() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 30_000);
    let file = trace.to_str().unwrap();
    let forms: &[(&[&str], bool)] = &[
        (
            &[
                "--group-by",
                "cat,name",
                "--aggregate",
                "count,p99:dur,max:ts",
            ],
            true,
        ),
        (&["--aggregate", "count,sum:dur,avg:dur,min:ts"], true),
        // All events are in one interval.
        (&["--every", "365000h", "--group-by", "name"], true),
        (&["--group-by", "tid"], false),
        (
            &["--group-by", "name", "--aggregate", "distinct:dur"],
            false,
        ),
        (&["--every", "1us"], false),
    ];
    let answer = |form: &[&str], more: &[&str]| {
        let all = [&["query", file, "--json"], form, more].concat();
        let (code, out, errors) = run(&all);
        assert_eq!(code, 0, "{all:?}: {errors}");
        (out, errors)
    };
    let plain: Vec<String> = forms.iter().map(|(form, _)| answer(form, &[]).0).collect();
    let (code, _, errors) = run(&["index", file, "--chunk-kib", "64"]);
    assert_eq!(code, 0, "{errors}");
    for ((form, is_summarized), expected) in forms.iter().zip(&plain) {
        let (out, errors) = answer(form, &["--explain"]);
        assert_eq!(out, *expected, "{form:?}");
        let document: Value = serde_json::from_str(&errors).unwrap();
        let fetched = document["explain"]["fetched_bytes"].as_u64();
        assert_eq!(fetched == Some(0), *is_summarized, "{form:?} {errors}");
    }
}

#[test]
fn a_limit_ends_reading_when_the_index_shows_that_the_result_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 30_000);
    let file = trace.to_str().unwrap();
    let (code, _, errors) = run(&["index", file, "--chunk-kib", "16"]);
    assert_eq!(code, 0, "{errors}");
    let (_, all, _) = run(&["query", file, "--json"]);
    let (code, out, errors) = run(&[
        "query",
        file,
        "--json",
        "--explain",
        "--limit",
        "5",
        "--offset",
        "2",
    ]);
    assert_eq!(code, 0, "{errors}");
    let expected: Vec<&str> = all.lines().skip(2).take(5).collect();
    assert_eq!(out.lines().collect::<Vec<_>>(), expected);
    let document: Value = serde_json::from_str(&errors).unwrap();
    let explain = &document["explain"];
    assert_eq!(explain["rows"], 5);
    assert!(explain["events"].as_u64() < Some(15_000), "{explain}");
}

/// The hint of a query that matches nothing, in every form.
fn check_hint(source: &[&str], expression: &str, expected: Option<&str>) {
    for form in [
        &["--count"][..],
        &["--group-by", "name"],
        &["--format", "csv"],
    ] {
        let all = [&["query"], source, &[expression], form].concat();
        let (code, _, errors) = run(&all);
        assert_eq!(code, 1, "{all:?}: {errors}");
        match expected {
            Some(expected) => assert!(errors.contains(expected), "{all:?}: {errors}"),
            None => assert_eq!(errors, "", "{all:?}"),
        }
    }
}

#[test]
fn fields_that_no_event_has_are_named_with_near_names() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 300);
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = server.api().create_storage("stored");
    push(&server, &storage, &trace, "16384");
    let url = server.url();
    let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
    for source in [&[trace.to_str().unwrap()][..], &stored] {
        check_hint(
            source,
            "ofset > 5",
            Some("field args.ofset; did you mean args.offset?"),
        );
        check_hint(source, "Ret == 1", Some("did you mean args.ret?"));
        check_hint(source, "offset < 0", None);
        let hint = "has the field args.nosuch; `tracehold fields` lists all";
        check_hint(source, "nosuch == 1", Some(hint));
        // Events without the field match.
        for (expression, is_told) in [
            ("not (ofset == 1)", true),
            ("ofset is null", true),
            ("offset >= 0 and not (offset == -1 or ofset == 1)", true),
            ("not (nosuch == 1)", false),
            ("not (offset == -1)", false),
            ("offset >= 0 and args.ret >= 0", false),
        ] {
            let (code, _, errors) = run(&[&["query"], source, &[expression, "--count"]].concat());
            assert_eq!(code, 0, "{expression}: {errors}");
            let expected = "has the field args.ofset; did you mean args.offset?";
            assert_eq!(errors.contains(expected), is_told, "{expression}: {errors}");
            assert!(is_told || errors.is_empty(), "{expression}: {errors}");
        }
        let near = "has the field args.ofset; did you mean args.offset?";
        for (form, hint) in [
            (["--fields", "name,ofset"], Some(near)),
            (["--fields", "name,(ofset * 2)"], Some(near)),
            (["--order-by", "ofset desc"], Some(near)),
            (["--group-by", "ofset"], Some(near)),
            (["--aggregate", "sum:ofset"], Some(near)),
            (["--histogram", "ofset"], Some(near)),
            (["--fields", "name,offset,nosuch"], Some(hint)),
            (["--order-by", "nosuch"], Some(hint)),
            (["--group-by", "name,offset"], None),
        ] {
            let (code, out, errors) = run(&[&["query"], source, &[""], &form].concat());
            assert_eq!(code, 0, "{form:?}: {errors}");
            assert!(!out.is_empty(), "{form:?}");
            match hint {
                Some(hint) => assert!(errors.contains(hint), "{form:?}: {errors}"),
                None => assert_eq!(errors, "", "{form:?}"),
            }
        }
    }
}

/// Groups by a field with as many values as events, each with 60 aggregates, need more memory than
/// all groups may have.
#[test]
fn more_groups_than_fit_are_refused_and_never_answered_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 90_000);
    let file = trace.to_str().unwrap();
    let aggregates: Vec<String> = (0..60).map(|at| format!("min:f{at}")).collect();
    let words = ["--group-by", "offset", "--aggregate", &aggregates.join(",")];
    let (code, out, errors) = run(&[&["query", file], &words[..]].concat());
    assert_eq!((code, out.as_str()), (2, ""), "{errors}");
    assert!(errors.contains("groups by offset"), "{errors}");
    assert!(
        errors.contains("narrow the query, or group by less"),
        "{errors}"
    );
}

/// A program that sees no trailer fields learns that numbers are estimated, however long they are.
#[test]
fn estimates_say_so_before_and_in_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 9_000);
    let server = Server::start(folder.path(), &settings());
    let mut api = server.api();
    let storage = api.create_storage("estimated");
    push(&server, &storage, &trace, "16384");
    api.finalize(&storage);
    wait_for_indexes(&server, &storage);
    let path = format!("/storages/{storage}/query");
    for (format, every, has_line) in [
        ("ndjson", "30us", true),
        ("ndjson", "10ms", true),
        ("csv", "30us", false),
        ("arrow", "30us", false),
        ("parquet", "30us", false),
    ] {
        let mut body = json!({
            "group_by": "name", "every": every, "aggregate": "count", "estimate": true,
            "format": format,
        });
        let answer = api.call("POST", &path, Some(&body));
        let case = format!("{format} {every}");
        let notes = answer.header("tracehold-notes").unwrap_or_default();
        let notes = notes.to_owned();
        assert!(notes.contains("estimate"), "{case}: {notes:?}");
        if has_line {
            let text = String::from_utf8(answer.body).unwrap();
            let is_long = text.len() > 64 << 10;
            assert_eq!(is_long, every == "30us", "{}", text.len());
            let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
            let summary = &last["summary"];
            assert_eq!(summary["skipped"], json!([]), "{last}");
            let note = summary["notes"][0].as_str().unwrap();
            assert!(notes.contains(note), "{note} {notes}");
        }
        // Intervals of a window that chunks exceed have an estimated sum, too.
        body["to"] = json!("1970-01-01T00:00:01.089Z");
        let part = api.call("POST", &path, Some(&body));
        assert_eq!(part.header("tracehold-matched"), None, "{case}");
        body["to"] = json!(null);
        // Exact numbers need no note.
        body["estimate"] = json!(false);
        let exact = api.call("POST", &path, Some(&body));
        assert_eq!(exact.header("tracehold-notes"), None, "{case}");
        let text = String::from_utf8_lossy(&exact.body).into_owned();
        assert!(!text.contains("summary"), "{case}");
    }
    let query = ["query", "--server", &server.url(), "--storage", &storage];
    let words = [
        "--group-by",
        "name",
        "--every",
        "10ms",
        "--aggregate",
        "count",
        "--estimate",
    ];
    let (code, out, errors) = run(&[&query[..], &words].concat());
    assert!(code == 0 && !out.contains("summary"), "{out}");
    assert_eq!(errors.matches("estimate").count(), 1, "{errors}");
}

#[test]
fn a_file_that_is_named_twice_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("below");
    fs::create_dir(&below).unwrap();
    let path = below.join("trace.pfw");
    write_trace(&path, 30);
    symlink("trace.pfw", below.join("the-same.pfw")).unwrap();
    fs::hard_link(&path, folder.path().join("linked.pfw")).unwrap();
    let recorded = folder.path().join("recorded");
    copy_all(&small_traces()[0], &recorded);
    let (_, alone, _) = run(&["query", recorded.to_str().unwrap(), "--count"]);
    let alone: u64 = alone.trim().parse().unwrap();
    let word = |path: &Path| path.to_str().unwrap().to_owned();
    let linked = word(&folder.path().join("linked.pfw"));
    let [path, below, recorded, all] = [&*path, &*below, &*recorded, folder.path()].map(word);
    for (words, events, warnings) in [
        (&[&path][..], 30, 0),
        (&[&path, &path], 30, 1),
        (&[&path, &linked], 30, 1),
        (&[&below], 30, 1),
        (&[&below, &path], 30, 2),
        (&[&recorded, &recorded], alone, 1),
        (&[&all, &below, &recorded], alone + 30, 5),
    ] {
        let words: Vec<&str> = words.iter().map(|word| word.as_str()).collect();
        let (_, out, errors) = run(&[&["query"], &words[..], &["--count"]].concat());
        assert_eq!(out.trim(), events.to_string(), "{words:?}: {errors}");
        let lines = errors.lines().filter(|line| line.contains("warning: "));
        assert_eq!(lines.count(), warnings, "{words:?}: {errors}");
    }
    let (code, out, errors) = run(&["index", "--json", &below, &path]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, report["files"].as_array().unwrap().len()),
        (0, 1),
        "{errors}"
    );
    assert_eq!(errors.matches("it is read once").count(), 2, "{errors}");
}

#[test]
fn what_a_killed_query_has_left_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 30);
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let name = |process: u32| folder.path().join(format!("out.csv.{process}.unfinished"));
    let (dead, alive) = (name(ended.id()), name(std::process::id()));
    let other = folder.path().join("other.csv.1.unfinished");
    for path in [&dead, &alive, &other] {
        fs::write(path, "partial").unwrap();
    }
    let out = folder.path().join("out.csv");
    let (trace, out) = (trace.to_str().unwrap(), out.to_str().unwrap());
    let (code, _, errors) = run(&["query", trace, "-o", out, "--format", "csv"]);
    assert_eq!(code, 0, "{errors}");
    assert!(fs::read_to_string(out).unwrap().lines().count() > 30);
    assert_eq!(
        [&dead, &alive, &other].map(|path| path.exists()),
        [false, true, true]
    );
}

#[test]
fn a_path_that_an_event_has_twice_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pfw");
    let lines: String = (0..3)
        .map(|ts| {
            format!(
                "{{\"id\":{ts},\"name\":\"n\",\"cat\":\"c\",\"pid\":1,\"tid\":1,\"ts\":{ts},\"dur\":1,\
                 \"ph\":\"X\",\"args\":{{\"a.b\":1,\"a\":{{\"b\":\"text\"}}}}}}\n"
            )
        })
        .collect();
    fs::write(&path, lines).unwrap();
    let path = path.to_str().unwrap();
    let (_, out, errors) = run(&["fields", path, "--json"]);
    let listed = out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut found = listed.filter(|line| line["field"] == "args.a.b");
    let field = found.next().unwrap_or_else(|| panic!("{out} {errors}"));
    assert_eq!(
        (&field["events"], &field["types"]),
        (&json!(3), &json!("text integer"))
    );
    let (_, count, _) = run(&["query", path, "exists(args.a.b)", "--count"]);
    assert_eq!(count.trim(), "3");
}

#[test]
fn no_hint_has_the_name_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pfw");
    let line =
        r#"{"id":1,"name":"n","cat":"c","pid":1,"tid":1,"ts":1,"dur":1,"ph":"X","args":"x"}"#;
    fs::write(&path, format!("{line}\n")).unwrap();
    let (code, _, errors) = run(&["query", path.to_str().unwrap(), "args == \"x\""]);
    assert!(!errors.contains("did you mean args?"), "{code} {errors}");
}

#[test]
fn a_name_that_several_storages_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &settings());
    let mut api = server.api();
    let ids = ["twin", "twin"].map(|name| api.create_storage(name));
    for path in ["/query", "/query/splits"] {
        let body = json!({ "storages": ["twin"] });
        let response = api.call("POST", path, Some(&body));
        assert_eq!(response.status, 400, "{path} {}", response.brief());
        let detail = response.json()["detail"].as_str().unwrap().to_owned();
        assert!(ids.iter().all(|id| detail.contains(id)), "{detail}");
    }
    let body = json!({ "storages": [ids[0]], "count": true });
    api.done("POST", "/query", Some(&body));
}

#[test]
fn a_count_has_no_form_of_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.pfw");
    fs::write(&path, "{\"name\":\"a\",\"ts\":1,\"dur\":2,\"ph\":\"X\"}\n").unwrap();
    let path = path.to_str().unwrap();
    for format in ["arrow", "parquet", "perfetto", "chrome"] {
        let (code, out, errors) = run(&["query", path, "--count", "--format", format]);
        assert_eq!((code, out.as_str()), (2, ""), "{format}: {errors}");
        assert!(errors.contains("--count"), "{errors}");
    }
    assert_eq!(run(&["query", path, "--count"]).1, "1\n");
}

#[test]
fn the_ending_of_an_output_file_chooses_its_format() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.pfw");
    write_trace(&trace, 3);
    let written = |name: &str, options: &[&str]| {
        let file = folder.path().join(name);
        let (trace, output) = (trace.to_str().unwrap(), file.to_str().unwrap());
        let all = [&["query", trace, "dur >= 0us", "-o", output], options].concat();
        let (code, out, errors) = run(&all);
        assert_eq!((code, &*out), (0, ""), "{all:?}: {errors}");
        fs::read(&file).unwrap()
    };
    for (name, format) in [
        ("a.parquet", "parquet"),
        ("a.arrow", "arrow"),
        ("a.csv", "csv"),
        ("a.ndjson", "ndjson"),
        ("a.jsonl", "ndjson"),
        ("a.pftrace", "perfetto"),
        ("a.json", "chrome"),
        ("a.JSON", "chrome"),
        ("a.txt", "text"),
        ("a", "text"),
    ] {
        let expected = written("expected", &["--format", format]);
        assert!(written(name, &[]) == expected, "{name}");
    }
    // What is asked for wins, and a count is one number in every file.
    let lines = written("expected", &["--format", "ndjson"]);
    assert!(written("b.csv", &["--format", "ndjson"]) == lines);
    assert!(written("b.json", &["--json"]) == lines);
    assert_eq!(written("b.parquet", &["--count"]), b"3\n");
}
