//! The audit log of a real server, over a crash, and what `audit verify` of both programs finds.

use std::path::Path;
use std::process::Command;

use harness::{Request, Server, Settings};
use serde_json::{Value, json};

/// What both programs find.
fn verify(data: &Path) -> (Option<i32>, String) {
    let run = |program, arguments: &[&str], path: &Path| {
        let mut command = Command::new(program);
        let output = command.args(arguments).arg(path).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let arguments = ["audit", "verify", "--data-dir"];
    let found = run(harness::traceholdd(), &arguments, data);
    let folder = data.join("audit");
    let elsewhere = run(harness::tracehold(), &["audit", "verify"], &folder);
    assert_eq!(elsewhere.0, found.0, "{} {}", elsewhere.1, found.1);
    // The last words are the seal, or the damage.
    let brief = |text: &str| text.rsplit([':', ' ']).next().unwrap().trim().to_owned();
    assert_eq!(brief(&elsewhere.1), brief(&found.1));
    found
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
    // Reading changes nothing.
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

/// The last line of the log, without what differs from run to run.
fn last(server: &Server) -> Value {
    let log = std::fs::read_to_string(server.data().join("audit/audit.jsonl")).unwrap();
    let mut line: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let fields = line.as_object_mut().unwrap();
    for name in ["number", "time", "seal", "request"] {
        assert!(fields.remove(name).is_some(), "{name}");
    }
    line
}

#[test]
fn lines_have_the_query_string_and_the_status_also_of_what_failed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let id = server.api().create_storage("s");
    let verify = format!("/api/v1/storages/{id}/verify");
    let types = "/api/v1/label-types/none".to_owned();
    for (method, path, query, status, noted) in [
        ("POST", &verify, "repair=plan", 200, Some("repair=plan")),
        (
            "POST",
            &verify,
            "repair=confirm",
            200,
            Some("repair=confirm"),
        ),
        ("DELETE", &types, "", 404, None),
        // Whatever a parameter is that no route has, it may be a secret.
        ("DELETE", &types, "token=tracehold_secret", 400, None),
    ] {
        let target = match query {
            "" => path.clone(),
            query => format!("{path}?{query}"),
        };
        let answer = server
            .connect()
            .send(&Request::new(method, &target))
            .unwrap();
        assert_eq!(answer.status, status, "{}", answer.brief());
        let mut line = json!({
            "caller": "anyone", "method": method, "path": path, "status": status,
        });
        if let Some(query) = noted {
            line["query"] = query.into();
        }
        assert_eq!(last(&server), line);
    }
}

/// Lines for a file that another program removed or moved, as a rotation of logs would, go into a
/// new one, and the chain goes on.
#[test]
fn a_log_that_is_moved_or_removed_continues_in_a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let path = server.data().join("audit/audit.jsonl");
    let has = |name: &str| {
        let log = std::fs::read_to_string(&path).unwrap_or_default();
        log.contains(&format!("\"request\":{name:?}"))
    };
    assert_eq!(create(&server, "before"), 201);
    let moved = server.data().join("moved.jsonl");
    std::fs::rename(&path, &moved).unwrap();
    assert_eq!(create(&server, "moved"), 201);
    assert!(has("moved") && !has("before"));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(create(&server, "removed"), 201);
    assert!(has("removed") && !has("moved"));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"something else\n").unwrap();
    assert_eq!(create(&server, "replaced"), 201);
    assert!(has("replaced"));
    assert!(server.log().contains("the file of the audit log"));
}
