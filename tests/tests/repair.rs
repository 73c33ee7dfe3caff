//! A storage whose data is damaged is repaired when its operator confirms it, and every answer says
//! what is missing since.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Output;
use std::time::Duration;

use harness::{Agent, Api, Request, Response, Server, run_tracehold};
use serde_json::{Value, json};

use crate::archives::{export, imported};

pub(crate) const PACKETS: u64 = 8;
/// The number of the packet that is damaged.
pub(crate) const DAMAGED: u64 = 3;
const BLOCK_BYTES: usize = 4096;

/// A DFTracer record.
pub(crate) fn record(sequence: u64) -> String {
    let ts = 1_700_000_000_000_000 + sequence;
    format!(
        "{{\"id\":{sequence},\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":2,\"ts\":{ts},\
         \"dur\":5,\"ph\":\"X\"}}\n"
    )
}

/// An open storage with packets.
pub(crate) fn pushed(server: &Server, name: &str) -> String {
    let mut api = server.api();
    let storage = api.create_storage(name);
    Agent::register(&mut api, "host");
    Agent::declare_stream(&mut api, "host", "reads", "dft", "none");
    let agent = Agent::new(&storage, "host", "reads");
    for sequence in 0..PACKETS {
        agent.push(&mut api, sequence, record(sequence).as_bytes());
    }
    storage
}

/// A FAILED storage: a packet in the middle of its log is damaged.
pub(crate) fn damaged(server: &mut Server, name: &str) -> String {
    let storage = pushed(server, name);
    server.kill();
    damage(server, &storage);
    server.restart();
    assert_eq!(server.api().state(&storage), "FAILED");
    storage
}

/// Damages a packet in the middle of a log.
pub(crate) fn damage(server: &Server, storage: &str) {
    let folder = server.data().join("storages").join(storage);
    let path = folder.join("0000000000000000.itdata");
    let mut bytes = fs::read(&path).unwrap();
    let blocks = bytes.chunks(BLOCK_BYTES).enumerate();
    let mut batches = blocks.filter(|(_, block)| block.starts_with(b"THBA"));
    let (block, _) = batches.nth(usize::try_from(DAMAGED).unwrap()).unwrap();
    // After the headers of batch, segment and frame.
    let at = block * BLOCK_BYTES + 64 + 40 + 88;
    bytes[at] ^= 1;
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&bytes[at..=at], at as u64).unwrap();
}

pub(crate) fn command(server: &Server, arguments: &[&str]) -> Output {
    let url = server.url();
    let all = ["--server", &url]
        .into_iter()
        .chain(arguments.iter().copied());
    run_tracehold(&all.map(str::to_owned).collect::<Vec<_>>())
}

