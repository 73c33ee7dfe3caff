//! Provenance is stored next to packets: source file, checksum, bytes and lines.

use std::fs;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Api, Server, Settings, run_tracehold, tracehold};
use serde_json::{Value, json};
use trace_kinds::gzip::{Inflater, PiecePacket, is_piece};

use crate::recording::{record_now, saver, stop};

/// Text with lines of many lengths.
fn write_trace(path: &Path, lines: u64) -> Vec<u8> {
    let mut text = Vec::new();
    for line in 0..lines {
        let name = "x".repeat((line * 31 % 97) as usize);
        let event = format!(
            "{{\"id\":{line},\"name\":\"{name}\",\"cat\":\"c\",\"pid\":1,\"tid\":1,\"ts\":{line},\
             \"dur\":1,\"ph\":\"X\"}}\n"
        );
        text.extend_from_slice(event.as_bytes());
    }
    fs::write(path, &text).unwrap();
    text
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data")
        .join(name)
}

fn push(server: &Server, storage: &str, path: &Path) {
    let (url, path) = (server.url(), path.to_str().unwrap());
    let words = [
        "push",
        "--server",
        &url,
        "--storage",
        storage,
        "--packet-bytes",
        "4096",
        path,
    ];
    let output = run_tracehold(&words.map(str::to_owned));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && !errors.contains("not stored"),
        "{errors}"
    );
}

