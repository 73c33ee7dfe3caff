//! Folders that are pushed again, or followed while they grow: nothing is stored twice, and nothing
//! is missed without a word.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Server, tracehold};
use serde_json::Value;

use crate::queries::{copy_all, run, settings};

const CHANNELS: [&str; 2] = ["chan_0", "chan_1"];

fn origin() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/lttng/uid/0/64-bit")
}

/// Metadata in which all these words are replaced by others of the same length.
fn changed(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(origin().join("metadata")).unwrap();
    let is_there = |at: &usize| bytes[*at..].starts_with(from.as_bytes());
    let places: Vec<usize> = (0..bytes.len()).filter(is_there).collect();
    assert!(!places.is_empty(), "{from}");
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    bytes
}

fn push(server: &Server, storage: Option<&str>, path: &Path) -> (i32, String, String) {
    let (url, path) = (server.url(), path.to_str().unwrap());
    let mut words = vec!["push", "--server", &url, "--agent", "host", path];
    words.extend(storage.iter().flat_map(|storage| ["--storage", *storage]));
    run(&words)
}

fn count(server: &Server, storage: &str) -> String {
    let (url, what) = (server.url(), "--count");
    run(&["query", "--server", &url, "--storage", storage, what]).1
}

/// A trace without the indexes of its tracer.
fn trace(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for name in CHANNELS.iter().chain(&["metadata"]) {
        fs::copy(origin().join(name), folder.join(name)).unwrap();
    }
}

/// The metadata of the tracer; the streams stay as they are.
fn mend(folder: &Path) {
    fs::copy(origin().join("metadata"), folder.join("metadata")).unwrap();
}

#[test]
fn better_metadata_stores_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    for (from, to) in [
        ("event {", "evant {"),
        ("content_size", "contant_size"),
        ("packet_size", "packat_size"),
    ] {
        let path = folder.path().join(to.trim_end_matches(" {"));
        trace(&path);
        let mut api = server.api();
        let storage = api.create_storage(from);
        fs::write(path.join("metadata"), changed(from, to)).unwrap();
        let (code, _, errors) = push(&server, Some(&storage), &path);
        assert_eq!(code, 0, "{errors}");
        mend(&path);
        for _ in 0..2 {
            let (code, _, errors) = push(&server, Some(&storage), &path);
            assert_eq!(code, 0, "{errors}");
        }
        assert_eq!(count(&server, &storage), "800\n", "{from}");
        api.finalize(&storage);
        let target = folder
            .path()
            .join(format!("exported-{}", to.trim_end_matches(" {")));
        let (url, folder) = (server.url(), target.to_str().unwrap());
        let words = ["export", "--server", &url, "--storage", &storage, folder];
        let (code, _, errors) = run(&words);
        assert_eq!(code, 0, "{errors}");
        for name in CHANNELS {
            let exported = fs::read(target.join("host").join(name)).unwrap();
            assert!(
                exported == fs::read(path.join(name)).unwrap(),
                "{from} {name}"
            );
        }
        // The other agents of this test have the metadata of this one.
        api.done("DELETE", &format!("/storages/{storage}"), None);
        api.done("DELETE", "/agents/host", None);
    }
}

#[test]
fn packets_that_other_metadata_cuts_are_not_buffered_twice() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let path = folder.path().join("trace");
    trace(&path);
    fs::write(path.join("metadata"), changed("event {", "evant {")).unwrap();
    let (code, _, errors) = push(&server, None, &path);
    assert_eq!(code, 1, "no recording takes them: {errors}");
    mend(&path);
    let (code, _, errors) = push(&server, None, &path);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("with other metadata"), "{errors}");
}