/// Checks the output of a verification by command line.
fn check_command(server: &Server, arguments: &[&str], code: i32, wanted: &[&str]) {
    let output = command(server, &[&["storage", "verify"], arguments].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    for wanted in wanted {
        assert!(text.contains(wanted), "{arguments:?}: {text}");
    }
}

pub(crate) fn count(api: &mut Api, storage: &str, strict: bool) -> Response {
    let path = format!("/api/v1/storages/{storage}/query");
    let body = json!({ "count": true, "strict": strict }).to_string();
    let request = Request::new("POST", &path)
        .header("content-type", "application/json")
        .header("te", "trailers")
        .body(body.as_bytes());
    api.send(&request).unwrap()
}

/// Every answer has the other packets, and says that one is missing.
pub(crate) fn check_told(api: &mut Api, storage: &str, packets: u64) {
    let missing = api.refused(
        "GET",
        &format!("/storages/{storage}/packets/{DAMAGED}"),
        None,
    );
    assert_eq!((missing.status, &*missing.code), (410, "packet_missing"));
    let unknown = api.refused("GET", &format!("/storages/{storage}/packets/99"), None);
    assert_eq!((unknown.status, &*unknown.code), (404, "packet_not_found"));
    assert_eq!(api.status(storage)["missing_packets"], 1);
    let verified = api.done("POST", &format!("/storages/{storage}/verify"), None);
    assert_eq!(verified["damage"], json!([]));
    assert_eq!(verified["missing_packets"], 1);
    assert_eq!(verified["missing"][0]["first"], DAMAGED);
    assert_eq!(verified["packets"], packets);
    let counted = count(api, storage, false);
    let document = counted.json();
    assert_eq!(document["count"], packets, "{}", counted.brief());
    assert_eq!(document["skipped_records"], 1);
    let reason = document["skipped"][0].as_str().unwrap();
    assert!(reason.contains("missing since it was repaired"), "{reason}");
    let strict = count(api, storage, true);
    assert_eq!(strict.status, 409, "{}", strict.brief());
    assert_eq!(strict.json()["code"], "result_incomplete");
}

#[test]
fn a_failed_storage_is_opened_again_and_says_what_is_missing() {
    let (_folder, mut server, _) = Server::fresh();
    let storage = damaged(&mut server, "broken");
    let told = ["missing: packets 3 to 3", "7 packets", "1 missing"];
    check_command(
        &server,
        &["--repair", "broken"],
        1,
        &[&told[..], &["nothing was changed"]].concat(),
    );
    assert_eq!(server.api().state(&storage), "FAILED");
    check_command(
        &server,
        &["--repair", "--confirm", "broken"],
        1,
        &[&told[..], &["the storage is open again"]].concat(),
    );
    let mut api = server.api();
    assert_eq!(api.state(&storage), "OPEN");
    check_told(&mut api, &storage, PACKETS - 1);
    let agent = Agent::new(&storage, "host", "reads");
    let repeated = agent.refused(&mut api, DAMAGED, record(DAMAGED).as_bytes());
    assert_eq!((repeated.status, &*repeated.code), (409, "repeat_missing"));
    assert_eq!(agent.next_sequence(&mut api), PACKETS);
    agent.push(&mut api, PACKETS, record(PACKETS).as_bytes());
    server.kill();
    server.restart();
    let mut api = server.api();
    check_told(&mut api, &storage, PACKETS);
    api.finalize(&storage);
    check_told(&mut api, &storage, PACKETS);
    // An import has the repair file, too.
    let archive = export(&mut api, &storage);
    api.done("DELETE", &format!("/storages/{storage}"), None);
    imported(&server, &archive);
    check_told(&mut api, &storage, PACKETS);
    check_command(&server, &["broken"], 1, &["missing: packets 3 to 3"]);
    server.kill();
    server.restart();
    check_told(&mut server.api(), &storage, PACKETS);
}

#[test]
fn a_storage_that_is_whole_is_not_repaired() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("whole");
    for step in ["plan", "confirm"] {
        let path = format!("/storages/{storage}/verify?repair={step}");
        let report = api.done("POST", &path, None);
        let repair = &report["repair"];
        assert_eq!(
            (&repair["needed"], &repair["repaired"]),
            (&json!(false), &json!(false))
        );
    }
    let told = ["there is nothing to repair"];
    check_command(&server, &["--repair", "--confirm", "whole"], 0, &told);
    let path = format!("/storages/{storage}/verify?repair=now");
    assert_eq!(api.refused("POST", &path, None).code, "query_malformed");
    let verified: Value = api.done("POST", &format!("/storages/{storage}/verify"), None);
    assert_eq!(verified["missing"], json!([]));
}

fn stop(server: &mut Server) {
    server.terminate();
    server.wait(Duration::from_secs(30));
}