/// The packets of a stream with their provenance.
fn packets(api: &mut Api, storage: &str) -> Vec<Value> {
    let path = format!("/storages/{storage}/descriptors?limit=1000&provenance=true");
    let page = api.done("GET", &path, None);
    assert!(page["next"].is_null());
    page["items"].as_array().unwrap().clone()
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// Compares the provenance of each packet with the decoded content of its file; with `lines` for
/// text.
fn check(api: &mut Api, storage: &str, path: &Path, content: &[u8], inflated: bool, lines: bool) {
    let file = fs::read(path).unwrap();
    let reported = packets(api, storage);
    assert!(reported.len() > 1, "{}", reported.len());
    let (mut end, mut line) = (0, 0);
    for packet in &reported {
        let origin = &packet["provenance"];
        let what = format!("{}: {packet}", path.display());
        assert_eq!(
            origin["path"],
            fs::canonicalize(path).unwrap().to_str().unwrap(),
            "{what}"
        );
        assert_eq!(number(&origin["file_bytes"]), file.len(), "{what}");
        assert!(
            origin["checksum"].is_u64() && origin["modified"].is_i64(),
            "{what}"
        );
        assert_eq!(number(&origin["offset"]), end, "{what}");
        let bytes = api.packet(storage, packet["number"].as_u64().unwrap());
        let text = if inflated && bytes.starts_with(&[0x1f, 0x8b]) {
            inflate(&bytes)
        } else if is_piece(&bytes) {
            let piece = PiecePacket::decode(&bytes).unwrap();
            piece.text(&mut Inflater::default()).unwrap()
        } else {
            bytes
        };
        end += number(&origin["bytes"]);
        assert_eq!(number(&origin["bytes"]), text.len(), "{what}");
        assert_eq!(
            content.get(end - text.len()..end),
            Some(&text[..]),
            "{what}"
        );
        assert_eq!(number(&origin["first_line"]), line, "{what}");
        let of_packet = text.split_inclusive(|byte| *byte == b'\n').count();
        assert_eq!(
            number(&origin["lines"]),
            if lines { of_packet } else { 0 },
            "{what}"
        );
        line += number(&origin["lines"]);
    }
    assert_eq!(end, content.len());
}

fn inflate(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    flate2::read::MultiGzDecoder::new(bytes)
        .read_to_end(&mut text)
        .unwrap();
    text
}

/// The provenance file of the only data file of a storage.
fn sidecar(server: &Server, storage: &str) -> PathBuf {
    let leaves = server.api().leaves(storage);
    let folder = server.data().join("storages").join(storage);
    folder.join(format!("{}.pidx", leaves.first().unwrap()))
}

#[test]
fn every_packet_of_a_file_has_its_bytes_and_lines() {
    let (folder, server, mut api) = Server::fresh();
    let text = folder.path().join("trace.pfw");
    let content = write_trace(&text, 500);
    let storage = api.create_storage("text");
    push(&server, &storage, &text);
    check(&mut api, &storage, &text, &content, false, true);

    let gzip = data("trace-0-of-1.pfw.gz");
    let storage = api.create_storage("gzip");
    push(&server, &storage, &gzip);
    let content = inflate(&fs::read(&gzip).unwrap());
    check(&mut api, &storage, &gzip, &content, true, true);

    let raw = folder.path().join("raw.bin");
    let content: Vec<u8> = (0..30_000_u32).map(|number| (number % 251) as u8).collect();
    fs::write(&raw, &content).unwrap();
    let storage = api.create_storage("raw");
    push(&server, &storage, &raw);
    check(&mut api, &storage, &raw, &content, false, false);
}

#[test]
fn lost_or_damaged_provenance_is_reported_again() {
    let (folder, mut server, mut api) = Server::fresh();
    let path = folder.path().join("trace.pfw");
    let content = write_trace(&path, 500);
    let storage = api.create_storage("recovered");
    push(&server, &storage, &path);
    let reported = packets(&mut api, &storage);
    let file = sidecar(&server, &storage);
    let original = fs::read(&file).unwrap();
    for place in [0, 20, original.len() / 2, original.len() - 1] {
        let mut damaged = original.clone();
        damaged[place] ^= 0x20;
        fs::write(&file, damaged).unwrap();
        let found = packets(&mut api, &storage);
        assert_eq!(found.len(), reported.len());
        assert!(
            found.iter().all(|packet| packet["provenance"].is_null()),
            "byte {place}"
        );
    }
    // Nothing is sent again, and the lost provenance is reported again.
    push(&server, &storage, &path);
    assert_eq!(packets(&mut api, &storage), reported);
    assert_eq!(fs::read(&file).unwrap(), original);
    fs::remove_file(&file).unwrap();
    push(&server, &storage, &path);
    assert_eq!(fs::read(&file).unwrap(), original);
    // The provenance of another storage's leaf.
    let other = api.create_storage("other");
    push(&server, &other, &path);
    let other_leaf = fs::read(sidecar(&server, &other)).unwrap();
    fs::write(&file, other_leaf).unwrap();
    assert!(packets(&mut api, &storage)[0]["provenance"].is_null());
    fs::write(&file, &original).unwrap();

    server.kill();
    server.restart();
    let mut api = server.api();
    api.finalize(&storage);
    // Finalization moves packets to other files; all else is as before.
    let without_place = |mut packets: Vec<Value>| {
        for packet in packets.iter_mut().filter_map(Value::as_object_mut) {
            packet.remove("file");
            packet.remove("offset");
        }
        packets
    };
    let found = without_place(packets(&mut api, &storage));
    assert_eq!(found, without_place(reported));
    check(&mut api, &storage, &path, &content, false, true);
}

#[test]
fn inconsistent_provenance_is_refused() {
    let (folder, server, mut api) = Server::fresh();
    let path = folder.path().join("trace.pfw");
    write_trace(&path, 100);
    let storage = api.create_storage("reported");
    push(&server, &storage, &path);
    let packet = packets(&mut api, &storage)[0].clone();
    let (agent, stream) = (
        packet["agent"].as_str().unwrap(),
        packet["stream"].as_str().unwrap(),
    );
    let target = format!("/storages/{storage}/agents/{agent}/streams/{stream}/provenance");
    let report = |packets: Value| json!({ "epoch": packet["epoch"], "path": "/somewhere", "file_bytes": 5, "packets": packets });
    for faulty in [
        json!([[1, 0, 1, 0, 0], [0, 1, 1, 0, 0]]),
        json!([[0, u64::MAX, 1, 0, 0]]),
    ] {
        let problem = api.refused("PUT", &target, Some(&report(faulty)));
        assert_eq!(problem.status, 400, "{problem:?}");
    }
    // Provenance of packets that do not exist is refused.
    let response = api.done(
        "PUT",
        &target,
        Some(&report(json!([[0, 7, 1, 0, 0], [999, 8, 1, 0, 0]]))),
    );
    assert_eq!(response["packets"], 1);
    let origin = &packets(&mut api, &storage)[0]["provenance"];
    assert_eq!(
        (origin["path"].as_str(), number(&origin["offset"])),
        (Some("/somewhere"), 7)
    );
    let nowhere = format!("/storages/{}/agents/a/streams/s/provenance", "0".repeat(32));
    let problem = api.refused("PUT", &nowhere, Some(&report(json!([]))));
    assert!([400, 404].contains(&problem.status), "{problem:?}");
}

/// Copies a storage with a job and waits for it.
fn copy(api: &mut Api, storage: &str, wanted: &Value) -> String {
    let copied = api.done("POST", &format!("/storages/{storage}/copy"), Some(wanted));
    copied["storage"].as_str().unwrap().to_owned()
}

#[test]
fn copies_keep_the_provenance_of_their_packets() {
    let (folder, server, mut api) = Server::fresh();
    let text = folder.path().join("trace.pfw");
    let content = write_trace(&text, 500);
    let source = api.create_storage("source");
    push(&server, &source, &text);

    let original = copy(
        &mut api,
        &source,
        &json!({ "name": "whole", "auto_finalize": true }),
    );
    check(&mut api, &original, &text, &content, false, true);
    let processors = json!([{ "type": "saver" }]);
    let through = copy(
        &mut api,
        &source,
        &json!({ "name": "through", "processors": processors }),
    );
    check(&mut api, &through, &text, &content, false, true);
    let again = copy(&mut api, &original, &json!({ "name": "a copy of a copy" }));
    check(&mut api, &again, &text, &content, false, true);

    // The origin of a packet without provenance is the storage it was copied from.
    fs::remove_file(sidecar(&server, &source)).unwrap();
    for wanted in [
        json!({ "name": "of a packet" }),
        json!({ "name": "through", "processors": processors }),
    ] {
        let copied = copy(&mut api, &source, &wanted);
        let origins = packets(&mut api, &source);
        let copies = packets(&mut api, &copied);
        assert_eq!(copies.len(), origins.len());
        for (origin, copy) in origins.iter().zip(&copies) {
            assert!(origin["provenance"].is_null());
            let reported = &copy["provenance"];
            let file = origin["file"].as_str().unwrap();
            assert_eq!(reported["path"], format!("/storage/{source}/{file}"));
            assert_eq!(reported["offset"], origin["offset"], "{copy}");
            assert_eq!(reported["bytes"], origin["size"], "{copy}");
            assert_eq!(number(&reported["lines"]), 0);
        }
    }
}

/// Pushes a file with `--follow` until it is stopped.
fn follow(server: &Server, storage: &str, path: &Path, state: &Path) -> Child {
    let command = Command::new(tracehold())
        .args(["push", "--follow", "--packet-bytes", "4096"])
        .args(["--server", &server.url(), "--storage", storage])
        .arg(path)
        .env("XDG_STATE_HOME", state)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    command.unwrap()
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let status = Command::new("kill").args([name, &pid]).status().unwrap();
    assert!(status.success(), "it has already exited");
}

/// Waits until the storage contains every byte of the file.
fn wait_for(api: &mut Api, storage: &str, bytes: usize) {
    let begin = Instant::now();
    while number(&api.storage(storage)["bytes"]) < bytes {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "it is not pushed"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Checks the provenance of a followed file, which covers what was pushed so far.
fn check_followed(api: &mut Api, storage: &str, path: &Path, content: &[u8]) {
    let reported = packets(api, storage);
    let (mut end, mut line) = (0, 0);
    for packet in &reported {
        let origin = &packet["provenance"];
        assert_eq!(
            origin["path"],
            fs::canonicalize(path).unwrap().to_str().unwrap()
        );
        assert_eq!(
            number(&origin["file_bytes"]),
            content.len(),
            "one file: {origin}"
        );
        let checksum = storage_format::checksum::crc32c(content);
        assert_eq!(origin["checksum"], checksum);
        assert_eq!(
            (number(&origin["offset"]), number(&origin["first_line"])),
            (end, line)
        );
        let bytes = api.packet(storage, packet["number"].as_u64().unwrap());
        assert_eq!(bytes, content[end..end + number(&origin["bytes"])]);
        end += bytes.len();
        line += number(&origin["lines"]);
    }
    assert_eq!(end, content.len());
    assert_eq!(line, content.iter().filter(|byte| **byte == b'\n').count());
}

#[test]
fn a_followed_file_has_provenance_also_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("server"), &Settings::default());
    let mut api = server.api();
    let (path, state) = (folder.path().join("grows.pfw"), folder.path().join("state"));
    let other = folder.path().join("other.pfw");
    let text = write_trace(&other, 900);
    let ends: Vec<usize> = (text.iter().enumerate())
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(place, _)| place + 1)
        .collect();
    let storage = api.create_storage("followed");
    let mut written = 0;
    // The push that completes reports provenance; the push that is killed does not; the next push
    // reports it again.
    for (lines, end) in [(250, "-INT"), (600, "-KILL"), (900, "-INT")] {
        let part = &text[written..ends[lines - 1]];
        fs::File::options()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(part))
            .unwrap();
        written += part.len();
        let mut following = follow(&server, &storage, &path, &state);
        wait_for(&mut api, &storage, written);
        signal(&following, end);
        assert_eq!(following.wait().unwrap().success(), end == "-INT");
        if end == "-INT" {
            check_followed(&mut api, &storage, &path, &text[..written]);
        }
    }
    assert_eq!(written, text.len());
}

