//! Packets that are pieces of a gzip member: each has its events alone, whatever an agent does with
//! the others, and one that lies costs no more than itself.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use harness::{Agent, Api, Server, Settings};
use serde_json::{Value, json};
use trace_kinds::gzip::{Entry, Piece, PieceEnd, PiecePacket, is_piece};

use crate::queries::{push, run};

/// The server needs a few dozen MiB for itself, and its budget of packets in flight is 64 MiB.
const PEAK_BYTES_MAX: u64 = 400 << 20;
/// Senders of bombs, each on a connection of its own.
const SENDERS: usize = 8;
/// Events of the file that is divided.
const EVENTS: u64 = 90_000;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// A piece that claims to be a whole member with so many bytes of text.
fn piece(bytes: &[u8], text_len: u64) -> Vec<u8> {
    let entry = Entry {
        bit_offset: 0,
        text_offset: 0,
        window: None,
    };
    let byte_offset = bytes.len() as u64;
    let piece = Piece {
        entry: &entry,
        end: PieceEnd::Member { byte_offset },
        text_len,
    };
    PiecePacket::of(&piece, bytes, b"", text_len).encode()
}

/// Packets of a stream of kind `dft`, one after another.
fn stored(api: &mut Api, name: &str, packets: &[Vec<u8>]) -> String {
    let storage = api.create_storage(name);
    Agent::register(api, name);
    Agent::declare_stream(api, name, "pieces", "dft", "none");
    let agent = Agent::new(&storage, name, "pieces");
    for (sequence, packet) in packets.iter().enumerate() {
        agent.push(api, sequence as u64, packet);
    }
    storage
}

fn count(api: &mut Api, storage: &str) -> (u64, Vec<String>) {
    let body = json!({ "query": "dur >= 0us", "count": true });
    let counted = api.done("POST", &format!("/storages/{storage}/query"), Some(&body));
    let reasons = counted["skipped"].as_array().cloned().unwrap_or_default();
    let reasons = reasons
        .iter()
        .map(|reason| reason.as_str().unwrap().to_owned());
    (counted["count"].as_u64().unwrap(), reasons.collect())
}

/// The packets of a file of one member, and how many events each has.
fn pieces(server: &Server) -> Vec<(Vec<u8>, u64)> {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    // Names that do not repeat, so that the member has many blocks.
    let mut odd = 1_u64;
    for id in 0..EVENTS {
        odd = odd.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let other = odd.rotate_left(29).wrapping_mul(odd | 1);
        writeln!(
            text,
            "{{\"id\":{id},\"name\":\"{odd:016x}{other:016x}\",\"cat\":\"c\",\"pid\":1,\"tid\":2,\
             \"ts\":{id},\"dur\":3,\"ph\":\"X\"}}"
        )
        .unwrap();
    }
    let path = folder.path().join("trace.pfw.gz");
    fs::write(&path, gzip(text.as_bytes())).unwrap();
    let storage = server.api().create_storage("origin");
    push(server, &storage, &path, "65536");
    let mut api = server.api();
    let listed = api.done("GET", &format!("/storages/{storage}/descriptors"), None);
    let packets = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item: &Value| {
            let bytes = api.packet(&storage, item["number"].as_u64().unwrap());
            (bytes, item["events"].as_u64().unwrap())
        });
    let packets: Vec<_> = packets.collect();
    assert!(packets.len() > 5 && packets.iter().all(|(bytes, _)| is_piece(bytes)));
    assert_eq!(
        packets.iter().map(|(_, events)| events).sum::<u64>(),
        EVENTS
    );
    packets
}

