//! The page of the server, used in a browser as a person would: Chromium of Debian, driven by
//! Node.js; and its arithmetic in Node.js alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{
    Agent, Request, Server, Settings, openapi_node_modules, page_node_modules, perfetto_ui,
    run_tracehold, without,
};
use serde_json::{Value, json};

use crate::queries::{push, settings, wait_for_indexes};
use crate::repair::damaged;

/// A time in microseconds, as DFTracer writes it.
const BEGIN_US: u64 = 1_700_000_000_000_000;

/// Runs a script on what it is given, in a browser if there is one.
pub(crate) fn drive(script: &str, mut given: Value) {
    let Some(modules) = page_node_modules() else {
        return;
    };
    if !Path::new("/usr/bin/chromium").exists() {
        without("chromium");
        return;
    }
    given["pictures"] = json!(modules.join("../../../page"));
    run_node(
        script,
        &[
            ("PAGE_MODULES", &modules.to_string_lossy()),
            ("PAGE_GIVEN", &given.to_string()),
        ],
    );
}

fn run_node(script: &str, environment: &[(&str, &str)]) {
    let script = data().join("page").join(script);
    let mut node = Command::new("node");
    let used = node.arg(script).envs(environment.iter().copied()).output();
    let used = used.unwrap();
    let text = [used.stdout, used.stderr].concat();
    assert!(used.status.success(), "{}", String::from_utf8_lossy(&text));
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

/// The modules of the page in a folder, as Node.js wants them.
fn modules_of_the_page() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/page");
    for file in fs::read_dir(page).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let package = folder.path().join("package.json");
    fs::write(package, "{\"type\": \"module\"}").unwrap();
    folder
}

/// An event of DFTracer.
fn event(id: usize, name: &str, tid: usize, offset_us: u64, arguments: &str) -> String {
    let (name, ts) = (json!(name), BEGIN_US + offset_us);
    format!(
        "{{\"id\":{id},\"name\":{name},\"cat\":\"POSIX\",\"pid\":7,\"tid\":{tid},\"ts\":{ts},\"dur\":5,\
         \"ph\":\"X\",\"args\":{{{arguments}}}}}\n"
    )
}

/// A storage with a trace of these events, and indexes of its chunks.
fn storage_of(server: &Server, folder: &Path, name: &str, events: &str) -> String {
    let path = folder.join(format!("{name}.pfw"));
    fs::write(&path, format!("[\n{events}")).unwrap();
    let mut api = server.api();
    let storage = api.create_storage(name);
    push(server, &storage, &path, "65536");
    api.finalize(&storage);
    wait_for_indexes(server, &storage);
    storage
}

/// A server with the storage `first`, which has a real trace.
fn with_trace(config: &str) -> (tempfile::TempDir, Server, String) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let storage = server.api().create_storage("first");
    push(
        &server,
        "first",
        &data().join("trace-0-of-1.pfw.gz"),
        "1048576",
    );
    (folder, server, storage)
}

#[test]
fn the_page_does_what_people_need() {
    let (_folder, server, storage) = with_trace("");
    drive(
        "views.mjs",
        json!({ "server": server.url(), "storage": storage }),
    );
}

#[test]
fn the_page_shows_what_the_server_says_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &settings());
    let repaired = damaged(&mut server, "repaired");
    let repair = format!("/storages/{repaired}/verify?repair=confirm");
    server.api().done("POST", &repair, None);

    let mut large = String::new();
    for id in 0..20_000 {
        let name = format!("operation {}", id % 50);
        large += &event(id, &name, 1, id as u64 * 100, "");
    }
    let large = storage_of(&server, folder.path(), "large", &large);

    let mut names: Vec<String> = (0..150).map(|number| format!("n{number}")).collect();
    names.extend(["C:\\x", "say \"hi\"", "fraction"].map(str::to_owned));
    let values = [
        "0.3333333333333333",
        "1.4142135623730951",
        "12345678901234567",
    ];
    let [third, root, long] = values;
    let mut odd = String::new();
    for id in 0..names.len() * 4 {
        let arguments = format!("\"third\":{third},\"root\":{root},\"long\":{long},\"a b\":7");
        odd += &event(
            id,
            &names[id % names.len()],
            id % 60,
            id as u64 * 10,
            &arguments,
        );
    }
    let odd = storage_of(&server, folder.path(), "odd", &odd);
    drive(
        "answers.mjs",
        json!({
            "server": server.url(), "large": large, "odd": odd, "repaired": repaired,
            "names": names, "values": values,
        }),
    );
}

