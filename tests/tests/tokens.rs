//! Who may do what, with both programs: the first token, roles, scopes and revocation.

use std::path::Path;
use std::process::Command;

use harness::{Request, Server, Settings, run_tracehold};
use serde_json::Value;

use crate::otlp_grpc::{EXPORT, call, framed, status};

/// Exit code, output and errors of `tracehold` with this token.
fn tracehold(server: &Server, token: Option<&str>, arguments: &[&str]) -> (i32, String, String) {
    let mut all: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    all.extend(["--server".to_owned(), server.url()]);
    all.extend(
        token
            .into_iter()
            .flat_map(|token| ["--token".to_owned(), token.to_owned()]),
    );
    let output = run_tracehold(&all);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn create(server: &Server, token: Option<&str>, arguments: &[&str]) -> String {
    let all = [&["token", "create", "--name", "n", "--role"], arguments].concat();
    let (code, text, errors) = tracehold(server, token, &all);
    assert_eq!(code, 0, "{errors}");
    text.trim().to_owned()
}

/// Exit code and output of `traceholdd token create` on this folder.
fn offline(folder: &Path) -> (Option<i32>, String) {
    let output = Command::new(harness::traceholdd())
        .args(["token", "create", "--listen", "0.0.0.0:0", "--data-dir"])
        .arg(folder.join("data"))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn from_the_first_token_on_everybody_needs_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let (code, _, errors) = tracehold(
        &server,
        None,
        &["token", "create", "--name", "n", "--role", "reader"],
    );
    assert!(code == 3 && errors.contains("operator"), "{errors}");
    let operator = create(&server, None, &["operator"]);
    let list = ["storage", "list"];
    let (code, _, errors) = tracehold(&server, None, &list);
    assert!(code == 3 && errors.contains("token"), "{errors}");
    assert_eq!(tracehold(&server, Some(&operator), &list).0, 0);

    let reader = create(&server, Some(&operator), &["reader", "--expires", "1h"]);
    assert_eq!(tracehold(&server, Some(&reader), &list).0, 0);
    let made = ["storage", "create", "--name", "s"];
    let (code, _, errors) = tracehold(&server, Some(&reader), &made);
    assert!(code == 3 && errors.contains("role"), "{errors}");
    let (code, _, errors) = tracehold(&server, Some(&operator), &made);
    assert_eq!(code, 0, "{errors}");

    // The secrets are neither in the list, nor in the log, nor in the data folder.
    let (_, tokens, _) = tracehold(&server, Some(&operator), &["token", "list"]);
    let stored = std::fs::read_to_string(server.data().join("tokens.json")).unwrap();
    for text in [&tokens, &stored, &server.log()] {
        for token in [&operator, &reader] {
            let (_, secret) = token.rsplit_once('_').unwrap();
            assert!(!text.contains(secret), "{text}");
        }
    }
    let id = reader.split('_').nth(1).unwrap();
    assert!(tokens.contains(id), "{tokens}");
    let (code, _, errors) = tracehold(&server, Some(&operator), &["token", "revoke", id]);
    assert_eq!(code, 0, "{errors}");
    // A crash right after the answer changes nothing.
    server.kill();
    server.restart_listening(&Settings::default());
    let (code, _, errors) = tracehold(&server, Some(&reader), &list);
    assert!(code == 3 && errors.contains("revoked"), "{errors}");
    assert_eq!(tracehold(&server, Some(&operator), &list).0, 0);
    assert_eq!(tracehold(&server, None, &list).0, 3);
}

#[test]
fn health_and_metrics_stay_open_and_metrics_can_be_closed() {
    let folder = tempfile::tempdir().unwrap();
    for (config, wanted) in [("", 200), ("[access]\nmetrics_open = false\n", 401)] {
        let server = Server::start(folder.path(), &Settings::with_config(config));
        if wanted == 200 {
            create(&server, None, &["operator"]);
        }
        for (path, wanted) in [("/livez", 200), ("/readyz", 200), ("/metrics", wanted)] {
            let answer = server.connect().send(&Request::new("GET", path)).unwrap();
            assert_eq!(answer.status, wanted, "{path}: {}", answer.brief());
        }
    }
}

#[test]
fn a_storage_out_of_scope_looks_like_one_that_does_not_exist() {
    let (_folder, server, _api) = Server::fresh();
    let ids: Vec<String> = ["own", "other"]
        .iter()
        .map(|name| {
            let body = format!("{{\"name\":\"{name}\",\"open\":true}}");
            let request = Request::new("POST", "/api/v1/storages")
                .header("content-type", "application/json")
                .body(body.as_bytes());
            let made: Value = server.connect().send(&request).unwrap().json();
            made["id"].as_str().unwrap().to_owned()
        })
        .collect();
    let operator = create(&server, None, &["operator"]);
    let token = create(&server, Some(&operator), &["reader", "--storage", "own"]);
    let ask = |path: &str| {
        let request = Request::new("GET", path).header("authorization", format!("Bearer {token}"));
        server.connect().send(&request).unwrap()
    };
    let absent = "01932c5e-0000-7000-8000-000000000000";
    for path in [
        "/api/v1/storages/ID",
        "/api/v1/storages/ID/files",
        "/storage/ID/x.itdata",
    ] {
        let own = ask(&path.replace("ID", &ids[0]));
        assert!(own.status != 403 && own.status != 401, "{}", own.brief());
        let [hidden, unknown] = [ids[1].as_str(), absent].map(|id| {
            let answer = ask(&path.replace("ID", id));
            let mut problem = answer.json();
            assert!(problem["instance"].take().is_string());
            let fields: Vec<_> = (answer.headers.into_iter())
                .filter(|(name, _)| !["x-request-id", "date"].contains(&name.as_str()))
                .collect();
            (answer.status, fields, problem.to_string().replace(id, "ID"))
        });
        assert_eq!(hidden, unknown, "{path}");
        assert_eq!(hidden.0, 404);
    }
    let listed = ask("/api/v1/storages").json();
    let listed: Vec<&str> = (listed["items"].as_array().unwrap().iter())
        .map(|storage| storage["id"].as_str().unwrap())
        .collect();
    assert_eq!(listed, [ids[0].as_str()]);
    assert_eq!(ask("/api/v1/jobs").status, 403);
}

#[test]
fn an_agent_pushes_with_its_token() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let operator = create(&server, None, &["operator"]);
    let made = ["storage", "create", "--name", "s"];
    assert_eq!(tracehold(&server, Some(&operator), &made).0, 0);
    let file = folder.path().join("file");
    std::fs::write(&file, "some bytes\n").unwrap();
    let push = [
        "push",
        "--storage",
        "s",
        "--agent",
        "web",
        file.to_str().unwrap(),
    ];
    let web = create(&server, Some(&operator), &["agent", "--agent", "web"]);
    let other = create(&server, Some(&operator), &["agent", "--agent", "other"]);
    let reader = create(&server, Some(&operator), &["reader"]);
    for (token, wanted) in [(&other, 3), (&reader, 3), (&web, 0)] {
        let (code, text, errors) = tracehold(&server, Some(token), &push);
        assert_eq!(code, wanted, "{text} {errors}");
    }
    // What it pushed is for readers.
    let query = ["query", "--storage", "s", "--count"];
    assert_eq!(tracehold(&server, Some(&web), &query).0, 3);
}

