//! Storages in an object store: several nodes serve what one has written, and nothing is lost or
//! wrong when the store, the network or a node fails.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::{ObjectStore, Request, Response, Server, Settings, StoreFault, StoreProxy};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::queries::{answers, push, run, wait_for_indexes};

mod long_reads;
mod other_services;
mod restoring;

const PATIENCE: Duration = Duration::from_secs(60);
const EVENTS: u64 = 60_000;
/// What the names of events are; one of them is rare.
const RARE: &str = "rename";

/// A query that no summary answers.
const FEW: &str = r#"name == "rename" or (pid == 3 and dur < 20)"#;

/// A trace whose data file is an object of its own.
fn trace(folder: &Path) -> std::path::PathBuf {
    let mut text = String::from("[\n");
    for number in 0..EVENTS {
        let name = match number {
            41_234 => RARE,
            number if number % 3 == 0 => "read",
            _ => "write",
        };
        let noise = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        writeln!(
            text,
            r#"{{"id":{number},"name":"{name}","cat":"POSIX","pid":{},"tid":1,"ts":{},"dur":{},"ph":"X","args":{{"fname":"/data/{noise:016x}","ret":{}}}}}"#,
            number % 7,
            1_700_000_000_000_000 + number * 10,
            1 + noise % 1000,
            noise % 4096,
        )
        .unwrap();
    }
    let path = folder.join("trace.pfw");
    fs::write(&path, text).unwrap();
    path
}

/// Settings that cut chunks small, so that pruning leaves something out.
fn with_chunks(mut settings: Settings) -> Settings {
    settings.config += "[query]\nchunk_bytes = 65536\n";
    settings
}

fn start(settings: Settings) -> (TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &with_chunks(settings));
    (folder, server)
}

fn until(what: &str, server: &Server, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}:\n{}", server.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn tier(server: &Server, storage: &str) -> Value {
    server.api().storage(storage)["tier"].clone()
}

fn wait_uploaded(server: &Server, storage: &str) {
    until("it is not uploaded", server, || {
        tier(server, storage)["state"] != "local"
    });
}

fn wait_listed(server: &Server, storage: &str) {
    until("it is not listed", server, || {
        let listed = server.api().done("GET", "/storages", None);
        let items = listed["items"].as_array().unwrap();
        items.iter().any(|item| item["id"] == storage)
    });
}

fn act(server: &Server, storage: &str, action: &str) -> Value {
    let path = format!("/storages/{storage}/tier");
    server
        .api()
        .done("POST", &path, Some(&json!({ "action": action })))
}

/// A finalized storage with the trace.
fn stored(server: &Server, name: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let storage = server.api().create_storage(name);
    push(server, &storage, &trace(folder.path()), "65536");
    server.api().finalize(&storage);
    wait_for_indexes(server, &storage);
    storage
}

/// What a reader sees of a storage by queries, ranges and an export.
fn seen(server: &Server, storage: &str) -> Vec<String> {
    let url = server.url();
    let source = ["--server", &url, "--storage", storage];
    let mut seen = answers(&source, FEW);
    let mut api = server.api();
    for (name, _, length) in api.files(storage) {
        let whole = api.send(&Request::new("GET", &format!("/storage/{storage}/{name}")));
        let whole = whole.unwrap();
        assert_eq!(whole.status, 200, "{name}: {}", whole.brief());
        assert_eq!(whole.body.len() as u64, length, "{name}");
        let sum = storage_format::checksum::crc32c(&whole.body);
        seen.push(format!("{name} {length} {sum:08x}"));
        if length > 200_000 {
            let ranges = [(5, 15), (70_000, 70_010), (length - 10, length)];
            for (part, (first, end)) in api.ranges(storage, &name, &ranges).iter().zip(ranges) {
                let expected =
                    &whole.body[usize::try_from(first).unwrap()..usize::try_from(end).unwrap()];
                assert_eq!(part.bytes, expected, "{name} {first}-{end}");
            }
        }
    }
    let exported = api.call("GET", &format!("/storages/{storage}/export"), None);
    seen.push(format!("export {}", exported.body.len()));
    assert_eq!(api.verify(storage), Vec::<Value>::new());
    seen
}

