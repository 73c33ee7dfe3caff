//! Packets are selected by the times that their events have now, not by those at ingest: an agent
//! may replace its trace metadata, and a stream may declare its unit late.

use std::fs;
use std::path::Path;

use harness::{Agent, Api, Request, Server};
use serde_json::{Value, json};

use crate::queries::{mount, run};
use crate::recording::{record_now, stop};

const SECOND: i64 = 1_000_000_000;

/// Metadata with one event class and a clock with a period of `1 / frequency` seconds that starts
/// at `offset` seconds.
fn metadata(frequency: u64, offset: i64) -> String {
    format!(
        "/* CTF 1.8 */\n\
         typealias integer {{ size = 8; align = 8; signed = false; }} := u8;\n\
         trace {{ major = 1; minor = 8; byte_order = le; }};\n\
         clock {{ name = c; freq = {frequency}; offset_s = {offset}; }};\n\
         typealias integer {{ size = 64; align = 8; signed = false; map = clock.c.value; }} := t;\n\
         stream {{ event.header := struct {{ u8 id; t timestamp; }}; }};\n\
         event {{ name = tick; id = 0; fields := struct {{ u8 v; }}; }};\n"
    )
}

fn put_metadata(api: &mut Api, text: &str) {
    let request = Request::new("PUT", "/api/v1/agents/node/metadata").body(text.as_bytes());
    let response = api.send(&request).unwrap();
    assert!(response.status < 300, "{}", response.brief());
}

/// A packet with one event at each of these clock values.
fn packet(cycles: u64) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(cycles.to_le_bytes());
    bytes.push(7);
    bytes
}

fn declare(api: &mut Api, storage: &str, kind: &str) -> Agent {
    let agent = json!({ "name": "node", "host": "h" });
    api.done("PUT", "/agents/node", Some(&agent));
    let path = "/agents/node/streams/s";
    api.done("PUT", path, Some(&json!({ "kind": kind, "codec": "none" })));
    Agent::new(storage, "node", "s")
}

fn descriptors(api: &mut Api, storage: &str, query: &str) -> Vec<Value> {
    let path = format!("/storages/{storage}/descriptors?{query}");
    let page = api.done("GET", &path, None);
    page["items"].as_array().unwrap().clone()
}

/// Numbers of the packets that may contain events in a window of seconds, requested without and
/// with a query; both must be the same.
fn within(api: &mut Api, storage: &str, (from, to): (i64, i64)) -> Vec<u64> {
    let window = format!("from={}&to={}", from * SECOND, to * SECOND);
    let numbers = |items: Vec<Value>| -> Vec<u64> {
        let numbers = items.iter().map(|item| item["number"].as_u64().unwrap());
        numbers.collect()
    };
    let plain = numbers(descriptors(api, storage, &window));
    let with_query = format!("{window}&query=exists(ts)");
    assert_eq!(numbers(descriptors(api, storage, &with_query)), plain);
    plain
}

/// Events in a window of seconds, and the number of packets decoded for them.
fn count(api: &mut Api, storage: &str, (from, to): (i64, i64)) -> u64 {
    let body = json!({
        "query": "exists(ts)", "from": (from * SECOND).to_string(), "to": (to * SECOND).to_string(),
        "count": true,
    });
    let path = format!("/storages/{storage}/query");
    let answer = api.done("POST", &path, Some(&body));
    answer["count"].as_u64().unwrap()
}

