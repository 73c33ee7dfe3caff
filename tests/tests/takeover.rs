//! Open storages whose packets are in the object store before they are acknowledged: another node
//! goes on with them when theirs is gone, and nothing acknowledged is lost or there twice.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use harness::{
    Agent, Api, Connection, ObjectStore, Random, Receipt, Request, Server, Settings, StoreFault,
    StoreProxy, packet, payload,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const STREAM: u64 = 5;

/// A node whose packets are in the store before they are acknowledged.
pub(crate) fn node(store: &ObjectStore, name: &str) -> Settings {
    store.settings(name, CHAINED)
}

pub(crate) const CHAINED: &str =
    "durability = \"object\"\nappend_interval_ms = 20\nrequest_seconds = 3\n";

pub(crate) fn start(settings: &Settings) -> (TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), settings);
    (folder, server)
}

pub(crate) fn until(what: &str, server: &Server, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}:\n{}", server.log());
        thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn adopt(server: &Server, storage: &str) -> Value {
    let path = format!("/storages/{storage}/adopt");
    server
        .api()
        .done("POST", &path, Some(&json!({ "force": true })))
}

/// The payloads of a stream in order of their numbers.
fn payloads(server: &Server, storage: &str) -> Vec<Vec<u8>> {
    let mut api = server.api();
    let (mut numbers, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/storages/{storage}/descriptors?limit=1000{after}");
        let page = api.done("GET", &path, None);
        let items = page["items"].as_array().unwrap();
        numbers.extend(items.iter().map(|item| item["number"].as_u64().unwrap()));
        match page["next"].as_u64() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    numbers
        .into_iter()
        .map(|number| api.packet(storage, number))
        .collect()
}

/// The storage has the packets of the stream from the first to the one before `end`, once each.
pub(crate) fn has_all(server: &Server, storage: &str, end: u64) {
    let found = payloads(server, storage);
    let expected: Vec<_> = (0..end).map(|sequence| packet(STREAM, sequence)).collect();
    assert_eq!(found.len(), expected.len(), "{}", server.log());
    assert!(found == expected, "other packets");
}

/// A new storage, and a stream that has so many packets in it.
pub(crate) fn written(server: &Server, packets: u64) -> (String, Agent) {
    let storage = server.api().create_storage("first");
    let agent = Agent::declare(&mut server.api(), &storage, "left", "a", "zstd");
    push(server, &agent, 0..packets);
    (storage, agent)
}

pub(crate) fn push(server: &Server, agent: &Agent, sequences: std::ops::Range<u64>) {
    let mut api = server.api();
    for sequence in sequences {
        agent.push(&mut api, sequence, &packet(STREAM, sequence));
    }
}

#[test]
fn a_node_that_is_lost_with_its_disk_loses_nothing() {
    if let Some(store) = ObjectStore::moto() {
        lost_with_its_disk(&store);
    }
}

pub(crate) fn lost_with_its_disk(store: &ObjectStore) {
    let (_folder, mut one) = start(&node(store, "one"));
    let (storage, agent) = written(&one, 20);
    assert_eq!(one.api().storage(&storage)["tier"]["state"], "chained");
    let records = || {
        let chain = format!("cluster/s/{storage}/chain/");
        let keys = store.keys().into_iter();
        keys.filter(|key| key.starts_with(&chain)).count()
    };
    // What is changed without a packet is there soon.
    let before = records();
    let patch = json!({ "description": "changed" });
    one.api()
        .done("PATCH", &format!("/storages/{storage}"), Some(&patch));
    until("the description stays here", &one, || records() > before);
    push(&one, &agent, 20..21);
    one.kill();
    fs::remove_dir_all(one.data()).unwrap();

    let (_other, two) = start(&node(store, "two"));
    let adopted = adopt(&two, &storage);
    assert_eq!(adopted, json!({ "state": "written", "packets": 21 }));
    has_all(&two, &storage, 21);
    let info = two.api().storage(&storage);
    assert_eq!(
        (&info["name"], &info["description"]),
        (&json!("first"), &json!("changed"))
    );
    // The agent goes on where it was; what it is not sure of is there once.
    let repeated = agent.push(&mut two.api(), 20, &packet(STREAM, 20));
    assert!(repeated.duplicate, "{repeated:?}");
    push(&two, &agent, 21..25);
    two.api().finalize(&storage);
    has_all(&two, &storage, 25);
    assert_eq!(two.api().verify(&storage), Vec::<Value>::new());
    until("its packets stay in the chain", &two, || {
        two.api().storage(&storage)["tier"]["state"] == "uploaded" && records() == 3
    });

    // The name of the lost node, on an empty disk: it serves what is sealed.
    one.restart();
    until("it is not served", &one, || {
        one.api()
            .call("GET", &format!("/storages/{storage}"), None)
            .status
            == 200
    });
    has_all(&one, &storage, 25);
}

/// Many streams, packets that are larger than most records, and batches.
#[test]
fn packets_of_all_sizes_and_streams_are_taken_over() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let mut settings = node(&store, "one");
    // The largest packet has to arrive within the patience of a push.
    settings.config = settings
        .config
        .replace("request_seconds = 3", "request_seconds = 20");
    let (_folder, mut one) = start(&settings);
    let storage = one.api().create_storage("first");
    let lengths = |stream: u64| -> Vec<usize> {
        let long = if stream == 3 { 14 << 20 } else { 9_000 };
        vec![1, 5_000, long, 700, 3 << 20]
    };
    let packets = |stream: u64| -> Vec<Vec<u8>> {
        let lengths = lengths(stream).into_iter().zip(0..);
        lengths
            .map(|(length, at)| payload(stream, at, length))
            .collect()
    };
    let streams = 24;
    for stream in 0..streams {
        let codec = if stream % 2 == 0 { "zstd" } else { "none" };
        let name = format!("s{stream}");
        let mut api = one.api();
        let agent = Agent::declare(&mut api, &storage, "left", &name, codec);
        let response = agent.post_many(&mut api, 0, &packets(stream)).unwrap();
        assert_eq!(response.status, 200, "{}", response.brief());
    }
    one.kill();
    fs::remove_dir_all(one.data()).unwrap();
    let (_other, two) = start(&node(&store, "two"));
    let adopted = adopt(&two, &storage);
    assert_eq!(adopted["packets"], streams * 5, "{adopted}");
    let found: BTreeSet<_> = payloads(&two, &storage).into_iter().collect();
    let expected: BTreeSet<_> = (0..streams).flat_map(packets).collect();
    assert!(found == expected, "{} and {}", found.len(), expected.len());
}

