//! The chunk indexes of a finalized storage are one file per data file, however many streams it
//! has.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::{Agent, Api, Server, Settings};
use serde_json::{Value, json};

use crate::queries::{answers, mount, run, settings, wait_for_indexes};

const LIMIT: Duration = Duration::from_secs(120);
const QUERY: &str = "name == 'fsync' and dur > 10us";

/// A packet of DFTracer events that differ from stream to stream.
fn packet(stream: u64, sequence: u64) -> Vec<u8> {
    let mut text = String::new();
    for line in 0..8_u64 {
        let id = (stream * 7 + sequence) * 8 + line;
        let name = if id.is_multiple_of(5) {
            "fsync"
        } else {
            "read"
        };
        writeln!(
            text,
            "{{\"id\":{id},\"name\":\"{name}\",\"cat\":\"POSIX\",\"pid\":{stream},\"tid\":1,\
             \"ts\":{},\"dur\":{},\"ph\":\"X\",\"args\":{{\"ret\":{id}}}}}",
            1_000_000 + id * 10,
            id % 40,
        )
        .unwrap();
    }
    text.into_bytes()
}

/// An open storage with interleaved packets of many streams.
fn filled(api: &mut Api, name: &str, streams: u64, packets: u64) -> String {
    let storage = api.create_storage(name);
    Agent::register(api, "host");
    let agents: Vec<Agent> = (0..streams)
        .map(|stream| {
            let stream = format!("s{stream}");
            Agent::declare_stream(api, "host", &stream, "dft", "none");
            Agent::new(&storage, "host", &stream)
        })
        .collect();
    for sequence in 0..packets {
        for (agent, stream) in agents.iter().zip(0..) {
            agent.push(api, sequence, &packet(stream, sequence));
        }
    }
    storage
}

/// The derived files of a storage with this ending.
fn derived(server: &Server, storage: &str, ending: &str) -> Vec<PathBuf> {
    let folder = server.data().join("storages").join(storage);
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .collect();
    found.sort();
    found
}

fn report_provenance(api: &mut Api, storage: &str, stream: u64, packets: u64) {
    let ranges: Vec<[u64; 5]> = (0..packets)
        .map(|sequence| [sequence, sequence * 100, 100, sequence, 1])
        .collect();
    let path = format!("/storages/{storage}/agents/host/streams/s{stream}/provenance");
    let body = json!({
        "epoch": 1, "path": format!("/trace/{stream}"), "file_bytes": 1000, "packets": ranges,
    });
    assert_eq!(api.done("PUT", &path, Some(&body))["packets"], packets);
}

fn provenance(api: &mut Api, storage: &str) -> Vec<(Value, Value)> {
    let path = format!("/storages/{storage}/descriptors?limit=1000&provenance=true");
    let page = api.done("GET", &path, None);
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|item| (item["number"].clone(), item["provenance"]["path"].clone()))
        .collect()
}

/// Reports of a long stream each say where the packets of the next one begin.
#[test]
fn provenance_is_reported_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let mut api = server.api();
    let (streams, packets) = (2, 6);
    let storage = filled(&mut api, "parts", streams, packets);
    for stream in 0..streams {
        let path = format!("/storages/{storage}/agents/host/streams/s{stream}/provenance");
        let mut first_number = 0;
        // The last packets are not in the storage.
        for (first, expected) in [(0, 2), (2, 2), (4, 2), (6, 0)] {
            let ranges: Vec<[u64; 5]> = (first..first + 2)
                .map(|sequence| [sequence, sequence * 100, 100, sequence, 1])
                .collect();
            let body = json!({
                "epoch": 1, "path": format!("/trace/{stream}"), "file_bytes": 1000,
                "first_number": first_number, "packets": ranges,
            });
            let kept = api.done("PUT", &path, Some(&body));
            assert_eq!(kept["packets"], expected, "{first}: {kept}");
            if expected == 0 {
                assert!(kept["next_number"].is_null(), "{kept}");
            } else {
                // The packets of the streams take turns.
                let last = (first + 1) * streams + stream;
                assert_eq!(kept["next_number"], last + 1, "{kept}");
                first_number = last + 1;
            }
        }
    }
    let origins = provenance(&mut api, &storage);
    assert_eq!(origins.len() as u64, streams * packets);
    assert!(origins.iter().all(|(_, path)| path.is_string()));
}

