//! Byte ranges as RFC 9110 requires, checked with the cases in `../shared`.

use std::process::Command;

use harness::{Agent, Server, Settings, corpora};
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
