//! A file of another storage in the folder of a storage is never taken for one of its own.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::{Agent, Api, Server, Settings, payload, run_tracehold};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);
const PACKETS: u64 = 12;
const LINES: u64 = 300;

/// Two storages with the same agents, streams, positions and lengths, and other bytes.
struct Twins {
    /// The storage that gets the files.
    own: String,
    /// The storage whose files they are.
    other: String,
}

fn fill(server: &Server, folder: &Path, name: &str, seed: u64) -> String {
    let mut api = server.api();
    let storage = api.create_storage(name);
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    for sequence in 0..PACKETS {
        agent.push(&mut api, sequence, &payload(seed, sequence, 3000));
    }
    let mut lines = String::new();
    for line in 0..LINES {
        writeln!(
            lines,
            "{{\"id\":{line},\"name\":\"{name}\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":2,\"ts\":{},\
             \"dur\":3,\"ph\":\"X\",\"args\":{{\"ret\":{line}}}}}",
            1_000_000 + line * 10,
        )
        .unwrap();
    }
    let trace = folder.join("trace.pfw");
    fs::write(&trace, lines).unwrap();
    let words = [
        "push",
        "--server",
        &server.url(),
        "--storage",
        &storage,
        trace.to_str().unwrap(),
    ];
    let output = run_tracehold(&words.map(str::to_owned));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    storage
}

fn finalize(api: &mut Api, storage: &str) {
    api.finalize(storage);
    let begun = Instant::now();
    let path = format!("/storages/{storage}/files");
    while api.done("GET", &path, None)["chunk_indexes"] != "complete" {
        assert!(begun.elapsed() < PATIENCE, "the chunk indexes are not made");
    }
}

/// The files in a folder, without folders, sorted by name.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn copy_all(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for name in names(from) {
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

fn ending(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, ending)| ending)
}

/// Where files of `other` go, one of each kind: over each file of the same kind, and beside them
/// under the name that it has and, if it is a data file, as a later one.
fn placements(own: &Path, other: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut placements = Vec::new();
    let mut kinds = BTreeSet::new();
    for name in names(other) {
        if !kinds.insert(ending(&name).to_owned()) {
            continue;
        }
        let same = |own: &&String| ending(own) == ending(&name);
        for target in names(own).iter().filter(same) {
            placements.push((other.join(&name), own.join(target)));
        }
        if !own.join(&name).exists() {
            placements.push((other.join(&name), own.join(&name)));
        }
        if ending(&name) == "itdata" {
            placements.push((other.join(&name), own.join("000000000000000f.itdata")));
        }
    }
    placements
}

/// What the server tells of `own`: its own name and bytes, or errors.
fn check(server: &Server, twins: &Twins, is_open: bool, what: &str) {
    let mut api = server.api();
    let shown = api.storage(&twins.own);
    let is_failed = shown["state"] == "FAILED";
    assert!(
        shown["name"] == "own" || (is_failed && shown["name"] == ""),
        "{what}: {shown}"
    );
    for number in 0..PACKETS {
        let path = format!("/storages/{}/packets/{number}", twins.own);
        let response = api.call("GET", &path, None);
        if response.status == 200 {
            assert!(
                response.body == payload(1, number, 3000),
                "{what}: packet {number}"
            );
        } else {
            // An error that says so; nothing is missing without a word.
            let is_told = response.status == 500 || is_failed;
            assert!(is_told, "{what}: packet {number}: {}", response.brief());
        }
    }
    let count = |api: &mut Api, id: &str, name: &str| -> Value {
        let query = json!({ "query": format!("name == \"{name}\""), "count": true });
        let response = api.call("POST", &format!("/storages/{id}/query"), Some(&query));
        if response.status == 200 {
            response.json()
        } else {
            Value::Null
        }
    };
    let foreign = count(&mut api, &twins.own, "oth");
    assert!(
        foreign.is_null() || foreign["count"] == 0,
        "{what}: {foreign}"
    );
    let found = count(&mut api, &twins.own, "own");
    let skipped = found["skipped"].as_array();
    let is_told =
        found.is_null() || skipped.is_some_and(|reasons| !reasons.is_empty()) || is_failed;
    assert!(found["count"] == LINES || is_told, "{what}: {found}");
    if is_open && !is_failed {
        let agent = Agent::new(&twins.own, "host", "stream");
        assert_eq!(agent.next_sequence(&mut api), PACKETS, "{what}");
    }
    for (name, _, length) in api.files(&twins.other) {
        if api.state(&twins.other) == "FINALIZED" {
            let path = format!("/storage/{}/{name}", twins.other);
            let response = api.send(&harness::Request::new("GET", &path)).unwrap();
            assert_eq!(
                (response.status, response.body.len() as u64),
                (200, length),
                "{what}"
            );
        }
    }
    for number in 0..PACKETS {
        assert_eq!(
            api.packet(&twins.other, number),
            payload(2, number, 3000),
            "{what}"
        );
    }
    assert_eq!(
        count(&mut api, &twins.other, "oth")["count"],
        LINES,
        "{what}"
    );
}

fn check_all(is_open: bool, is_other_open: bool, is_killed: bool) {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let twins = Twins {
        own: fill(&server, folder.path(), "own", 1),
        other: fill(&server, folder.path(), "oth", 2),
    };
    if !is_open {
        finalize(&mut server.api(), &twins.own);
    }
    if !is_other_open {
        finalize(&mut server.api(), &twins.other);
    }
    if is_killed {
        server.kill();
    } else {
        server.terminate();
        assert!(server.wait(PATIENCE).success());
    }
    let storages = server.data().join("storages");
    let [own, other] = [&twins.own, &twins.other].map(|id| storages.join(id));
    let saved = [folder.path().join("own"), folder.path().join("other")];
    copy_all(&own, &saved[0]);
    copy_all(&other, &saved[1]);
    for (from, to) in placements(&own, &other) {
        let what = format!("{} as {}", from.display(), to.display());
        fs::copy(&from, &to).unwrap();
        server.restart();
        server.wait_until_recovered();
        check(&server, &twins, is_open, &what);
        server.kill();
        copy_all(&saved[0], &own);
        copy_all(&saved[1], &other);
    }
}

#[test]
fn files_of_a_finalized_storage_beside_those_of_an_open_one() {
    check_all(true, false, false);
}

#[test]
fn files_of_a_finalized_storage_beside_those_of_one_without_index() {
    check_all(true, false, true);
}

#[test]
fn files_of_an_open_storage_beside_those_of_another() {
    check_all(true, true, false);
}

#[test]
fn files_of_an_open_storage_beside_those_of_one_without_index() {
    check_all(true, true, true);
}

#[test]
fn files_of_a_finalized_storage_beside_those_of_another() {
    check_all(false, false, false);
}

#[test]
fn files_of_an_open_storage_beside_those_of_a_finalized_one() {
    check_all(false, true, false);
}