/// The first difference is enough.
fn same(found: &[String], before: &[String]) {
    let differing = found
        .iter()
        .zip(before)
        .find(|(found, before)| found != before);
    assert_eq!(differing, None);
    assert_eq!(found.len(), before.len());
}

/// Two nodes, one storage: uploaded, evicted, served by the other, deleted by it.
fn life_of_a_storage(store: &ObjectStore) {
    let (_folder, one) = start(store.settings("one", ""));
    let storage = stored(&one, "first");
    wait_uploaded(&one, &storage);
    let before = seen(&one, &storage);
    assert!(before.iter().any(|line| line.contains(RARE)), "{before:?}");
    let keys = store.keys();
    assert!(
        keys.contains(&format!("cluster/s/{storage}/seal")),
        "{keys:?}"
    );

    let here = act(&one, &storage, "evict");
    assert_eq!(here["state"], "evicted");
    assert!(here["bytes"].as_u64() > Some(200_000), "{here}");
    // Its chunk indexes stay.
    assert!(here["bytes_here"].as_u64() < Some(1_000_000), "{here}");
    same(&seen(&one, &storage), &before);

    let (_other_folder, two) = start(store.settings("two", ""));
    wait_listed(&two, &storage);
    assert_eq!(tier(&two, &storage)["state"], "remote");
    same(&seen(&two, &storage), &before);
    let verified = act(&two, &storage, "verify");
    assert_eq!(verified["problems"], json!([]), "{verified}");

    // A label that one node sets is seen by the other.
    let labels = json!({ "labels": { "use_case": "ci" }, "name": "renamed" });
    let path = format!("/storages/{storage}");
    two.api().done("PATCH", &path, Some(&labels));
    until("the label does not arrive", &one, || {
        let info = one.api().storage(&storage);
        info["labels"]["use_case"] == "ci" && info["name"] == "renamed"
    });

    // All of it can be fetched, and is then served without the store.
    assert_eq!(act(&one, &storage, "fetch")["state"], "uploaded");

    let deleted = two.api().call("DELETE", &path, None);
    assert_eq!(deleted.status, 204, "{}", deleted.brief());
    until("it is not deleted elsewhere", &one, || {
        one.api().call("GET", &path, None).status == 404
    });
    until("objects remain", &two, || {
        let keys = store.keys();
        let of_storage = format!("cluster/s/{storage}/");
        let left: Vec<_> = keys
            .iter()
            .filter(|key| key.starts_with(&of_storage))
            .collect();
        left == [&format!("{of_storage}gone")]
    });
}

#[test]
fn storages_go_up_and_every_node_serves_them() {
    if let Some(store) = ObjectStore::moto() {
        life_of_a_storage(&store);
    }
}

#[test]
fn storages_live_in_radosgw() {
    if let Some(store) = ObjectStore::radosgw() {
        other_services::check_contract(&store);
        life_of_a_storage(&store);
    }
}

#[test]
fn without_the_store_ingest_goes_on_and_uploads_wait() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let proxy = StoreProxy::start(store.address());
    proxy.set_down(true);
    let settings = ObjectStore::settings_at(proxy.address(), "one", "request_seconds = 2\n");
    let (_folder, mut one) = start(settings);
    let storage = stored(&one, "first");
    until("it is not degraded", &one, || {
        let ready = one.api().send(&Request::new("GET", "/readyz")).unwrap();
        assert_eq!(ready.status, 200);
        let ready = ready.json();
        ready["status"] == "degraded"
            && ready["object_store"].is_string()
            && ready["waiting_uploads"] == 1
    });
    assert_eq!(tier(&one, &storage)["state"], "local");
    let before = seen(&one, &storage);
    // A restart forgets nothing.
    one.kill();
    one.restart();
    proxy.set_down(false);
    wait_uploaded(&one, &storage);
    act(&one, &storage, "evict");
    same(&seen(&one, &storage), &before);
    until("it is not ready", &one, || {
        let ready = one.api().send(&Request::new("GET", "/readyz")).unwrap();
        ready.json()["status"] == "ready"
    });

    // Evicted bytes cannot be read without the store, and the answer says so.
    one.kill();
    act_offline(&mut one, &proxy, &storage);
}

