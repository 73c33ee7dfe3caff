//! A download is verified, and heals what is damaged.

use std::fs;
use std::path::PathBuf;

use harness::{Agent, Server, Settings, payload, run_tracehold};
use serde_json::Value;

const PIECE_BYTES: u64 = 4 << 20;

/// Runs the command with `--json`; returns its exit code and output.
fn run(arguments: &[&str]) -> (Option<i32>, Value) {
    let words: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let output = run_tracehold(&[&words[..], &["--json".to_owned()]].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::String(errors));
    (output.status.code(), document)
}

#[test]
fn only_damaged_pieces_are_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&folder.path().join("server"), &Settings::default());
    let mut api = server.api();
    let storage = api.create_storage("large");
    let agent = Agent::declare(&mut api, &storage, "host", "raw", "none");
    for sequence in 0..12 {
        agent.push(&mut api, sequence, &payload(7, sequence, 1 << 20));
    }
    api.finalize(&storage);
    let url = format!("{}/storage/{storage}", server.url());
    let copy = folder.path().join("copy");
    let copy = copy.to_str().unwrap();
    let (code, first) = run(&["download", &url, copy]);
    assert_eq!(
        (code, &first["healed_files"]),
        (Some(0), &Value::from(0)),
        "{first}"
    );
    let verify = || run(&["storage", "verify", "--dir", copy]);
    let (code, report) = verify();
    assert_eq!(
        (code, &report["packets"]),
        (Some(0), &Value::from(12)),
        "{report}"
    );

    let files = fs::read_dir(copy)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_data = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "itdata");
    let largest = files
        .filter(is_data)
        .max_by_key(|path| fs::metadata(path).unwrap().len());
    let path = largest.unwrap();
    let intact = fs::read(&path).unwrap();
    assert!(intact.len() as u64 > 2 * PIECE_BYTES);
    let mut damaged = intact.clone();
    damaged[usize::try_from(PIECE_BYTES).unwrap() + 17] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let (code, report) = verify();
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(report["damage"][0]["offset"], PIECE_BYTES, "{report}");
    assert_eq!(report["damage"].as_array().unwrap().len(), 1, "{report}");

    let (code, again) = run(&["download", &url, copy]);
    assert_eq!(code, Some(0), "{again}");
    assert_eq!(again["healed_files"], 1, "{again}");
    assert_eq!(again["fetched_bytes"], PIECE_BYTES, "{again}");
    assert!(fs::read(&path).unwrap() == intact);

    // A file that was cut, and one that is gone; without the server they are found all the same.
    fs::write(&path, &intact[..intact.len() / 2]).unwrap();
    let (code, _) = run(&["download", &url, copy]);
    assert!(code == Some(0) && fs::read(&path).unwrap() == intact);
    server.kill();
    assert_eq!(verify().0, Some(0));
    fs::remove_file(&path).unwrap();
    let (code, report) = verify();
    assert_eq!(
        (code, &report["damage"][0]["what"]),
        (Some(1), &Value::from("it is missing"))
    );
    let empty = folder.path().join("server");
    let (code, _) = run(&["storage", "verify", "--dir", empty.to_str().unwrap()]);
    assert_eq!(code, Some(2));
}
