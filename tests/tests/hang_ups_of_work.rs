//! Clients that hang up at any moment while packets are pushed without waiting or copied, while a
//! storage is repaired, and while spans are sent.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use harness::spans::{packets, request, send_spans, spans};
use harness::{Agent, Api, Random, Server, payload};
use serde_json::json;

use crate::hang_ups::{delay, hang_up_bytes};
use crate::recording::{record_now, saver, span};
use crate::repair::{PACKETS, check_told, damaged};

const BYTES: usize = 3_000;
const JSON: &str = "content-type: application/json\r\n";
const ASYNC: &str = "prefer: respond-async\r\n";

/// Checks that a clean restart shows what is found behind all hang-ups, and a kill afterwards, too.
fn check_restarts<T: PartialEq + Debug>(server: &mut Server, find: impl Fn(&mut Api) -> T) -> T {
    // Work without a client ends before the server does.
    server.terminate();
    let status = server.wait(Duration::from_secs(20));
    assert!(status.success(), "{}", server.log());
    server.restart();
    let first = find(&mut server.api());
    server.kill();
    server.restart();
    assert_eq!(find(&mut server.api()), first, "a kill changes something");
    first
}

fn wait_for_jobs(api: &mut Api) {
    let begin = Instant::now();
    while api.metric("tracehold_jobs_running") > 0.5 {
        assert!(begin.elapsed() < Duration::from_secs(20), "a job goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The packets of each stream, in order.
fn content(api: &mut Api, storage: &str) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut found: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for (_, stream, number) in packets(api, storage) {
        let packet = api.packet(storage, number);
        found.entry(stream).or_default().push(packet);
    }
    found
}

#[test]
fn a_droppable_packet_is_stored_once_however_often_it_is_sent() {
    const COUNT: u64 = 100;
    let (_folder, mut server, mut api) = Server::fresh();
    let storage = api.create_storage("droppable");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    let mut random = Random::new(11);
    let mut repeated = 0;
    for sequence in 0..COUNT {
        let packet = payload(1, sequence, BYTES);
        let fields = format!(
            "content-type: application/octet-stream\r\ntracehold-epoch: 1\r\n\
             tracehold-sequence: {sequence}\r\n{ASYNC}"
        );
        let target = ("POST", agent.path());
        hang_up_bytes(&server, target, &fields, &packet, delay(&mut random));
        // Its client sends it again, and waits.
        repeated += u64::from(agent.push(&mut api, sequence, &packet).duplicate);
    }
    assert!(repeated > 0, "no packet reached the server");
    let found = check_restarts(&mut server, |api| content(api, &storage));
    let all: Vec<_> = (0..COUNT).map(|number| payload(1, number, BYTES)).collect();
    assert_eq!(found["stream"], all);
    assert!(server.api().verify(&storage).is_empty());
}

#[test]
fn a_copy_leaves_packets_from_the_beginning_of_each_stream() {
    const COUNT: u64 = 40;
    let (_folder, mut server, mut api) = Server::fresh();
    let source = api.create_storage("source");
    for (seed, stream) in [(1, "one"), (2, "two")] {
        let agent = Agent::declare(&mut api, &source, "host", stream, "zstd");
        for sequence in 0..COUNT {
            agent.push(&mut api, sequence, &payload(seed, sequence, BYTES));
        }
    }
    let whole = content(&mut api, &source);
    let path = format!("/api/v1/storages/{source}/copy");
    let mut random = Random::new(12);
    let mut targets = Vec::new();
    for number in 0..16 {
        let target = api.create_storage(&format!("target {number}"));
        let body = json!({ "storage": target }).to_string();
        let is_async = number % 4 == 0;
        let fields = format!("{JSON}{}", if is_async { ASYNC } else { "" });
        let delay = delay(&mut random);
        hang_up_bytes(&server, ("POST", &path), &fields, body.as_bytes(), delay);
        targets.push((target, is_async));
    }
    // The last client waits.
    let target = api.create_storage("whole");
    let body = json!({ "storage": target });
    api.done("POST", &format!("/storages/{source}/copy"), Some(&body));
    targets.push((target, true));
    wait_for_jobs(&mut api);
    let copied = check_restarts(&mut server, |api| {
        let all = targets.iter().map(|(target, _)| content(api, target));
        all.collect::<Vec<_>>()
    });
    let mut api = server.api();
    for (found, (target, is_async)) in copied.iter().zip(&targets) {
        for (stream, packets) in found {
            assert!(whole[stream].starts_with(packets), "{target}");
        }
        // Nobody waits for it, so that no client can end it.
        let is_part = !found.is_empty() && *found != whole;
        assert!(!is_async || !is_part, "{target} has a part");
        assert!(api.verify(target).is_empty());
        api.finalize(target);
    }
    assert_eq!(copied.last(), Some(&whole));
}

#[test]
fn a_repair_goes_on_or_has_not_begun() {
    let (_folder, mut server, _) = Server::fresh();
    let mut random = Random::new(13);
    let mut storages = Vec::new();
    for number in 0..8 {
        let storage = damaged(&mut server, &format!("repaired {number}"));
        let path = format!("/api/v1/storages/{storage}/verify?repair=confirm");
        let fields = if number % 2 == 0 { ASYNC } else { "" };
        hang_up_bytes(&server, ("POST", &path), fields, b"", delay(&mut random));
        let mut api = server.api();
        wait_for_jobs(&mut api);
        // Its client sends it again, and waits.
        let path = format!("/storages/{storage}/verify?repair=confirm");
        let repaired = api.done("POST", &path, None);
        assert_eq!(repaired["missing_packets"], 1, "{repaired}");
        storages.push(storage);
    }
    check_restarts(&mut server, |api| {
        for storage in &storages {
            assert_eq!(api.state(storage), "OPEN");
            check_told(api, storage, PACKETS - 1);
        }
    });
}

#[test]
fn the_spans_of_a_request_are_stored_together_or_not_at_all() {
    const COUNT: u64 = 80;
    let (_folder, mut server, mut api) = Server::fresh();
    let (_, storage) = record_now(&mut api, json!({ "processors": saver() }));
    let mut random = Random::new(14);
    for trace in 1..=COUNT {
        let body = request(
            "shop",
            &[span(trace, 1, 0, "buy"), span(trace, 2, 1, "pay")],
        );
        // Some wait for about as long as a sync takes.
        let delay = delay(&mut random) * if trace % 2 == 0 { 1 } else { 10 };
        hang_up_bytes(
            &server,
            ("POST", "/v1/traces"),
            JSON,
            body.as_bytes(),
            delay,
        );
    }
    send_spans(&mut api, "shop", &[span(COUNT + 1, 1, 0, "buy")]);
    let found = check_restarts(&mut server, |api| {
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in spans(api, &storage).into_values().flatten() {
            let of_trace = names.entry(row["args.trace_id"].clone()).or_default();
            of_trace.push(row["name"].clone());
        }
        names
    });
    let last = format!("{:032x}", COUNT + 1);
    for (trace, names) in &found {
        let whole: &[&str] = if *trace == last {
            &["buy"]
        } else {
            &["buy", "pay"]
        };
        assert_eq!(names, whole, "{trace}");
    }
    assert!(found.contains_key(&last), "{found:?}");
}
