//! What a push takes of a folder.

use std::fs;
use std::path::Path;

use harness::{Server, small_traces};
use serde_json::Value;

use crate::queries::{copy_all, run, settings, write_trace};

/// A folder with a trace, a CTF trace, what indexing makes of them, and files that only look so.
fn make(folder: &Path) {
    write_trace(&folder.join("trace.pfw"), 300);
    copy_all(&small_traces()[0], &folder.join("recorded"));
    let (code, _, errors) = run(&[
        "index",
        "--columns",
        folder.join("trace.pfw").to_str().unwrap(),
    ]);
    assert_eq!(code, 0, "{errors}");
    let (code, _, errors) = run(&["index", folder.join("recorded").to_str().unwrap()]);
    assert_eq!(code, 0, "{errors}");
    let index = fs::read(folder.join("trace.pfw.idx")).unwrap();
    fs::write(folder.join("recorded/chan_0.idx"), &index).unwrap();
    // As a run leaves it that was killed.
    fs::write(folder.join(".tracehold-a.idx.tmp"), &index[..100]).unwrap();
    fs::write(folder.join("other.pfw.idx"), &index).unwrap();
    fs::write(folder.join("notes"), "text").unwrap();
    fs::write(folder.join("notes.idx"), "no index").unwrap();
    fs::write(folder.join("notes.pidx"), "").unwrap();
    fs::write(folder.join("renamed"), &index).unwrap();
}

/// The files of a push, and how many indexes it skipped.
fn pushed(server: &Server, paths: &[&Path]) -> (Vec<String>, Value) {
    let storage = server.api().create_storage("pushed");
    let url = server.url();
    let mut words = vec!["push", "--json", "--server", &url, "--storage", &storage];
    words.extend(paths.iter().map(|path| path.to_str().unwrap()));
    let (code, out, errors) = run(&words);
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let streams = report["streams"].as_array().unwrap().iter();
    let mut names: Vec<String> = streams
        .map(|stream| stream["stream"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    (names, report["indexes_skipped"].clone())
}

#[test]
fn indexes_in_a_folder_are_skipped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let traces = folder.path().join("traces");
    fs::create_dir(&traces).unwrap();
    make(&traces);
    let (mut expected, skipped) = pushed(&server, &[&traces]);
    // The streams of the recorded trace.
    expected.retain(|name| !name.starts_with("chan_"));
    let kept = [
        "notes",
        "notes.idx",
        "notes.pidx",
        "other.pfw.idx",
        "renamed",
        "trace.pfw",
    ];
    assert_eq!(
        (expected, skipped),
        (kept.map(str::to_owned).to_vec(), 3.into())
    );
    // Who names a file means it.
    let named = traces.join("trace.pfw.idx");
    let expected = (vec!["trace.pfw.idx".to_owned()], 0.into());
    assert_eq!(pushed(&server, &[&named]), expected);
    let url = server.url();
    let storage = server.api().create_storage("told");
    let push = |path: &Path| {
        let path = path.to_str().unwrap();
        let (code, _, errors) = run(&["push", "--server", &url, "--storage", &storage, path]);
        assert_eq!(code, 0, "{errors}");
        let notes = errors.lines().filter(|line| line.contains("skipped"));
        notes.map(str::to_owned).collect::<Vec<String>>()
    };
    let [note] = &push(&traces)[..] else {
        panic!("one line");
    };
    for part in ["note: 3 indexes", "derived from the traces", "name them"] {
        assert!(note.contains(part), "{note} lacks {part:?}");
    }
    assert_eq!(push(&named), Vec::<String>::new());
}

#[test]
fn files_whose_names_are_not_utf_8_are_refused_before_anything_is_sent() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let traces = folder.path().join("traces");
    fs::create_dir(&traces).unwrap();
    write_trace(&traces.join("a.pfw"), 10);
    let bad = traces.join(OsStr::from_bytes(b"bad\xff.bin"));
    fs::write(&bad, "x").unwrap();
    let mut api = server.api();
    let storage = api.create_storage("names");
    for path in [&bad, &traces] {
        let output = std::process::Command::new(harness::tracehold())
            .args(["push", "--server", &server.url(), "--storage", &storage])
            .arg(path)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("not UTF-8"), "{errors}");
    }
    assert!(api.leaves(&storage).is_empty());
}

#[test]
fn a_file_without_packets_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = server.api().create_storage("empty");
    let path = folder.path().join("empty.pfw");
    fs::write(&path, "").unwrap();
    let url = server.url();
    let path = path.to_str().unwrap();
    let words = ["push", "--server", &url, "--storage", &storage, path];
    let (code, _, errors) = run(&words);
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("exports lack it"), "{errors}");
}
