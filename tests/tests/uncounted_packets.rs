//! `events` of a storage is what queries find, also of packets that could not be counted when they
//! arrived; until they are, `uncounted_packets` tells how many there are.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use harness::{Agent, Api, Request, Server};
use serde_json::json;

use crate::queries::wait_for_indexes;

/// One event class, and events of one byte and its id.
const METADATA: &str = "/* CTF 1.8 */\n\
    typealias integer { size = 8; align = 8; signed = false; } := u8;\n\
    trace { major = 1; minor = 8; byte_order = le; };\n\
    stream { event.header := struct { u8 id; }; };\n\
    event { name = tick; id = 0; fields := struct { u8 v; }; };\n";

fn put_metadata(api: &mut Api, text: &str) {
    let target = "/api/v1/agents/node/metadata?allow_invalid=true";
    let request = Request::new("PUT", target).body(text.as_bytes());
    assert_eq!(api.send(&request).unwrap().status, 204);
}

/// Streams of an agent, each with this kind and leaf type.
fn declared(api: &mut Api, storage: &str, streams: &[(&str, &str, &str)]) -> Vec<Agent> {
    Agent::register(api, "node");
    let declare = |(stream, kind, leaf): &(&str, &str, &str)| {
        let path = format!("/agents/node/streams/{stream}");
        let body = json!({ "kind": kind, "codec": "none", "leaf": leaf });
        api.done("PUT", &path, Some(&body));
        Agent::new(storage, "node", stream)
    };
    streams.iter().map(declare).collect()
}

/// A packet with so many events.
fn packet(events: usize) -> Vec<u8> {
    [0, 7].repeat(events)
}

/// A gzip member with more text than is inflated for its events when it arrives.
fn long_member(events: usize) -> Vec<u8> {
    let mut member = GzEncoder::new(Vec::new(), Compression::fast());
    let filling = "x".repeat((33 << 20) / events);
    for number in 0..events {
        let (name, times) = ("\"name\":\"read\"", format!("\"ts\":{number},\"dur\":1"));
        writeln!(
            member,
            "{{{name},{times},\"args\":{{\"f\":\"{filling}\"}}}}"
        )
        .unwrap();
    }
    member.finish().unwrap()
}

/// Events and uncounted packets of a storage.
fn counted(api: &mut Api, storage: &str) -> (u64, Option<u64>) {
    let document = api.storage(storage);
    let events = document["events"].as_u64().unwrap();
    (events, document["uncounted_packets"].as_u64())
}

/// Events that a query finds, and whether it says that something is missing.
fn found(api: &mut Api, storage: &str) -> (u64, bool) {
    let path = format!("/storages/{storage}/query");
    let counted = api.done("POST", &path, Some(&json!({ "count": true })));
    let is_short = counted["skipped"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    (counted["count"].as_u64().unwrap(), is_short)
}

#[test]
fn packets_are_counted_when_their_metadata_becomes_readable() {
    let (_folder, mut server, mut api) = Server::fresh();
    let storage = api.create_storage("early");
    let streams = [("array", "ctf", "array"), ("plain", "ctf", "plain")];
    let agents = declared(&mut api, &storage, &streams);
    assert_eq!(counted(&mut api, &storage), (0, Some(0)));
    for agent in &agents {
        for sequence in 0..3 {
            agent.push(&mut api, sequence, &packet(100));
        }
    }
    assert_eq!(counted(&mut api, &storage), (0, Some(6)));
    put_metadata(&mut api, "/* CTF 1.8 */ trace {");
    assert_eq!(counted(&mut api, &storage), (0, Some(6)));
    assert_eq!(found(&mut api, &storage), (0, true));

    put_metadata(&mut api, METADATA);
    assert_eq!(counted(&mut api, &storage), (600, Some(0)));
    assert_eq!(found(&mut api, &storage), (600, false));
    // What comes now is counted when it arrives.
    for agent in &agents {
        agent.push(&mut api, 3, &packet(10));
    }
    assert_eq!(counted(&mut api, &storage), (620, Some(0)));

    // What was counted with other metadata is counted again.
    put_metadata(&mut api, "/* CTF 1.8 */ trace {");
    assert_eq!(counted(&mut api, &storage), (0, Some(8)));
    assert_eq!(found(&mut api, &storage), (0, true));
    let wider = METADATA.replace("struct { u8 v; }", "struct { u8 v; u8 w; u8 x; }");
    put_metadata(&mut api, &wider);
    let (half, _) = found(&mut api, &storage);
    assert_eq!(counted(&mut api, &storage), (half, Some(0)));
    assert!((300..=310).contains(&half), "{half}");
    put_metadata(&mut api, METADATA);
    assert_eq!(counted(&mut api, &storage), (620, Some(0)));

    server.kill();
    server.restart();
    let mut api = server.api();
    assert_eq!(counted(&mut api, &storage), (620, Some(0)));
    api.finalize(&storage);
    wait_for_indexes(&server, &storage);
    assert_eq!(counted(&mut api, &storage), (620, Some(0)));
    assert_eq!(found(&mut api, &storage), (620, false));
}

#[test]
fn long_packets_are_counted() {
    const EVENTS: u64 = 40;
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("long");
    let agents = declared(&mut api, &storage, &[("s", "dft", "array")]);
    agents[0].push(&mut api, 0, &long_member(40));
    let receipt = api.done("GET", &format!("/storages/{storage}/descriptors"), None);
    assert!(receipt["items"][0]["events"].is_null(), "{receipt}");
    assert_eq!(counted(&mut api, &storage), (EVENTS, Some(0)));
    assert_eq!(found(&mut api, &storage), (EVENTS, false));
    api.finalize(&storage);
    wait_for_indexes(&server, &storage);
    assert_eq!(counted(&mut api, &storage), (EVENTS, Some(0)));
}

#[test]
fn packets_without_metadata_remain_uncounted() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("without");
    let agents = declared(&mut api, &storage, &[("s", "ctf", "array")]);
    agents[0].push(&mut api, 0, &packet(5));
    agents[0].push(&mut api, 1, &packet(5));
    assert_eq!(counted(&mut api, &storage), (0, Some(2)));
    api.finalize(&storage);
    wait_for_indexes(&server, &storage);
    assert_eq!(counted(&mut api, &storage), (0, Some(2)));
    assert_eq!(found(&mut api, &storage), (0, true));
}
