//! The write status of a storage.

use harness::{Agent, Server, payload};

#[test]
fn a_storage_that_keeps_up_is_good() {
    let (_folder, _server, mut api) = Server::fresh();
    let storage = api.create_storage("status");
    let status = api.status(&storage);
    assert_eq!(status["write_status"], "GOOD", "nothing arrived: {status}");
    assert_eq!(status["state"], "OPEN");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    let first = agent.next_sequence(&mut api);
    for packet in 0..20 {
        agent.push(&mut api, first + packet, &payload(1, packet, 1000));
    }
    let status = api.status(&storage);
    assert_eq!(
        status["write_status"], "GOOD",
        "all were finished: {status}"
    );
    assert_eq!(status["written_packets"], 20, "{status}");
    assert_eq!(status["failed_packets"], 0, "{status}");
}