#[test]
fn pieces_in_any_order_have_their_events_and_those_that_are_missing_cost_only_theirs() {
    let (folder, server, mut api) = Server::fresh();
    let packets = pieces(&server);
    let bytes = |packets: &[(Vec<u8>, u64)]| -> Vec<Vec<u8>> {
        packets.iter().map(|(bytes, _)| bytes.clone()).collect()
    };
    let mut reversed = packets.clone();
    reversed.reverse();
    let mut repeated = packets.clone();
    repeated.insert(2, packets[4].clone());
    let without: Vec<_> = packets.iter().step_by(2).cloned().collect();
    for (name, some) in [
        ("reversed", reversed),
        ("repeated", repeated),
        ("without", without),
    ] {
        let storage = stored(&mut api, name, &bytes(&some));
        let expected: u64 = some.iter().map(|(_, events)| events).sum();
        assert_eq!(api.storage(&storage)["events"], expected, "{name}");
        assert_eq!(count(&mut api, &storage), (expected, Vec::new()), "{name}");
        api.finalize(&storage);
        assert_eq!(count(&mut api, &storage), (expected, Vec::new()), "{name}");
        // Their bytes are not a file that anybody described.
        let (target, url) = (folder.path().join(name), server.url());
        let words = ["export", "--server", &url, "--storage", &storage, "--json"];
        let (_, out, errors) = run(&[&words[..], &[target.to_str().unwrap()]].concat());
        let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{errors}"));
        assert_eq!(
            report["files"][0]["fidelity"], "unverified",
            "{name}: {report}"
        );
    }
}

#[test]
fn pieces_that_lie_are_stored_and_told_and_the_others_are_read() {
    let (_folder, server, mut api) = Server::fresh();
    let mut packets = pieces(&server);
    // In the version, a number, and the window (behind the text before, and its length).
    let before: [u8; 4] = packets[3].0[35..39].try_into().unwrap();
    let window = 43 + u32::from_le_bytes(before) as usize;
    for (number, place) in [(1, 8), (2, 20), (3, window)] {
        packets[number].0[place] ^= 0x41;
    }
    // Digits have codes of one length, so a few other bits of the data are other digits: a piece
    // has no checksum of its text. Zeros are a longer text.
    let half = packets[4].0.len() / 2;
    packets[4].0[half..].fill(0);
    let cut = packets[5].0.len() - 100;
    packets[5].0.truncate(cut);
    let intact = packets
        .iter()
        .enumerate()
        .filter(|(number, _)| !(1..6).contains(number));
    let expected: u64 = intact.map(|(_, (_, events))| events).sum();
    let bytes: Vec<_> = packets.iter().map(|(bytes, _)| bytes.clone()).collect();
    let storage = stored(&mut api, "lies", &bytes);
    assert_eq!(api.storage(&storage)["packets"], bytes.len() as u64);
    assert_eq!(api.storage(&storage)["events"], expected);
    let (counted, reasons) = count(&mut api, &storage);
    assert_eq!((counted, reasons.len()), (expected, 5), "{reasons:?}");
    let is_told = |reason: &String| reason.contains("a piece of a gzip member is damaged");
    assert!(reasons.iter().all(is_told), "{reasons:?}");
    api.finalize(&storage);
    let (counted, reasons) = count(&mut api, &storage);
    assert_eq!((counted, reasons.is_empty()), (expected, false));
}

#[test]
fn pieces_that_inflate_to_much_text_take_bounded_memory() {
    const TEXT_BYTES: usize = 32 << 20;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let member = gzip(&vec![b' '; TEXT_BYTES]);
    let bombs = [
        piece(&member, TEXT_BYTES as u64),
        piece(&member, TEXT_BYTES as u64 - 1),
        piece(&vec![0x1f; member.len()], TEXT_BYTES as u64),
        piece(&member, u64::MAX),
    ];
    assert!(member.len() < 64 << 10, "{}", member.len());
    let storage = server.api().create_storage("bombs");
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (server, storage, bombs) = (&server, &storage, &bombs);
            scope.spawn(move || {
                let (mut api, name) = (server.api(), format!("agent-{sender}"));
                Agent::register(&mut api, &name);
                Agent::declare_stream(&mut api, &name, "s", ["dft", "chrome"][sender % 2], "none");
                let agent = Agent::new(storage, &name, "s");
                for (sequence, bomb) in bombs.iter().enumerate() {
                    agent.push(&mut api, sequence as u64, bomb);
                }
            });
        }
    });
    let mut api = server.api();
    let (counted, _) = count(&mut api, &storage);
    assert_eq!(counted, 0);
    let peak = server.peak_bytes();
    println!("peak {} MiB", peak >> 20);
    assert!(peak < PEAK_BYTES_MAX, "{} MiB", peak >> 20);
}