#[test]
fn times_from_replaced_metadata_are_not_used() {
    let (folder, mut server, mut api) = Server::fresh();
    let storage = api.create_storage("replaced");
    let agent = declare(&mut api, &storage, "ctf");
    let (old, new) = (metadata(1_000_000_000, 0), metadata(1_000_000_000, 1_000));
    put_metadata(&mut api, &old);
    for second in 0..8 {
        agent.push(&mut api, second, &packet(second * SECOND as u64));
    }
    assert_eq!(within(&mut api, &storage, (3, 5)), [3, 4]);
    assert_eq!(count(&mut api, &storage, (3, 5)), 2);

    put_metadata(&mut api, &new);
    let all: Vec<u64> = (0..8).collect();
    assert_eq!(within(&mut api, &storage, (1_003, 1_005)), all);
    assert_eq!(count(&mut api, &storage, (1_003, 1_005)), 2);
    assert_eq!(count(&mut api, &storage, (3, 5)), 0);
    let shown = descriptors(&mut api, &storage, "limit=100");
    assert!(
        shown
            .iter()
            .all(|item| item["begin"].is_null() && item["end"].is_null())
    );

    // Packets that arrive now have correct times again.
    for second in 8..12 {
        agent.push(&mut api, second, &packet(second * SECOND as u64));
    }
    let ninth: Vec<u64> = (0..8).chain([9]).collect();
    assert_eq!(within(&mut api, &storage, (1_009, 1_010)), ninth);
    assert_eq!(count(&mut api, &storage, (1_009, 1_010)), 1);
    let copy = json!({
        "from": (1_009 * SECOND).to_string(), "to": (1_010 * SECOND).to_string(), "name": "copy",
    });
    let path = format!("/storages/{storage}/copy");
    for processors in [json!(null), json!([{ "type": "saver" }])] {
        let mut copy = copy.clone();
        if !processors.is_null() {
            copy["processors"] = processors;
        }
        let copied = api.done("POST", &path, Some(&copy));
        assert_eq!(copied["packets"], 9, "{copied}");
        let copied = copied["storage"].as_str().unwrap();
        assert_eq!(count(&mut api, copied, (1_003, 1_005)), 2);
    }

    // A restarted server reads its index first from the frames, then from the index parts.
    server.kill();
    server.restart();
    let mut api = server.api();
    assert_eq!(within(&mut api, &storage, (1_009, 1_010)), ninth);
    put_metadata(&mut api, &old);
    let early: Vec<u64> = (3..5).chain(8..12).collect();
    assert_eq!(within(&mut api, &storage, (3, 5)), early);
    put_metadata(&mut api, &new);
    api.finalize(&storage);
    assert_eq!(within(&mut api, &storage, (1_009, 1_010)), ninth);
    assert_eq!(count(&mut api, &storage, (1_003, 1_005)), 2);
    // A finalized storage contains its metadata.
    put_metadata(&mut api, &old);
    assert_eq!(within(&mut api, &storage, (1_009, 1_010)), ninth);
    assert!(api.verify(&storage).is_empty());
    check_mount(&server, &storage, folder.path());
}

/// A mount without chunk indexes prunes packets by their times in the index, if it can rely on
/// them.
fn check_mount(server: &Server, storage: &str, folder: &Path) {
    let mounted = folder.join("mount");
    mount(server, storage, &mounted);
    for entry in fs::read_dir(&mounted).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "idx") {
            fs::remove_file(path).unwrap();
        }
    }
    let query = |from: i64, to: i64| {
        let (from, to) = ((from * SECOND).to_string(), (to * SECOND).to_string());
        let folder = mounted.to_str().unwrap();
        let with_query = [
            "query",
            "--dir",
            folder,
            "--count",
            "--explain",
            "exists(ts)",
        ];
        let (code, out, errors) = run(&[&with_query[..], &["--from", &from, "--to", &to]].concat());
        assert_eq!(code, 0, "{errors}");
        (out, errors)
    };
    let shown =
        "runs of packets without a chunk index: 12, ruled out by the times of their packets: 3";
    for (window, events) in [((1_009, 1_010), "1"), ((1_003, 1_005), "2")] {
        let (out, errors) = query(window.0, window.1);
        assert!(out.contains(events), "{out}");
        if events == "1" {
            assert!(format!("{out}{errors}").contains(shown), "{out}{errors}");
        }
    }
}

