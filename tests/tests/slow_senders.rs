//! A client that declares much and sends little does not block others.

use std::time::{Duration, Instant};

use harness::{Agent, Server, packet};

#[test]
fn a_large_declared_length_reserves_only_what_arrives() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("slow");
    let slow = Agent::declare(&mut api, &storage, "slow", "s", "none");
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/octet-stream\r\n\
         tracehold-epoch: 0\r\ntracehold-sequence: 0\r\ncontent-length: 67108864\r\n\r\n",
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
             tracehold-epoch: 0\r\ntracehold-sequence: 0\r\ncontent-length: 60000000\r\n\r\n",
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
