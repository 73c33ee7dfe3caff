//! Storages that a server puts into a Delta Lake table: programs that others made read in it what
//! the server answers, and deleted storages are no longer in it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::{ObjectStore, Server, lake_python, spark_python};
use serde_json::{Value, json};

use crate::delta_table::read;
use crate::queries::{push, wait_for_indexes};

const PATIENCE: Duration = Duration::from_secs(60);
const EVENTS: u64 = 3_000;
/// Microseconds of the first event; each storage begins a second after the one before.
const BEGIN: u64 = 1_700_000_000_000_000;

fn until(what: &str, server: &Server, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}:\n{}", server.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A finalized storage with a trace, which has the label if it has to be in the table.
fn stored(server: &Server, number: u64, is_wanted: bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for id in 0..EVENTS {
        let name = ["read", "write", "open"][usize::try_from(id % 3).unwrap()];
        let ts = BEGIN + number * 1_000_000 + id;
        let dur = id % 9;
        writeln!(
            text,
            r#"{{"id":{id},"name":"{name}","cat":"POSIX","pid":{number},"tid":2,"ts":{ts},"dur":{dur},"ph":"X","args":{{"fname":"/data/{dur}","ret":{id}}}}}"#
        )
        .unwrap();
    }
    let path = folder.path().join("trace.pfw");
    fs::write(&path, text).unwrap();
    let mut api = server.api();
    let labels = if is_wanted {
        json!({ "lake": "yes" })
    } else {
        json!({})
    };
    let body = json!({ "name": format!("lake-{number}"), "open": true, "labels": labels });
    let storage = api.done("POST", "/storages", Some(&body));
    let storage = storage["id"].as_str().unwrap().to_owned();
    push(server, &storage, &path, "4096");
    api.finalize(&storage);
    wait_for_indexes(server, &storage);
    storage
}

/// The objects of the table with events of DFTracer.
fn objects(store: &ObjectStore, ending: &str) -> Vec<String> {
    let mut keys = store.keys();
    keys.retain(|key| key.contains("/tables/") && key.ends_with(ending));
    keys
}

/// What programs find in the table, which has to be what the server answers for these storages.
fn check(store: &ObjectStore, server: &Server, storages: &[&String], folder: &Path) -> Value {
    let body = json!({ "storages": storages, "fields": ["ts", "dur", "name", "pid"] });
    let answer = server.api().call("POST", "/query", Some(&body));
    let url = "s3://traces/cluster/tables/dft";
    read(store, url, (&answer.body, folder), BEGIN * 1000)
}

fn life_of_a_table(store: &ObjectStore) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("one");
    let mut one = Server::start(&data, &store.settings("one", "table_label = \"lake\"\n"));
    let two = folder.path().join("two");
    let two = Server::start(&two, &store.settings("two", ""));
    let wanted: Vec<String> = (0..2).map(|number| stored(&one, number, true)).collect();
    let other = stored(&one, 2, false);
    until("they are not in the table", &one, || {
        objects(store, ".json").len() == 3
    });
    let found = check(store, &one, &[&wanted[0], &wanted[1]], folder.path());
    assert_eq!(found, json!({ "version": 2, "files": 2, "read": 1 }));
    assert_eq!(objects(store, ".parquet").len(), 2);

    // Nothing of it is on the disk, and after a restart nothing is published once more.
    one.kill();
    let names = fs::read_dir(&data).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    let is_temporary = |name: &&std::ffi::OsString| name.to_string_lossy().starts_with(".tmp");
    assert_eq!(names.iter().find(is_temporary), None);
    one.restart();
    let late = stored(&one, 3, true);
    until("it is not in the table", &one, || {
        objects(store, ".json").len() == 4
    });
    let found = check(store, &one, &[&wanted[0], &wanted[1], &late], folder.path());
    assert_eq!(found, json!({ "version": 3, "files": 3, "read": 1 }));

    // A node that knows nothing of the table deletes one, and another one.
    until("it is not adopted", &two, || {
        let listed = two.api().done("GET", "/storages", None);
        listed["items"].as_array().unwrap().len() == 4
    });
    two.api()
        .done("DELETE", &format!("/storages/{}", wanted[1]), None);
    two.api()
        .done("DELETE", &format!("/storages/{other}"), None);
    until("it is still in the table", &one, || {
        objects(store, ".json").len() == 5
    });
    let found = check(store, &one, &[&wanted[0], &late], folder.path());
    assert_eq!(found, json!({ "version": 4, "files": 2, "read": 1 }));
    // Its file stays for who reads an earlier version.
    assert_eq!(objects(store, ".parquet").len(), 3);
}

#[test]
fn a_long_log_gets_checkpoints() {
    let Some(store) = ObjectStore::moto().filter(|_| lake_python().is_some()) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let settings = store.settings("one", "table_label = \"lake\"\n");
    let server = Server::start(&folder.path().join("data"), &settings);
    // The first commit makes the table.
    let storages: Vec<String> = (0..9).map(|number| stored(&server, number, true)).collect();
    until("there is no checkpoint", &server, || {
        objects(&store, "/_delta_log/_last_checkpoint").len() == 1
    });
    let checkpoints = objects(&store, ".checkpoint.parquet");
    assert!(checkpoints[0].ends_with("/00000000000000000009.checkpoint.parquet"));
    let found = check(
        &store,
        &server,
        &storages.iter().collect::<Vec<_>>(),
        folder.path(),
    );
    assert_eq!(found, json!({ "version": 9, "files": 9, "read": 1 }));
}

/// Runs the example of the page for these programs, which has to read what the server answers.
fn run_example(store: &ObjectStore, kind: &str, python: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let settings = store.settings("one", "table_label = \"lake\"\n");
    let server = Server::start(&folder.path().join("data"), &settings);
    let storages: Vec<String> = (0..2).map(|number| stored(&server, number, true)).collect();
    until("they are not in the table", &server, || {
        objects(store, ".json").len() == 3
    });
    let body = json!({ "storages": storages, "fields": ["ts", "dur", "name", "pid"] });
    let answer = server.api().call("POST", "/query", Some(&body));
    let expected = folder.path().join("expected.ndjson");
    fs::write(&expected, &answer.body).unwrap();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(python)
        .arg(tests.join("tests/table_examples.py"))
        .arg(tests.join("../docs/object-store.md"))
        .args([kind, "s3://traces/cluster/tables/dft"])
        .arg(&expected)
        .current_dir(folder.path())
        .env("AWS_ENDPOINT_URL", format!("http://{}", store.address()))
        .env("AWS_ACCESS_KEY_ID", "AKIATEST")
        .env("AWS_SECRET_ACCESS_KEY", "secretsecret")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ALLOW_HTTP", "true")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{kind}: {errors}");
}

#[test]
fn the_example_of_the_page_reads_a_table() {
    if let (Some(store), Some(python)) = (ObjectStore::moto(), lake_python()) {
        run_example(&store, "python", &python);
    }
}

#[test]
fn spark_reads_the_files_of_a_table() {
    if let (Some(store), Some(python)) = (ObjectStore::moto(), spark_python()) {
        run_example(&store, "python spark", &python);
    }
}

fn check_in(store: Option<ObjectStore>) {
    if let Some(store) = store.filter(|_| lake_python().is_some()) {
        life_of_a_table(&store);
    }
}

#[test]
fn a_server_keeps_a_table_in_moto() {
    check_in(ObjectStore::moto());
}

#[test]
fn a_server_keeps_a_table_in_radosgw() {
    check_in(ObjectStore::radosgw());
}