#[test]
fn a_zoom_is_one_request() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &settings());
    let events = 32_768;
    let mut large = String::new();
    for id in 0..events {
        let name = format!("operation {}", id % 50);
        large += &event(id, &name, id % 3, id as u64 * 100, "");
    }
    let large = storage_of(&server, folder.path(), "large", &large);
    let run = event(0, "run", 9, 0, "");
    let mut long = run.replace("\"dur\":5", "\"dur\":2000000");
    for id in 1..20_000 {
        long += &event(id, "step", 1, id as u64 * 100, "");
    }
    let long = storage_of(&server, folder.path(), "long", &long);
    drive(
        "zoom.mjs",
        json!({ "server": server.url(), "storage": large, "events": events, "long": long }),
    );
}

#[test]
fn the_page_follows_what_changes() {
    let (_folder, server, storage) = with_trace("");
    let mut api = server.api();
    Agent::register(&mut api, "host");
    Agent::declare_stream(&mut api, "host", "late", "dft", "none");
    let agent = Agent::new(&storage, "host", "late");
    let mut bodies = Vec::new();
    for id in 0..3 {
        bodies.push(event(id, "late", 1, 10_000_000_000, ""));
    }
    drive(
        "work.mjs",
        json!({
            "server": server.url(), "storage": storage,
            "push": { "path": agent.path(), "bodies": bodies },
        }),
    );
}

#[test]
fn the_page_is_told_what_changes() {
    let (_folder, server, storage) = with_trace("");
    let mut api = server.api();
    Agent::register(&mut api, "host");
    Agent::declare_stream(&mut api, "host", "late", "dft", "none");
    let agent = Agent::new(&storage, "host", "late");
    let body = event(0, "late", 1, 10_000_000_000, "");
    drive(
        "live.mjs",
        json!({
            "server": server.url(), "storage": storage,
            "push": { "path": agent.path(), "bodies": [body] },
        }),
    );
}

#[test]
fn the_page_works_with_a_token_a_share_and_a_proxy() {
    let (folder, mut server, storage) = with_trace("");
    let failed = damaged(&mut server, "failed");
    let mut api = server.api();
    api.finalize(&storage);
    let files = api.files(&storage);
    let file = &files.iter().find(|file| file.1 == "data").unwrap().0;
    let run = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let used = run_tracehold(&words);
        let errors = String::from_utf8_lossy(&used.stderr).into_owned();
        assert!(used.status.success(), "{words:?}: {errors}");
        String::from_utf8(used.stdout).unwrap().trim().to_owned()
    };
    let url = server.url();
    let at = ["--server", &url];
    let create = ["token", "create", "--name", "n", "--role"];
    let operator = run(&[&create[..], &["operator"], &at].concat());
    let with_token = [&at[..], &["--token", &operator]].concat();
    let reader = run(&[&create[..], &["reader"], &with_token].concat());
    let scope = ["reader", "--storage", &storage];
    let scoped = run(&[&create[..], &scope, &with_token].concat());
    let share = ["storage", "share", "first", "--expires", "1h"];
    let share = run(&[&share[..], &with_token].concat());

    let other = folder.path().join("behind");
    fs::create_dir(&other).unwrap();
    let proxy = "[access]\nproxy_user_header = \"X-User\"\nproxy_addresses = \"127.0.0.1\"\n\
                 proxy_user_roles = \"ada=operator\"\n";
    let behind = Server::start(&other, &Settings::with_config(proxy));
    drive(
        "callers.mjs",
        json!({
            "server": url, "storage": storage, "failed": failed, "file": file,
            "operator": operator, "reader": reader, "scoped": scoped, "share": share,
            "behindProxy": behind.url(),
        }),
    );
}

/// Spans of a trace: service, id, parent, name, begin and end in ms.
const SPANS: [(&str, u64, u64, &str, u64, u64); 7] = [
    ("shop", 1, 0, "POST /buy", 0, 80),
    ("cart", 2, 1, "load cart", 5, 30),
    ("db", 3, 2, "SELECT item", 6, 9),
    ("db", 4, 2, "SELECT item", 6, 12),
    ("shop", 5, 1, "pay", 32, 75),
    ("db", 6, 5, "INSERT payment", 60, 70),
    ("db", 7, 0xdead, "cleanup", 50, 90),
];

