//! What `tracehold export` writes are the files that were pushed, byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use harness::spans::{TestSpan, request, send_spans};
use harness::{Agent, Server, Settings, run_tracehold, small_traces, without};
use serde_json::{Value, json};

use crate::queries::push;
use crate::recording::{record_now, saver, stop};

fn run(server: &Server, arguments: &[&str]) -> Output {
    let mut words: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    words.extend(["--server".to_owned(), server.url()]);
    run_tracehold(&words)
}

fn succeed(server: &Server, arguments: &[&str]) {
    let output = run(server, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
}

#[test]
fn a_ctf_trace_is_exported_as_a_folder() {
    let origin = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/lttng/uid/0/64-bit");
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let storage = server.api().create_storage("trace");
    let pushed = origin.to_str().unwrap();
    let push = ["push", "--storage", &storage, "--agent", "host", pushed];
    succeed(&server, &push);
    let notes = folder.path().join("notes.txt");
    fs::write(&notes, "of no known kind").unwrap();
    succeed(
        &server,
        &["push", "--storage", &storage, notes.to_str().unwrap()],
    );

    let target = folder.path().join("given back");
    let export = ["export", "--storage", "trace", target.to_str().unwrap()];
    let too_early = run(&server, &export);
    assert_eq!(too_early.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&too_early.stderr).contains("finalize"));

    succeed(&server, &["storage", "finalize", &storage]);
    let ctf_only = [&export[..], &["--format", "ctf"]].concat();
    let exported = run(&server, &ctf_only);
    assert_eq!(exported.status.code(), Some(0));
    let omitted = String::from_utf8_lossy(&exported.stderr).into_owned();
    assert!(omitted.contains("1 stream of other kinds"), "{omitted}");
    assert!(omitted.contains("/notes.txt (raw)"), "{omitted}");
    let trace = target.join("host");
    for name in ["metadata", "chan_0", "chan_1"] {
        let expected = fs::read(origin.join(name)).unwrap();
        assert!(fs::read(trace.join(name)).unwrap() == expected, "{name}");
    }
    let again = run(&server, &export);
    assert_eq!(again.status.code(), Some(2), "two traces are not mixed");
    succeed(&server, &[&export[..], &["--force"]].concat());
    assert!(fs::read(trace.join("chan_0")).unwrap() == fs::read(origin.join("chan_0")).unwrap());

    let other = folder.path().join("other");
    let filtered = [
        "export",
        "--storage",
        "trace",
        "--stream",
        "chan_1",
        other.to_str().unwrap(),
    ];
    succeed(&server, &filtered);
    assert!(other.join("host/chan_1").is_file());
    assert!(!other.join("host/chan_0").exists());
    check_readers(&origin, &trace);
}

/// Pushes small files of all kinds, in small packets.
fn push_files(server: &Server, storage: &str, folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let sources = folder.join("sources/below");
    fs::create_dir_all(&sources).unwrap();
    let mut pushed = BTreeMap::new();
    let mut write = |name: &str, bytes: Vec<u8>| {
        fs::write(sources.join(name), &bytes).unwrap();
        pushed.insert(name.to_owned(), bytes);
    };
    let line = |n: u32| {
        format!(
            "{{\"id\":{n},\"name\":\"r\",\"cat\":\"c\",\"pid\":1,\"tid\":1,\"ts\":{n},\"dur\":1,\
             \"ph\":\"X\"}}\n"
        )
    };
    let lines: String = (0..600).map(line).collect();
    write("plain.pfw", lines.into_bytes());
    write(
        "raw bytes",
        (0..30_000_u32).map(|n| (n % 251) as u8).collect(),
    );
    for name in [
        "trace-0-of-1.pfw.gz",
        "io_small.trace",
        "bc_small.trace",
        "chrome_viztracer.json",
        "chrome_bazel.json.gz",
    ] {
        write(name, fs::read(data.join(name)).unwrap());
    }
    // Its only member has 2 MiB of text.
    let whole = fs::read(data.join("trace-0-of-1.pfw.gz")).unwrap();
    write("torn.pfw.gz", whole[..whole.len() / 2].to_vec());
    let requests: Vec<String> = (0..40_u64)
        .map(|id| request("shop", &[span(2 * id + 1), span(2 * id + 2)]))
        .collect();
    write("lines.jsonl", (requests.join("\n") + "\n").into_bytes());
    write("open end.json", requests.join(" \r\n\n ").into_bytes());
    let messages = requests
        .iter()
        .map(|json| trace_kinds::otlp::to_protobuf(json.as_bytes()).unwrap());
    let messages: Vec<Vec<u8>> = messages.collect();
    let with_length = |message: &Vec<u8>| {
        let length = u32::try_from(message.len()).unwrap();
        [&length.to_be_bytes()[..], message].concat()
    };
    write(
        "lengths.pb",
        messages.iter().flat_map(with_length).collect(),
    );
    write("request.pb", messages.concat());
    let agent = ["push", "--storage", storage, "--agent", "host"];
    let words = [
        &agent[..],
        &["--packet-bytes", "4096", sources.to_str().unwrap()],
    ]
    .concat();
    succeed(server, &words);
    pushed
}