#[test]
fn the_first_token_can_be_made_before_the_server_starts() {
    let folder = tempfile::tempdir().unwrap();
    let far = Settings {
        environment: vec![("TRACEHOLD_BENCH_DISCARD".to_owned(), "false".to_owned())],
        ..Settings::default()
    };
    let (code, text) = offline(folder.path());
    assert_eq!(code, Some(0), "{text}");
    let token = text.trim().to_owned();
    let server = Server::listening(folder.path(), &far).unwrap();
    assert_eq!(tracehold(&server, Some(&token), &["storage", "list"]).0, 0);
    assert_eq!(tracehold(&server, None, &["storage", "list"]).0, 3);
    // A token file is read where no token is given.
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    let listing = ["storage", "list", "--token-file", file.to_str().unwrap()];
    assert_eq!(tracehold(&server, None, &listing).0, 0);
    let (code, text) = offline(folder.path());
    assert!(
        code == Some(4) && text.contains("tracehold token create"),
        "{text}"
    );
    drop(server);

    // With a token the server may be reached from elsewhere; `config check` says so, too.
    let check = |data: &Path| {
        let output = Command::new(harness::traceholdd())
            .args(["config", "check", "--listen", "0.0.0.0:0", "--data-dir"])
            .arg(data)
            .output();
        output.unwrap().status.code()
    };
    assert_eq!(check(&folder.path().join("data")), Some(0));
    assert_eq!(check(&folder.path().join("none")), Some(2));
}

#[test]
fn spans_over_grpc_need_the_token_of_an_agent() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let operator = create(&server, None, &["operator"]);
    let agent = create(&server, Some(&operator), &["agent"]);
    let reader = create(&server, Some(&operator), &["reader"]);
    let body = framed(0, &[]);
    for (token, expected) in [
        (String::new(), 16),
        ("Bearer thA".to_owned(), 16),
        (format!("Bearer {reader}"), 7),
        (format!("Bearer {agent}"), 0),
        (format!("Bearer {operator}"), 0),
    ] {
        let answer = call(server.address(), EXPORT, ("authorization", &token), &body);
        let (code, message) = status(&answer);
        assert_eq!(code, expected, "{token:.12}: {message}");
    }
}
