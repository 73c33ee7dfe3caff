//! Who owns an open storage: a node that was taken over changes nothing, a takeover that cannot be
//! completed takes nothing, and a name is not an identity.

use std::fs;
use std::thread;
use std::time::Duration;

use harness::spans::{packets, request, send, send_spans};
use harness::{Agent, ObjectStore, Request, Server, Settings, StoreProxy, packet};
use serde_json::json;

use crate::recording::{record_now, saver, span};
use crate::takeover::{CHAINED, STREAM, adopt, has_all, node, push, signal, start, until, written};

/// What a node that was taken over does before it notices.
#[test]
fn a_node_that_was_taken_over_deletes_and_finalizes_nothing() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    // It looks again after an hour.
    let stale = node(&store, "one");
    let stale = Settings {
        config: stale
            .config
            .replace("check_seconds = 1", "check_seconds = 3600"),
        ..stale
    };
    let (_folder, one) = start(&stale);
    let (_other, two) = start(&node(&store, "two"));
    for (method, what) in [("DELETE", ""), ("POST", "/finalize")] {
        let (storage, agent) = written(&one, 3);
        adopt(&two, &storage);
        let labels = json!({ "labels": { "legal_hold": "yes" } });
        let path = format!("/storages/{storage}");
        two.api().done("PATCH", &path, Some(&labels));
        let refused = one.api().refused(method, &format!("{path}{what}"), None);
        assert_eq!(
            (refused.status, refused.code.as_str()),
            (503, "storage_taken_over")
        );
        push(&two, &agent, 3..5);
        has_all(&two, &storage, 5);
    }
}

/// The owner deletes a storage; the node before finds no free place in the chain.
#[test]
fn a_deleted_storage_stays_fenced() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (_folder, one) = start(&node(&store, "one"));
    let (_other, two) = start(&node(&store, "two"));
    let (storage, agent) = written(&one, 3);
    signal(&one, "STOP");
    adopt(&two, &storage);
    let deleted = two
        .api()
        .call("DELETE", &format!("/storages/{storage}"), None);
    assert_eq!(deleted.status, 204, "{}", deleted.brief());
    until("its packets stay", &two, || {
        let gone = format!("cluster/s/{storage}/gone");
        store.keys().contains(&gone)
    });
    thread::sleep(Duration::from_secs(2));
    signal(&one, "CONT");
    let refused = agent.post(&mut one.api(), 3, &packet(STREAM, 3)).unwrap();
    assert_ne!(refused.status, 200, "{}", refused.brief());
    for server in [&one, &two] {
        until("it is somewhere", server, || {
            let asked = server
                .api()
                .call("GET", &format!("/storages/{storage}"), None);
            asked.status == 404
        });
    }
}

#[test]
fn a_finalized_storage_whose_node_is_lost_is_sealed_by_another() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let kept = node(&store, "one");
    let kept = Settings {
        // It uploads nothing by itself.
        config: kept.config.clone() + "upload_label = \"never\"\n",
        ..kept
    };
    let (_folder, mut one) = start(&kept);
    let (storage, _) = written(&one, 9);
    one.api().finalize(&storage);
    one.kill();
    let (_other, two) = start(&node(&store, "two"));
    assert_eq!(
        adopt(&two, &storage),
        json!({ "state": "finalized", "packets": 9 })
    );
    until("it is not sealed", &two, || {
        store.keys().contains(&format!("cluster/s/{storage}/seal"))
    });
    assert_eq!(adopt(&two, &storage)["state"], "here");
    has_all(&two, &storage, 9);
    one.restart();
    has_all(&one, &storage, 9);
}

/// Another data folder under the same name is another node.
#[test]
fn two_nodes_with_one_name_do_not_share_a_storage() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (_folder, one) = start(&node(&store, "same"));
    let (storage, agent) = written(&one, 3);
    let (_other, two) = start(&node(&store, "same"));
    Agent::declare(&mut two.api(), &storage, "left", "a", "none");
    for _ in 0..3 {
        let answer = agent.post(&mut two.api(), 3, b"other").unwrap();
        assert_ne!(answer.status, 200, "{}", answer.brief());
        thread::sleep(Duration::from_millis(700));
    }
    push(&one, &agent, 3..6);
    has_all(&one, &storage, 6);
}