/// Checks that every file has as many events on the server as it has here, and as the
/// storage says.
fn check_events(server: &Server, folder: &Path, storage: &str) {
    let count = |arguments: &[&str]| {
        let words = ["query", "--count"].iter().chain(arguments);
        let words: Vec<String> = words.map(|word| (*word).to_owned()).collect();
        let output = run_tracehold(&words);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        let number = text.split_whitespace().next().unwrap_or_default();
        number
            .parse::<u64>()
            .unwrap_or_else(|_| panic!("{arguments:?} {errors}"))
    };
    let url = server.url();
    let mut sum = 0;
    for entry in fs::read_dir(folder.join("sources/below")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "raw bytes" {
            continue;
        }
        let here = count(&[path.to_str().unwrap(), ""]);
        let stream = name.replace(' ', "_");
        let expression = format!("stream == '{stream}'");
        let there = count(&["--server", &url, "--storage", storage, &expression]);
        assert!(here > 0 && here == there, "{name}: {here} {there}");
        sum += here;
    }
    let document = server.api().storage(storage);
    assert_eq!(document["events"], sum, "{document}");
}

/// The report of an export, and its exit code.
fn report(server: &Server, arguments: &[&str]) -> (Value, Option<i32>) {
    let output = run(server, &[arguments, &["--json"]].concat());
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        let errors = String::from_utf8_lossy(&output.stderr);
        panic!("{arguments:?}: {errors}")
    });
    (report, output.status.code())
}

/// Checks that a folder has exactly these files.
fn check_files(report: &Value, expected: &BTreeMap<String, Vec<u8>>) {
    let files = report["files"].as_array().unwrap();
    assert_eq!(files.len(), expected.len(), "{report}");
    for file in files {
        let path = PathBuf::from(file["path"].as_str().unwrap());
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(file["fidelity"], "exact", "{file}");
        assert!(fs::read(&path).unwrap() == expected[name], "{file}");
    }
}

#[test]
fn pushed_files_come_back_from_a_server_a_copy_and_a_mount() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&folder.path().join("server"), &Settings::default());
    let storage = server.api().create_storage("files");
    let pushed = push_files(&server, &storage, folder.path());
    check_events(&server, folder.path(), &storage);
    succeed(&server, &["storage", "finalize", &storage]);
    check_events(&server, folder.path(), &storage);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (one, two, three) = (path("one"), path("two"), path("three"));
    let (copy, mount) = (path("copy"), path("mount"));

    let (found, code) = report(&server, &["export", "--storage", "files", &one]);
    assert_eq!(code, Some(0));
    check_files(&found, &pushed);
    assert_eq!(
        run(&server, &["export", "--storage", "files", &one])
            .status
            .code(),
        Some(2)
    );

    let url = format!("{}/storage/{storage}", server.url());
    succeed(&server, &["mount", &url, &mount]);
    let (found, code) = report(&server, &["export", "--dir", &mount, &two]);
    assert_eq!(code, Some(0));
    check_files(&found, &pushed);

    succeed(&server, &["download", &url, &copy]);
    server.kill();
    let (found, code) = report(&server, &["export", "--dir", &copy, &three]);
    assert_eq!(code, Some(0), "no server is needed");
    check_files(&found, &pushed);

    // A damaged packet is skipped and named, all others are written.
    let data = fs::read_dir(&copy)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let data = data.filter(|path| path.extension().is_some_and(|ending| ending == "itdata"));
    let largest = data
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();
    let mut bytes = fs::read(&largest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0x5a);
    fs::write(&largest, bytes).unwrap();
    let (found, code) = report(&server, &["export", "--dir", &copy, &path("four")]);
    assert_eq!(code, Some(1));
    let files = found["files"].as_array().unwrap();
    let faulty: Vec<&Value> = files
        .iter()
        .filter(|file| file["fidelity"] != "exact")
        .collect();
    assert_eq!((files.len(), faulty.len()), (pushed.len(), 1), "{found}");
    assert_eq!(faulty[0]["fidelity"], "incomplete");
    assert!(
        faulty[0]["note"].as_str().unwrap().contains("is missing"),
        "{faulty:?}"
    );
    let told = run(&server, &["export", "--dir", &copy, &path("five")]);
    let errors = String::from_utf8_lossy(&told.stderr);
    let note = errors.lines().find(|line| line.starts_with("incomplete: "));
    assert!(
        note.is_some_and(|note| note.contains("is missing")),
        "{errors}"
    );
}

