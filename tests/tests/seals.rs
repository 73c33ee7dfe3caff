//! Seals: what was finalized is proven offline, and everything else is found.

use std::fs;
use std::path::{Path, PathBuf};

use harness::{Agent, Api, Request, Server, Settings, payload, run_tracehold};
use serde_json::{Value, json};
use storage_format::seal::{GROUP_BYTES_MIN, Seal, SigningKey};

/// Runs the command with `--json`; returns its exit code and output.
fn run(arguments: &[&str]) -> (Option<i32>, Value) {
    let words: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
    let output = run_tracehold(&[&words[..], &["--json".to_owned()]].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::String(errors));
    (output.status.code(), document)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A server that seals with a new key, and the file of the public key.
fn sealing(folder: &Path) -> (Server, PathBuf) {
    let key = folder.join("seal.key");
    let (code, made) = run(&["seal", "keygen", text(&key)]);
    assert_eq!(code, Some(0), "{made}");
    let config = format!(
        "[seal]\nat_finalization = true\nkey_file = {:?}\n",
        text(&key)
    );
    let server = Server::start(&folder.join("server"), &Settings::with_config(&config));
    (server, folder.join("seal.key.pub"))
}

/// A finalized storage with packets of two streams, compressed and not.
fn finalized(api: &mut Api, name: &str, packets: u64, bytes: usize) -> String {
    let storage = api.create_storage(name);
    for (number, codec) in [(0, "none"), (1, "zstd")] {
        let stream = format!("stream-{number}");
        let agent = Agent::declare(api, &storage, "host", &stream, codec);
        let first = agent.next_sequence(api);
        for sequence in first..first + packets {
            agent.push(api, sequence, &payload(number, sequence, bytes));
        }
    }
    api.finalize(&storage);
    storage
}

fn download(server: &Server, storage: &str, folder: &Path) {
    let url = format!("{}/storage/{storage}", server.url());
    let (code, report) = run(&["download", &url, text(folder)]);
    assert_eq!(code, Some(0), "{report}");
}

fn file(folder: &Path, ending: &str) -> PathBuf {
    let mut files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let found = files.find(|path| path.extension().is_some_and(|found| found == ending));
    found.unwrap_or_else(|| panic!("{} has no .{ending}", folder.display()))
}

fn seal_of(folder: &Path) -> Seal {
    Seal::decode(&fs::read(file(folder, "seal")).unwrap()).unwrap()
}

#[test]
fn a_sealed_storage_is_proven_wherever_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (server, public) = sealing(folder.path());
    let mut api = server.api();
    let storage = finalized(&mut api, "sealed", 5, 40_000);
    assert_eq!(api.status(&storage)["sealed"], "sealed");
    let listed = api.files(&storage);
    assert!(
        listed.iter().any(|(_, role, _)| role == "seal"),
        "{listed:?}"
    );
    // Labels, name and description may change.
    let labels = json!({ "name": "other", "description": "told", "labels": { "run": "17" } });
    api.done("PATCH", &format!("/storages/{storage}"), Some(&labels));
    assert_eq!(api.status(&storage)["sealed"], "sealed");

    let copy = folder.path().join("copy");
    download(&server, &storage, &copy);
    let own = server.data().join("storages").join(&storage);
    for place in [&copy, &own] {
        let (code, report) = run(&["verify", text(place), "--key", text(&public)]);
        assert_eq!(
            (code, &report["packets"]),
            (Some(0), &json!(10)),
            "{report}"
        );
        assert_eq!(report["is_trusted"], true, "{report}");
        let (code, report) = run(&["verify", text(place)]);
        assert_eq!((code, &report["is_trusted"]), (Some(0), &json!(false)));
        let digest = report["digest"].as_str().unwrap();
        let (code, report) = run(&["verify", text(place), "--digest", digest]);
        assert_eq!((code, &report["is_trusted"]), (Some(0), &json!(true)));
        let other = digest.replace(|c: char| c.is_ascii_digit(), "a");
        assert_eq!(run(&["verify", text(place), "--digest", &other]).0, Some(1));
    }
    // An export, and what an import of it serves.
    let archive = api.call("GET", &format!("/storages/{storage}/export"), None);
    let zip = folder.path().join("sealed.zip");
    fs::write(&zip, &archive.body).unwrap();
    let (code, report) = run(&["verify", text(&zip), "--key", text(&public)]);
    assert_eq!(
        (code, &report["is_trusted"]),
        (Some(0), &json!(true)),
        "{report}"
    );
    let (_other, other, mut other_api) = Server::fresh();
    let request = Request::new("POST", "/api/v1/storages/import");
    let request = request
        .header("content-type", "application/zip")
        .body(&archive.body);
    assert_eq!(other_api.send(&request).unwrap().status, 201);
    assert_eq!(other_api.status(&storage)["sealed"], "sealed");
    let imported = folder.path().join("imported");
    download(&other, &storage, &imported);
    let (code, report) = run(&["verify", text(&imported), "--key", text(&public)]);
    assert_eq!(code, Some(0), "{report}");
    // Every byte of the archive that belongs to a sealed file.
    let data = fs::read(file(&copy, "itdata")).unwrap();
    let at = archive
        .body
        .windows(64)
        .position(|window| *window == data[..64])
        .unwrap();
    for offset in [0, 1, data.len() / 2, data.len() - 1] {
        let mut changed = archive.body.clone();
        changed[at + offset] ^= 4;
        fs::write(&zip, &changed).unwrap();
        let (code, report) = run(&["verify", text(&zip), "--key", text(&public)]);
        assert_eq!(code, Some(1), "byte {offset}: {report}");
    }
    fs::write(&zip, &archive.body[..archive.body.len() / 2]).unwrap();
    assert_eq!(run(&["verify", text(&zip)]).0, Some(1));
}