/// Reads of an evicted storage while the store is down, after a restart with an empty cache.
fn act_offline(server: &mut Server, proxy: &StoreProxy, storage: &str) {
    server.restart();
    act(server, storage, "evict");
    proxy.set_down(true);
    let mut api = server.api();
    let files = api.files(storage);
    let (name, ..) = files.iter().find(|(_, role, _)| role == "data").unwrap();
    let read = api.send(&Request::new("GET", &format!("/storage/{storage}/{name}")));
    let read = read.unwrap();
    assert_eq!(read.status, 503, "{}", read.brief());
    assert_eq!(read.json()["code"], "object_store_unavailable");
    // The program would wait for the store.
    let query = format!("/storages/{storage}/query");
    let rows = api.call("POST", &query, Some(&json!({ "query": FEW })));
    assert_eq!(rows.status, 503, "{}", rows.brief());
    assert_eq!(rows.json()["code"], "object_store_unavailable");
    let url = server.url();
    let source = ["query", "--server", &url, "--storage", storage, FEW];
    proxy.set_down(false);
    let (code, _, errors) = run(&source);
    assert_eq!(code, 0, "{errors}");
}

#[test]
fn lost_answers_and_refusals_neither_lose_nor_double_anything() {
    let faults = [
        ("PUT", StoreFault::DropAnswer),
        ("PUT", StoreFault::DropRequest),
        ("PUT", StoreFault::Refuse(503)),
        ("PUT", StoreFault::Refuse(409)),
        ("POST", StoreFault::DropAnswer),
        ("POST", StoreFault::Refuse(503)),
        ("/seal", StoreFault::DropAnswer),
        ("/seal", StoreFault::Refuse(409)),
        ("/seal", StoreFault::DropRequest),
        ("/heads", StoreFault::DropAnswer),
        ("/f/", StoreFault::DropAnswer),
        ("/f/", StoreFault::CutAnswer),
        ("GET", StoreFault::CutAnswer),
        ("GET", StoreFault::Refuse(503)),
    ];
    if let Some(store) = ObjectStore::moto() {
        lost_answers_and_refusals(&store, &faults);
    }
}

fn lost_answers_and_refusals(store: &ObjectStore, faults: &[(&str, StoreFault)]) {
    let proxy = StoreProxy::start(store.address());
    let settings = store.settings_through(&proxy, "one", "request_seconds = 5\n");
    let (_folder, one) = start(settings);
    for &(what, fault) in faults {
        proxy.fail(what, fault);
        let storage = stored(&one, &format!("{what} {fault:?}"));
        let before = seen(&one, &storage);
        wait_uploaded(&one, &storage);
        act(&one, &storage, "evict");
        proxy.fail("/f/", StoreFault::CutAnswer);
        proxy.fail("/f/", StoreFault::Refuse(503));
        same(&seen(&one, &storage), &before);
        let seals = store.keys();
        let seals = seals
            .iter()
            .filter(|key| **key == format!("cluster/s/{storage}/seal"));
        assert_eq!(seals.count(), 1, "{what} {fault:?}");
        let verified = act(&one, &storage, "verify");
        assert_eq!(verified["problems"], json!([]), "{what} {fault:?}");
    }
}

#[test]
fn a_node_that_is_killed_while_it_uploads_continues() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let proxy = StoreProxy::start(store.address());
    proxy.delay(Duration::from_millis(40));
    let settings = ObjectStore::settings_at(proxy.address(), "one", "");
    let (_folder, mut one) = start(settings);
    let storage = stored(&one, "first");
    let before = seen(&one, &storage);
    for round in 0..12_u64 {
        if tier(&one, &storage)["state"] != "local" {
            break;
        }
        std::thread::sleep(Duration::from_millis(30 * round));
        one.kill();
        one.restart();
    }
    wait_uploaded(&one, &storage);
    act(&one, &storage, "evict");
    proxy.delay(Duration::ZERO);
    same(&seen(&one, &storage), &before);
    let seal = format!(
        "seal = json.loads(s3.get_object(Bucket=bucket, Key='cluster/s/{storage}/seal')['Body'].read())\n\
         print(json.dumps(seal))"
    );
    let seal: Value = serde_json::from_str(&store.python(&seal)).unwrap();
    let keys = store.keys();
    for file in seal["files"].as_array().unwrap() {
        let key = format!("cluster/{}", file["key"].as_str().unwrap());
        assert!(
            keys.contains(&key),
            "the seal names {key}, which is not there"
        );
    }
}