#[test]
fn a_node_that_was_taken_over_acknowledges_nothing_more() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (_folder, one) = start(&node(&store, "one"));
    let (_other, two) = start(&node(&store, "two"));
    let (storage, agent) = written(&one, 5);
    // It lives: without force nobody takes its storage.
    let path = format!("/storages/{storage}/adopt");
    until("the nodes do not see each other", &two, || {
        let nodes = two.api().done("GET", "/nodes", None);
        nodes["nodes"].as_array().unwrap().len() == 2
    });
    let refused = two.api().refused("POST", &path, Some(&json!({})));
    assert_eq!(
        (refused.status, refused.code.as_str()),
        (409, "writer_lives")
    );

    assert_eq!(adopt(&two, &storage)["packets"], 5);
    let refused = agent.refused(&mut one.api(), 5, &packet(STREAM, 5));
    assert_eq!(
        (refused.status, refused.code.as_str()),
        (503, "storage_taken_over")
    );
    // Its copy is set aside, and it sends everybody to the new writer.
    until("it is not sent to the new writer", &one, || {
        let response = agent.post(&mut one.api(), 5, &packet(STREAM, 5)).unwrap();
        let location = response.header("location").unwrap_or_default();
        response.status == 307 && location.starts_with(&two.url())
    });
    let aside = one.data().join("superseded");
    assert_eq!(fs::read_dir(&aside).unwrap().count(), 1, "{}", one.log());
    let copies = "tracehold_object_store_superseded_copies";
    until("its copy is not counted", &one, || {
        one.api().metric(copies) == 1.0
    });
    assert_eq!(two.api().metric(copies), 0.0);
    // Packet 5 was not acknowledged, and is not there.
    has_all(&two, &storage, 5);
    push(&two, &agent, 5..8);
    has_all(&two, &storage, 8);
}