#[test]
fn a_storage_of_many_streams_ends_as_a_handful_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let mut api = server.api();
    let (streams, packets) = (300, 3);
    let storage = filled(&mut api, "many", streams, packets);
    for stream in 0..streams {
        report_provenance(&mut api, &storage, stream, packets);
    }
    let url = server.url();
    let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
    let expected = answers(&stored, QUERY);
    let origins = provenance(&mut api, &storage);
    api.finalize(&storage);
    wait_for_indexes(&server, &storage);
    let begin = Instant::now();
    while derived(&server, &storage, "pidx").len() != 1 {
        assert!(begin.elapsed() < LIMIT, "{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let files = api.files(&storage);
    assert!(files.len() < 12, "{files:?}");
    assert_eq!(derived(&server, &storage, "idx").len(), 1, "{files:?}");
    assert_eq!(answers(&stored, QUERY), expected);
    assert_eq!(provenance(&mut api, &storage), origins);
    assert!(origins.iter().all(|(_, path)| path.is_string()));
    // The query reads nothing but what the indexes cannot rule out.
    let body = json!({ "query": "pid == 77", "count": true });
    let decoded = |api: &mut Api| api.metric("tracehold_query_events_decoded_total");
    let before = decoded(&mut api);
    let counted = api.done("POST", &format!("/storages/{storage}/query"), Some(&body));
    assert_eq!(counted["count"], packets * 8);
    assert!(decoded(&mut api) - before <= (packets * 8) as f64);
    let mounted = folder.path().join("mount");
    mount(&server, &storage, &mounted);
    let mounted = mounted.to_str().unwrap();
    assert_eq!(answers(&["--dir", mounted], QUERY), expected);
    assert!(api.verify(&storage).is_empty());
    check_download(&server, &storage, &folder.path().join("copy"));

    // What is reported now is in a file of its leaf first, and counts at once.
    report_provenance(&mut api, &storage, 5, packets);
    assert_eq!(provenance(&mut api, &storage), origins);
    let begin = Instant::now();
    while derived(&server, &storage, "pidx").len() != 1 {
        assert!(begin.elapsed() < LIMIT, "{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(provenance(&mut api, &storage), origins);
}

/// A downloaded storage is verified with its provenance, and inspected without its server.
fn check_download(server: &Server, storage: &str, copy: &Path) {
    let url = format!("{}/storage/{storage}", server.url());
    let copied = copy.to_str().unwrap();
    let (code, _, errors) = run(&["download", &url, copied]);
    assert_eq!(code, 0, "{errors}");
    let verify = ["storage", "verify", "--dir", copied, "--json"];
    let (code, out, errors) = run(&verify);
    assert_eq!(code, 0, "{out} {errors}");
    let named = |ending: &str| {
        let entries = fs::read_dir(copy).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        let path = paths.find(|path| path.extension().is_some_and(|found| found == ending));
        path.unwrap()
    };
    for (ending, role) in [("idx", "chunk indexes"), ("pidx", "provenance of leaves")] {
        let (code, out, errors) = run(&["inspect", named(ending).to_str().unwrap()]);
        assert_eq!(code, 0, "{errors}");
        let shown: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (&shown["role"], &shown["storage"]),
            (&json!(role), &json!(storage))
        );
        let leaves = shown["leaves"].as_array().unwrap();
        assert_eq!(leaves.len(), server.api().leaves(storage).len());
        assert!(leaves.iter().all(|leaf| leaf["sidecar"].is_object()));
    }
    for (ending, at) in [("idx", 0), ("idx", 100), ("pidx", 0), ("pidx", 23)] {
        let path = named(ending);
        let whole = fs::read(&path).unwrap();
        check_damage(&path, at, &verify);
        fs::write(&path, whole).unwrap();
    }
    let path = named("pidx");
    check_damage(&path, 100, &verify);
    let (code, out, _) = run(&["inspect", path.to_str().unwrap()]);
    assert_eq!(code, 1, "{out}");
    let shown: Value = serde_json::from_str(&out).unwrap();
    let damaged = shown["leaves"].as_array().unwrap().iter();
    assert_eq!(damaged.filter(|leaf| leaf["damage"].is_string()).count(), 1);
}

/// Damages a file, which the verification finds.
fn check_damage(path: &Path, at: usize, verify: &[&str]) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
    let (code, out, _) = run(verify);
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(code == 1 && out.contains(name), "{out}");
}

#[test]
fn damage_in_the_index_of_a_leaf_costs_that_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &settings());
    let mut api = server.api();
    let storage = filled(&mut api, "damaged", 20, 4);
    let results = |server: &Server| {
        let url = server.url();
        answers(&["--server", &url, "--storage", &storage], QUERY)
    };
    let expected = results(&server);
    api.finalize(&storage);
    wait_for_indexes(&server, &storage);
    let path = derived(&server, &storage, "idx").remove(0);
    let whole = fs::read(&path).unwrap();
    let indexed = |api: &mut Api| api.metric("tracehold_indexed_bytes_total");
    let all = indexed(&mut api);
    for place in [1, 5, 10] {
        // A file that is open was checked when it was opened.
        server.kill();
        let mut damaged = whole.clone();
        damaged[whole.len() * place / 12] ^= 0x55;
        fs::write(&path, &damaged).unwrap();
        server.restart();
        let mut api = server.api();
        assert_eq!(results(&server), expected, "{place}");
        // Whoever asks for the file is refused, and lets it be made again.
        let name = path.file_name().unwrap().to_str().unwrap();
        let file = format!("/storage/{storage}/{name}");
        let begin = Instant::now();
        loop {
            let response = api.send(&harness::Request::new("GET", &file)).unwrap();
            if response.status == 200 && response.body != damaged {
                break;
            }
            assert_ne!(response.body, damaged, "{place}");
            assert!(begin.elapsed() < LIMIT, "{place}: {}", server.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        wait_for_indexes(&server, &storage);
        let made = indexed(&mut api);
        assert!(made > 0.0 && made < all / 10.0, "{place}: {made} of {all}");
        assert_eq!(results(&server), expected, "{place}");
        assert!(fs::read(&path).unwrap() != damaged, "{place}");
    }
}

/// A server that is killed while it makes indexes continues with what was published.
#[test]
fn making_indexes_continues_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let config = Settings::with_config("[query]\nindex_growth_bytes_min = 4096\n");
    let mut server = Server::start(folder.path(), &config);
    let mut api = server.api();
    let streams = 400;
    let storage = filled(&mut api, "killed", streams, 2);
    api.finalize(&storage);
    let begin = Instant::now();
    let path = format!("/storages/{storage}/files");
    let state = |server: &Server| {
        let listed = server.api().done("GET", &path, None);
        listed["chunk_indexes"].as_str().unwrap().to_owned()
    };
    let (mut published, mut interrupted) = (0, 0);
    // Each time the indexes are published, the server is killed.
    for _ in 0..4 {
        loop {
            let now = derived(&server, &storage, "idx");
            let length = now
                .first()
                .map_or(0, |path| fs::metadata(path).unwrap().len());
            if length > published {
                published = length;
                interrupted += u32::from(state(&server) == "in_progress");
                break;
            }
            if state(&server) == "complete" {
                break;
            }
            assert!(begin.elapsed() < LIMIT, "{}", server.log());
        }
        server.kill();
        server.restart();
        let left = derived(&server, &storage, "idx");
        let length = left
            .first()
            .map_or(0, |path| fs::metadata(path).unwrap().len());
        assert!(length >= published, "what was published is gone");
    }
    assert!(interrupted > 0, "nothing is published before all is made");
    wait_for_indexes(&server, &storage);
    let all = (2 * streams) as f64 * packet(1, 1).len() as f64;
    let indexed = server.api().metric("tracehold_indexed_bytes_total");
    assert!(
        indexed < all,
        "{indexed} of {all}: everything was made again"
    );
    assert_eq!(derived(&server, &storage, "idx").len(), 1);
    assert!(derived(&server, &storage, "tmp").is_empty());
    let url = server.url();
    let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
    let body = json!({ "query": "exists(pid)", "count": true });
    let path = format!("/storages/{storage}/query");
    let counted = server.api().done("POST", &path, Some(&body));
    assert_eq!(counted["count"], streams * 2 * 8);
    assert!(!answers(&stored, QUERY).is_empty());
}
