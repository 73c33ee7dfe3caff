//! A storage whose log is damaged knows nothing of what is behind the damage, and no answer looks
//! as if there were nothing. Neither does one of a folder that lacks index parts.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::{Agent, Api, Request, Response, Server, Settings, run_tracehold};
use serde_json::{Value, json};

use crate::io_trace_reading::wait_until;
use crate::queries::{settings, wait_for_indexes};
use crate::repair::{DAMAGED, PACKETS, command, count, damaged, record};

fn query(api: &mut Api, storage: &str, body: &Value) -> Response {
    let path = format!("/api/v1/storages/{storage}/query");
    let body = body.to_string();
    let request = Request::new("POST", &path)
        .header("content-type", "application/json")
        .body(body.as_bytes());
    api.send(&request).unwrap()
}

/// Queries have what is before the damage, and say that there is more.
fn check_queries(api: &mut Api, storage: &str) {
    let counted = count(api, storage, false).json();
    assert_eq!(counted["count"], DAMAGED, "{counted}");
    let reason = counted["skipped"][0].as_str().unwrap();
    assert!(reason.contains("behind the damage"), "{reason}");
    for body in [
        json!({ "format": "ndjson" }),
        json!({ "group_by": "name", "format": "ndjson" }),
    ] {
        let text = String::from_utf8(query(api, storage, &body).body).unwrap();
        assert!(text.contains("behind the damage"), "{body}: {text}");
        let mut strict = body.clone();
        strict["strict"] = true.into();
        let refused = query(api, storage, &strict);
        assert_eq!(refused.status, 409, "{strict}: {}", refused.brief());
        assert_eq!(refused.json()["code"], "result_incomplete");
    }
}

/// Everything else that would be incomplete is refused, or says so.
fn check_others(api: &mut Api, storage: &str) {
    let refusals = [
        (
            "GET",
            format!("/storages/{storage}/packets/{DAMAGED}"),
            None,
        ),
        ("GET", format!("/storages/{storage}/packets/99"), None),
        (
            "POST",
            format!("/storages/{storage}/copy"),
            Some(json!({ "name": "copy", "auto_finalize": true })),
        ),
    ];
    for (method, path, body) in refusals {
        let refused = api.refused(method, &path, body.as_ref());
        let found = (refused.status, &*refused.code);
        assert_eq!(found, (409, "storage_incomplete"), "{path}");
    }
    let path = format!("/api/v1/storages/{storage}/agents/host/streams/reads/packets");
    let position = api.send(&Request::new("HEAD", &path)).unwrap();
    assert_eq!(position.status, 409, "{}", position.brief());
    assert_eq!(position.header("tracehold-next-sequence"), None);
    let path = format!("/api/v1/storages/{storage}/descriptors");
    let listed = api.send(&Request::new("GET", &path)).unwrap();
    assert_eq!(listed.header("tracehold-skipped"), Some("1"));
    let verified = api.done("POST", &format!("/storages/{storage}/verify"), None);
    let damage = verified["damage"].as_array().unwrap();
    assert_eq!(damage.len(), 1, "{verified}");
    assert_eq!(damage[0]["file"], "0000000000000000.itdata");
    let copied = api.done(
        "POST",
        &format!("/storages/{storage}/copy"),
        Some(&json!({ "name": "copy", "allow_incomplete": true })),
    );
    assert_eq!(copied["packets"], DAMAGED);
    assert!(copied["incomplete"].is_string(), "{copied}");
}

#[test]
fn what_is_behind_damage_is_never_left_out_silently() {
    let (_folder, mut server, _) = Server::fresh();
    let storage = damaged(&mut server, "broken");
    // The damage is found again by every start.
    for _ in 0..2 {
        let mut api = server.api();
        check_queries(&mut api, &storage);
        check_others(&mut api, &storage);
        server.kill();
        server.restart();
    }
    let verified = command(&server, &["storage", "verify", "broken"]);
    assert_eq!(verified.status.code(), Some(1), "damage was found");
    let copied = command(&server, &["storage", "copy", "broken"]);
    assert_eq!(
        copied.status.code(),
        Some(3),
        "an incomplete copy is refused"
    );
    let copied = command(
        &server,
        &["storage", "copy", "--allow-incomplete", "broken"],
    );
    assert_eq!(copied.status.code(), Some(1), "the copy is incomplete");
    let told = String::from_utf8(copied.stderr).unwrap();
    assert!(told.contains("behind a damage"), "{told}");
    let repair = ["storage", "verify", "--repair", "--confirm", &storage];
    let repaired = command(&server, &repair);
    assert_eq!(repaired.status.code(), Some(1), "a packet is missing");
    let mut api = server.api();
    let counted = count(&mut api, &storage, false).json();
    assert_eq!(counted["count"], PACKETS - 1);
    let path = format!("/storages/{storage}/copy");
    let copied = api.done("POST", &path, Some(&json!({ "name": "copy" })));
    assert_eq!(copied["packets"], PACKETS - 1);
    assert_eq!(copied["incomplete"], Value::Null);
    assert_eq!(copied["missing_packets"], 1);
    let copied = command(&server, &["storage", "copy", &storage]);
    assert_eq!(copied.status.code(), Some(1), "a packet is missing");
    let told = String::from_utf8(copied.stderr).unwrap();
    assert!(told.contains("missing since it was repaired"), "{told}");
}

