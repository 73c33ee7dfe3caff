//! A client that declares much and sends little does not block others.

use std::time::{Duration, Instant};

use harness::{Agent, Http2Streams, Request, Server, Settings, packet};

#[test]
fn a_large_declared_length_reserves_only_what_arrives() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("slow");
    let slow = Agent::declare(&mut api, &storage, "slow", "s", "none");
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/octet-stream\r\n\
         tracehold-epoch: 0\r\ntracehold-sequence: 0\r\ncontent-length: 16777216\r\n\r\n",
        slow.path()
    );
    let mut senders: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for sender in &mut senders {
        sender.write(&[head.as_bytes(), &[7; 2048]]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
    let agent = Agent::declare(&mut api, &storage, "quick", "s", "none");
    let begin = Instant::now();
    for sequence in 0..20 {
        agent.push(&mut api, sequence, &packet(1, sequence));
    }
    assert!(
        begin.elapsed() < Duration::from_secs(4),
        "{:?}",
        begin.elapsed()
    );
}

/// Each of many senders has reserved no more than the first bytes of its packet.
#[test]
fn many_large_declared_lengths_leave_room_for_others() {
    const SENDERS: usize = 400;
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("slow");
    let mut senders = Vec::new();
    for at in 0..SENDERS {
        let name = if at % 2 == 0 { "even" } else { "odd" };
        let slow = Agent::declare(&mut api, &storage, name, "s", "none");
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/octet-stream\r\n\
             tracehold-epoch: 0\r\ntracehold-sequence: 0\r\ncontent-length: 16000000\r\n\r\n",
            slow.path()
        );
        let mut sender = server.connect();
        sender.write(&[head.as_bytes(), b"x"]).unwrap();
        senders.push(sender);
    }
    let begin = Instant::now();
    let in_flight = loop {
        let bytes = api.metric("tracehold_storage_in_flight_bytes");
        if bytes >= SENDERS as f64 * 16384.0 {
            break bytes;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{bytes} bytes");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(in_flight < SENDERS as f64 * 20_000.0, "{in_flight} bytes");
    let agent = Agent::declare(&mut api, &storage, "quick", "s", "none");
    for sequence in 0..5 {
        agent.push(&mut api, sequence, &[7; 1 << 20]);
    }
}

/// A record of a batch that does not arrive keeps no memory: what was declared is returned.
#[test]
fn a_record_that_was_only_declared_leaves_its_memory_to_others() {
    const SENDERS: usize = 20;
    const DECLARED: u32 = 3_000_000;
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("slow");
    let mut senders = Vec::new();
    for at in 0..SENDERS {
        let name = format!("agent-{at}");
        let slow = Agent::declare(&mut api, &storage, &name, "s", "none");
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: \
             application/vnd.tracehold.packets\r\ncontent-length: 60000000\r\n\r\n",
            slow.path()
        );
        let record = [&DECLARED.to_le_bytes()[..], &[0; 20], &[7; 5000]].concat();
        let mut sender = server.connect();
        sender.write(&[head.as_bytes(), &record]).unwrap();
        senders.push(sender);
    }
    let declared = SENDERS as f64 * f64::from(DECLARED);
    let mut wait_for = |what: &str, is_so: &dyn Fn(f64) -> bool| {
        let begin = Instant::now();
        loop {
            let bytes = api.metric("tracehold_storage_in_flight_bytes");
            if is_so(bytes) {
                return;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "{what}: {bytes} bytes"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    // A sender that goes on at once finds its memory.
    wait_for("what is declared is reserved", &|bytes| {
        bytes > declared / 2.0
    });
    let kept = SENDERS as f64 * 8192.0;
    wait_for("what did not arrive is returned", &|bytes| bytes < kept);
    let agent = Agent::declare(&mut api, &storage, "quick", "s", "none");
    agent.push(&mut api, 0, &vec![7; 15 << 20]);
    drop(senders);
}

/// A connection has its share of the memory with all of its streams together.
#[test]
fn the_streams_of_a_connection_share_what_it_may_have() {
    const MIB: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let config = "[ingest]\npacket_bytes_max = 4194304\nin_flight_bytes_max = 16777216\n\
                  agent_share_percent = 100\nconnection_share_percent = 25\n\
                  [http]\nreceive_window_bytes = 33554432\n";
    let server = Server::start(folder.path(), &Settings::with_config(config));
    let mut api = server.api();
    let storage = api.create_storage("shared");
    let agent = Agent::declare(&mut api, &storage, "greedy", "s", "none");
    // Each stream sends most of a packet, and no end.
    let mut greedy = Http2Streams::open(server.address()).unwrap();
    for sequence in 0..12 {
        greedy
            .begin(agent.path(), sequence, 4 * MIB, 2 * MIB)
            .unwrap();
    }
    std::thread::sleep(Duration::from_secs(2));
    let bytes = api.metric("tracehold_storage_in_flight_bytes");
    assert!(bytes > 1.5 * MIB as f64, "{bytes}");
    assert!(bytes < 6.5 * MIB as f64, "{bytes}");
    let modest = Agent::declare(&mut api, &storage, "modest", "s", "none");
    modest.push(&mut api, 0, &vec![7; 3 * MIB]);
}

/// Clients that go on sending after they were refused do not hold the places for health.
#[test]
fn health_is_answered_while_slow_senders_have_all_connections() {
    const SENDERS: usize = 400;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        folder.path(),
        &Settings::with_config("[http]\nconnections_max = 64\n"),
    );
    let mut api = server.api();
    let storage = api.create_storage("slow");
    let slow = Agent::declare(&mut api, &storage, "slow", "s", "none");
    drop(api);
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/octet-stream\r\n\
         tracehold-epoch: 0\r\ntracehold-sequence: 0\r\ncontent-length: 1000000\r\n\r\n",
        slow.path()
    );
    let mut senders = Vec::new();
    for _ in 0..SENDERS {
        // A connection waits to be accepted for as long as the places are taken.
        let mut sender = server.connect();
        // It may have been dropped already.
        drop(sender.write(&[head.as_bytes(), b"x"]));
        senders.push(sender);
    }
    for _ in 0..20 {
        let begin = Instant::now();
        let response = server
            .connect()
            .send(&Request::new("GET", "/livez"))
            .unwrap();
        assert_eq!(response.status, 200, "{}", response.brief());
        // Well below the time for which a refused sender is listened to.
        assert!(
            begin.elapsed() < Duration::from_secs(2),
            "{:?}",
            begin.elapsed()
        );
        for sender in &mut senders {
            drop(sender.write(&[b"x"]));
        }
    }
}