/// The library verifies, so that every byte of every file can be tried.
#[test]
fn every_changed_byte_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _) = sealing(folder.path());
    let mut api = server.api();
    let storage = finalized(&mut api, "small", 2, 300);
    let copy = folder.path().join("copy");
    download(&server, &storage, &copy);
    let seal = seal_of(&copy);
    assert!(
        seal.is_signed() && seal.files.len() >= 4,
        "{:?}",
        seal.files
    );
    for sealed in &seal.files {
        let mut bytes = fs::read(copy.join(&sealed.name)).unwrap();
        let is_sealed = |bytes: &[u8]| seal.proves(sealed, 0, bytes) == Some(true);
        assert!(is_sealed(&bytes), "{}", sealed.name);
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert!(!is_sealed(&bytes), "{} at {at}", sealed.name);
            bytes[at] ^= 1;
        }
        assert!(!is_sealed(&bytes[..bytes.len() - 1]), "{} cut", sealed.name);
    }
    // One byte of each file with the real program, and files in the place of others.
    for sealed in &seal.files {
        let path = copy.join(&sealed.name);
        let intact = fs::read(&path).unwrap();
        let mut changed = intact.clone();
        changed[intact.len() / 3] ^= 0x80;
        for other in [&changed[..], &intact[..intact.len() - 1], &seal.encode()] {
            fs::write(&path, other).unwrap();
            let (code, report) = run(&["verify", text(&copy)]);
            assert_eq!(code, Some(1), "{report}");
            assert_eq!(report["damage"][0]["file"], sealed.name, "{report}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(
            run(&["verify", text(&copy)]).0,
            Some(1),
            "{} is gone",
            sealed.name
        );
        fs::write(&path, &intact).unwrap();
    }
    assert_eq!(run(&["verify", text(&copy)]).0, Some(0));
    // The seal itself.
    let path = file(&copy, "seal");
    let intact = fs::read(&path).unwrap();
    for length in [0, 9, 200, intact.len() - 1] {
        fs::write(&path, &intact[..length]).unwrap();
        assert_eq!(run(&["verify", text(&copy)]).0, Some(1), "cut to {length}");
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(run(&["verify", text(&copy)]).0, Some(1), "without a seal");
}

/// Whoever can write all files can make a seal that fits them, but not the signature, and not the
/// root over packets that somebody noted.
#[test]
fn a_forged_seal_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (server, public) = sealing(folder.path());
    let mut api = server.api();
    let whole = finalized(&mut api, "whole", 3, 500);
    let fewer = finalized(&mut api, "fewer", 2, 500);
    let (copy, other) = (folder.path().join("copy"), folder.path().join("other"));
    download(&server, &whole, &copy);
    download(&server, &fewer, &other);
    let original = seal_of(&copy);
    let path = file(&other, "seal");
    let kept = seal_of(&other);
    let verify = || run(&["verify", text(&other), "--key", text(&public)]);
    assert_eq!(verify().0, Some(0));

    // Packets were removed, and all files hashed again: the root is of more packets.
    let mut forged = Seal {
        packets: original.packets,
        signature: None,
        ..kept.clone()
    };
    fs::write(&path, forged.encode()).unwrap();
    let (code, report) = run(&["verify", text(&other)]);
    assert_eq!(code, Some(1), "{report}");
    let what = report["damage"][0]["what"].as_str().unwrap();
    assert!(what.contains("root over its 4 packets"), "{report}");

    // A seal without a signature, one that somebody else signed, and one under a false name.
    forged.packets = kept.packets;
    fs::write(&path, forged.encode()).unwrap();
    assert_eq!(
        run(&["verify", text(&other)]).0,
        Some(0),
        "it proves nothing without a key"
    );
    assert_eq!(verify().0, Some(1));
    let stranger = SigningKey::from_pem(&SigningKey::pem_of(&[9; 32])).unwrap();
    forged.sign(&stranger);
    fs::write(&path, forged.encode()).unwrap();
    let (code, report) = verify();
    assert_eq!(code, Some(1), "{report}");
    let what = report["damage"][0]["what"].as_str().unwrap();
    assert!(what.contains("none of the given keys"), "{report}");
    forged.signature.as_mut().unwrap().key = kept.signature.unwrap().key;
    fs::write(&path, forged.encode()).unwrap();
    assert_eq!(verify().0, Some(1));

    // The seal of another storage.
    fs::write(&path, original.encode()).unwrap();
    assert_eq!(verify().0, Some(1));
    fs::write(&path, kept.encode()).unwrap();
    assert_eq!(verify().0, Some(0));
}