#[test]
fn a_finalized_storage_retains_its_metadata_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let path = folder.path().join("trace");
    trace(&path);
    let storage = server.api().create_storage("early");
    let broken = changed("event {", "evant {");
    fs::write(path.join("metadata"), broken).unwrap();
    assert_eq!(push(&server, Some(&storage), &path).0, 0);
    server.api().finalize(&storage);
    mend(&path);
    let (code, _, errors) = push(&server, Some(&storage), &path);
    assert_eq!(code, 1, "{errors}");
    for part in ["is finalized", "cannot be read", "into another storage"] {
        assert!(errors.contains(part), "{errors}");
    }
}

fn follow(server: &Server, storage: &str, path: &Path, state: &Path) -> Child {
    let command = Command::new(tracehold())
        .args(["push", "--follow", "--agent", "host"])
        .args(["--server", &server.url(), "--storage", storage])
        .arg(path)
        .env("XDG_STATE_HOME", state)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    command.unwrap()
}

/// Ends following; the exit code and what was said.
fn end(child: Child) -> (Option<i32>, String) {
    let pid = child.id().to_string();
    let status = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(status.success(), "it has already exited");
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), errors)
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn streams_that_appear_in_a_followed_folder_are_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let (path, state) = (folder.path().join("trace"), folder.path().join("state"));
    let storage = server.api().create_storage("grown");
    // A tracer writes the metadata before there is a stream, and more of it later.
    fs::create_dir(&path).unwrap();
    let metadata = fs::read(origin().join("metadata")).unwrap();
    fs::write(path.join("metadata"), &metadata[..4096]).unwrap();
    let child = follow(&server, &storage, &path, &state);
    let bytes = || server.api().storage(&storage)["bytes"].as_u64().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let whole = fs::read(origin().join("chan_1")).unwrap();
    fs::write(path.join("chan_1"), &whole[..whole.len() / 2]).unwrap();
    fs::write(path.join("metadata"), &metadata).unwrap();
    until("the stream is taken up", || bytes() > 0);
    fs::write(path.join("chan_1"), &whole).unwrap();
    until("all of it is read", || count(&server, &storage) == "800\n");
    fs::copy(origin().join("chan_0"), path.join("chan_0")).unwrap();
    let declared = || server.api().leaves(&storage).len() == 2;
    until("the other stream is taken up", declared);
    let (code, errors) = end(child);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(count(&server, &storage), "800\n");
    // A following that resumes stores nothing again.
    let before = bytes();
    let child = follow(&server, &storage, &path, &state);
    std::thread::sleep(Duration::from_millis(1500));
    let (code, errors) = end(child);
    assert_eq!((code, bytes()), (Some(0), before), "{errors}");
}

#[test]
fn what_is_not_taken_up_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let (path, state) = (folder.path().join("traces"), folder.path().join("state"));
    let storage = server.api().create_storage("grown");
    copy_all(&origin(), &path.join("one"));
    let child = follow(&server, &storage, &path, &state);
    until("it is followed", || count(&server, &storage) == "800\n");
    fs::write(path.join("late.pfw"), "").unwrap();
    trace(&path.join("two"));
    std::thread::sleep(Duration::from_millis(2500));
    let (code, errors) = end(child);
    assert_eq!(code, Some(1), "{errors}");
    for part in ["late.pfw appeared", "two appeared", "run the command again"] {
        assert!(errors.contains(part), "{errors}");
    }
    assert_eq!(count(&server, &storage), "800\n");
}