#[test]
fn a_unit_declared_late_applies_to_all_packets() {
    let (_folder, _server, mut api) = Server::fresh();
    let storage = api.create_storage("late");
    let agent = declare(&mut api, &storage, "dft");
    let event = |ts: i64| {
        format!(
            "{{\"name\":\"a\",\"cat\":\"b\",\"pid\":1,\"tid\":1,\"ts\":{ts},\"dur\":1,\"ph\":\"X\"}}\n"
        )
    };
    // Microseconds, as far as the server can know.
    for second in 0..2_u32 {
        let line = event(i64::from(second) * SECOND / 1_000);
        agent.push(&mut api, u64::from(second), line.as_bytes());
    }
    assert_eq!(within(&mut api, &storage, (1, 2)), [1]);
    let unit =
        "{\"name\":\"CM\",\"ph\":\"M\",\"args\":{\"name\":\"time_metric\",\"value\":\"NS\"}}\n";
    agent.push(
        &mut api,
        2,
        format!("{unit}{}", event(2 * SECOND)).as_bytes(),
    );
    agent.push(&mut api, 3, event(3 * SECOND).as_bytes());
    // The first two packets now cover the first three milliseconds.
    assert_eq!(within(&mut api, &storage, (0, 1)), [0, 1]);
    assert_eq!(count(&mut api, &storage, (0, 1)), 2);
    assert_eq!(within(&mut api, &storage, (3, 4)), [0, 1, 3]);
    assert_eq!(count(&mut api, &storage, (3, 4)), 1);
    let shown = descriptors(&mut api, &storage, "limit=100");
    let begins: Vec<_> = shown.iter().map(|item| item["begin"].as_i64()).collect();
    assert_eq!(begins, [None, None, Some(2 * SECOND), Some(3 * SECOND)]);
    api.finalize(&storage);
    assert_eq!(within(&mut api, &storage, (3, 4)), [0, 1, 3]);
}

/// A line of DFTracer: an event that takes 7 units, or the declaration of a unit or name.
fn dft_event(second: i64, hash: &str) -> String {
    format!(
        "{{\"name\":\"r\",\"pid\":1,\"tid\":1,\"ts\":{},\"dur\":7,\"ph\":\"X\",\
         \"args\":{{\"fhash\":\"{hash}\"}}}}\n",
        second * SECOND
    )
}

fn dft_declaration(record: &str, name: &str, value: &str) -> String {
    format!(
        "{{\"name\":\"{record}\",\"ph\":\"M\",\"args\":{{\"name\":\"{name}\",\"value\":\"{value}\"}}}}\n"
    )
}

/// Pushes a stream whose packet 0 declares the unit and a name; another name is declared in packet
/// 12, after its first use.
fn push_declared(api: &mut Api, agent: &Agent) {
    for second in 0..=20 {
        let declared = match second {
            0 => dft_declaration("CM", "time_metric", "NS") + &dft_declaration("FH", "/a", "aa"),
            12 => dft_declaration("FH", "/b", "bb"),
            _ => String::new(),
        };
        let hash = if second % 5 == 2 { "bb" } else { "aa" };
        let packet = declared + &dft_event(second, hash);
        let answer = agent.post(api, second.unsigned_abs(), packet.as_bytes());
        let answer = answer.unwrap();
        assert!(answer.status < 300, "{}", answer.brief());
    }
}

fn count_of(api: &mut Api, storage: &str, query: &str) -> u64 {
    let body = json!({ "query": query, "count": true });
    let answer = api.done("POST", &format!("/storages/{storage}/query"), Some(&body));
    answer["count"].as_u64().unwrap()
}

