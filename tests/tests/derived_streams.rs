//! Derived streams repeat events of others: every door omits them unless they are asked for, and
//! nobody but a recording writes them.

use std::path::Path;

use harness::spans::{packets, send_spans};
use harness::{Request, Server};
use serde_json::{Value, json};

use crate::queries::{mount, run, wait_for_indexes};
use crate::recording::{record_now, span, stop};

/// Derived streams are omitted from queries, counts, mounts and copies, unless they are requested.
pub(super) fn check_omitted(server: &Server, storage: &str) {
    let count = |source: &[&str], more: &[&str]| -> u64 {
        let (_, out, errors) = run(&[&["query"], source, &["--count"], more].concat());
        out.trim()
            .parse()
            .unwrap_or_else(|_| panic!("{out}{errors}"))
    };
    let url = server.url();
    let stored = ["--server", &url, "--storage", storage];
    let check = |source: &[&str]| {
        assert_eq!(count(source, &[]), 4, "{source:?}");
        assert_eq!(count(source, &["--derived"]), 11, "{source:?}");
        assert_eq!(
            count(source, &["stream == 'traces.clones'"]),
            0,
            "{source:?}"
        );
        let clones = ["stream == 'traces.clones'", "--derived"];
        assert_eq!(count(source, &clones), 2, "{source:?}");
        let (_, out, _) = run(&[&["query"], source, &["--group-by", "name", "--json"]].concat());
        let groups = ["buy", "look", "read"].map(|name| out.matches(name).count());
        assert_eq!(groups, [1, 1, 1], "{out}");
        let (_, _, notes) = run(&[&["query"], source, &["--count", "--explain"]].concat());
        assert!(notes.contains("3 derived streams are omitted"), "{notes}");
        let explained = ["--count", "--explain", "--json"];
        let (_, _, told) = run(&[&["query"], source, &explained].concat());
        let line = told.lines().find(|line| line.starts_with('{')).unwrap();
        let document: Value = serde_json::from_str(line).unwrap();
        let notes = document["notes"].to_string();
        assert!(notes.contains("3 derived streams are omitted"), "{told}");
    };
    check(&stored);
    let shown = |storage: &str| server.api().storage(storage)["events"].clone();
    assert_eq!(shown(storage), 4);
    let copy = |more: &[&str]| {
        let copy = [
            "storage",
            "copy",
            "--json",
            "--finalize",
            "--server",
            &url,
            storage,
        ];
        let (code, out, errors) = run(&[&copy[..], more].concat());
        assert_eq!(code, 0, "{errors}");
        let copied: Value = serde_json::from_str(&out).unwrap();
        copied["storage"].as_str().unwrap().to_owned()
    };
    let of_copy = |copy: &str, more: &[&str]| count(&["--server", &url, "--storage", copy], more);
    let plain = copy(&["--name", "plain"]);
    assert_eq!(of_copy(&plain, &["--derived"]), 4);
    let chain = copy(&["--name", "chain", "--query", "dur >= 0ns"]);
    assert_eq!(of_copy(&chain, &["--derived"]), 4);
    let all = copy(&["--name", "all", "--derived"]);
    check(&["--server", &url, "--storage", &all]);
    for has_indexes in [false, true] {
        if has_indexes {
            wait_for_indexes(server, &all);
        }
        assert_eq!(shown(&all), 4, "with indexes: {has_indexes}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mounted = folder.path().join("mount");
    mount(server, &all, &mounted);
    check(&["--dir", mounted.to_str().unwrap()]);
    let exported = folder.path().join("exported");
    let (source, exported) = (
        ["export", "--server", &url, "--storage", &all],
        exported.to_str(),
    );
    let (_, _, notes) = run(&[&source[..], &[exported.unwrap()]].concat());
    assert!(notes.contains("3 derived streams are omitted"), "{notes}");
    check_derived_files(server, &all, folder.path());
    // Without its source, a derived stream repeats nothing.
    let clones = copy(&["--name", "clones", "--stream", "traces.clones"]);
    assert_eq!((of_copy(&clones, &[]), shown(&clones)), (2, json!(2)));
}

/// Queries omit them, so that spans from outside would be missing in every answer.
#[test]
fn streams_of_derived_spans_are_closed_to_agents() {
    let (_folder, _server, mut api) = Server::fresh();
    let (id, storage) = record_now(&mut api, json!({ "name": "first" }));
    send_spans(&mut api, "shop", &[span(1, 1, 0, "buy")]);
    stop(&mut api, &id);
    let declared = |kind: &str| Some(json!({ "kind": kind }));
    for (name, kind, status) in [
        ("x.spans", "otlp", 422),
        ("traces.clones", "otlp", 422),
        ("x.spans", "chrome", 200),
        ("spans", "otlp", 200),
    ] {
        let path = format!("/agents/shop/streams/{name}");
        let answer = api.call("PUT", &path, declared(kind).as_ref());
        assert_eq!(answer.status, status, "{name} {kind}: {}", answer.brief());
        if status == 422 {
            assert_eq!(answer.json()["code"], "stream_reserved");
        }
    }
    let before = packets(&mut api, &storage);
    for place in ["", &format!("/storages/{storage}")] {
        let path = format!("/api/v1{place}/agents/shop/streams/traces.clones/packets");
        let request = Request::new("POST", &path)
            .header("content-type", "application/octet-stream")
            .header("tracehold-epoch", u64::MAX.saturating_sub(1).to_string())
            .header("tracehold-sequence", "0")
            .body(b"\n\0");
        let refused = api.send(&request).unwrap();
        assert_eq!(refused.status, 422, "{path}: {}", refused.brief());
        assert_eq!(refused.json()["code"], "stream_reserved", "{path}");
    }
    assert_eq!(packets(&mut api, &storage), before);
}

/// An export with derived streams can be read and pushed as a whole: they are omitted, and told.
fn check_derived_files(server: &Server, storage: &str, folder: &Path) {
    let (url, exported) = (server.url(), folder.join("with derived"));
    let text = exported.to_str().unwrap();
    let words = ["export", "--derived", "--server", &url, "--storage"];
    let (code, _, errors) = run(&[&words[..], &[storage, text]].concat());
    assert_eq!(code, 0, "{errors}");
    let entries = std::fs::read_dir(&exported).unwrap();
    let mut folders = entries.map(|entry| entry.unwrap().path().display().to_string());
    let derived = folders.find(|name| name.ends_with("+derived")).unwrap();
    let is_told = |told: &str| told.contains(&format!("{derived} is "));
    let count = |source: &[&str]| {
        let (_, out, errors) = run(&[&["query", "--count"], source].concat());
        (out.trim().to_owned(), is_told(&errors))
    };
    assert_eq!(count(&[text]), ("4".to_owned(), true));
    assert_eq!(count(&[text, &derived]), ("11".to_owned(), false));
    for (name, paths, events, told) in [
        ("pushed", &[text][..], "4", true),
        ("pushed whole", &[text, &derived], "11", false),
    ] {
        let pushed = server.api().create_storage(name);
        let target = ["push", "--server", &url, "--storage", &pushed];
        let (code, _, errors) = run(&[&target[..], paths].concat());
        assert_eq!((code, is_told(&errors)), (0, told), "{errors}");
        let source = ["--server", &url, "--storage", &pushed];
        assert_eq!(count(&source), (events.to_owned(), false), "{name}");
    }
}
