//! A URL gives access to one storage, leaves no trace, and ends.

use harness::{Agent, Request, Server, Settings, run_tracehold};

/// Exit code, output and errors of `tracehold`.
fn tracehold(server: &str, token: Option<&str>, words: &[&str]) -> (i32, String, String) {
    let mut all: Vec<&str> = [words, &["--server", server]].concat();
    all.extend(token.into_iter().flat_map(|token| ["--token", token]));
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    let output = run_tracehold(&all);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

#[test]
fn a_shared_storage_is_read_by_its_url_until_it_is_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[log]\nlevel = \"debug\"\naccess = true\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let mut api = server.api();
    let [storage, _other] = ["mine", "other"].map(|name| api.create_storage(name));
    let agent = Agent::declare(&mut api, &storage, "web", "s", "none");
    agent.push(&mut api, 0, b"some bytes");
    api.finalize(&storage);
    let data = api.files(&storage);
    let data = &data.iter().find(|file| file.1 == "data").unwrap().0;

    let home = server.url();
    let share = ["storage", "share", "mine", "--expires", "1h"];
    let (code, _, errors) = tracehold(&home, None, &share);
    assert!(code == 3 && errors.contains("first token"), "{errors}");
    let make = ["token", "create", "--name", "n", "--role", "operator"];
    let (_, token, _) = tracehold(&home, None, &make);
    let own_token = token.trim().to_owned();
    let token = Some(own_token.as_str());
    let (code, url, errors) = tracehold(&home, token, &share);
    assert_eq!(code, 0, "{errors}");
    let url = url.trim();
    assert!(url.starts_with(&format!("{home}/s/tracehold_")), "{url}");

    for (words, wanted, expected) in [
        (&["storage", "show", "mine"][..], 0, "mine"),
        (&["storage", "list"], 0, "mine"),
        (&["storage", "show", "other"], 3, ""),
        (&["storage", "verify", "mine"], 3, ""),
        (&["storage", "delete", "mine"], 3, ""),
        (&["token", "list"], 3, ""),
        (&["storage", "share", "mine", "--expires", "1h"], 3, ""),
    ] {
        let (code, text, errors) = tracehold(url, None, words);
        assert!(
            (code == 0) == (wanted == 0) && text.contains(expected),
            "{words:?}: {text} {errors}"
        );
        assert!(!text.contains("other"), "{text}");
    }
    let path = url.strip_prefix(&home).unwrap();
    let read = |path: String, range: &str| {
        let request = Request::new("GET", &path).header("range", range);
        server.connect().send(&request).unwrap()
    };
    let part = read(format!("{path}storage/{storage}/{data}?a=b"), "bytes=0-3");
    assert_eq!((part.status, part.body.len()), (206, 4), "{}", part.brief());
    assert_eq!(part.header("referrer-policy"), Some("no-referrer"));
    // A cache that others use has no byte of it, nor has one of a browser that does not ask again.
    assert_eq!(part.header("cache-control"), Some("private, no-cache"));
    let field = format!("Bearer {own_token}");
    let own = format!("/storage/{storage}/{data}");
    let own = Request::new("GET", &own).header("authorization", field);
    let own = server.connect().send(&own).unwrap();
    let kept = "private, max-age=31536000, immutable";
    assert_eq!(own.header("cache-control"), Some(kept));
    let missing = read(format!("{path}nothing"), "bytes=0-3");
    assert_eq!(missing.status, 404);
    assert_eq!(missing.header("referrer-policy"), Some("no-referrer"));

    let list = ["storage", "share", "mine", "--list"];
    let (code, listed, errors) = tracehold(&home, token, &list);
    assert!(code == 0 && listed.contains("good"), "{listed} {errors}");
    let (_, rest) = url.split_once("tracehold_").unwrap();
    let (id, secret) = rest.trim_end_matches('/').split_once('_').unwrap();
    let revoke = ["storage", "share", "mine", "--revoke", id];
    let (code, _, errors) = tracehold(&home, token, &revoke);
    assert_eq!(code, 0, "{errors}");
    let ended = read(format!("{path}storage/{storage}/{data}"), "bytes=0-3");
    assert_eq!(ended.status, 403, "{}", ended.brief());
    assert_eq!(ended.json()["code"], "share_invalid");

    let stored = std::fs::read_to_string(server.data().join("tokens.json")).unwrap();
    let audit = server.data().join("audit/audit.jsonl");
    let audit = std::fs::read_to_string(audit).unwrap();
    assert!(audit.contains("/shares"), "{audit}");
    let log = server.log();
    assert!(log.contains("/storage/") && !log.contains("a=b"), "{log}");
    for text in [&stored, &audit, &log, &listed, &missing.brief()] {
        assert!(!text.contains(secret), "{text}");
    }
}
