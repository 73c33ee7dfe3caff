//! Storages as ZIP archives: other programs can read them, and imports restore them.

use std::fs;
use std::process::{Command, Output};

use harness::{
    Agent, Api, Problem, Request, Response, Server, Settings, payload, run_tracehold, without,
};
use serde_json::{Value, json};

/// A finalized storage with packets of two streams and a label.
pub(crate) fn filled(api: &mut Api, name: &str) -> String {
    let storage = api.create_storage(name);
    for (number, codec) in [(0, "none"), (1, "zstd")] {
        let agent = Agent::declare(api, &storage, "host", &format!("stream-{number}"), codec);
        let first = agent.next_sequence(api);
        for sequence in first..first + 5 {
            agent.push(api, sequence, &payload(number, sequence, 40_000));
        }
    }
    let labels = json!({ "labels": { "run": "17" } });
    api.done("PATCH", &format!("/storages/{storage}"), Some(&labels));
    api.finalize(&storage);
    storage
}

pub(crate) fn export(api: &mut Api, storage: &str) -> Vec<u8> {
    let response = api.call("GET", &format!("/storages/{storage}/export"), None);
    assert_eq!(response.status, 200, "{}", response.brief());
    assert_eq!(response.header("content-type"), Some("application/zip"));
    let length = response.header("content-length").map(str::to_owned);
    assert_eq!(
        length,
        Some(response.body.len().to_string()),
        "the response has a length"
    );
    response.body
}

pub(crate) fn import(server: &Server, archive: &[u8]) -> Response {
    let request = Request::new("POST", "/api/v1/storages/import")
        .header("content-type", "application/zip")
        .body(archive);
    server.api().send(&request).unwrap()
}

pub(crate) fn imported(server: &Server, archive: &[u8]) -> Value {
    let response = import(server, archive);
    assert_eq!(response.status, 201, "{}", response.brief());
    response.json()
}

/// Names in the folder that contains the storages.
pub(crate) fn names(server: &Server) -> Vec<String> {
    let folder = fs::read_dir(server.data().join("storages")).unwrap();
    let mut names: Vec<_> = folder
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Runs an external program; if it is not installed, prints that and returns `None`.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(output),
        Err(_) => {
            without(program);
            None
        }
    }
}

pub(crate) fn check_same(one: &mut Api, other: &mut Api, storage: &str) {
    assert_eq!(one.files(storage), other.files(storage));
    for number in 0..10 {
        assert_eq!(one.packet(storage, number), other.packet(storage, number));
    }
    let (one, other) = (one.storage(storage), other.storage(storage));
    for field in [
        "id", "name", "labels", "state", "packets", "bytes", "created",
    ] {
        assert_eq!(one[field], other[field], "{field}");
    }
}

#[test]
fn other_programs_read_an_exported_archive() {
    let (folder, server, mut api) = Server::fresh();
    let storage = filled(&mut api, "exported");
    let archive = folder.path().join("archive.zip");
    fs::write(&archive, export(&mut api, &storage)).unwrap();
    let archive = archive.to_str().unwrap();
    if let Some(output) = run("unzip", &["-tq", archive]) {
        assert!(output.status.success(), "{output:?}");
    }
    let unpacked = folder.path().join("unpacked");
    let script = "import sys, zipfile\n\
                  with zipfile.ZipFile(sys.argv[1]) as z:\n\
                  \x20   assert z.testzip() is None\n\
                  \x20   z.extractall(sys.argv[2])\n";
    let arguments = ["-c", script, archive, unpacked.to_str().unwrap()];
    let Some(output) = run("python3", &arguments) else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    let served = server.data().join("storages").join(&storage);
    let files = api.files(&storage);
    assert!(files.len() >= 4, "{files:?}");
    for (name, _, _) in &files {
        let (here, there) = (fs::read(unpacked.join(name)), fs::read(served.join(name)));
        assert_eq!(here.unwrap(), there.unwrap(), "{name}");
    }
    assert_eq!(fs::read_dir(&unpacked).unwrap().count(), files.len());
    // Only an immutable storage can be exported.
    let open = api.create_storage("open");
    let refused = api.refused("GET", &format!("/storages/{open}/export"), None);
    assert_eq!(
        (refused.status, refused.code.as_str()),
        (409, "storage_state_conflict")
    );
}

