//! What arrives in each stream and what is lost of it, as `GET /api/v1/agents` says it.

use harness::{Agent, Api, Request, Server};
use serde_json::{Value, json};

/// The activity of a stream of the agent `host`.
fn activity(api: &mut Api, stream: &str) -> Value {
    let agent = api.done("GET", "/agents/host", None);
    let streams = agent["streams"].as_array().unwrap();
    let found = streams.iter().find(|found| found["id"] == stream);
    found.unwrap()["activity"].clone()
}

fn check(api: &mut Api, stream: &str, expected: &[(&str, u64)]) {
    let found = activity(api, stream);
    for (name, number) in expected {
        assert_eq!(found[name], *number, "{name} of {stream}: {found}");
    }
}

fn started(streams: &[(&str, &str)]) -> (tempfile::TempDir, Server, Api, String) {
    let (folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("s");
    Agent::register(&mut api, "host");
    for (stream, kind) in streams {
        Agent::declare_stream(&mut api, "host", stream, kind, "none");
    }
    (folder, server, api, storage)
}

const EVENT: &str = "{\"id\":1,\"name\":\"read\",\"ph\":\"X\",\"pid\":1,\"ts\":5,\"dur\":1}\n";

#[test]
fn packets_are_counted_by_stream_in_all_storages() {
    let (_folder, _server, mut api, storage) = started(&[("busy", "dft"), ("idle", "dft")]);
    assert_eq!(activity(&mut api, "busy"), Value::Null);
    let other = api.create_storage("other");
    let packet = EVENT.repeat(3);
    for (storage, packets) in [(&storage, 4), (&other, 2)] {
        let agent = Agent::new(storage, "host", "busy");
        for sequence in 0..packets {
            agent.push(&mut api, sequence, packet.as_bytes());
        }
        // It is there already.
        agent.push(&mut api, 0, packet.as_bytes());
    }
    let bytes = 6 * packet.len() as u64;
    let expected = [
        ("packets", 6),
        ("bytes", bytes),
        ("events", 18),
        ("lost_events", 0),
    ];
    check(&mut api, "busy", &expected);
    let found = activity(&mut api, "busy");
    let rate = |name: &str| found[name].as_f64().unwrap() * 30.0;
    // As many as were counted, if this took less than 30 s.
    assert!(rate("packets_per_second") <= 6.01 && rate("events_per_second") <= 18.01);
    assert!(rate("bytes_per_second") <= bytes as f64 + 0.01, "{found}");
    assert_eq!(activity(&mut api, "idle"), Value::Null);

    // Counts end with the agent, and a storage that is gone changes nothing about what arrived.
    for storage in [&storage, &other] {
        let deleted = api.call("DELETE", &format!("/storages/{storage}"), None);
        assert_eq!(deleted.status, 204);
    }
    check(&mut api, "busy", &expected);
    assert_eq!(api.call("DELETE", "/agents/host", None).status, 204);
    Agent::register(&mut api, "host");
    Agent::declare_stream(&mut api, "host", "busy", "dft", "none");
    assert_eq!(activity(&mut api, "busy"), Value::Null);
}

#[test]
fn gaps_and_other_refusals_are_counted() {
    let (_folder, _server, mut api, storage) = started(&[("s", "raw"), ("other", "raw")]);
    let agent = Agent::new(&storage, "host", "s");
    agent.push(&mut api, 0, b"first");
    for sequence in [2, 9] {
        assert_eq!(
            agent.refused(&mut api, sequence, b"later").code,
            "sequence_gap"
        );
    }
    assert_eq!(agent.refused(&mut api, 1, b"").code, "packet_empty");
    check(
        &mut api,
        "s",
        &[("packets", 1), ("gaps", 2), ("refused_pushes", 1)],
    );

    // Of packets that name no storage, too.
    let buffered = Agent::of_path("/api/v1/agents/host/streams/other/packets");
    let refused = buffered.refused(&mut api, 0, b"");
    assert_eq!(refused.code, "packet_empty");
    check(
        &mut api,
        "other",
        &[("packets", 0), ("gaps", 0), ("refused_pushes", 1)],
    );

    // What nobody has declared takes no room.
    for stream in ["unknown", "s"] {
        let host = if stream == "s" { "unknown" } else { "host" };
        let absent = Agent::new(&storage, host, stream);
        assert_eq!(absent.refused(&mut api, 0, b"x").status, 404);
    }
    Agent::declare_stream(&mut api, "host", "unknown", "raw", "none");
    assert_eq!(activity(&mut api, "unknown"), Value::Null);
}

const METADATA: &str = "/* CTF 1.8 */
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { uint32_t magic; }; };
stream {
    packet.context := struct { uint64_t packet_size; uint64_t content_size; uint64_t events_discarded; };
    event.header := struct { uint64_t timestamp; };
};
event { name = \"e\"; fields := struct { uint64_t x; }; };
";

/// A packet with an event, after so many were discarded.
fn ctf_packet(discarded: u64) -> Vec<u8> {
    let mut packet = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
    let bits = (4 + 3 * 8 + 2 * 8) * 8_u64;
    for number in [bits, bits, discarded, 5, 6] {
        packet.extend(number.to_le_bytes());
    }
    packet
}

#[test]
fn events_that_a_tracer_discarded_are_counted() {
    let (_folder, _server, mut api, storage) = started(&[("ctf", "ctf")]);
    let request = Request::new("PUT", "/api/v1/agents/host/metadata").body(METADATA.as_bytes());
    assert_eq!(api.send(&request).unwrap().status, 204);
    let agent = Agent::new(&storage, "host", "ctf");
    for (sequence, discarded) in [(0, 7), (1, 7), (2, 12)] {
        agent.push(&mut api, sequence, &ctf_packet(discarded));
    }
    check(
        &mut api,
        "ctf",
        &[("packets", 3), ("events", 3), ("lost_events", 12)],
    );
}

#[test]
fn a_token_for_storages_sees_no_activity_of_others() {
    let (_folder, server, mut api, storage) = started(&[("s", "raw")]);
    Agent::new(&storage, "host", "s").push(&mut api, 0, b"first");
    let token = |api: &mut Api, spec: Value, by: Option<&str>| {
        let body = spec.to_string();
        let mut request = Request::new("POST", "/api/v1/tokens")
            .header("content-type", "application/json")
            .body(body.as_bytes());
        if let Some(by) = by {
            request = request.header("authorization", format!("Bearer {by}"));
        }
        api.send(&request).unwrap().json()["token"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let operator = token(&mut api, json!({ "name": "n", "role": "operator" }), None);
    let all = json!({ "name": "n", "role": "reader" });
    let all = token(&mut api, all, Some(&operator));
    let scoped = json!({ "name": "n", "role": "agent", "storages": [storage], "agents": ["host"] });
    let scoped = token(&mut api, scoped, Some(&operator));
    for (token, sees) in [(&operator, true), (&all, true), (&scoped, false)] {
        let request = Request::new("GET", "/api/v1/agents");
        let request = request.header("authorization", format!("Bearer {token}"));
        let list = server.api().send(&request).unwrap().json();
        let activity = &list["items"][0]["streams"][0]["activity"];
        assert_eq!(activity.is_object(), sees, "{list}");
    }
}