/// Pushes a file with damage twice; what is in the storage then answers like the file itself.
fn check_damaged(server: &Server, path: &Path, events: u64, place: &str) {
    let mut api = server.api();
    let storage = api.create_storage("damaged");
    for _ in 0..2 {
        let (code, _, errors) = push(server, Some(&storage), path);
        assert_eq!(code, 1, "{errors}");
        assert!(errors.contains(place), "{errors} lacks {place:?}");
    }
    let (url, local) = (server.url(), path.to_str().unwrap());
    for words in [
        &["query", local, "--count"][..],
        &["query", "--server", &url, "--storage", &storage, "--count"],
    ] {
        let (code, out, errors) = run(words);
        assert_eq!((code, out), (1, format!("{events}\n")), "{errors}");
    }
    api.finalize(&storage);
    let target = path.with_extension("exported");
    let folder = target.to_str().unwrap();
    let words = [
        "export",
        "--json",
        "--server",
        &url,
        "--storage",
        &storage,
        folder,
    ];
    let (code, out, errors) = run(&words);
    assert_eq!(code, 0, "{errors}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["files"][0]["fidelity"], "exact", "{report}");
    let exported = target.join("host").join(path.file_name().unwrap());
    assert!(fs::read(exported).unwrap() == fs::read(path).unwrap());
}

#[test]
fn what_is_behind_damage_is_pushed_too() {
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let member = |number: u32| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
        for id in 0..100 {
            let ts = 1_700_000_000_000_000_u64 + u64::from(number * 100 + id);
            writeln!(
                encoder,
                r#"{{"id":{id},"name":"read","cat":"POSIX","pid":1,"tid":1,"ts":{ts},"dur":3,"ph":"X"}}"#
            )
            .unwrap();
        }
        encoder.finish().unwrap()
    };
    let members: Vec<Vec<u8>> = (0..12).map(member).collect();
    let fifth = members[..5].iter().map(Vec::len).sum::<usize>();
    let mut bytes = members.concat();
    bytes[fifth + members[5].len() / 2] ^= 0x55;
    let path = folder.path().join("mid.pfw.gz");
    fs::write(&path, &bytes).unwrap();
    check_damaged(&server, &path, 1100, &format!("offset {fifth}"));

    let request = |id: u32| {
        format!(
            r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"{id:032x}","spanId":"{id:016x}","name":"n","startTimeUnixNano":"17000000000000000{id:02}","endTimeUnixNano":"1700000000000009000"}}]}}]}}]}}"#
        )
    };
    let mut lines: Vec<String> = (10..20).map(request).collect();
    let before = lines[..4].iter().map(|line| line.len() + 1).sum::<usize>();
    lines[4].truncate(60);
    lines[7] = "no request".to_owned();
    let path = folder.path().join("spans.jsonl");
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    check_damaged(&server, &path, 8, &format!("at byte {before}"));
}

#[test]
fn files_named_like_traces_are_not_left_out_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let path = folder.path().join("traces");
    fs::create_dir(&path).unwrap();
    crate::queries::write_trace(&path.join("a.pfw"), 10);
    let spans = zstd::encode_all(&b"{\"ph\":\"X\",\"ts\":1,\"name\":\"a\"}\n"[..], 1).unwrap();
    fs::write(path.join("b.pfw.zst"), spans).unwrap();
    for (name, content) in [
        ("torn.json", "{\"a\":"),
        ("x.trace", "x"),
        ("notes.txt", "x"),
    ] {
        fs::write(path.join(name), content).unwrap();
    }
    let local = path.to_str().unwrap();
    let (_, _, queried) = run(&["query", local, "--count"]);
    let storage = server.api().create_storage("named");
    let (code, _, pushed) = push(&server, Some(&storage), &path);
    assert_eq!(code, 0, "{pushed}");
    for errors in [&queried, &pushed] {
        let notes = errors
            .lines()
            .filter(|it| it.contains("is named like a trace"));
        let notes: Vec<&str> = notes.collect();
        assert!(notes.len() == 2, "{errors}");
        assert!(notes[0].contains("torn.json") && notes[1].contains("x.trace"));
    }
    assert!(pushed.contains("of 1 compressed file"), "{pushed}");
    let url = server.url();
    let (code, _, errors) = run(&["query", "--server", &url, "named", "--count"]);
    assert!(code != 0 && errors.contains("--storage named"), "{errors}");
    let derived = "stream == 'traces.clones'";
    let words = [
        "query",
        "--server",
        &url,
        "--storage",
        "named",
        derived,
        "--count",
    ];
    let (_, _, errors) = run(&words);
    assert!(errors.contains("--derived"), "{errors}");
}
