//! A CTF trace exported by `tracehold export` is the trace that was pushed, for any reader.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use harness::{Server, Settings, run_tracehold, without};

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
    let exported = run(&server, &export);
    assert_eq!(exported.status.code(), Some(0));
    let omitted = String::from_utf8_lossy(&exported.stderr).into_owned();
    assert!(omitted.contains("1 stream of other kinds"), "{omitted}");
    let trace = target.join("host");
    for name in ["metadata", "chan_0", "chan_1"] {
        let expected = fs::read(origin.join(name)).unwrap();
        assert!(fs::read(trace.join(name)).unwrap() == expected, "{name}");
    }
    let again = run(&server, &export);
    assert_eq!(again.status.code(), Some(2), "two traces are not mixed");

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

#[test]
fn a_storage_without_ctf_exports_nothing() {
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
