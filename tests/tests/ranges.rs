//! Byte ranges as RFC 9110 requires, checked with the cases in `../shared`.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;
use std::thread::available_parallelism;

use harness::{Agent, Request, Server, Settings, corpora, payload};
use serde_json::Value;

/// Resources of the cases that can be stored as packets. The other two are an empty file (packets
/// are not empty) and a file of 5 GiB, which is larger than a packet may be.
const RESOURCES: &[(&str, usize)] = &[
    ("r1000", 1000),
    ("r11", 11),
    ("r100", 100),
    ("r40000", 40000),
];

#[test]
fn range_responses_follow_rfc_9110() {
    let Some(corpora) = corpora() else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let maps = finalized_packets(&server);
    let graded = folder.path().join("graded.json");
    let output = Command::new("python3")
        .arg(corpora.join("http/run_range_cases.py"))
        .args(["-q", "--base", &server.url(), "--json"])
        .arg(&graded)
        .arg("--map")
        .args(&maps)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let cases = read_json(&corpora.join("http/range_cases.json"));
    let graded = read_json(&graded);
    let mut counts = (0, 0);
    let mut wrong = Vec::new();
    for result in graded["results"].as_array().unwrap() {
        if !is_checked(&cases, &result["id"]) {
            continue;
        }
        match result["grade"].as_str().unwrap() {
            // The case needs a header that packets do not have: they have only an ETag.
            "n/a" => {}
            "best" => counts.0 += 1,
            "ok" => counts.1 += 1,
            _ => wrong.push(result.to_string()),
        }
        if result["broken"]
            .as_array()
            .is_some_and(|broken| !broken.is_empty())
        {
            wrong.push(result.to_string());
        }
    }
    let (best, permitted) = counts;
    println!(
        "ranges: {best} best, {permitted} permitted, {} wrong",
        wrong.len()
    );
    assert!(best + permitted > 100, "most cases are judged");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Bodies of many pieces are copied while they are few, and sent by the kernel beyond that.
#[test]
fn long_bodies_are_whole_whether_they_are_few_or_many() {
    let (_folder, server, mut api) = Server::fresh();
    let storage = api.create_storage("long");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    // More than the buffers of a connection hold.
    for sequence in 0..32 {
        agent.push(&mut api, sequence, &payload(3, sequence, 1 << 20));
    }
    api.finalize(&storage);
    let files = api.files(&storage).into_iter();
    let (name, ..) = files.max_by_key(|&(.., length)| length).unwrap();
    let stored = server.data().join("storages").join(&storage).join(&name);
    let stored = fs::read(stored).unwrap();
    let path = format!("/storage/{storage}/{name}");
    let mut held = Vec::new();
    for hold in [0, available_parallelism().unwrap().get()] {
        for _ in 0..hold {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            // It has begun, and goes on when somebody reads.
            stream.peek(&mut [0]).unwrap();
            held.push(stream);
        }
        let mut connection = server.connect();
        for first in [0, 1, 4095, 300_001] {
            let range = format!("bytes={first}-");
            let request = Request::new("GET", &path).header("range", &range);
            let answer = connection.send(&request).unwrap();
            let what = format!("{range} with {hold} others");
            assert_eq!(answer.status, 206, "{what}: {}", answer.brief());
            assert!(answer.body == stored[first..], "{what}: other bytes");
        }
    }
}

fn read_json(path: &std::path::Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn is_checked(cases: &Value, id: &Value) -> bool {
    let case = cases["cases"]
        .as_array()
        .unwrap()
        .iter()
        .find(|case| case["id"] == *id)
        .unwrap();
    let resource = case["request"]["resource"].as_str().unwrap();
    resource == "missing" || RESOURCES.iter().any(|(name, _)| *name == resource)
}

/// Pushes the resources as packets; returns `name=path` of each.
fn finalized_packets(server: &Server) -> Vec<String> {
    let mut api = server.api();
    let storage = api.create_storage("ranges");
    let agent = Agent::declare(&mut api, &storage, "host", "stream", "none");
    let first = agent.next_sequence(&mut api);
    let text: String = (0..10_000).map(|number| format!("{number:04}")).collect();
    let push = |(sequence, &(name, length)): (u64, &(&str, usize))| {
        let receipt = agent.push(&mut api, sequence, &text.as_bytes()[..length]);
        format!(
            "{name}=/api/v1/storages/{storage}/packets/{}",
            receipt.number
        )
    };
    let maps = (first..).zip(RESOURCES).map(push).collect();
    api.finalize(&storage);
    maps
}
