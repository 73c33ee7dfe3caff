//! Storages as ZIP archives: other programs can read them, imports restore them, and invalid
//! archives are refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use harness::{
    Agent, Api, Connection, Problem, Request, Response, Server, Settings, payload, run_tracehold,
    without,
};
use serde_json::{Value, json};

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A finalized storage with packets of two streams and a label.
fn filled(api: &mut Api, name: &str) -> String {
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
fn names(server: &Server) -> Vec<String> {
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

fn check_same(one: &mut Api, other: &mut Api, storage: &str) {
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

/// Builds archives from the files of an exported one, as other programs would.
const REPACK: &str = "\
import gzip, io, os, sys, zipfile
source, target, how = sys.argv[1:]
z = zipfile.ZipFile(source)
files = [(n, z.read(n)) for n in z.namelist()]
method = zipfile.ZIP_DEFLATED if how in ('deflated', 'bomb', 'bomb_first') else zipfile.ZIP_STORED
if how == 'reversed':
    files.reverse()
if how == 'folder':
    files = [('some folder/' + n, b) for n, b in files]
if how == 'gzip':
    files = [(n, gzip.compress(b)) for n, b in reversed(files)]
if how == 'missing':
    files = files[:-1]
if how == 'foreign':
    files.append(('readme.txt', b'hello'))
if how == 'foreign_only':
    files = [('readme.txt', b'hello')]
if how == 'unlisted':
    files.append(('stranger.agent', b'hello'))
if how in ('derived', 'derived_first'):
    leaf = open(os.path.join(os.path.dirname(target), 'leaf')).read()
    derived = [(leaf + e, b'made again anyhow') for e in ('.idx', '.pidx')]
    derived.append(('00000000000000ff.idx', b'of no data file'))
    files = derived + files if how == 'derived_first' else files + derived
if how == 'changed':
    n, b = files[-1]
    files[-1] = (n, b[:-1] + bytes([b[-1] ^ 1]))
if how == 'longer':
    n, b = files[-1]
    files[-1] = (n, b + b'x')
if how == 'storage_changed':
    n, b = files[0]
    files[0] = (n, b[:40] + bytes([b[40] ^ 1]) + b[41:])
if how == 'renamed':
    files[0] = ('01932c5e-0000-7000-8000-000000000000.storage', files[0][1])
if how == 'bomb':
    n, b = files[-1]
    files[-1] = (n, b + bytes(200 << 20))
if how == 'escape':
    files.append(('../../' + files[-1][0], b'x'))
if how == 'absolute':
    files.append(('/tmp/' + files[-1][0], b'x'))
out = zipfile.ZipFile(target, 'w', method)
for n, b in files:
    info = zipfile.ZipInfo(n)
    info.compress_type = method
    info.external_attr = 0o100644 << 16
    if how == 'link' and n.endswith('.agent'):
        info.external_attr = 0o120777 << 16
    out.writestr(info, b)
if how == 'twice':
    out.writestr(files[-1][0], files[-1][1])
out.close()
";

fn repacked(folder: &Path, archive: &Path, how: &str) -> Option<Vec<u8>> {
    let target: PathBuf = folder.join(format!("{how}.zip"));
    let (from, to) = (archive.to_str().unwrap(), target.to_str().unwrap());
    let output = run("python3", &["-c", REPACK, from, to, how])?;
    assert!(output.status.success(), "{how}: {output:?}");
    Some(fs::read(target).unwrap())
}

#[test]
fn foreign_archives_are_imported_and_hostile_ones_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let here = Server::start(&folder.path().join("here"), &Settings::default());
    let there = Server::start(&folder.path().join("there"), &Settings::default());
    let mut api = here.api();
    let storage = filled(&mut api, "repacked");
    let archive = folder.path().join("archive.zip");
    let leaves = api.leaves(&storage);
    fs::write(folder.path().join("leaf"), leaves.first().unwrap()).unwrap();
    fs::write(&archive, export(&mut api, &storage)).unwrap();
    for how in [
        "plain",
        "deflated",
        "reversed",
        "folder",
        "gzip",
        "derived",
        "derived_first",
    ] {
        let Some(bytes) = repacked(folder.path(), &archive, how) else {
            return;
        };
        let report = imported(&there, &bytes);
        let not_taken = report["not_taken"].as_array().map_or(0, Vec::len);
        assert_eq!(
            not_taken,
            if how.starts_with("derived") { 2 } else { 0 },
            "{report}"
        );
        check_same(&mut api, &mut there.api(), &storage);
        there
            .api()
            .done("DELETE", &format!("/storages/{storage}"), None);
    }
    for (how, reason) in [
        ("missing", "not there"),
        ("foreign", "not a file of a storage"),
        ("foreign_only", "not a file of a storage"),
        ("unlisted", "not listed"),
        ("changed", "another length or checksum"),
        ("longer", "longer"),
        ("storage_changed", "damaged"),
        ("renamed", "describes storage"),
        ("bomb", "longer"),
        ("escape", "points outside"),
        ("absolute", "points outside"),
        ("link", "links"),
        ("twice", "twice"),
    ] {
        let bytes = repacked(folder.path(), &archive, how).unwrap();
        let problem = Problem::of(&import(&there, &bytes));
        let detail = problem.document["detail"].as_str().unwrap();
        assert_eq!(
            (problem.status, problem.code.as_str()),
            (422, "archive_refused"),
            "{how}"
        );
        assert!(detail.contains(reason), "{how}: {detail}");
        assert_eq!(names(&there), [] as [String; 0], "{how} left something");
    }
    let complete = fs::read(&archive).unwrap();
    for bytes in [
        &complete[..complete.len() / 2],
        &complete[..complete.len() - 1],
        b"no archive",
        b"",
    ] {
        let problem = Problem::of(&import(&there, bytes));
        assert_eq!(
            (problem.status, problem.code.as_str()),
            (400, "archive_damaged")
        );
        assert_eq!(names(&there), [] as [String; 0]);
    }
    let listed = there.api().done("GET", "/storages", None);
    assert_eq!(listed["items"], json!([]));
}

/// Sends the head of an import and half of the archive, and waits until the server is processing
/// it.
fn half_sent(server: &Server, archive: &[u8]) -> (Connection, String) {
    let mut connection = server.connect();
    let head = format!(
        "POST /api/v1/storages/import HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/zip\r\ncontent-length: {}\r\n\r\n",
        archive.len()
    );
    let half = &archive[..archive.len() / 2];
    connection.write(&[head.as_bytes(), half]).unwrap();
    let begin = Instant::now();
    loop {
        let jobs = server.api().done("GET", "/jobs", None);
        let jobs = jobs["items"].as_array().unwrap().clone();
        let running = jobs.iter().find(|job| job["state"] == "RUNNING");
        let has_begun = names(server)
            .iter()
            .any(|name| name.starts_with(".import-"));
        if let Some(job) = running.filter(|_| has_begun) {
            assert_eq!(job["bytes_total"], json!(archive.len()));
            return (connection, job["id"].as_str().unwrap().to_owned());
        }
        assert!(begin.elapsed() < PATIENCE, "the import does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_import_that_is_cancelled_or_killed_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let here = Server::start(&folder.path().join("here"), &Settings::default());
    let mut there = Server::start(&folder.path().join("there"), &Settings::default());
    let mut api = here.api();
    let storage = filled(&mut api, "cut off");
    let archive = export(&mut api, &storage);

    let (mut connection, job) = half_sent(&there, &archive);
    there.api().done("DELETE", &format!("/jobs/{job}"), None);
    let problem = Problem::of(&connection.read_response(false).unwrap());
    assert_eq!(
        (problem.status, problem.code.as_str()),
        (409, "job_cancelled")
    );
    assert_eq!(names(&there), [] as [String; 0]);
    let job = there.api().done("GET", &format!("/jobs/{job}"), None);
    assert_eq!(job["state"], "CANCELLED");

    // The client disconnects.
    let (connection, job) = half_sent(&there, &archive);
    drop(connection);
    let begin = Instant::now();
    while names(&there) != [] as [String; 0] {
        assert!(begin.elapsed() < PATIENCE, "{:?} stays", names(&there));
        std::thread::sleep(Duration::from_millis(5));
    }
    let job = there.api().done("GET", &format!("/jobs/{job}"), None);
    assert_ne!(job["state"], "DONE");

    let (_connection, _) = half_sent(&there, &archive);
    there.kill();
    assert_eq!(names(&there).len(), 1, "a killed server could not tidy up");
    there.restart();
    assert_eq!(names(&there), [] as [String; 0]);
    imported(&there, &archive);
    check_same(&mut api, &mut there.api(), &storage);
}

#[test]
fn an_export_reports_progress_and_can_be_cancelled() {
    // More than socket buffers can hold, so that a client that does not read blocks the export.
    const PACKET_BYTES: usize = 4 << 20;
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("large");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    for sequence in 0..10 {
        agent.push(&mut api, sequence, &payload(1, sequence, PACKET_BYTES));
    }
    api.finalize(&storage);
    let mut reader = server.connect();
    let head = format!("GET /api/v1/storages/{storage}/export HTTP/1.1\r\nhost: localhost\r\n\r\n");
    reader.write(&[head.as_bytes()]).unwrap();
    let begin = Instant::now();
    let (job, total) = loop {
        let jobs = api.done("GET", "/jobs", None);
        let job = jobs["items"].as_array().unwrap().first().cloned();
        if let Some(job) = job.filter(|job| job["bytes_done"].as_u64() > Some(0)) {
            assert_eq!(
                (&job["state"], &job["storage"]),
                (&json!("RUNNING"), &json!(storage))
            );
            break (
                job["id"].as_str().unwrap().to_owned(),
                job["bytes_total"].clone(),
            );
        }
        assert!(begin.elapsed() < PATIENCE, "the export does not begin");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(total.as_u64() > Some(10 * PACKET_BYTES as u64), "{total}");
    api.done("DELETE", &format!("/jobs/{job}"), None);
    assert!(
        reader.read_response(false).is_err(),
        "a truncated archive looks complete"
    );
    let shown = loop {
        let shown = api.done("GET", &format!("/jobs/{job}"), None);
        if shown["state"] != "RUNNING" {
            break shown;
        }
        assert!(begin.elapsed() < PATIENCE, "the export does not stop");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(
        (&shown["state"], &shown["bytes_total"]),
        (&json!("CANCELLED"), &total)
    );
    assert!(shown["bytes_done"].as_u64() < total.as_u64(), "{shown}");
    assert_eq!(json!(export(&mut api, &storage).len()), total);
    // The second export was read to its end.
    let done = loop {
        let jobs = api.done("GET", "/jobs", None);
        let job = jobs["items"].as_array().unwrap().last().unwrap().clone();
        if job["state"] != "RUNNING" {
            break job;
        }
        assert!(begin.elapsed() < PATIENCE, "the export does not end");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(
        (&done["kind"], &done["state"], &done["bytes_done"]),
        (&json!("export"), &json!("DONE"), &total)
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

/// The response to an export with these header fields.
fn export_with(api: &mut Api, storage: &str, fields: &[(&str, &str)]) -> Response {
    let path = format!("/api/v1/storages/{storage}/export");
    let mut request = Request::new("GET", &path);
    for (name, value) in fields {
        request = request.header(name, value);
    }
    api.send(&request).unwrap()
}

#[test]
fn an_interrupted_export_continues_where_it_ended() {
    let (_folder, _server, mut api) = Server::fresh();
    let storage = api.create_storage("resumed");
    let agent = harness::Agent::declare(&mut api, &storage, "host", "stream", "none");
    for sequence in 0..3 {
        agent.push(&mut api, sequence, &vec![7; 200_000]);
    }
    api.finalize(&storage);
    let whole = export_with(&mut api, &storage, &[]);
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    let etag = whole.header("etag").unwrap().to_owned();
    let whole = whole.body;
    assert_eq!(
        export(&mut api, &storage),
        whole,
        "the bytes are always the same"
    );
    let middle = whole.len() / 2;
    for (range, expected) in [
        (format!("bytes={middle}-"), &whole[middle..]),
        (format!("bytes=0-{}", middle - 1), &whole[..middle]),
        ("bytes=5-9".to_owned(), &whole[5..10]),
        ("bytes=-22".to_owned(), &whole[whole.len() - 22..]),
    ] {
        let fields = [("range", range.as_str()), ("if-range", &etag)];
        let part = export_with(&mut api, &storage, &fields);
        assert_eq!(part.status, 206, "{range}: {}", part.brief());
        assert!(part.body == expected, "{range}");
    }
    let beyond = format!("bytes={}-", whole.len());
    let beyond = export_with(&mut api, &storage, &[("range", &beyond)]);
    assert_eq!(beyond.status, 416);
    let same = export_with(&mut api, &storage, &[("if-none-match", &etag)]);
    assert_eq!((same.status, same.body.len()), (304, 0));
    // Other labels are other bytes.
    let body = serde_json::json!({ "value": "changed" });
    let path = format!("/storages/{storage}/labels/status");
    api.done("PUT", &path, Some(&body));
    let fields = [("range", "bytes=5-9"), ("if-range", etag.as_str())];
    let changed = export_with(&mut api, &storage, &fields);
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag"), Some(etag.as_str()));
}

/// A form of a web page sends these types without asking the server first.
#[test]
fn an_archive_is_not_accepted_as_a_form() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = filled(&mut api, "form");
    let archive = export(&mut api, &storage);
    api.done("DELETE", &format!("/storages/{storage}"), None);
    for (media_type, expected) in [
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("Application/ZIP; x=y", 201),
    ] {
        let request = Request::new("POST", "/api/v1/storages/import")
            .header("content-type", media_type)
            .body(&archive);
        let response = server.api().send(&request).unwrap();
        assert_eq!(
            response.status,
            expected,
            "{media_type}: {}",
            response.brief()
        );
        assert_eq!(names(&server).len(), usize::from(expected == 201));
    }
}