#[test]
fn every_storage_of_a_recorded_packet_gets_its_provenance() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("server"), &Settings::default());
    let mut api = server.api();
    let path = folder.path().join("trace.pfw");
    let content = write_trace(&path, 500);
    let body = || json!({ "processors": saver() });
    let recordings = [record_now(&mut api, body()), record_now(&mut api, body())];
    let (url, file) = (server.url(), path.to_str().unwrap());
    let words = ["push", "--server", &url, "--packet-bytes", "4096", file];
    let output = run_tracehold(&words.map(str::to_owned));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && !errors.contains("not stored"),
        "{errors}"
    );
    for (recording, storage) in &recordings {
        check(&mut api, storage, &path, &content, false, true);
        stop(&mut api, recording);
        api.finalize(storage);
        check(&mut api, storage, &path, &content, false, true);
    }
}

#[test]
fn a_ctf_folder_is_followed_packet_by_packet() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("server"), &Settings::default());
    let mut api = server.api();
    let (trace, state) = (folder.path().join("trace"), folder.path().join("state"));
    fs::create_dir(&trace).unwrap();
    let origin = data("lttng/uid/0/64-bit");
    fs::copy(origin.join("metadata"), trace.join("metadata")).unwrap();
    let content = fs::read(origin.join("chan_1")).unwrap();
    let path = trace.join("chan_1");
    fs::write(&path, []).unwrap();
    let storage = api.create_storage("followed");
    let append = |part: &[u8]| {
        let file = fs::File::options().append(true).open(&path);
        file.and_then(|mut file| file.write_all(part)).unwrap();
    };
    // Parts that end inside packets, and a client that is killed in between.
    let ends = [100, content.len() / 3, content.len() - 1, content.len()];
    let mut written = 0;
    for (round, end) in ends.into_iter().enumerate() {
        let mut following = follow(&server, &storage, &trace, &state);
        append(&content[written..end]);
        written = end;
        if end == content.len() {
            wait_for(&mut api, &storage, content.len());
        } else {
            std::thread::sleep(Duration::from_millis(700));
        }
        signal(&following, if round == 1 { "-KILL" } else { "-INT" });
        following.wait().unwrap();
    }
    let stored = packets(&mut api, &storage);
    assert!(
        stored.iter().all(|packet| packet["events"].is_u64()),
        "{stored:?}"
    );
    let mut joined = Vec::new();
    for packet in &stored {
        joined.extend(api.packet(&storage, packet["number"].as_u64().unwrap()));
    }
    assert!(joined == content, "{} packets", stored.len());
    // Complete packets only, as the producer made them.
    let whole = api.create_storage("whole");
    let words = ["push", "--server", &server.url(), "--storage", &whole];
    let words = [&words[..], &["--agent", "other", trace.to_str().unwrap()]].concat();
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    assert!(run_tracehold(&words).status.success());
    let sizes = |packets: &[Value]| -> Vec<usize> {
        packets
            .iter()
            .map(|packet| number(&packet["raw_size"]))
            .collect()
    };
    assert_eq!(sizes(&stored), sizes(&packets(&mut api, &whole)));
}