/// A copy answers as its source does: it contains the packets that declare the unit and the names.
#[test]
fn a_copy_takes_declarations_along() {
    let (_folder, _server, mut api) = Server::fresh();
    let source = api.create_storage("source");
    let agent = declare(&mut api, &source, "dft");
    push_declared(&mut api, &agent);
    let saver = json!([{ "type": "saver" }]);
    let at = |second: i64| (second * SECOND).to_string();
    let frame = json!([{
        "type": "time_frame", "from": at(15), "to": at(18), "processors": [{ "type": "saver" }],
    }]);
    for is_finalized in [false, true] {
        if is_finalized {
            api.finalize(&source);
        }
        for (request, packets) in [
            // Packets 0 and 12, too.
            (json!({ "from": at(15) }), 8),
            (json!({ "from": at(15), "processors": saver }), 8),
            (json!({ "from": at(15), "to": at(18) }), 5),
            (json!({ "from": at(5), "to": at(8) }), 5),
            (json!({ "query": "fname == '/b' and dur == 7ns" }), 5),
            (
                json!({ "query": "fname == '/a' and dur == 7ns", "from": at(18) }),
                5,
            ),
            (json!({ "query": "fname == '/none'" }), 0),
            (json!({ "from": at(30) }), 0),
            (json!({ "processors": frame }), 5),
            (json!({}), 21),
        ] {
            let path = format!("/storages/{source}/copy");
            let copied = api.done("POST", &path, Some(&request));
            assert_eq!(copied["packets"], packets, "{request} {is_finalized}");
            let copy = copied["storage"].as_str().unwrap();
            for window in [
                "ts >= 1970-01-01T00:00:05Z and ts < 1970-01-01T00:00:08Z",
                "ts >= 1970-01-01T00:00:18Z",
            ] {
                for name in ["/a", "/b"] {
                    let query = format!("{window} and fname == '{name}' and dur == 7ns");
                    let whole = count_of(&mut api, &source, &query);
                    let found = count_of(&mut api, copy, &query);
                    let all = count_of(&mut api, copy, window);
                    // Of a window, all of its packets are copied or none that it did not ask for.
                    assert!(
                        found == whole || all == 0 || !request["query"].is_null(),
                        "{request} {query}: {found} of {whole}"
                    );
                }
            }
            assert_eq!(count_of(&mut api, copy, "dur != 7ns"), 0, "{request}");
            assert_eq!(
                count_of(&mut api, copy, "not exists(fname)"),
                0,
                "{request}"
            );
        }
    }
}

/// The same for what is copied from the buffer, and for recordings of a time frame or a query.
#[test]
fn what_is_recorded_of_a_window_contains_declarations() {
    let (_folder, _server, mut api) = Server::fresh();
    let at = |second: i64| (second * SECOND).to_string();
    let frame = json!([{
        "type": "time_frame", "from": at(15), "to": at(18), "processors": [{ "type": "saver" }],
    }]);
    let window = "ts >= 1970-01-01T00:00:15Z and ts < 1970-01-01T00:00:18Z";
    let query = |text: &str| json!([{ "type": "query", "query": text, "processors": [{ "type": "saver" }] }]);
    let other = format!("agent == 'other' and {window}");
    let [(id, recorded), (second, of_query), (third, of_other)] =
        [frame, query(window), query(&other)].map(|processors| {
            let (id, storage) = record_now(&mut api, json!({ "processors": processors }));
            declare(&mut api, &storage, "dft");
            (id, storage)
        });
    let agent = Agent::of_path("/api/v1/agents/node/streams/s/packets");
    push_declared(&mut api, &agent);
    for id in [&id, &second, &third] {
        stop(&mut api, id);
    }
    assert_eq!(count_of(&mut api, &of_other, ""), 0);
    let target = api.create_storage("target");
    let copied = json!({ "storage": target, "from": at(15), "to": at(18) });
    let copied = api.done("POST", "/buffer/copy", Some(&copied));
    assert_eq!(copied["written_packets"], 5, "{copied}");
    for storage in [&recorded, &of_query, &target] {
        assert_eq!(count_of(&mut api, storage, "exists(ts)"), 5);
        let query = "ts >= 1970-01-01T00:00:15Z and fname == '/a' and dur == 7ns";
        assert_eq!(count_of(&mut api, storage, query), 2);
        assert_eq!(count_of(&mut api, storage, "fname == '/b'"), 2);
    }
}
