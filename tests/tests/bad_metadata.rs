//! A CTF trace whose metadata cannot be parsed is stored all the same, and decoded when better
//! metadata comes.

use std::fs;
use std::path::Path;
use std::process::Output;

use harness::{Request, Server, Settings, run_tracehold};

use crate::queries::wait_for_indexes;

fn run(server: &Server, arguments: &[&str]) -> Output {
    let mut words: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    words.extend(["--server".to_owned(), server.url()]);
    run_tracehold(&words)
}

fn count(server: &Server, storage: &str) -> (Option<i32>, String, String) {
    let output = run(server, &["query", "--storage", storage, "--count"]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn packets_without_readable_metadata_are_stored_and_decoded_later() {
    let origin = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/lttng/uid/0/64-bit");
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    fs::create_dir_all(trace.join("index")).unwrap();
    for name in ["chan_0", "chan_1", "index/chan_0.idx", "index/chan_1.idx"] {
        fs::copy(origin.join(name), trace.join(name)).unwrap();
    }
    let broken = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; uuid = 5; };";
    fs::write(trace.join("metadata"), broken).unwrap();

    let server = Server::start(&folder.path().join("server"), &Settings::default());
    let storage = server.api().create_storage("trace");
    let path = trace.to_str().unwrap();
    let push = ["push", "--storage", &storage, "--agent", "host", path];
    let pushed = run(&server, &push);
    let errors = String::from_utf8_lossy(&pushed.stderr).into_owned();
    assert_eq!(pushed.status.code(), Some(0), "{errors}");
    assert!(
        errors.contains("warning: ") && errors.contains("expecting a string"),
        "{errors}"
    );

    // Without an index of LTTng, nothing says where its packets end.
    let bare = folder.path().join("bare");
    fs::create_dir(&bare).unwrap();
    for name in ["metadata", "chan_1"] {
        fs::copy(trace.join(name), bare.join(name)).unwrap();
    }
    let other = server.api().create_storage("bare");
    let bare = bare.to_str().unwrap();
    let words = ["push", "--storage", &other, "--agent", "other", bare];
    let whole = run(&server, &words);
    let errors = String::from_utf8_lossy(&whole.stderr).into_owned();
    assert!(errors.contains("it is pushed as one packet"), "{errors}");

    let (code, _, errors) = count(&server, &storage);
    assert_eq!(code, Some(1), "{errors}");
    assert!(
        errors.contains("metadata of its agent is invalid"),
        "{errors}"
    );

    let unreadable = || {
        let path = format!("/storages/{storage}/status");
        server.api().done("GET", &path, None)["unreadable_records"].clone()
    };
    assert_ne!(unreadable(), 0);

    // Without the permission, the server refuses it and says where the fault is.
    let request = Request::new("PUT", "/api/v1/agents/host/metadata").body(broken.as_bytes());
    let refused = server.api().send(&request).unwrap();
    assert_eq!(refused.status, 422);
    assert_eq!(refused.json()["code"], "metadata_invalid");

    fs::copy(origin.join("metadata"), trace.join("metadata")).unwrap();
    let pushed = run(&server, &push);
    let errors = String::from_utf8_lossy(&pushed.stderr).into_owned();
    assert_eq!(pushed.status.code(), Some(0), "{errors}");
    assert_eq!(unreadable(), 0);
    let (code, found, errors) = count(&server, &storage);
    assert_eq!((code, found.as_str()), (Some(0), "800"), "{errors}");
    assert_eq!(unreadable(), 0);
    // The packets were not counted when they arrived, and their indexes count them.
    assert_eq!(counted(&server, &storage), (800, Some(0)));
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    assert_eq!(counted(&server, &storage), (800, Some(0)));
}

/// The events of a storage, and its packets whose events are not among them.
fn counted(server: &Server, storage: &str) -> (u64, Option<u64>) {
    let document = server.api().storage(storage);
    let events = document["events"].as_u64().unwrap();
    (events, document["uncounted_packets"].as_u64())
}
