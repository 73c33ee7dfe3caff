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