#[test]
fn an_object_that_is_damaged_is_never_served() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (_folder, one) = start(store.settings("one", ""));
    let storage = stored(&one, "first");
    wait_uploaded(&one, &storage);
    act(&one, &storage, "evict");
    let script = format!(
        "pages = s3.list_objects_v2(Bucket=bucket, Prefix='cluster/s/{storage}/f/')['Contents']\n\
         for each in pages:\n  body = bytearray(s3.get_object(Bucket=bucket, Key=each['Key'])['Body'].read())\n  \
         body[70000] ^= 1\n  s3.put_object(Bucket=bucket, Key=each['Key'], Body=bytes(body))"
    );
    store.python(&script);
    let mut api = one.api();
    let files = api.files(&storage);
    let (name, ..) = files.iter().find(|(_, role, _)| role == "data").unwrap();
    let path = format!("/storage/{storage}/{name}");
    let mut read = |range: &str| {
        let request = Request::new("GET", &path).header("Range", range);
        api.send(&request).unwrap()
    };
    assert_eq!(read("bytes=0-99").status, 206);
    // It does not come back by itself, so nobody is told to ask again.
    let is_lost = |refused: &Response| {
        assert_eq!(refused.status, 500, "{}", refused.brief());
        assert_eq!(refused.json()["code"], "object_lost");
        assert!(refused.header("retry-after").is_none());
    };
    is_lost(&read("bytes=70000-70009"));
    let verified = act(&one, &storage, "verify");
    assert_ne!(verified["problems"], json!([]), "{verified}");
    let script = format!(
        "pages = s3.list_objects_v2(Bucket=bucket, Prefix='cluster/s/{storage}/f/')['Contents']\n\
         for each in pages:\n  s3.delete_object(Bucket=bucket, Key=each['Key'])"
    );
    store.python(&script);
    act(&one, &storage, "evict");
    is_lost(&read("bytes=0-99"));
    let url = one.url();
    let query = [
        "query",
        "--server",
        &url,
        "--storage",
        &storage,
        "dur != 77ns",
    ];
    let begun = Instant::now();
    let (code, _, errors) = run(&query);
    assert!(
        code != 0 && errors.contains("object_lost"),
        "{code} {errors}"
    );
    assert!(begun.elapsed() < PATIENCE, "it is asked for again");
}

#[test]
fn a_rare_name_moves_few_bytes() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let proxy = StoreProxy::start(store.address());
    let (_folder, one) = start(ObjectStore::settings_at(proxy.address(), "one", ""));
    let storage = stored(&one, "first");
    wait_uploaded(&one, &storage);
    let bytes = tier(&one, &storage)["bytes"].as_u64().unwrap();
    act(&one, &storage, "evict");
    let before = proxy.counts();
    let url = one.url();
    let query = format!("name == {RARE:?}");
    let (code, out, errors) = run(&[
        "query",
        "--server",
        &url,
        "--storage",
        &storage,
        &query,
        "--count",
    ]);
    assert_eq!((code, out.trim()), (0, "1"), "{errors}");
    let (_, moved) = proxy.counts();
    let moved = moved - before.1;
    // One chunk of 64 KiB before compression, and what else the rounds of a node ask meanwhile.
    assert!(
        moved < 300_000 && moved < bytes / 2,
        "{moved} of {bytes} bytes"
    );
}