#[test]
fn a_storage_moves_to_another_server_and_survives_a_kill_there() {
    let folder = tempfile::tempdir().unwrap();
    let here = Server::start(&folder.path().join("here"), &Settings::default());
    let mut there = Server::start(&folder.path().join("there"), &Settings::default());
    let mut api = here.api();
    let storage = filled(&mut api, "moved");
    let archive = export(&mut api, &storage);
    let shown = imported(&there, &archive);
    assert_eq!(shown["id"], json!(storage));
    check_same(&mut api, &mut there.api(), &storage);
    assert_eq!(there.api().verify(&storage), [] as [Value; 0]);
    let exists = Problem::of(&import(&there, &archive));
    assert_eq!(
        (exists.status, exists.code.as_str()),
        (409, "storage_exists")
    );
    there.kill();
    there.restart();
    check_same(&mut api, &mut there.api(), &storage);
    assert_eq!(names(&there), std::slice::from_ref(&storage));
    // A deleted storage can be imported again.
    there
        .api()
        .done("DELETE", &format!("/storages/{storage}"), None);
    imported(&there, &archive);
    check_same(&mut api, &mut there.api(), &storage);
    let jobs = there.api().done("GET", "/jobs", None);
    let states: Vec<_> = jobs["items"].as_array().unwrap().iter().collect();
    assert!(
        states
            .iter()
            .any(|job| job["kind"] == "import" && job["state"] == "DONE")
    );
}

#[test]
fn an_import_is_refused_while_the_disk_is_low() {
    let folder = tempfile::tempdir().unwrap();
    let here = Server::start(&folder.path().join("here"), &Settings::default());
    // Any disk counts as low: the limit is above the free space.
    let low = "[storage]\ndisk_stop_free_percent = 100\ndisk_resume_free_percent = 100\n";
    let there = Server::start(&folder.path().join("there"), &Settings::with_config(low));
    let mut api = here.api();
    let storage = filled(&mut api, "too large");
    let problem = Problem::of(&import(&there, &export(&mut api, &storage)));
    assert_eq!((problem.status, problem.code.as_str()), (507, "disk_low"));
    assert_eq!(names(&there), [] as [String; 0]);
}

#[test]
fn the_command_line_exports_imports_and_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let here = Server::start(&folder.path().join("here"), &Settings::default());
    let there = Server::start(&folder.path().join("there"), &Settings::default());
    let mut api = here.api();
    let storage = filled(&mut api, "by command");
    let file = folder.path().join("by-command.zip");
    let file = file.to_str().unwrap();
    let call = |server: &Server, arguments: &[&str]| {
        let url = server.url();
        let arguments = ["storage", "--json", "--server", &url]
            .into_iter()
            .chain(arguments.iter().copied());
        let arguments: Vec<String> = arguments.map(str::to_owned).collect();
        let output = run_tracehold(&arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        (output.status.code(), json)
    };
    let (code, exported) = call(&here, &["export", "by command", file]);
    assert_eq!((code, &exported["storage"]), (Some(0), &json!(storage)));
    assert_eq!(exported["bytes"], json!(fs::metadata(file).unwrap().len()));
    let (code, shown) = call(&there, &["import", file]);
    assert_eq!((code, &shown["id"]), (Some(0), &json!(storage)));
    let (code, report) = call(&there, &["verify", &storage]);
    assert_eq!(
        (code, &report["packets"]),
        (Some(0), &json!(10)),
        "{report}"
    );
    assert_eq!(
        call(&there, &["import", file]).0,
        Some(3),
        "it is there already"
    );
    assert_eq!(call(&there, &["export", "nobody", file]).0, Some(3));
    let (code, jobs) = call(&there, &["jobs"]);
    assert_eq!(code, Some(0));
    assert!(jobs["items"].as_array().unwrap().len() >= 3, "{jobs}");
    // Damage is found, and the exit status reports it.
    let data = here.data().join("storages").join(&storage);
    let data = fs::read_dir(data)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let data: Vec<_> = data
        .filter(|path| path.extension().unwrap() == "itdata")
        .collect();
    let mut bytes = fs::read(&data[0]).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&data[0], bytes).unwrap();
    assert_eq!(call(&here, &["verify", &storage]).0, Some(1));
    let broken = call(&here, &["export", &storage, file]).0;
    assert_eq!(
        broken,
        Some(4),
        "what is damaged is not exported as if it were not"
    );
}