#[test]
fn versions_and_copies_of_parts_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("server"), &Settings::default());
    let mut api = server.api();
    let storage = api.create_storage("versions");
    let path = folder.path().join("grows.bin");
    let words = ["push", "--storage", &storage, "--packet-bytes", "1024"];
    let push = [&words[..], &[path.to_str().unwrap()]].concat();
    let contents = [vec![1; 5000], vec![2; 9000]];
    for content in &contents {
        fs::write(&path, content).unwrap();
        succeed(&server, &push);
    }
    // Of provenance that points elsewhere, only the name is used.
    let evil = Agent::declare(&mut api, &storage, "evil", "s", "none");
    evil.push(&mut api, 0, b"abc");
    let elsewhere = json!({ "epoch": evil.epoch, "path": "../../../outside", "file_bytes": 3,
                            "checksum": storage_format::checksum::crc32c(b"abc"),
                            "packets": [[0, 0, 3, 0, 0]] });
    let target = format!("/storages/{storage}/agents/evil/streams/s");
    api.done("PUT", &format!("{target}/provenance"), Some(&elsewhere));
    api.finalize(&storage);

    let out = folder.path().join("deep/er/out");
    let (found, code) = report(
        &server,
        &["export", "--storage", &storage, out.to_str().unwrap()],
    );
    assert_eq!(code, Some(0), "{found}");
    let files = found["files"].as_array().unwrap();
    let of = |name: &str| {
        let file = files
            .iter()
            .find(|file| file["path"].as_str().unwrap().ends_with(name));
        fs::read(file.unwrap()["path"].as_str().unwrap()).unwrap()
    };
    assert_eq!(
        (of("/grows.bin.1"), of("/grows.bin")),
        (contents[0].clone(), contents[1].clone())
    );
    assert_eq!(of("evil/outside"), b"abc");
    assert!(!folder.path().join("outside").exists());
}

fn span(id: u64) -> TestSpan {
    TestSpan {
        trace: 7,
        id,
        parent: 0,
        name: "order",
        time: (id, id + 1),
    }
}

#[test]
fn spans_are_exported_as_json_lines_and_protobuf() {
    let (folder, server, mut api) = Server::fresh();
    let (recording, storage) = record_now(&mut api, json!({ "processors": saver() }));
    send_spans(&mut api, "shop", &[span(1)]);
    send_spans(&mut api, "shop", &[span(2), span(3)]);
    stop(&mut api, &recording);
    api.finalize(&storage);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let lines = path("lines");
    let (found, code) = report(&server, &["export", "--storage", &storage, &lines]);
    assert_eq!(code, Some(0), "{found}");
    let requests_file = found["files"][0]["path"].as_str().unwrap().to_owned();
    assert!(requests_file.ends_with(".jsonl"), "{found}");
    let text = fs::read_to_string(&requests_file).unwrap();
    let requests: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let spans = |request: &Value| {
        let scopes = request["resourceSpans"][0]["scopeSpans"]
            .as_array()
            .unwrap();
        scopes
            .iter()
            .map(|scope| scope["spans"].as_array().unwrap().len())
            .sum::<usize>()
    };
    assert_eq!(
        requests.iter().map(spans).collect::<Vec<_>>(),
        [1, 2],
        "{text}"
    );
    let expected: Value = serde_json::from_str(&request("shop", &[span(1)])).unwrap();
    let first = |request: &Value| request["resourceSpans"][0]["scopeSpans"][0]["spans"][0].clone();
    assert_eq!(first(&requests[0])["traceId"], first(&expected)["traceId"]);

    let words = ["export", "--storage", &storage, "--otlp", "protobuf"];
    let (found, code) = report(&server, &[&words[..], &[&path("messages")]].concat());
    assert_eq!(code, Some(0), "{found}");
    let bytes = fs::read(found["files"][0]["path"].as_str().unwrap()).unwrap();
    let (mut at, mut messages) = (0, 0);
    while at < bytes.len() {
        let length: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
        at += 4 + u32::from_be_bytes(length) as usize;
        messages += 1;
    }
    assert_eq!((at, messages), (bytes.len(), 2));

    // Both forms are read again, without a server.
    let files = [
        requests_file,
        found["files"][0]["path"].as_str().unwrap().to_owned(),
    ];
    for arguments in [
        &["decode"][..],
        &["decode", "-o", "ndjson"],
        &["query", "--count"],
    ] {
        let outputs = files.each_ref().map(|file| {
            let words = [&arguments[..1], &[file.as_str()], &arguments[1..]].concat();
            let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
            let output = run_tracehold(&words);
            assert!(output.status.success(), "{words:?}");
            String::from_utf8(output.stdout).unwrap()
        });
        assert_eq!(outputs[0], outputs[1], "{arguments:?}");
        let expected = if arguments[0] == "query" { 1 } else { 3 };
        assert_eq!(outputs[0].lines().count(), expected, "{outputs:?}");
    }
}