#[test]
fn a_node_with_open_chains_does_not_start_without_them() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (folder, mut one) = start(&node(&store, "one"));
    let (storage, agent) = written(&one, 3);
    one.kill();
    let why = Server::try_start(folder.path(), &store.settings("one", "")).unwrap_err();
    assert!(
        why.contains(&storage) && why.contains("durability"),
        "{why}"
    );
    let why = Server::try_start(folder.path(), &Settings::default()).unwrap_err();
    assert!(why.contains(&storage) && why.contains("url"), "{why}");
    one.restart();
    push(&one, &agent, 3..4);
    one.api().finalize(&storage);
    until("it is not uploaded", &one, || {
        one.api().storage(&storage)["tier"]["state"] == "uploaded"
    });
    one.kill();
    one.restart_with(&store.settings("one", ""));
    has_all(&one, &storage, 4);
}

/// What cannot be stored here is left to its owner, which goes on.
#[test]
fn a_takeover_that_cannot_be_completed_takes_nothing() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (_folder, one) = start(&node(&store, "one"));
    let (_other, two) = start(&node(&store, "two"));
    let mut sequence = 0;
    let storage = one.api().create_storage("first");
    let agent = Agent::declare(&mut one.api(), &storage, "left", "a", "none");
    Agent::register(&mut two.api(), "left");
    Agent::declare_stream(&mut two.api(), "left", "a", "dft", "none");
    let path = format!("/storages/{storage}/adopt");
    let force = json!({ "force": true });
    for code in ["stream_kind_conflict", "agent_metadata_conflict"] {
        if code == "agent_metadata_conflict" {
            two.api().call("DELETE", "/agents/left", None);
            Agent::register(&mut two.api(), "left");
            let path = "/api/v1/agents/left/metadata?allow_invalid=true";
            let request = Request::new("PUT", path).body(b"other");
            let set = two.api().send(&request).unwrap();
            assert!(set.status < 300, "{}", set.brief());
        }
        push(&one, &agent, sequence..sequence + 2);
        sequence += 2;
        let refused = two.api().refused("POST", &path, Some(&force));
        assert_eq!((refused.status, refused.code.as_str()), (409, code));
        push(&one, &agent, sequence..sequence + 1);
        sequence += 1;
        has_all(&one, &storage, sequence);
    }
    // Without the conflict it goes on where it was.
    assert_eq!(two.api().call("DELETE", "/agents/left", None).status, 204);
    assert_eq!(adopt(&two, &storage)["packets"], sequence);
    has_all(&two, &storage, sequence);
}

/// A node dies while it makes a storage from its chain: nobody sees the half of it, and it is made
/// again.
#[test]
fn half_a_takeover_is_never_seen() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (_folder, one) = start(&node(&store, "one"));
    let (storage, _) = written(&one, 60);
    let proxy = StoreProxy::start(store.address());
    // Records are read twice: to claim the chain, and to make the storage.
    proxy.hold_after(1, &format!("{storage}/chain/{:020}", 30));
    let settings = ObjectStore::settings_at(proxy.address(), "two", CHAINED);
    let (_other, mut two) = start(&settings);
    let begun = two.data().join("storages").join(&storage);
    let mut api = two.api();
    let path = format!("/storages/{storage}");
    let adopting = format!("/api/v1{path}/adopt");
    thread::scope(|scope| {
        scope.spawn(|| {
            let body = json!({ "force": true }).to_string();
            let request = Request::new("POST", &adopting)
                .header("content-type", "application/json")
                .body(body.as_bytes());
            // The server dies before it answers.
            api.send(&request).unwrap_err();
        });
        until("it does not begin", &one, || begun.exists());
        thread::sleep(Duration::from_millis(100));
        let status = std::process::Command::new("kill")
            .args(["-9", &two.pid().to_string()])
            .status();
        assert!(status.unwrap().success());
    });
    two.kill();
    proxy.set_down(true);
    two.restart();
    let asked = two.api().call("GET", &path, None);
    assert_eq!(asked.status, 503, "{}", asked.brief());
    assert!(!begun.exists());
    proxy.set_down(false);
    until("it is not made again", &two, || {
        two.api().call("GET", &path, None).status == 200
    });
    has_all(&two, &storage, 60);
}