#[test]
fn without_the_store_nothing_is_acknowledged() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let proxy = StoreProxy::start(store.address());
    let settings = ObjectStore::settings_at(proxy.address(), "one", CHAINED);
    let (_folder, mut one) = start(&settings);
    let (storage, agent) = written(&one, 3);
    proxy.set_down(true);
    for _ in 0..2 {
        let refused = agent.refused(&mut one.api(), 3, &packet(STREAM, 3));
        assert_eq!(
            (refused.status, refused.code.as_str()),
            (503, "object_store_unavailable")
        );
    }
    // Who asks where to go on is not told that it was.
    let head = Request::new("HEAD", agent.path()).header("tracehold-epoch", 1);
    let asked = one.api().send(&head).unwrap();
    assert_eq!(
        (asked.status, asked.header("tracehold-next-sequence")),
        (503, None)
    );
    // Also after a restart, with the store still down.
    one.kill();
    one.restart();
    let refused = agent.refused(&mut one.api(), 3, &packet(STREAM, 3));
    assert_eq!(refused.status, 503);
    proxy.set_down(false);
    until("it does not resume", &one, || {
        let response = agent.post(&mut one.api(), 3, &packet(STREAM, 3)).unwrap();
        response.status == 200
    });
    push(&one, &agent, 4..6);

    // A finalization waits, and goes on after a crash.
    proxy.set_down(true);
    let finalize = format!("/api/v1/storages/{storage}/finalize");
    let finalize = Request::new("POST", &finalize).header("prefer", "respond-async");
    assert_eq!(one.api().send(&finalize).unwrap().status, 202);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(one.api().state(&storage), "FINALIZING");
    one.kill();
    one.restart();
    assert_eq!(one.api().state(&storage), "FINALIZING");
    proxy.set_down(false);
    until("it is not finalized", &one, || {
        one.api().state(&storage) == "FINALIZED"
    });
    has_all(&one, &storage, 6);
}

#[test]
fn answers_of_the_store_that_are_lost_leave_no_packet_out_and_none_twice() {
    if let Some(store) = ObjectStore::moto() {
        lost_answers(&store);
    }
}

pub(crate) fn lost_answers(store: &ObjectStore) {
    let proxy = StoreProxy::start(store.address());
    let settings = store.settings_through(&proxy, "one", CHAINED);
    let (_folder, mut one) = start(&settings);
    let (storage, agent) = written(&one, 0);
    let faults = [
        StoreFault::DropAnswer,
        StoreFault::DropRequest,
        StoreFault::Refuse(503),
        StoreFault::Refuse(409),
        StoreFault::CutAnswer,
    ];
    let mut sequence = 0;
    for fault in faults {
        for _ in 0..2 {
            proxy.fail("chain", fault);
            until("it is not acknowledged", &one, || {
                let body = packet(STREAM, sequence);
                agent.post(&mut one.api(), sequence, &body).unwrap().status == 200
            });
            sequence += 1;
        }
    }
    one.kill();
    fs::remove_dir_all(one.data()).unwrap();
    let (_other, two) = start(&node(store, "two"));
    assert_eq!(adopt(&two, &storage)["packets"], sequence);
    has_all(&two, &storage, sequence);
}

