//! The audit log of a real server, over a crash, and what `traceholdd audit verify` finds.

use std::path::Path;
use std::process::Command;

use harness::{Request, Server, Settings};

fn verify(data: &Path) -> (Option<i32>, String) {
    let output = Command::new(harness::traceholdd())
        .args(["audit", "verify", "--data-dir"])
        .arg(data)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

fn create(server: &Server, name: &str) -> u16 {
    let body = format!("{{\"name\":{name:?}}}");
    let request = Request::new("POST", "/api/v1/storages")
        .header("content-type", "application/json")
        .header("x-request-id", name)
        .body(body.as_bytes());
    server.connect().send(&request).unwrap().status
}

#[test]
fn answered_changes_are_in_the_log_after_a_crash_and_no_line_can_be_altered() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let path = server.data().join("audit/audit.jsonl");
    for name in ["a", "b", "c"] {
        assert_eq!(create(&server, name), 201);
    }
    // Refused, and read: neither changes anything.
    let refused = Request::new("DELETE", "/api/v1/label-types/none");
    assert!(server.connect().send(&refused).unwrap().status >= 400);
    let read = Request::new("GET", "/api/v1/storages");
    assert_eq!(server.connect().send(&read).unwrap().status, 200);
    server.kill();
    let log = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 4, "{log}");
    for (line, name) in lines[1..].iter().zip(["a", "b", "c"]) {
        let id = format!("\"request\":{name:?}");
        assert!(
            line.contains(&id) && line.contains("/api/v1/storages"),
            "{line}"
        );
    }
    server.restart();
    assert_eq!(create(&server, "d"), 201);
    drop(server);

    let data = folder.path().join("data");
    let (code, text) = verify(&data);
    assert!(code == Some(0) && text.contains("5 lines"), "{text}");
    let log = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    let without: Vec<&str> = [&lines[..2], &lines[3..]].concat();
    let swapped = [lines[0], lines[2], lines[1], lines[3], lines[4]];
    for damaged in [
        without.join("\n") + "\n",
        swapped.join("\n") + "\n",
        log.replace("\"status\":201", "\"status\":200"),
        log[..log.len() - 1].to_owned(),
        String::new(),
    ] {
        std::fs::write(&path, &damaged).unwrap();
        let (code, text) = verify(&data);
        assert!(code == Some(1) && text.contains("audit.jsonl"), "{text}");
    }
}
