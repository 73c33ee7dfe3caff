//! Names and relative times in place of ids and dates, and the commands for the buffer, for types
//! of labels and for the page.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use harness::{Agent, Server, payload, run_tracehold, tracehold};
use serde_json::Value;

fn run(server: &Server, arguments: &[&str]) -> Output {
    let url = server.url();
    let all = [&["--server", &url], arguments].concat();
    run_tracehold(&all.iter().map(|&it| it.to_owned()).collect::<Vec<_>>())
}

fn done(server: &Server, arguments: &[&str]) -> String {
    let output = run(server, arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn document(server: &Server, arguments: &[&str]) -> Value {
    let arguments = [&["--json"], arguments].concat();
    serde_json::from_str(&done(server, &arguments)).unwrap()
}

#[test]
fn the_buffer_is_shown_and_copied() {
    let (_folder, server, mut api) = Server::fresh();
    let unused = api.create_storage("declares-the-agent");
    let agent = Agent::declare(&mut api, &unused, "host", "stream", "none");
    drop(agent);
    assert_eq!(document(&server, &["buffer", "show"])["packets"], 0);
    // Without a recording, packets without a storage are in the buffer alone.
    let path = "/api/v1/agents/host/streams/stream/packets";
    for sequence in 0..3_u64 {
        let packet = payload(1, sequence, 100);
        let request = harness::Request::new("POST", path)
            .header("content-type", "application/octet-stream")
            .header("tracehold-epoch", "1")
            .header("tracehold-sequence", sequence)
            .body(&packet);
        let response = api.send(&request).unwrap();
        assert!(response.status < 300, "{}", response.brief());
    }
    assert_eq!(document(&server, &["buffer", "show"])["packets"], 3);
    let copied = document(&server, &["buffer", "copy", "--name", "kept", "--finalize"]);
    assert_eq!(copied["written_packets"], 3, "{copied}");
    let kept = document(&server, &["storage", "show", "kept"]);
    assert_eq!(
        (&kept["state"], &kept["packets"]),
        (&"FINALIZED".into(), &3.into())
    );
    let shown = done(&server, &["storage", "show", "kept"]);
    let rows: Vec<&str> = shown.lines().map(|line| line[..22].trim_end()).collect();
    let once: BTreeSet<&str> = rows.iter().copied().collect();
    assert_eq!(once.len(), rows.len(), "each field once: {shown}");
    assert!(
        once.contains("stored bytes") && once.contains("write status"),
        "{shown}"
    );
    assert!(shown.lines().all(|line| !line.ends_with("[]")), "{shown}");
    let into = done(
        &server,
        &["buffer", "copy", "--storage", "declares-the-agent"],
    );
    assert!(into.starts_with("3 packets copied to"), "{into}");
    let bare = run(&server, &["buffer", "copy", "--from", "1795222800000000"]);
    let said = String::from_utf8_lossy(&bare.stderr).into_owned();
    assert!(
        bare.status.code() == Some(2) && said.contains("1795222800000000us"),
        "{said}"
    );
    let nobody = run(&server, &["buffer", "copy", "--storage", "nothing"]);
    assert_eq!(nobody.status.code(), Some(3));
}

#[test]
fn types_of_labels_are_listed_declared_and_deleted() {
    let (_folder, server, mut api) = Server::fresh();
    api.create_storage("first");
    let of_teams = || {
        let types = document(&server, &["labels", "types"]);
        let types = types["items"].as_array().unwrap().clone();
        types.into_iter().find(|it| it["name"] == "team")
    };
    assert!(of_teams().is_none());
    done(
        &server,
        &["labels", "declare", "team", "--type", "string", "--several"],
    );
    done(&server, &["storage", "label", "first", "team=a", "team=b"]);
    let team = of_teams().unwrap();
    assert_eq!(
        (&team["several"], &team["storages"]),
        (&true.into(), &1.into())
    );
    let table = done(&server, &["labels", "types"]);
    let is_row = |line: &str| line.starts_with("team") && line.ends_with("a, b");
    assert!(table.lines().any(is_row), "{table}");
    assert_eq!(
        run(&server, &["labels", "delete", "team"]).status.code(),
        Some(3)
    );
    done(&server, &["labels", "delete", "team", "--remove"]);
    assert!(of_teams().is_none());
}

#[test]
fn recordings_are_stopped_by_the_name_of_their_storage() {
    let (_folder, server, _api) = Server::fresh();
    done(&server, &["record", "start", "--name", "recorded"]);
    done(&server, &["record", "stop", "recorded"]);
    let list = document(&server, &["record", "list"]);
    assert_eq!(list["items"][0]["state"], "OFF", "{list}");
    let again = run(&server, &["record", "stop", "recorded"]);
    assert_eq!(again.status.code(), Some(2));
}

#[test]
fn storages_are_mounted_by_name() {
    let (folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("named");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    agent.push(&mut api, 0, b"bytes");
    api.finalize(&storage);
    for command in ["mount", "download"] {
        let to = folder.path().join(command);
        done(&server, &[command, "named", to.to_str().unwrap()]);
        assert!(to.read_dir().unwrap().next().is_some());
    }
}

#[test]
fn relative_times_begin_with_now_or_a_minus() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("spans");
    drop(storage);
    for time in ["-1h", "now-1h", "now"] {
        let found = run(
            &server,
            &["query", "--storage", "spans", "--from", time, "--count"],
        );
        assert_eq!(found.status.code(), Some(1), "{time}: {found:?}");
    }
    let wrong = run(
        &server,
        &["query", "--storage", "spans", "--from", "now-soon"],
    );
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn the_page_of_a_storage_is_opened_and_its_url_printed() {
    let (folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("shown");
    let url = format!("{}/#/storage/{storage}\n", server.url());
    assert_eq!(done(&server, &["open", "shown", "--print"]), url);
    let opened = folder.path().join("opened");
    let browser = folder.path().join("browser");
    std::fs::write(
        &browser,
        format!("#!/bin/sh\necho \"$1\" > {}\n", opened.display()),
    )
    .unwrap();
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    let printed = Command::new(tracehold())
        .args(["--server", &server.url(), "open", "shown"])
        .env("BROWSER", &browser)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), url);
    let missing = Command::new(tracehold())
        .args(["--server", &server.url(), "open", "shown"])
        .env("BROWSER", folder.path().join("nothing"))
        .output()
        .unwrap();
    let told = String::from_utf8(missing.stderr).unwrap();
    assert!(told.ends_with("open the URL in a browser\n"), "{told}");
    wait_until(|| std::fs::read_to_string(&opened).is_ok_and(|text| text == url));
}

fn wait_until(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_demo_has_traces_to_query_and_leaves_nothing() {
    use std::io::BufRead;
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Command::new(tracehold())
        .args(["--json", "demo"])
        .env("TMPDIR", folder.path())
        // Settings of other servers do not matter.
        .env("TRACEHOLD_SERVER", "http://127.0.0.1:1")
        .env("TRACEHOLD_TOKEN", "of-another-server")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let output = demo.stdout.take().unwrap();
    std::io::BufReader::new(output)
        .read_line(&mut line)
        .unwrap();
    let shown: Value = serde_json::from_str(&line).unwrap();
    let url = shown["url"].as_str().unwrap();
    assert_eq!(shown["storages"].as_array().unwrap().len(), 3);
    for (storage, count) in [("files", "9729"), ("python", "118"), ("threads", "800")] {
        let arguments = ["--server", url, "query", "--storage", storage, "--count"];
        let output = run_tracehold(&arguments.map(str::to_owned));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.trim(), count, "{storage}");
    }
    let server: std::net::SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
    let stopped = Command::new("kill")
        .args(["-INT", &demo.id().to_string()])
        .status();
    assert!(stopped.unwrap().success());
    assert!(demo.wait().unwrap().success());
    assert!(std::net::TcpStream::connect(server).is_err());
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_demo_that_is_interrupted_at_once_leaves_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let place = tempfile::tempdir().unwrap();
    // A server that is still starting.
    let program = folder.path().join("slow");
    let started = folder.path().join("started");
    let script = format!(
        "#!/bin/sh\necho $$ > {0}.new\nmv {0}.new {0}\nexec sleep 600\n",
        started.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut demo = Command::new(tracehold())
        .arg("demo")
        .arg("--program")
        .arg(&program)
        .env("TMPDIR", place.path())
        .spawn()
        .unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !started.exists() {
        assert!(std::time::Instant::now() < end);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let server = std::fs::read_to_string(&started).unwrap();
    let interrupted = Command::new("kill")
        .args(["-INT", &demo.id().to_string()])
        .status();
    assert!(interrupted.unwrap().success());
    assert!(demo.wait().unwrap().success());
    assert!(!std::path::Path::new("/proc").join(server.trim()).exists());
    assert!(is_empty(place.path()));
}

#[test]
fn a_demo_without_a_server_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(tracehold())
        .args(["demo", "--program", "/nowhere/traceholdd"])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--program"));
    assert!(is_empty(folder.path()));
}

fn is_empty(folder: &Path) -> bool {
    folder.read_dir().unwrap().next().is_none()
}

#[test]
fn every_list_has_the_same_option_for_its_format() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("first");
    drop(Agent::declare(&mut api, &storage, "host", "stream", "none"));
    done(&server, &["storage", "label", "first", "use_case=ci"]);
    done(&server, &["record", "start", "--name", "recorded"]);
    let lists: [(&[&str], bool); 9] = [
        (&["storage", "list"], true),
        (&["storage", "label", "first"], true),
        (&["storage", "share", "first", "--list"], false),
        (&["storage", "jobs"], false),
        (&["agent", "list"], true),
        (&["record", "list"], true),
        (&["labels", "types"], true),
        (&["nodes"], false),
        (&["token", "list"], false),
    ];
    for (list, has_items) in lists {
        let in_format = |format: &str| done(&server, &[list, &["--format", format]].concat());
        let page: Value = serde_json::from_str(&in_format("json")).unwrap();
        let items = page["items"].as_array().unwrap();
        assert_eq!(!items.is_empty(), has_items, "{list:?}");
        assert_eq!(document(&server, list), page, "{list:?}");
        let lines = in_format("ndjson");
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        assert_eq!(&lines.collect::<Vec<Value>>(), items, "{list:?}");
        // Not on a terminal, all columns are there.
        let text = in_format("text");
        assert!(
            text.starts_with(|first: char| first.is_ascii_uppercase()),
            "{text}"
        );
        assert_eq!(
            [in_format("wide"), done(&server, list)],
            [text.clone(), text]
        );
        // The format that is asked for is given, also with the older option.
        let both = [&["--json"], list, &["--format", "text"]].concat();
        assert_eq!(done(&server, &both), in_format("text"));
    }
    let show = ["storage", "show", "first"];
    let shown = document(&server, &show);
    let in_json = done(&server, &[&show[..], &["--format", "json"]].concat());
    assert_eq!(serde_json::from_str::<Value>(&in_json).unwrap(), shown);
    assert!(done(&server, &show).starts_with("bytes"));
}