/// Pushes packets until it is told to stop, to whichever node takes them; returns how many were
/// acknowledged.
fn agent_of_a_cluster(nodes: &Mutex<Vec<SocketAddr>>, storage: &str, stop: &AtomicBool) -> u64 {
    let agent = Agent::new(storage, "left", "a");
    let mut sequence = 0;
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        let address = {
            let nodes = nodes.lock().unwrap();
            nodes[at % nodes.len()]
        };
        let attempt = Connection::open(address).ok().and_then(|connection| {
            let mut api = Api::new(connection);
            let response = agent
                .post(&mut api, sequence, &packet(STREAM, sequence))
                .ok()?;
            (response.status == 200).then(|| Receipt::all(&response.json()))
        });
        match attempt {
            Some(_) => sequence += 1,
            None => {
                at += 1;
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
    sequence
}

/// Tells the agent to stop, also when the test fails.
struct Stopping(Arc<AtomicBool>);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// `TAKEOVER_SEEDS` chooses how many seeds are tried.
#[test]
fn three_nodes_lose_nothing_whoever_dies() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let seeds = std::env::var("TAKEOVER_SEEDS").map_or(1, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        whoever_dies(&store, 11 + seed);
    }
}

/// Three nodes; one after another is killed or frozen, another takes the storage over.
fn whoever_dies(store: &ObjectStore, seed: u64) {
    let mut nodes: Vec<_> = ["one", "two", "three"]
        .map(|name| start(&node(store, name)))
        .into();
    let storage = nodes[0].1.api().create_storage(&format!("seed {seed}"));
    for (_, server) in &nodes {
        let mut api = server.api();
        Agent::register(&mut api, "left");
        Agent::declare_stream(&mut api, "left", "a", "raw", "none");
    }
    let mut random = Random::new(seed);
    let stop = Arc::new(AtomicBool::new(false));
    let mut owner = 0;
    let acknowledged = thread::scope(|scope| {
        let stopping = Stopping(Arc::clone(&stop));
        let all = nodes.iter().map(|(_, server)| server.address());
        let addresses = Mutex::new(all.collect::<Vec<_>>());
        let addresses = Arc::new(addresses);
        let (known, stopped, of) = (Arc::clone(&addresses), Arc::clone(&stop), storage.clone());
        let pushing = scope.spawn(move || agent_of_a_cluster(&known, &of, &stopped));
        for round in 0..9_u64 {
            thread::sleep(Duration::from_millis(200 + random.below(400)));
            let next = (owner + 1) % nodes.len();
            let is_killed = round % 3 == 0;
            if is_killed {
                let server = &mut nodes[owner].1;
                server.kill();
                server.restart();
                addresses.lock().unwrap()[owner] = server.address();
            } else {
                signal(&nodes[owner].1, "STOP");
            }
            adopt(&nodes[next].1, &storage);
            if !is_killed {
                thread::sleep(Duration::from_millis(random.below(300)));
                signal(&nodes[owner].1, "CONT");
            }
            owner = next;
        }
        thread::sleep(Duration::from_millis(500));
        drop(stopping);
        pushing.join().unwrap()
    });
    assert!(acknowledged > 20, "{acknowledged}");
    let last = &nodes[owner].1;
    let found = payloads(last, &storage);
    // What was in flight at the end may be there, too.
    assert!((acknowledged..=acknowledged + 1).contains(&(found.len() as u64)));
    for (sequence, payload) in (0..).zip(&found) {
        assert!(*payload == packet(STREAM, sequence), "packet {sequence}");
    }
    last.api().finalize(&storage);
    assert_eq!(payloads(last, &storage), found);
    for (_, server) in &nodes {
        until("it is not served", server, || {
            server
                .api()
                .call("GET", &format!("/storages/{storage}"), None)
                .status
                == 200
        });
        assert_eq!(payloads(server, &storage), found);
    }
}

/// Nobody asks for a takeover: the agent tries another node, again and again.
#[test]
fn an_agent_goes_on_at_another_node_by_itself() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (_folder, mut one) = start(&node(&store, "one"));
    let (_other, two) = start(&node(&store, "two"));
    let (storage, agent) = written(&one, 0);
    Agent::declare(&mut two.api(), &storage, "left", "a", "none");
    push(&one, &agent, 0..7);
    until("the writer is not known", &two, || {
        let response = agent.post(&mut two.api(), 7, &packet(STREAM, 7)).unwrap();
        response.status == 307
    });
    one.kill();
    let mut codes = BTreeSet::new();
    until("it is not taken over", &two, || {
        let response = agent.post(&mut two.api(), 7, &packet(STREAM, 7)).unwrap();
        if response.status == 503 {
            codes.insert(response.json()["code"].to_string());
        }
        response.status == 200
    });
    assert!(codes.contains("\"storage_taken_over\""), "{codes:?}");
    has_all(&two, &storage, 8);
    // The node comes back with its disk, and makes nobody go back to it.
    one.restart();
    until("it is not sent to the new writer", &one, || {
        agent
            .post(&mut one.api(), 8, &packet(STREAM, 8))
            .unwrap()
            .status
            == 307
    });
    has_all(&two, &storage, 8);
}

/// `tracehold push` asks where the stream goes on before it pushes; that makes a node take over.
#[test]
fn a_push_by_command_goes_on_at_another_node() {
    let Some(store) = ObjectStore::moto() else {
        return;
    };
    let (folder, mut one) = start(&node(&store, "one"));
    let (_other, two) = start(&node(&store, "two"));
    let (storage, agent) = written(&one, 0);
    push(&one, &agent, 0..7);
    one.kill();
    let file = folder.path().join("more.raw");
    std::fs::write(&file, b"more").unwrap();
    let url = two.url();
    let words = [
        "push",
        "--server",
        &url,
        "--storage",
        &storage,
        "--kind",
        "raw",
        "--agent",
        "b",
    ];
    let words = words.iter().map(|word| (*word).to_owned());
    let words: Vec<String> = words.chain([file.display().to_string()]).collect();
    let pushed = harness::run_tracehold(&words);
    let said = String::from_utf8_lossy(&pushed.stderr).into_owned();
    assert!(pushed.status.success(), "{said}\n{}", two.log());
    assert_eq!(payloads(&two, &storage).len(), 8);
}

pub(crate) fn signal(server: &Server, name: &str) {
    let sent = std::process::Command::new("kill")
        .args([format!("-{name}"), server.pid().to_string()])
        .status();
    assert!(sent.unwrap().success());
}