#[test]
fn a_file_and_a_range_are_proven_without_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let (server, public) = sealing(folder.path());
    let mut api = server.api();
    let storage = finalized(&mut api, "long", 6, 60_000);
    let copy = folder.path().join("copy");
    download(&server, &storage, &copy);
    let (seal, data) = (file(&copy, "seal"), file(&copy, "itdata"));
    let name = data.file_name().unwrap().to_str().unwrap();
    let length = fs::metadata(&data).unwrap().len();
    assert!(length > 3 * GROUP_BYTES_MIN);
    let key = ["--key", text(&public), "--seal", text(&seal)];
    let (code, report) = run(&[&["verify", text(&data)][..], &key].concat());
    assert_eq!(
        (code, &report["is_trusted"]),
        (Some(0), &json!(true)),
        "{report}"
    );

    // A range as a reader fetches it.
    let part = folder.path().join("part");
    let verify = |at: u64| {
        let at = at.to_string();
        run(&[
            &["verify", text(&part), "--name", name, "--at", &at][..],
            &key,
        ]
        .concat())
    };
    let ranges = [
        (GROUP_BYTES_MIN, 2 * GROUP_BYTES_MIN),
        (0, GROUP_BYTES_MIN),
        (length / GROUP_BYTES_MIN * GROUP_BYTES_MIN, length),
    ];
    for (begin, end) in ranges {
        let parts = api.ranges(&storage, name, &[(begin, end)]);
        let mut bytes = parts[0].bytes.clone();
        fs::write(&part, &bytes).unwrap();
        let (code, report) = verify(begin);
        assert_eq!(code, Some(0), "{begin} to {end}: {report}");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&part, &bytes).unwrap();
        let (code, report) = verify(begin);
        assert_eq!(
            (code, &report["damage"][0]["offset"]),
            (Some(1), &json!(begin))
        );
    }
    // Bytes of another place, and a range that is no whole group: the error says which one is.
    fs::write(
        &part,
        &fs::read(&data).unwrap()[..usize::try_from(GROUP_BYTES_MIN).unwrap()],
    )
    .unwrap();
    assert_eq!(verify(GROUP_BYTES_MIN).0, Some(1));
    let (code, error) = verify(100);
    assert_eq!(code, Some(2), "{error}");
    assert!(
        error.to_string().contains("fetch bytes=0-131071"),
        "{error}"
    );
}

#[test]
fn keys_and_settings_that_cannot_work_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("seal.key");
    assert_eq!(run(&["seal", "keygen", text(&key)]).0, Some(0));
    let written = fs::read(&key).unwrap();
    assert_ne!(run(&["seal", "keygen", text(&key)]).0, Some(0), "it exists");
    assert_eq!(fs::read(&key).unwrap(), written);
    let public = folder.path().join("seal.key.pub");
    let start = |config: String| {
        let data = folder.path().join("server");
        Server::try_start(&data, &Settings::with_config(&config)).map(drop)
    };
    for (wrong, expected) in [
        (
            format!("key_file = {:?}", text(&key)),
            "seal.at_finalization",
        ),
        (
            format!("at_finalization = true\nkey_file = {:?}", text(&public)),
            "keygen",
        ),
        (
            "at_finalization = true\nkey_file = \"/none\"".to_owned(),
            "/none",
        ),
    ] {
        let error = start(format!("[seal]\n{wrong}\n")).unwrap_err();
        assert!(error.contains(expected), "{wrong}: {error}");
    }
    // Without a key, storages are sealed and not signed.
    let settings = Settings::with_config("[seal]\nat_finalization = true\n");
    let server = Server::start(&folder.path().join("unsigned"), &settings);
    let storage = finalized(&mut server.api(), "unsigned", 1, 100);
    let own = server.data().join("storages").join(&storage);
    assert!(seal_of(&own).signature.is_none());
    assert_eq!(run(&["verify", text(&own)]).0, Some(0));
    assert_eq!(
        run(&["verify", text(&own), "--key", text(&public)]).0,
        Some(1)
    );
}
