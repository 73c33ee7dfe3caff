//! Chunk indexes that were made while a storage was open are not used after its repair.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use harness::{Agent, Api, Server};
use serde_json::json;

use crate::queries::settings;
use crate::repair::{DAMAGED, PACKETS, damage, pushed, record};

const LIMIT: Duration = Duration::from_secs(60);

fn wait_for_index(server: &Server, storage: &str) {
    let folder = server.data().join("storages").join(storage);
    let begin = Instant::now();
    let is_index = |entry: fs::DirEntry| entry.path().extension().is_some_and(|end| end == "idx");
    while !fs::read_dir(&folder)
        .unwrap()
        .any(|entry| is_index(entry.unwrap()))
    {
        assert!(begin.elapsed() < LIMIT, "{}", server.log());
        sleep(Duration::from_millis(50));
    }
}

fn check_counts(api: &mut Api, storage: &str, counts: &[(&str, u64)], context: &str) {
    for &(query, expected) in counts {
        let body = json!({ "query": query, "count": true });
        let path = format!("/storages/{storage}/query");
        let counted = api.done("POST", &path, Some(&body));
        assert_eq!(counted["count"], expected, "{context}: {query}: {counted}");
    }
}

#[test]
fn queries_after_a_repair_find_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &settings());
    let storage = pushed(&server, "indexed");
    wait_for_index(&server, &storage);
    let mut api = server.api();
    // Too little for another index; with it, the leaf is as long as what the index covers.
    let agent = Agent::new(&storage, "host", "reads");
    let last = record(PACKETS).replace("\"name\":\"read\"", "\"name\":\"last\"");
    agent.push(&mut api, PACKETS, last.as_bytes());
    check_counts(
        &mut api,
        &storage,
        &[("name == 'read'", PACKETS), ("name == 'last'", 1)],
        "before",
    );
    damage(&server, &storage);
    let path = format!("/storages/{storage}/verify?repair=confirm");
    let repaired = api.done("POST", &path, None);
    assert_eq!(repaired["missing"][0]["first"], DAMAGED, "{repaired}");
    let counts = [("name == 'read'", PACKETS - 1), ("name == 'last'", 1)];
    check_counts(&mut api, &storage, &counts, "repaired");
    api.finalize(&storage);
    check_counts(&mut api, &storage, &counts, "finalized");
}