#[test]
fn requests_for_an_open_storage_are_sent_to_its_writer() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (_folder, mut one) = start(store.settings("one", ""));
    let (_other_folder, two) = start(store.settings("two", ""));
    let storage = one.api().create_storage("first");
    let path = format!("/api/v1/storages/{storage}");
    let ask = |server: &Server| server.api().send(&Request::new("GET", &path)).unwrap();
    until("nobody says who writes it", &two, || {
        ask(&two).status == 307
    });
    let expected = format!("{}{path}", one.url());
    assert_eq!(ask(&two).header("location"), Some(expected.as_str()));

    // The command follows, with what it sends.
    let folder = tempfile::tempdir().unwrap();
    push(&two, &storage, &trace(folder.path()), "65536");
    let count = |server: &Server| {
        let url = server.url();
        let (code, out, errors) = run(&[
            "query",
            "--server",
            &url,
            "--storage",
            &storage,
            "",
            "--count",
        ]);
        assert_eq!(code, 0, "{errors}");
        out.trim().to_owned()
    };
    assert_eq!(
        (count(&one), count(&two)),
        (EVENTS.to_string(), EVENTS.to_string())
    );

    let nodes = two.api().done("GET", "/nodes", None);
    assert_eq!(nodes["node"], "two");
    let of = |name: &str, nodes: &Value| {
        let all = nodes["nodes"].as_array().unwrap();
        let found = all.iter().find(|node| node["node"] == name).cloned();
        found.unwrap_or_default()
    };
    assert_eq!(of("one", &nodes)["state"], "live", "{nodes}");
    // All nodes give a storage the same order, and storages have different ones.
    let mut firsts = std::collections::BTreeSet::new();
    for number in 0..32 {
        let path = format!("/nodes?storage=01a00000-0000-7000-8000-0000000000{number:02x}");
        let [here, there] = [&one, &two].map(|server| {
            let ranked = server.api().done("GET", &path, None);
            let nodes = ranked["nodes"].as_array().unwrap().clone();
            let names = nodes.iter().map(|node| node["node"].to_string());
            names.collect::<Vec<_>>()
        });
        assert_eq!((here.len(), &here), (2, &there));
        firsts.insert(here[0].clone());
    }
    assert_eq!(firsts.len(), 2);
    assert_eq!(of("one", &nodes)["storages_open"], 1, "{nodes}");

    // Without its writer it is nowhere, and nobody says that it is empty.
    one.kill();
    until("the writer is not gone", &two, || {
        let nodes = two.api().done("GET", "/nodes", None);
        of("one", &nodes)["state"] == "gone"
    });
    let refused = ask(&two);
    assert_eq!(refused.status, 503, "{}", refused.brief());
    assert_eq!(refused.json()["code"], "writer_gone");

    // It comes back at another address, and the other node knows it.
    one.restart();
    let expected = format!("{}{path}", one.url());
    until("the new address is not known", &two, || {
        ask(&two).header("location") == Some(expected.as_str())
    });
    one.api().finalize(&storage);
    wait_uploaded(&one, &storage);
    until("it is not adopted", &two, || ask(&two).status == 200);
    assert_eq!(count(&two), EVENTS.to_string());
    let unknown = "/api/v1/storages/01a00000-0000-7000-8000-000000000000";
    let unknown = two.api().send(&Request::new("GET", unknown)).unwrap();
    assert_eq!(unknown.status, 404, "{}", unknown.brief());
}

/// What a node has acknowledged of labels is what another one goes on with, at once.
#[test]
fn a_hold_on_one_node_stops_a_deletion_on_another() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (_one_folder, one) = start(store.settings("one", ""));
    let (_two_folder, two) = start(store.settings("two", ""));
    let storage = stored(&one, "first");
    wait_uploaded(&one, &storage);
    until("the other node has the storage", &two, || {
        let found = two
            .api()
            .send(&Request::new("GET", &format!("/api/v1/storages/{storage}")));
        found.unwrap().status == 200
    });
    let labels = format!("/storages/{storage}/labels");
    let label = |name: &str, value: &str| json!({ "type": name, "value": value });
    for (node, value) in [(&one, "a"), (&two, "b"), (&one, "c")] {
        let label = label("use_case", value);
        node.api().done("POST", &labels, Some(&label));
    }
    let hold = label("legal_hold", "case 7");
    one.api().done("POST", &labels, Some(&hold));
    let path = format!("/storages/{storage}");
    let refused = two.api().refused("DELETE", &path, None);
    assert_eq!(
        (refused.status, refused.code.as_str()),
        (409, "storage_held")
    );
    let found = two.api().storage(&storage);
    assert_eq!(
        found["labels"]["use_case"],
        json!(["a", "b", "c"]),
        "{found}"
    );
    let unhold = format!("{labels}/legal_hold");
    two.api().done("DELETE", &unhold, None);
    one.api().done("DELETE", &path, None);
}