/// Spans that come while their storage is taken over are sent again by their exporter, and kept.
#[test]
fn spans_are_sent_again_when_their_storage_is_taken_over() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (_folder, one) = start(&node(&store, "one"));
    let (_other, two) = start(&node(&store, "two"));
    send_spans(&mut one.api(), "shop", &[span(1, 1, 0, "first")]);
    let list = one.api().done("GET", "/recordings", None);
    let storage = list["items"][0]["storage"].as_str().unwrap().to_owned();
    adopt(&two, &storage);
    let body = request("shop", &[span(2, 1, 0, "second")]);
    let mut refused = 0;
    until("spans are not accepted", &one, || {
        let answer = send(&mut one.api(), "application/json", body.as_bytes());
        refused += usize::from(answer.status == 503);
        if answer.status == 200 {
            assert_eq!(answer.json(), json!({}), "rejected for good");
        }
        answer.status == 200
    });
    assert!(refused > 0);
    let list = one.api().done("GET", "/recordings", None);
    let next = list["items"].as_array().unwrap().last().unwrap()["storage"].clone();
    assert_ne!(next, storage);
    assert_eq!(packets(&mut one.api(), next.as_str().unwrap()).len(), 1);
    assert_eq!(packets(&mut two.api(), &storage).len(), 1);
}

/// Who asks where to go on with a stream that is recorded takes what comes before for acknowledged.
#[test]
fn a_stream_of_a_recording_goes_on_behind_what_is_acknowledged() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let proxy = StoreProxy::start(store.address());
    let settings = ObjectStore::settings_at(proxy.address(), "one", CHAINED);
    let (_folder, mut one) = start(&settings);
    record_now(&mut one.api(), json!({ "processors": saver() }));
    Agent::register(&mut one.api(), "left");
    Agent::declare_stream(&mut one.api(), "left", "a", "raw", "none");
    let agent = Agent::of_path("/api/v1/agents/left/streams/a/packets");
    push(&one, &agent, 0..3);
    assert_eq!(agent.next_sequence(&mut one.api()), 3);
    proxy.hold_after(0, "PUT ");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| agent.refused(&mut one.api(), 3, &packet(STREAM, 3)));
        thread::sleep(Duration::from_millis(500));
        assert_eq!(agent.next_sequence(&mut one.api()), 3, "it waits");
        proxy.set_down(true);
        assert_eq!(waiting.join().unwrap().status, 503);
    });
    assert_eq!(agent.next_sequence(&mut one.api()), 3, "it was refused");
    one.kill();
    one.restart();
    let head = Request::new("HEAD", agent.path());
    let asked = one.api().send(&head).unwrap();
    assert_eq!(asked.status, 503, "it is on the disk only");
    proxy.set_down(false);
    until("it is not appended", &one, || {
        one.api().send(&head).unwrap().status == 200
    });
    assert_eq!(agent.next_sequence(&mut one.api()), 4);
}

/// The owner has the packets of a record that somebody removed, and appends them again.
#[test]
fn a_record_that_was_removed_is_appended_again_by_its_owner_only() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (_folder, mut one) = start(&node(&store, "one"));
    let (storage, agent) = written(&one, 6);
    let chain = format!("cluster/s/{storage}/chain/");
    let keys = store.keys();
    let records: Vec<_> = keys.iter().filter(|key| key.starts_with(&chain)).collect();
    let removed = records[records.len() / 2];
    store.python(&format!("s3.delete_object(Bucket=bucket, Key={removed:?})"));
    let (_other, two) = start(&node(&store, "two"));
    let path = format!("/storages/{storage}/adopt");
    let force = json!({ "force": true });
    let refused = two.api().refused("POST", &path, Some(&force));
    assert_eq!(refused.status, 503, "{refused:?}");
    let name = removed.strip_prefix("cluster/").unwrap();
    assert!(format!("{refused:?}").contains(name), "{refused:?}");
    push(&one, &agent, 6..7);
    one.kill();
    one.restart();
    push(&one, &agent, 7..9);
    one.kill();
    fs::remove_dir_all(one.data()).unwrap();
    assert_eq!(adopt(&two, &storage)["packets"], 9);
    has_all(&two, &storage, 9);
}

/// A disk that lies: what it has damaged of an open storage is made again from the chain.
#[test]
fn a_damaged_open_storage_is_made_again_from_its_chain() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (_folder, mut one) = start(&node(&store, "one"));
    for damaged in ["0000000000000000.itdata", "object-store.chains"] {
        let (storage, agent) = written(&one, 20);
        one.kill();
        let folder = one.data().join("storages").join(&storage);
        let path = [folder.join(damaged), one.data().join(damaged)];
        let path = path.iter().find(|path| path.exists()).unwrap();
        let mut bytes = fs::read(path).unwrap();
        bytes[9] ^= 4;
        fs::write(path, bytes).unwrap();
        one.restart();
        until("it does not go on", &one, || {
            let next = packet(STREAM, 20);
            agent.post(&mut one.api(), 20, &next).unwrap().status == 200
        });
        has_all(&one, &storage, 21);
        one.api().finalize(&storage);
    }
    assert!(one.data().join("superseded").exists());
}
