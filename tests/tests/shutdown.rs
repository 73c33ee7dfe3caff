//! SIGTERM: new connections are refused, requests in flight complete, everything is on disk, exit
//! status 0.

use std::time::Duration;

use harness::{Agent, Connection, Receipt, Server, Settings, payload};

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_push_in_flight_completes() {
    let (_folder, mut server, mut api) = Server::fresh();
    let storage = api.create_storage("drain");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    let first = agent.next_sequence(&mut api);
    let packet = payload(1, 1, 100_000);
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/octet-stream\r\n\
         tracehold-epoch: 1\r\ntracehold-sequence: {first}\r\ncontent-length: {}\r\n\
         expect: 100-continue\r\n\r\n",
        agent.path(),
        packet.len(),
    );
    let mut connection = server.connect();
    connection.write(&[head.as_bytes()]).unwrap();
    // The server has accepted the request once it requests the body.
    connection.read_continue().unwrap();
    connection.write(&[&packet[..50_000]]).unwrap();
    server.terminate();
    wait_until_nobody_new(&server);
    connection.write(&[&packet[50_000..]]).unwrap();
    let response = connection.read_response(false).unwrap();
    assert_eq!(response.status, 200, "{}", response.brief());
    let receipt = Receipt::all(&response.json()).remove(0);
    assert!(receipt.durable);
    assert!(server.wait(LIMIT).success());
    server.restart();
    assert_eq!(server.api().packet(&storage, receipt.number), packet);
}

#[test]
fn idle_connections_do_not_delay_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let _idle: Vec<Connection> = (0..5).map(|_| server.connect()).collect();
    let mut kept_alive = server.api();
    kept_alive.create_storage("idle");
    server.terminate();
    assert!(server.wait(Duration::from_secs(10)).success());
}

/// The listener is closed before connections are drained.
fn wait_until_nobody_new(server: &Server) {
    for _ in 0..2000 {
        if Connection::open(server.address()).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the server still accepts");
}

#[test]
fn a_hangup_does_not_end_a_server_without_certificates() {
    let (_folder, server, mut api) = Server::fresh();
    let pid = server.pid().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-HUP", &pid])
        .status();
    assert!(sent.unwrap().success());
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let alive = server
            .connect()
            .send(&harness::Request::new("GET", "/livez"));
        assert_eq!(alive.unwrap().status, 200);
    }
    api.create_storage("after");
}