/// Runs the command line on a folder; returns the exit code, and what it prints.
fn on_folder(command: &str, folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let folder = folder.to_str().unwrap();
    let all = [command, "--dir", folder].into_iter();
    let all = all.chain(arguments.iter().copied()).map(str::to_owned);
    let output = run_tracehold(&all.collect::<Vec<_>>());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn a_folder_without_an_index_part_is_refused() {
    let (_folder, mut server, _) = Server::fresh();
    let mut api = server.api();
    let storage = api.create_storage("copied");
    Agent::register(&mut api, "host");
    Agent::declare_stream(&mut api, "host", "reads", "dft", "none");
    let agent = Agent::new(&storage, "host", "reads");
    for sequence in 0..PACKETS {
        agent.push(&mut api, sequence, record(sequence).as_bytes());
    }
    api.finalize(&storage);
    server.kill();
    let folder = server.data().join("storages").join(&storage);
    let target = tempfile::tempdir().unwrap();
    let written = target.path().join("written");
    let commands: [(&str, &[&str]); 3] = [
        ("query", &["--count"]),
        ("query", &["--count", "--strict"]),
        ("export", &[written.to_str().unwrap()]),
    ];
    let (code, counted, _) = on_folder("query", &folder, &["--count"]);
    assert_eq!((code, counted.trim()), (Some(0), "8"));
    let names = fs::read_dir(&folder).unwrap();
    let paths = names.map(|name| name.unwrap().path());
    let part = paths.filter(|path| path.extension().is_some_and(|ending| ending == "index"));
    let part = part.collect::<Vec<_>>().pop().unwrap();
    let bytes = fs::read(&part).unwrap();
    let name = part.file_name().unwrap().to_str().unwrap();
    for left in [None, Some(&bytes[..bytes.len() / 2])] {
        match left {
            None => fs::remove_file(&part).unwrap(),
            Some(bytes) => fs::write(&part, bytes).unwrap(),
        }
        for (command, arguments) in commands {
            let (code, printed, told) = on_folder(command, &folder, arguments);
            assert_eq!(code, Some(1), "{command}: {printed} {told}");
            assert_eq!(printed, "", "{command}");
            assert!(told.contains(name), "{command}: {told}");
        }
    }
    fs::write(&part, &bytes).unwrap();
    let (code, counted, _) = on_folder("query", &folder, &["--count"]);
    assert_eq!((code, counted.trim()), (Some(0), "8"));
}

/// Before finalization a storage file lists no index parts.
#[test]
fn a_folder_of_a_storage_that_is_not_finalized_is_refused() {
    let settings = Settings::with_config("[storage]\nlive_index_packets_max = 4\n");
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &settings);
    let mut api = server.api();
    let storage = api.create_storage("copied");
    Agent::register(&mut api, "host");
    Agent::declare_stream(&mut api, "host", "reads", "dft", "none");
    let agent = Agent::new(&storage, "host", "reads");
    for sequence in 0..PACKETS {
        agent.push(&mut api, sequence, record(sequence).as_bytes());
    }
    let folder = server.data().join("storages").join(&storage);
    let has_part = || {
        let mut names = fs::read_dir(&folder).unwrap();
        names.any(|name| name.unwrap().path().extension() == Some("index".as_ref()))
    };
    wait_until("an index part is written", has_part);
    server.kill();
    let target = tempfile::tempdir().unwrap();
    let written = target.path().join("written");
    let commands: [(&str, &[&str]); 3] = [
        ("query", &["--count"]),
        ("query", &["--count", "--strict"]),
        ("export", &[written.to_str().unwrap()]),
    ];
    for (command, arguments) in commands {
        let (code, printed, told) = on_folder(command, &folder, arguments);
        assert_eq!(code, Some(2), "{command}: {printed} {told}");
        assert_eq!(printed, "", "{command}");
        assert!(told.contains("OPEN, not finalized"), "{command}: {told}");
    }
    assert!(!written.exists());
}

