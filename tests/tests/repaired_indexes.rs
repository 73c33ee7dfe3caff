//! Chunk indexes that were made while a storage was open are not used after its repair, and those
//! that are damaged are found and made again.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use harness::{Agent, Api, Server, small_traces};
use serde_json::json;

use crate::queries::{push, settings, wait_for_indexes};
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

#[test]
fn a_verification_finds_a_damaged_index_which_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &settings());
    let mut api = server.api();
    for is_final in [false, true] {
        let storage = api.create_storage("flipped");
        push(&server, &storage, &small_traces()[1], "16384");
        wait_for_index(&server, &storage);
        if is_final {
            api.finalize(&storage);
            wait_for_indexes(&server, &storage);
        }
        let path = format!("/storages/{storage}/verify");
        let whole = api.done("POST", &path, None);
        assert_eq!(whole["damage"], json!([]));
        let folder = server.data().join("storages").join(&storage);
        let names = fs::read_dir(&folder).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let name = names.find(|name| name.ends_with("idx") && !name.ends_with(".pidx"));
        let index = folder.join(name.as_deref().unwrap());
        let mut bytes = fs::read(&index).unwrap();
        let half = bytes.len() / 2;
        bytes[half] ^= 1;
        fs::write(&index, bytes).unwrap();
        let damaged = api.done("POST", &path, None);
        let damage = &damaged["damage"][0];
        assert_eq!(damage["file"], name.unwrap(), "{damaged}");
        let what = damage["what"].as_str().unwrap();
        assert!(what.ends_with("it is made again"), "{what}");
        let begin = Instant::now();
        while api.done("POST", &path, None) != whole {
            assert!(begin.elapsed() < LIMIT, "{is_final}: {}", server.log());
            sleep(Duration::from_millis(100));
        }
    }
}