/// A request of spans that is none, and a damaged packet of a CTF trace.
#[test]
fn an_export_without_all_packets_is_incomplete() {
    let (folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("traces");
    Agent::register(&mut api, "a");
    Agent::declare_stream(&mut api, "a", "spans", "otlp", "none");
    Agent::new(&storage, "a", "spans").push(&mut api, 0, b"\xff\xff not a packet");
    push(&server, &storage, &small_traces()[0], "4096");
    api.finalize(&storage);
    let packets = api.done("GET", &format!("/storages/{storage}/descriptors"), None);
    let packets = packets["items"].as_array().unwrap();
    let packet = packets.iter().find(|packet| packet["stream"] == "chan_1");
    let packet = packet.unwrap_or_else(|| panic!("{packets:?}"));
    let file = server.data().join("storages").join(&storage);
    let file = file.join(packet["file"].as_str().unwrap());
    let mut bytes = fs::read(&file).unwrap();
    bytes[usize::try_from(packet["offset"].as_u64().unwrap()).unwrap() + 9] ^= 0x40;
    fs::write(&file, bytes).unwrap();
    for (name, form) in [("spans", ["--otlp", "json"]), ("ctf", ["--format", "ctf"])] {
        let to = folder.path().join(name).to_str().unwrap().to_owned();
        let words = ["export", "--storage", &storage, form[0], form[1], &to];
        let (found, code) = report(&server, &words);
        assert_eq!(code, Some(1), "{form:?}: {found}");
        let files = found["files"].as_array().unwrap();
        let is_named = |file: &&Value| {
            let stream = file["stream"].as_str().unwrap();
            file["fidelity"] == "incomplete" && name.starts_with(&stream[..1])
        };
        assert_eq!(
            files.iter().filter(is_named).count(),
            1,
            "{form:?}: {found}"
        );
    }
}

#[test]
fn an_empty_storage_exports_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let storage = server.api().create_storage("empty");
    succeed(&server, &["storage", "finalize", &storage]);
    let target = folder.path().join("target");
    let export = ["export", "--storage", "empty", target.to_str().unwrap()];
    assert_eq!(run(&server, &export).status.code(), Some(1));
    assert!(!target.exists());
}

/// Both folders have the same text, in Tracehold's output and in Babeltrace's.
fn check_readers(origin: &Path, trace: &Path) {
    let ours = |path: &Path| {
        let words = ["decode", path.to_str().unwrap(), "--format", "text"];
        run_tracehold(&words.map(str::to_owned)).stdout
    };
    let text = ours(trace);
    assert!(!text.is_empty());
    assert!(text == ours(origin), "our text of both");
    let Some(theirs) = babeltrace(trace) else {
        return;
    };
    assert!(text == theirs, "our text and Babeltrace's");
}

/// Babeltrace's output for a trace, or `None` if it is not installed.
fn babeltrace(trace: &Path) -> Option<Vec<u8>> {
    let run = Command::new("babeltrace2")
        .arg("--clock-gmt")
        .arg(trace)
        .env("TZ", "UTC")
        .output();
    let Ok(output) = run else {
        without("babeltrace2");
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "babeltrace2: {errors}");
    Some(output.stdout)
}

/// Names of many streams would hide how many they are.
#[test]
fn the_first_streams_that_are_left_out_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("server"), &Settings::default());
    let mut api = server.api();
    let target = folder.path().join("out");
    for (count, has_more) in [(8, false), (9, true)] {
        let storage = api.create_storage("many");
        for number in 0..count {
            let agent = Agent::declare(&mut api, &storage, "host", &format!("s{number}"), "none");
            agent.push(&mut api, 0, b"abc");
        }
        api.finalize(&storage);
        let words = ["export", "--storage", &storage, "--format", "ctf"];
        let output = run(&server, &[&words[..], &[target.to_str().unwrap()]].concat());
        let told = String::from_utf8(output.stderr).unwrap();
        let counted = format!("{count} streams of other kinds not exported: host/s0 (raw), ");
        assert!(told.contains(&counted), "{told}");
        assert!(told.contains("host/s7"), "{told}");
        assert_eq!(told.contains(", …;"), has_more, "{told}");
        assert!(!told.contains("host/s8"), "{told}");
        assert_eq!(
            output.status.code(),
            Some(1),
            "nothing was exported: {told}"
        );
    }
}
