//! Real traces end to end: push, finalize, mount, read back by byte ranges, all bytes equal.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use harness::{Server, Settings, corpora, run_tracehold, tracehold};
use trace_kinds::gzip::{Inflater, PiecePacket, is_piece};

use crate::mounted::read_streams;

/// One trace for the command line, and the streams that it must produce.
struct Trace {
    path: PathBuf,
    /// The bytes of each stream, in any order: the command chooses the names of streams.
    streams: Vec<Vec<u8>>,
    /// What a packet adds to its stream; `true` for the first packet.
    content: fn(&[u8], bool) -> Vec<u8>,
}

fn as_it_is(packet: &[u8], _is_first: bool) -> Vec<u8> {
    packet.to_vec()
}

/// Complete gzip members and pieces of long ones are packets; other content is text.
fn text(packet: &[u8], _is_first: bool) -> Vec<u8> {
    if is_piece(packet) {
        let piece = PiecePacket::decode(packet).unwrap();
        piece.text(&mut Inflater::default()).unwrap()
    } else if packet.starts_with(&[0x1f, 0x8b]) {
        gunzip(packet)
    } else {
        packet.to_vec()
    }
}

/// Each packet but the first starts with a copy of the trace's header. A record is time (8 bytes),
/// type (1), length of the rest (4, little-endian).
fn records(packet: &[u8], is_first: bool) -> Vec<u8> {
    let length = u32::from_le_bytes(packet[9..13].try_into().unwrap());
    let header = if is_first {
        0
    } else {
        13 + usize::try_from(length).unwrap()
    };
    packet[header..].to_vec()
}

fn lttng(root: &Path) -> Trace {
    let folder = root.join("uid/0/64-bit");
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    Trace {
        streams: vec![read("chan_0"), read("chan_1")],
        path: folder,
        content: as_it_is,
    }
}

fn dftracer(path: &Path) -> Trace {
    let streams = vec![text(&fs::read(path).unwrap(), true)];
    Trace {
        path: path.to_owned(),
        streams,
        content: text,
    }
}

fn rocksdb(path: &Path) -> Trace {
    Trace {
        path: path.to_owned(),
        streams: vec![fs::read(path).unwrap()],
        content: records,
    }
}

fn chrome(path: &Path) -> Trace {
    dftracer(path)
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new("gzip")
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(bytes).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "gzip cannot read its own packets");
    output.stdout
}

fn small_traces() -> Vec<Trace> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    vec![
        lttng(&data.join("lttng")),
        dftracer(&data.join("trace-0-of-1.pfw.gz")),
        rocksdb(&data.join("io_small.trace")),
        rocksdb(&data.join("bc_small.trace")),
        chrome(&data.join("chrome_viztracer.json")),
        chrome(&data.join("chrome_kineto.json")),
        chrome(&data.join("chrome_bazel.json.gz")),
    ]
}

fn corpus_traces(corpora: &Path) -> Vec<Trace> {
    vec![
        lttng(&corpora.join("ctf/lttng-probe/ust")),
        dftracer(&corpora.join("dft/polaris/test-trace-dist-3.pfw.gz")),
        dftracer(&corpora.join("dft/plain/test.pfw")),
        rocksdb(&corpora.join("rocksdb/io_medium.trace")),
        rocksdb(&corpora.join("rocksdb/bc_small.trace")),
    ]
}

#[test]
fn small_traces_are_read_back_byte_for_byte() {
    for trace in small_traces() {
        check_push(&trace);
    }
}

#[test]
fn real_traces_are_read_back_byte_for_byte() {
    let Some(corpora) = corpora() else { return };
    for trace in corpus_traces(&corpora) {
        check_push(&trace);
    }
}

#[test]
fn small_traces_survive_a_kill_half_way() {
    for trace in small_traces() {
        check_push_with_kill(&trace);
    }
}

#[test]
fn real_traces_survive_a_kill_half_way() {
    let Some(corpora) = corpora() else { return };
    for trace in corpus_traces(&corpora) {
        check_push_with_kill(&trace);
    }
}

fn check_push(trace: &Trace) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &Settings::default());
    let storage = server.api().create_storage("trace");
    let output = run_tracehold(&push_arguments(&server, &storage, trace));
    assert_success(&output);
    check_read_back(&server, &storage, folder.path(), trace);
}

/// The server is killed when it has about half of the bytes; the command is not informed, and a
/// second push of the same trace resumes.
fn check_push_with_kill(trace: &Trace) {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &Settings::default());
    let storage = server.api().create_storage("trace");
    let half: usize = trace.streams.iter().map(Vec::len).sum::<usize>() / 2;
    let mut push = Command::new(tracehold())
        .args(push_arguments(&server, &storage, trace))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let errors = BufReader::new(push.stderr.take().unwrap());
    let reader = std::thread::spawn(move || errors.lines().map_while(Result::ok).count());
    wait_for_bytes(&server, &storage, half, &mut push);
    server.kill();
    // The command either gives up or has completed; its output is not checked here.
    push.kill().ok();
    push.wait().unwrap();
    reader.join().unwrap();
    server.restart();
    let output = run_tracehold(&push_arguments(&server, &storage, trace));
    assert_success(&output);
    check_read_back(&server, &storage, folder.path(), trace);
}

/// Waits until the server has written this many bytes, or the push has ended.
fn wait_for_bytes(server: &Server, storage: &str, bytes: usize, push: &mut std::process::Child) {
    let mut api = server.api();
    let begin = Instant::now();
    let bytes_min = u64::try_from(bytes).unwrap();
    while begin.elapsed() < Duration::from_secs(60) {
        let has = api.storage(storage)["bytes"].as_u64().unwrap();
        // Compression reduces the bytes: the first of them show that the push is half-way.
        if has > bytes_min / 20 || push.try_wait().unwrap().is_some() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("nothing was written within a minute");
}

fn push_arguments<'a>(server: &'a Server, storage: &'a str, trace: &'a Trace) -> Vec<String> {
    let path = trace.path.to_str().unwrap();
    let words = [
        "push",
        "--server",
        &server.url(),
        "--storage",
        storage,
        "--agent",
        "host",
        path,
    ];
    words.map(str::to_owned).to_vec()
}

fn check_read_back(server: &Server, storage: &str, folder: &Path, trace: &Trace) {
    let name = trace.path.display();
    let url = server.url();
    let finalize = ["storage", "finalize", "--server", &url, storage].map(str::to_owned);
    assert_success(&run_tracehold(&finalize));
    let mount = folder.join("mount");
    let address = format!("{url}/storage/{storage}");
    let mount_arguments = ["mount", &address, mount.to_str().unwrap()].map(str::to_owned);
    assert_success(&run_tracehold(&mount_arguments));
    let streams = read_streams(server, storage, &mount).into_values();
    let joined = |packets: Vec<Vec<u8>>| {
        let content = |(index, packet): (usize, &Vec<u8>)| (trace.content)(packet, index == 0);
        packets
            .iter()
            .enumerate()
            .flat_map(content)
            .collect::<Vec<u8>>()
    };
    let mut found: Vec<Vec<u8>> = streams.map(joined).collect();
    let mut expected = trace.streams.clone();
    found.sort();
    expected.sort();
    let lengths = |streams: &[Vec<u8>]| streams.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(
        lengths(&found),
        lengths(&expected),
        "lengths of the streams of {name}"
    );
    assert!(found == expected, "the streams of {name} differ");
    assert!(server.api().verify(storage).is_empty());
}

fn assert_success(output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
}
