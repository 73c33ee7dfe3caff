//! Traces of both kinds: those of the corpus, and small ones with all fields.

use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::PathBuf;

use proptest::prelude::*;
use query_language::{FieldPath, FieldTable, Value};

use super::envelope::put_envelope;
use super::header::is_trace;
use super::*;
use crate::{DecodeError, Decoder};

mod cutting;
mod events;
mod hostile;
mod releases;

/// The folder of real traces; `None`, with a message, if it is missing.
fn corpus() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora");
    if !folder.exists() {
        println!("skipped: ../shared/corpora is not here");
        return None;
    }
    Some(folder.join("rocksdb"))
}

fn read(path: PathBuf) -> Vec<u8> {
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn read_gz(path: PathBuf) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&read(path)[..])
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}

/// The text of an IO trace, and what stopped it.
fn io_text(bytes: &[u8]) -> (Vec<u8>, Option<RocksdbError>) {
    let mut out = Vec::new();
    let mut trace = match IoTrace::open(bytes) {
        Ok(trace) => trace,
        Err(error) => return (out, Some(error)),
    };
    put_io_header(&mut out, trace.header());
    loop {
        match trace.next_record() {
            Ok(Some(record)) => put_io_line(&mut out, &record),
            Ok(None) => return (out, None),
            Err(error) => return (out, Some(error)),
        }
    }
}

fn block_csv(bytes: &[u8]) -> (Vec<u8>, Option<RocksdbError>) {
    let mut out = Vec::new();
    let mut csv = BlockCsv::new();
    let mut trace = match BlockCacheTrace::open(bytes) {
        Ok(trace) => trace,
        Err(error) => return (out, Some(error)),
    };
    loop {
        match trace.next_record() {
            Ok(Some(record)) => csv.put_row(&mut out, &record),
            Ok(None) => return (out, None),
            Err(error) => return (out, Some(error)),
        }
    }
}

#[track_caller]
fn assert_same_text(name: &str, ours: &[u8], theirs: &[u8]) {
    for (number, (ours, theirs)) in ours
        .split(|&b| b == b'\n')
        .zip(theirs.split(|&b| b == b'\n'))
        .enumerate()
    {
        assert_eq!(
            String::from_utf8_lossy(ours),
            String::from_utf8_lossy(theirs),
            "{name} line {}",
            number + 1
        );
    }
    assert_eq!(ours.len(), theirs.len(), "{name}: lengths");
}

#[test]
fn io_text_is_that_of_rocksdbs_parser() {
    let Some(folder) = corpus() else { return };
    for name in ["io_small", "io_variants", "io_medium"] {
        let expected = match folder.join(format!("{name}.txt")) {
            plain if plain.exists() => read(plain),
            _ => read_gz(folder.join(format!("{name}.txt.gz"))),
        };
        let (text, end) = io_text(&read(folder.join(format!("{name}.trace"))));
        assert_eq!(end, None, "{name}");
        assert_same_text(name, &text, &expected);
    }
}

#[test]
fn block_csv_is_that_of_rocksdbs_analyzer() {
    let Some(folder) = corpus() else { return };
    for name in ["bc_small", "bc_variants", "bc_medium"] {
        let expected = match folder.join(format!("{name}.csv")) {
            plain if plain.exists() => read(plain),
            _ => read_gz(folder.join(format!("{name}.csv.gz"))),
        };
        let (csv, end) = block_csv(&read(folder.join(format!("{name}.trace"))));
        assert_eq!(end, None, "{name}");
        assert_same_text(name, &csv, &expected);
    }
}

#[test]
fn a_torn_trace_is_read_to_its_end_and_reported() {
    let Some(folder) = corpus() else { return };
    let bytes = read(folder.join("io_cut_midrecord.trace"));
    let (text, end) = io_text(&bytes);
    let Some(RocksdbError::Torn {
        offset,
        left,
        needed,
    }) = end
    else {
        panic!("{end:?}")
    };
    assert_eq!(offset + left, bytes.len() as u64);
    assert!(left < needed, "{left} {needed}");
    let whole = &bytes[..usize::try_from(offset).unwrap()];
    assert_eq!(io_text(whole), (text, None));
    let mut cutter = Cutter::new(4096);
    cutter.push(&bytes).unwrap();
    let packets: Vec<_> = std::iter::from_fn(|| cutter.flush()).collect();
    assert_eq!(
        join(packets.iter().map(|packet| &packet.bytes[..])).unwrap(),
        whole
    );
    assert_eq!(
        cutter.torn_end(),
        Some(RocksdbError::Torn {
            offset,
            left,
            needed
        })
    );
}

#[test]
fn a_query_trace_is_refused_with_its_name() {
    let Some(folder) = corpus() else { return };
    let error = IoTrace::open(&read(folder.join("query_small.trace"))).unwrap_err();
    assert!(error.to_string().contains("query trace"), "{error}");
}

#[test]
fn the_first_bytes_distinguish_traces_from_other_files() {
    let mut file = Vec::new();
    header(7, 8).put(&mut file);
    for end in 0..file.len() {
        assert!(is_trace(&file[..end]), "{end}");
    }
    for other in [&b"# a text that is not a trace"[..], &[0; 40], &[1; 9]] {
        let refused = matches!(
            Cutter::new(100).push(other),
            Err(RocksdbError::NotATrace { offset: 0, .. })
        );
        assert_eq!(refused, !is_trace(other), "{other:?}");
    }
}

/// Cuts `file` in pieces of `piece` bytes and returns the packets.
fn cut(file: &[u8], target: usize, piece: usize) -> Vec<Packet> {
    let mut cutter = Cutter::new(target);
    let mut packets = Vec::new();
    for bytes in file.chunks(piece) {
        cutter.push(bytes).unwrap();
        packets.extend(std::iter::from_fn(|| cutter.next_packet()));
    }
    packets.extend(std::iter::from_fn(|| cutter.flush()));
    assert_eq!(cutter.torn_end(), None);
    packets
}

fn header(major: u32, minor: u32) -> TraceHeader {
    TraceHeader {
        start_us: 1_000_000,
        major,
        minor,
        continuation: None,
    }
}

fn prefixed(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

/// A payload of numbers and texts, each already encoded.
fn payload(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// A small trace of each kind with every optional field.
fn small_traces() -> [Vec<u8>; 2] {
    let n = |value: u64| value.to_le_bytes();
    let mut io = Vec::new();
    header(7, 8).put(&mut io);
    for end in 0..4u64 {
        let body = payload(&[
            &n(7),
            &prefixed("Read"),
            &n(5),
            &prefixed("OK"),
            &prefixed("1.sst"),
            &n(1),
            &n(2),
            &n(3),
            &n(1),
            &prefixed("r"),
        ]);
        put_envelope(&mut io, 1000 + end, 12, &body);
    }
    let mut blocks = Vec::new();
    header(7, 8).put(&mut blocks);
    for time in 0..4u64 {
        let body = payload(&[
            &prefixed("0123456789abcdef"),
            &n(4096),
            &n(0),
            &prefixed("default"),
            &[1, 0, 0, 0],
            &n(9),
            &[1, 1, 0],
            &n(time),
            &[1],
            &prefixed("userkey-SEQUENCE"),
            &n(100),
            &n(7),
            &[1],
        ]);
        put_envelope(&mut blocks, time, 9, &body);
    }
    [io, blocks]
}

#[test]
fn small_traces_are_complete() {
    let [io, blocks] = small_traces();
    assert_eq!((io_text(&io).1, block_csv(&blocks).1), (None, None));
}