/// The files of a storage with an ending.
fn with_ending(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(folder).unwrap();
    let paths = names.map(|name| name.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|found| found == ending));
    paths.collect()
}

#[test]
fn the_index_of_damaged_data_is_made_once_and_again_when_the_data_is_intact() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &settings());
    let mut api = server.api();
    let storage = api.create_storage("restored");
    Agent::register(&mut api, "host");
    Agent::declare_stream(&mut api, "host", "reads", "dft", "none");
    let agent = Agent::new(&storage, "host", "reads");
    for sequence in 0..PACKETS {
        agent.push(&mut api, sequence, record(sequence).as_bytes());
    }
    api.finalize(&storage);
    wait_for_indexes(&server, &storage);
    server.kill();
    let own = server.data().join("storages").join(&storage);
    for index in with_ending(&own, "idx") {
        fs::remove_file(index).unwrap();
    }
    let text = b"{\"id\":3,";
    let place = |bytes: &[u8]| bytes.windows(text.len()).position(|part| part == text);
    let names = fs::read_dir(&own).unwrap();
    let mut files = names.map(|name| name.unwrap().path());
    let has_text = |path: &PathBuf| fs::read(path).is_ok_and(|bytes| place(&bytes).is_some());
    let data = files.find(has_text).unwrap();
    let intact = fs::read(&data).unwrap();
    let mut damaged = intact.clone();
    damaged[place(&intact).unwrap()] ^= 1;
    fs::write(&data, damaged).unwrap();
    server.restart();
    wait_for_indexes(&server, &storage);
    let index = with_ending(&own, "idx").pop().unwrap();
    let version = || {
        let about = fs::metadata(&index).unwrap();
        (about.ino(), about.mtime_nsec())
    };
    let made = version();
    let mut api = server.api();
    for _ in 0..5 {
        let counted = count(&mut api, &storage, false).json();
        assert_eq!(counted["count"], PACKETS - 1, "{counted}");
        assert_eq!(counted["skipped_records"], 1, "{counted}");
        // Longer than it takes to make an index of eight packets.
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(version(), made, "it was made again");
    fs::write(&data, intact).unwrap();
    let found = api.verify(&storage);
    assert!(found.is_empty(), "{found:?}");
    wait_until("the index of intact data", || {
        let counted = count(&mut server.api(), &storage, false).json();
        counted["count"] == PACKETS && counted["skipped"].is_null()
    });
}

const METADATA: &[u8] =
    b"/* CTF 1.8 */\ntrace { major = 1; minor = 8; byte_order = le; };\nstream {};\n";

/// An agent file that is lost while the server runs is written again from what is known. Trace
/// metadata is not, so a storage waits for it before it is finalized without.
#[test]
fn a_lost_agent_file_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let mut api = server.api();
    let lose: [fn(&Path); 2] = [
        |path| fs::remove_file(path).unwrap(),
        |path| fs::write(path, b"no agent file").unwrap(),
    ];
    for (number, lose) in lose.into_iter().enumerate() {
        for has_metadata in [false, true] {
            let storage = api.create_storage(&format!("{number}-{has_metadata}"));
            let host = format!("host-{number}-{has_metadata}");
            let path = server.data().join(format!("agents/{host}.agent"));
            let agent = Agent::declare(&mut api, &storage, &host, "raw", "none");
            agent.push(&mut api, 0, b"packet");
            let send_metadata = |api: &mut Api| {
                let url = format!("/api/v1/agents/{host}/metadata");
                let request = Request::new("PUT", &url)
                    .header("content-type", "application/octet-stream")
                    .body(METADATA);
                assert_eq!(api.send(&request).unwrap().status, 204);
            };
            if has_metadata {
                send_metadata(&mut api);
            }
            lose(&path);
            if has_metadata {
                check_agent_lost(&mut api, &storage, &host);
                Agent::register(&mut api, &host);
                send_metadata(&mut api);
            }
            api.finalize(&storage);
            assert_eq!(api.packet(&storage, 0), b"packet");
            let written = fs::read(&path).unwrap();
            let is_there = |text: &[u8]| written.windows(text.len()).any(|at| at == text);
            assert!(is_there(host.as_bytes()) && is_there(METADATA) == has_metadata);
        }
    }
}