/// The damage is found while the storage is open, where no start reads.
#[test]
fn an_open_storage_is_repaired_and_only_then_finalized() {
    let (_folder, mut server, _) = Server::fresh();
    let storage = pushed(&server, "open");
    // Index parts cover everything after a clean stop.
    stop(&mut server);
    server.restart();
    damage(&server, &storage);
    let mut api = server.api();
    assert_eq!(api.state(&storage), "OPEN");
    let path = format!("/storages/{storage}/finalize");
    let refused = api.refused("POST", &path, None);
    assert_eq!((refused.status, &*refused.code), (409, "storage_damaged"));
    let detail = refused.document["detail"].to_string();
    assert!(detail.contains("payload at byte"), "{detail}");
    assert_eq!(api.state(&storage), "OPEN");
    let agent = Agent::new(&storage, "host", "reads");
    agent.push(&mut api, PACKETS, record(PACKETS).as_bytes());
    let told = ["missing: packets 3 to 3", "8 packets", "1 missing"];
    let steps: [(&[&str], &str); 2] = [
        (&["--repair", "open"], "nothing was changed"),
        (
            &["--repair", "--confirm", "open"],
            "the storage is open again",
        ),
    ];
    for (arguments, outcome) in steps {
        check_command(&server, arguments, 1, &[&told[..], &[outcome]].concat());
        assert_eq!(api.state(&storage), "OPEN");
    }
    check_told(&mut api, &storage, PACKETS);
    agent.push(&mut api, PACKETS + 1, record(PACKETS + 1).as_bytes());
    server.kill();
    server.restart();
    let mut api = server.api();
    check_told(&mut api, &storage, PACKETS + 1);
    api.finalize(&storage);
    check_told(&mut api, &storage, PACKETS + 1);
    let copied = command(&server, &["storage", "copy", "open"]);
    assert_eq!(copied.status.code(), Some(1), "a packet is missing");
    let archive = export(&mut api, &storage);
    api.done("DELETE", &format!("/storages/{storage}"), None);
    imported(&server, &archive);
    check_told(&mut api, &storage, PACKETS + 1);
}

/// The file that says what is missing is lost, and then the storage file.
#[test]
fn what_is_not_known_is_not_taken_for_nothing() {
    let (_folder, mut server, _) = Server::fresh();
    let storage = damaged(&mut server, "lost");
    check_command(&server, &["--repair", "--confirm", "lost"], 1, &[]);
    server.api().finalize(&storage);
    stop(&mut server);
    let folder = server.data().join("storages").join(&storage);
    fs::remove_file(folder.join(format!("{storage}.repairs"))).unwrap();
    server.restart();
    let mut api = server.api();
    let unknown = api.status(&storage)["missing_unknown"].clone();
    assert!(unknown.is_string());
    let verified = api.done("POST", &format!("/storages/{storage}/verify"), None);
    assert_eq!(verified["missing_unknown"], unknown);
    assert_eq!(verified["missing_packets"], 0);
    let shown = command(&server, &["storage", "show", "lost"]).stdout;
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("missing unknown"), "{shown}");
    let counted = count(&mut api, &storage, false).json();
    assert_eq!(counted["count"], PACKETS - 1);
    let reason = counted["skipped"][0].as_str().unwrap();
    assert!(reason.contains("missing since is not known"), "{reason}");
    assert_eq!(count(&mut api, &storage, true).status, 409);
    let told = ["it is not known which packets are missing"];
    check_command(&server, &["lost"], 1, &told);
    let copied = command(&server, &["storage", "copy", "lost"]);
    assert_eq!(copied.status.code(), Some(3), "{copied:?}");

    stop(&mut server);
    for ending in ["storage", "storage-copy"] {
        fs::write(folder.join(format!("{storage}.{ending}")), "damaged").unwrap();
    }
    server.restart();
    let mut api = server.api();
    let path = format!("/storages/{storage}");
    let refused = api.refused("DELETE", &path, None);
    assert_eq!((refused.status, &*refused.code), (409, "labels_unknown"));
    let delete = ["storage", "delete", &storage];
    assert_eq!(command(&server, &delete).status.code(), Some(3));
    let confirmed = [&delete[..], &["--without-labels"]].concat();
    assert_eq!(command(&server, &confirmed).status.code(), Some(0));
    assert!(!folder.exists());
}
