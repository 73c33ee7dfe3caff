//! A hundred agents push into several recordings at once: nothing is lost, no agent starves, memory
//! is bounded.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use harness::spans::packets;
use harness::{Request, Server, Settings};
use serde_json::json;

use super::recording::{LIMIT, record_now, saver, stop};

/// Packets that each stream sends, and their size.
const PACKETS: u64 = 12;
const PACKET_BYTES: usize = 4096;
/// The server's memory limit for the test.
const MEMORY_MAX: u64 = 512 << 20;

/// Sends the packets of four streams of one agent in turn; returns the progress after each.
fn agent_pushes(server: &Server, agent: usize) {
    let mut api = server.api();
    let name = format!("agent-{agent}");
    api.done(
        "PUT",
        &format!("/agents/{name}"),
        Some(&json!({ "name": name, "host": "h" })),
    );
    for stream in 0..4 {
        let path = format!("/agents/{name}/streams/s{stream}");
        api.done("PUT", &path, Some(&json!({ "kind": "raw" })));
    }
    for sequence in 0..PACKETS {
        for stream in 0..4_u64 {
            let number = agent as u64 * 4 + stream;
            let packet = harness::payload(number, sequence, PACKET_BYTES);
            let path = format!("/api/v1/agents/{name}/streams/s{stream}/packets");
            let begin = Instant::now();
            loop {
                let request = Request::new("POST", &path)
                    .header("content-type", "application/octet-stream")
                    .header("tracehold-epoch", 1)
                    .header("tracehold-sequence", sequence)
                    .body(&packet);
                let response = api.send(&request).unwrap();
                match response.status {
                    200 => break,
                    // Busy for all agents alike: none may starve.
                    429 => assert!(begin.elapsed() < LIMIT, "{name} starves"),
                    _ => panic!("{}", response.brief()),
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

#[test]
fn a_hundred_agents_record_into_three_storages() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[recording]\nbuffer_bytes_max = 8388608\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let mut api = server.api();
    let half: Vec<_> = (0..50).map(|agent| format!("agent-{agent}")).collect();
    let chains = [
        json!(saver()),
        json!([{ "type": "saver" }, { "type": "aggregator" }, { "type": "invocation_cloner" }]),
        json!([{ "type": "agent_filter", "agents": half, "processors": [{ "type": "saver" }] }]),
    ];
    let recordings = chains.map(|chain| record_now(&mut api, json!({ "processors": chain })));
    thread::scope(|scope| {
        for agent in 0..100 {
            let server = &server;
            scope.spawn(move || agent_pushes(server, agent));
        }
    });
    // The server has closed the connection that was idle meanwhile.
    let mut api = server.api();
    let peak = server.peak_bytes();
    assert!(peak <= MEMORY_MAX, "{} MiB", peak >> 20);
    for (at, (id, storage)) in recordings.iter().enumerate() {
        stop(&mut api, id);
        let found = packets(&mut api, storage);
        let mut counts = BTreeMap::<_, u64>::new();
        for (agent, stream, number) in &found {
            let count = counts.entry((agent.clone(), stream.clone())).or_default();
            let stream: u64 = stream[1..].parse().unwrap();
            let agent: u64 = agent["agent-".len()..].parse().unwrap();
            let expected = harness::payload(agent * 4 + stream, *count, PACKET_BYTES);
            if number % 16 == 0 {
                assert_eq!(api.packet(storage, *number), expected);
            }
            *count += 1;
        }
        let agents = if at == 2 { 50 } else { 100 };
        assert_eq!(counts.len(), agents * 4, "recording {at}");
        assert!(
            counts.values().all(|count| *count == PACKETS),
            "recording {at}: {counts:?}"
        );
    }
    let recorded = api.metric("tracehold_recorded_packets");
    assert_eq!(recorded, 3.0 * 400.0 * PACKETS as f64);
}