#[test]
fn the_page_shows_the_spans_of_a_trace() {
    let (_folder, server, mut api) = Server::fresh();
    let send = |api: &mut harness::Api, service: &str, spans: &[Value]| {
        let name = json!({"key": "service.name", "value": {"stringValue": service}});
        let body = json!({"resourceSpans": [{
            "resource": {"attributes": [name]}, "scopeSpans": [{"spans": spans}]}]});
        let sent = harness::spans::send(api, "application/json", body.to_string().as_bytes());
        assert_eq!(sent.status, 200, "{}", sent.brief());
    };
    let span = |trace: u64, id: u64, parent: u64, name: &str, from: u64, to: u64| {
        let at = |ms: u64| (harness::spans::BEGIN + ms * 1_000_000).to_string();
        let mut span = json!({
            "traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"), "name": name,
            "kind": 2, "startTimeUnixNano": at(from), "endTimeUnixNano": at(to),
            "attributes": [{"key": "step", "value": {"intValue": id.to_string()}}],
            "status": {"code": if name == "pay" { 2 } else { 0 }},
        });
        if parent != 0 {
            span["parentSpanId"] = json!(format!("{parent:016x}"));
        }
        span
    };
    // They arrive in another order than they began.
    for (service, id, parent, name, from, to) in SPANS.into_iter().rev() {
        send(&mut api, service, &[span(0xa1, id, parent, name, from, to)]);
    }
    let mut long = Vec::new();
    for id in 1..=2100 {
        long.push(span(0xb2, id, id - 1, "step", id, 3000));
    }
    send(&mut api, "long", &long);
    let storages = api.done("GET", "/storages", None);
    drive(
        "waterfall.mjs",
        json!({
            "server": server.url(), "storage": storages["items"][0]["id"], "spans": SPANS.len(),
            "trace": format!("{:032x}", 0xa1), "long": format!("{:032x}", 0xb2),
        }),
    );
}

#[test]
fn the_page_has_pictures_of_io() {
    let (_folder, server, first) = with_trace("");
    let rocks = server.api().create_storage("rocks");
    for trace in ["io_small.trace", "bc_small.trace"] {
        push(&server, "rocks", &data().join(trace), "1048576");
    }
    let done = server.api().create_storage("final");
    push(&server, "final", &data().join("io_small.trace"), "1048576");
    server.api().finalize(&done);
    let ctf = server.api().create_storage("ctf");
    push(&server, "ctf", &data().join("lttng"), "1048576");
    drive(
        "pictures.mjs",
        json!({
            "server": server.url(), "first": first, "rocks": rocks, "final": done, "ctf": ctf,
        }),
    );
}

#[test]
fn the_perfetto_ui_has_the_events_of_a_selection() {
    let Some(ui) = perfetto_ui() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let storage = server.api().create_storage("traces");
    for trace in ["trace-0-of-1.pfw.gz", "chrome_viztracer.json"] {
        push(&server, &storage, &data().join(trace), "65536");
    }
    // Slices of one thread that overlap partly, and some without an end.
    let mut odd = String::from("[\n");
    for id in 0..500 {
        let line = event(id, "overlapping", id % 3, id as u64 * 2, "");
        odd += &line.replace(
            "\"dur\":5",
            if id % 4 == 0 {
                "\"dur\":0"
            } else {
                "\"dur\":7"
            },
        );
    }
    let path = folder.path().join("odd.pfw");
    fs::write(&path, odd).unwrap();
    push(&server, &storage, &path, "4096");
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    let query = format!("/storages/{storage}/query");
    let views = ["", "name == 'overlapping'", "kind == 'dft' and dur > 10us"].map(|expression| {
        let body = json!({ "query": expression, "aggregate": "count,sum:dur" });
        let found = server.api().call("POST", &query, Some(&body)).json();
        assert!(
            found["count"].as_u64().unwrap() > 100,
            "{expression}: {found}"
        );
        json!({ "query": expression, "count": found["count"], "sum": found["sum:dur"] })
    });
    drive(
        "perfetto.mjs",
        json!({
            "server": server.url(), "base": server.url(), "storage": storage, "ui": ui,
            "key": data().join("tls/server.key"), "certificate": data().join("tls/server.pem"),
            "views": views,
        }),
    );
}

#[test]
fn the_arithmetic_of_the_page_is_exact() {
    if page_node_modules().is_none() {
        return;
    }
    let folder = modules_of_the_page();
    let folder = folder.path().to_string_lossy();
    run_node("arithmetic.mjs", &[("PAGE_FOLDER", &folder)]);
}

#[test]
fn every_name_in_the_page_is_defined_and_used() {
    let Some(modules) = openapi_node_modules() else {
        return;
    };
    let folder = modules_of_the_page();
    let folder = folder.path().to_string_lossy();
    let modules = modules.to_string_lossy();
    run_node(
        "names.mjs",
        &[("PAGE_FOLDER", &folder), ("PAGE_MODULES", &modules)],
    );
}

#[test]
fn files_of_the_page_are_kept_by_browsers_and_load_nothing_foreign() {
    let (_folder, server, _api) = Server::fresh();
    for path in ["/", "/docs", "/page/main.js", "/page/page.css"] {
        let first = server.api().send(&Request::new("GET", path)).unwrap();
        assert_eq!(first.status, 200, "{path}");
        let policy = first.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        let etag = first.header("etag").unwrap();
        let again = Request::new("GET", path).header("if-none-match", etag);
        let again = server.api().send(&again).unwrap();
        assert_eq!((again.status, again.body.len()), (304, 0), "{path}");
    }
    let absent = Request::new("GET", "/page/absent.js");
    let absent = server.api().send(&absent).unwrap();
    assert_eq!(absent.status, 404);
    assert!(absent.brief().contains("file_not_found"));
}