/// A finalization says which file is lost and what brings it back; a repair would not.
fn check_agent_lost(api: &mut Api, storage: &str, agent: &str) {
    let refused = api.refused("POST", &format!("/storages/{storage}/finalize"), None);
    let found = (refused.status, refused.code.as_str());
    assert_eq!(found, (409, "agent_lost"), "{}", refused.document);
    let detail = refused.document["detail"].as_str().unwrap();
    let words = [
        format!("the file of agent `{agent}` is lost"),
        "let the agent register and send its trace metadata again".to_owned(),
    ];
    for words in words {
        assert!(detail.contains(&words), "{detail}");
    }
    assert!(!detail.contains("repair"), "{detail}");
    assert_eq!(api.state(storage), "OPEN");
}

/// A storage whose folder is gone is named in the log of the start; others are served.
#[test]
fn a_storage_that_is_gone_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let mut api = server.api();
    let [kept, gone, emptied, deleted] = ["kept", "gone", "emptied", "deleted"].map(|name| {
        let storage = api.create_storage(name);
        Agent::declare(&mut api, &storage, "host", "raw", "none").push(&mut api, 0, b"packet");
        api.finalize(&storage);
        storage
    });
    api.done("DELETE", &format!("/storages/{deleted}"), None);
    drop(api);
    server.terminate();
    server.wait(Duration::from_secs(60));
    let data = server.data().to_owned();
    let place = |storage: &str| data.join("storages").join(storage);
    fs::remove_dir_all(place(&gone)).unwrap();
    fs::remove_dir_all(place(&emptied)).unwrap();
    fs::create_dir(place(&emptied)).unwrap();
    server.restart();
    assert_eq!(server.api().packet(&kept, 0), b"packet");
    let log = server.log();
    let told = |storage: &str| {
        let lines = log.lines();
        let mut told = lines.filter(|line| line.contains("has no files any more"));
        told.any(|line| line.contains(storage))
    };
    assert_eq!(
        [&kept, &gone, &emptied, &deleted].map(|id| told(id)),
        [false, true, true, false],
        "{log}"
    );
}

/// FINALIZED means that every file is there: one that another program removed is noticed, however
/// short the log is.
#[test]
fn a_storage_with_a_lost_data_file_is_not_finalized() {
    let lose: [fn(&Path); 3] = [
        |path| fs::remove_file(path).unwrap(),
        |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        },
        |path| {
            fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink(path, path).unwrap();
        },
    ];
    for (number, lose) in lose.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let config = "[storage]\ndata_file_bytes_max = 1048576\n";
        let server = Server::start(folder.path(), &Settings::with_config(config));
        let mut api = server.api();
        let storage = api.create_storage("lost");
        let agent = Agent::declare(&mut api, &storage, "host", "raw", "none");
        for sequence in 0..60 {
            agent.push(&mut api, sequence, &[7; 40_000]);
        }
        let files = server.data().join("storages").join(&storage);
        lose(&files.join("0000000000000000.itdata"));
        let finalize = format!("/storages/{storage}/finalize");
        let refused = api.refused("POST", &finalize, None);
        let found = (refused.status, refused.code.as_str());
        assert_eq!(found, (409, "storage_damaged"), "{number}");
        assert_eq!(api.state(&storage), "OPEN");
    }
}

/// The trace metadata of an agent whose file was lost while the server was stopped comes back when
/// it registers again; a finalized storage would have to do without for good.
#[test]
fn packets_are_not_finalized_without_the_metadata_that_they_need() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let mut api = server.api();
    let storage = api.create_storage("ctf");
    let register = |api: &mut Api| {
        Agent::register(api, "host");
        Agent::declare_stream(api, "host", "events", "ctf", "none");
        let request = Request::new("PUT", "/api/v1/agents/host/metadata")
            .header("content-type", "application/octet-stream")
            .body(METADATA);
        assert_eq!(api.send(&request).unwrap().status, 204);
    };
    register(&mut api);
    Agent::new(&storage, "host", "events").push(&mut api, 0, b"packet");
    server.kill();
    fs::remove_file(server.data().join("agents/host.agent")).unwrap();
    server.restart();
    let mut api = server.api();
    check_agent_lost(&mut api, &storage, "host");
    register(&mut api);
    api.finalize(&storage);
    assert_eq!(api.packet(&storage, 0), b"packet");
}
