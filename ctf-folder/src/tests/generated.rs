//! Folders with small generated traces: windows of time, defects of producers, copies, losses.

use super::trace_folders;
use crate::{LossKind, TimeWindow, TraceFolder, WriteOptions, WriteSummary, losses, write_events};
use std::fs;
use std::path::Path;

const SECOND: i64 = 1_000_000_000;

/// A packet: sequence number, clock at the beginning and the end, counter of discarded events, and
/// events with their times and numbers. Times are in nanoseconds.
#[derive(Clone)]
pub(super) struct Packet {
    sequence: u64,
    begin: u64,
    end: u64,
    discarded: u64,
    pub(super) events: Vec<(u64, u8)>,
}

pub(super) fn packet(sequence: u64, begin: u64, end: u64, events: &[(u64, u8)]) -> Packet {
    Packet {
        sequence,
        begin,
        end,
        discarded: 0,
        events: events.to_vec(),
    }
}

/// Three packets of two events each, at intervals of ten nanoseconds.
pub(super) fn three() -> Vec<Packet> {
    vec![
        packet(0, 10, 19, &[(11, 1), (18, 2)]),
        packet(1, 20, 29, &[(21, 3), (28, 4)]),
        packet(2, 30, 39, &[(31, 5), (38, 6)]),
    ]
}

fn metadata(environment: &str) -> String {
    format!(
        "/* CTF 1.8 */
        typealias integer {{ size = 8; }} := u8;
        typealias integer {{ size = 64; }} := u64;
        trace {{ major = 1; minor = 8; byte_order = le;
          uuid = \"2153e19e-968b-4e4e-ba89-2a17be7fec1b\";
          packet.header := struct {{ u64 stream_id; u64 stream_instance_id; }}; }};
        env {{ {environment} }};
        clock {{ name = c; freq = 1000000000; offset_s = 1; }};
        typealias integer {{ size = 64; map = clock.c.value; }} := time;
        stream {{ id = 0;
          packet.context := struct {{ time timestamp_begin; time timestamp_end; u64 packet_size;
            u64 content_size; u64 packet_seq_num; u64 events_discarded; }};
          event.header := struct {{ u8 id; time timestamp; }};
        }};
        event {{ name = e; id = 0; stream_id = 0; fields := struct {{ u8 n; }}; }};"
    )
}

pub(super) const PREAMBLE_BYTES: u64 = 64;
pub(super) const EVENT_BYTES: u64 = 10;

impl Packet {
    pub(super) fn bits(&self) -> u64 {
        (PREAMBLE_BYTES + EVENT_BYTES * self.events.len() as u64) * 8
    }

    fn bytes(&self, stream: u64) -> Vec<u8> {
        let bits = self.bits();
        let numbers = [0, stream, self.begin, self.end, bits, bits];
        let numbers = numbers.into_iter().chain([self.sequence, self.discarded]);
        let mut bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        for (time, number) in &self.events {
            bytes.push(0);
            bytes.extend_from_slice(&time.to_le_bytes());
            bytes.push(*number);
        }
        bytes
    }
}

pub(super) fn stream(id: u64, packets: &[Packet]) -> Vec<u8> {
    packets.iter().flat_map(|packet| packet.bytes(id)).collect()
}

/// The index that LTTng writes for these packets.
fn index(packets: &[Packet]) -> Vec<u8> {
    let mut words = vec![0xc1f1_dcc1_u32, 1, 1, 72];
    let mut bytes: Vec<u8> = words.drain(..).flat_map(u32::to_be_bytes).collect();
    let mut offset = 0;
    for packet in packets {
        let (bits, begin, end) = (packet.bits(), packet.begin, packet.end);
        let entry = [offset, bits, bits, begin, end, packet.discarded, 0, 0];
        let entry = entry.into_iter().chain([packet.sequence]);
        bytes.extend(entry.flat_map(u64::to_be_bytes));
        offset += bits / 8;
    }
    bytes
}

pub(super) fn write(folder: &Path, environment: &str, streams: &[(&str, Vec<u8>)]) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("metadata"), metadata(environment)).unwrap();
    for (name, bytes) in streams {
        fs::write(folder.join(name), bytes).unwrap();
    }
}

fn open(path: &Path) -> Vec<TraceFolder> {
    let mut traces: Vec<TraceFolder> = Vec::new();
    for folder in trace_folders(path) {
        let mut rest = Some(TraceFolder::open(&folder).unwrap());
        for trace in &mut traces {
            rest = rest.and_then(|rest| trace.merge(rest));
        }
        traces.extend(rest);
    }
    traces
}

/// Numbers of the events from `from` to `to` nanoseconds of the clock, in the order printed.
fn numbers(traces: &[TraceFolder], from: Option<i64>, to: Option<i64>) -> (Vec<u8>, WriteSummary) {
    let at = |time: i64| SECOND + time;
    let options = WriteOptions {
        window: TimeWindow {
            from: from.map(at),
            to: to.map(at),
        },
        ..WriteOptions::default()
    };
    let mut text = Vec::new();
    let written = write_events(traces, options, &mut text).unwrap();
    (numbers_of(&text), written)
}

fn numbers_of(text: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(text).unwrap();
    let number = |line: &str| line.rsplit("n = ").next()?.strip_suffix(" }")?.parse().ok();
    text.lines().map(|line| number(line).unwrap()).collect()
}

fn check(traces: &[TraceFolder], from: Option<i64>, to: Option<i64>, expected: &[u8]) {
    let (found, written) = numbers(traces, from, to);
    assert_eq!(found, expected, "{from:?} to {to:?}");
    assert_eq!(written.events, expected.len() as u64);
    assert!(written.faults.is_empty(), "{:?}", written.faults);
}

#[test]
fn a_window_is_half_open() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = three();
    other[1].events[0].0 = 25;
    other[1].events[0].1 = 33;
    let streams = [("a", stream(1, &three())), ("b", stream(2, &other[1..2]))];
    write(folder.path(), "", &streams);
    let traces = open(folder.path());
    check(&traces, None, None, &[1, 2, 3, 33, 4, 4, 5, 6]);
    check(&traces, Some(21), Some(28), &[3, 33]);
    check(&traces, Some(21), Some(29), &[3, 33, 4, 4]);
    check(&traces, Some(22), Some(27), &[33]);
    check(&traces, Some(38), None, &[6]);
    check(&traces, Some(39), None, &[]);
    check(&traces, None, Some(12), &[1]);
    check(&traces, None, Some(11), &[]);
    check(&traces, Some(19), Some(20), &[]);
}

/// Packets outside the window are not read, so that faults in them do not matter.
#[test]
fn packets_outside_of_a_window_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = stream(1, &three());
    let second = usize::try_from(three()[0].bits() / 8).unwrap();
    bytes[second + usize::try_from(PREAMBLE_BYTES).unwrap()] = 99;
    write(folder.path(), "", &[("a", bytes)]);
    let traces = open(folder.path());
    check(&traces, Some(30), None, &[5, 6]);
    check(&traces, None, Some(19), &[1, 2]);
    let (found, written) = numbers(&traces, None, None);
    assert_eq!((found, written.faults.len()), (vec![1, 2], 1));
}

/// With a valid index, the preambles of packets are not read.
#[test]
fn packets_are_located_by_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = stream(1, &three());
    let second = usize::try_from(three()[0].bits() / 8).unwrap();
    // The length field of the packet exceeds the file.
    let size = second + 32..second + 40;
    bytes[size].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    write(folder.path(), "", &[("a", bytes)]);
    assert!(TraceFolder::open(folder.path()).is_err());
    fs::create_dir(folder.path().join("index")).unwrap();
    let path = folder.path().join("index/a.idx");
    fs::write(&path, index(&three())).unwrap();
    let traces = open(folder.path());
    check(&traces, Some(30), None, &[5, 6]);
    // An index that does not match the file is ignored.
    fs::write(&path, index(&three()[..2])).unwrap();
    assert!(TraceFolder::open(folder.path()).is_err());
}

#[test]
fn a_packet_that_ends_at_zero_ends_when_the_next_one_begins() {
    let folder = tempfile::tempdir().unwrap();
    let mut packets = three();
    (packets[1].end, packets[2].end) = (0, 0);
    write(folder.path(), "", &[("a", stream(1, &packets))]);
    let traces = open(folder.path());
    check(&traces, Some(25), None, &[4, 5, 6]);
    check(&traces, Some(38), None, &[6]);
    let ends: Vec<_> = traces[0].streams[0].packets.iter().map(|p| p.end).collect();
    assert_eq!(ends, [Some(SECOND + 19), Some(SECOND + 30), None]);
}

#[test]
fn events_after_the_end_of_their_packet_are_found() {
    let mut packets = three();
    (packets[0].end, packets[2].end) = (15, 35);
    let ust =
        |minor| format!("tracer_name = \"lttng-ust\"; tracer_major = 2; tracer_minor = {minor};");
    for (environment, is_corrected) in [(ust(10), true), (ust(11), false)] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &environment, &[("a", stream(1, &packets))]);
        let traces = open(folder.path());
        // The times of producers without known defects are not corrected.
        check(
            &traces,
            Some(16),
            Some(19),
            if is_corrected { &[2] } else { &[] },
        );
        check(
            &traces,
            Some(36),
            None,
            if is_corrected { &[6] } else { &[] },
        );
        check(&traces, None, None, &[1, 2, 3, 4, 5, 6]);
    }
}

/// The end of a stream of several files is the last event of the last file when the producer writes
/// wrong ends: 38 in one stream and 36 in the other.
#[test]
fn streams_of_several_files_have_an_intersection() {
    let mut short = three();
    short[2] = packet(2, 30, 34, &[(32, 7), (36, 8)]);
    let parts = |id, packets: &[Packet]| [stream(id, &packets[..2]), stream(id, &packets[2..])];
    let [a, b] = parts(1, &three());
    let [c, d] = parts(2, &short[1..]);
    let ust = "tracer_name = \"lttng-ust\"; tracer_major = 2; tracer_minor = ";
    // Ends of producers without known defects are those of the packets: 39 and 34.
    let cases: [(&str, &[u8]); 2] = [
        ("10;", &[3, 3, 4, 4, 5, 7, 8]),
        ("11;", &[3, 3, 4, 4, 5, 7]),
    ];
    for (minor, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let files = [("a_0", &a), ("a_1", &b), ("b_0", &c), ("b_1", &d)];
        let files = files.map(|(name, bytes)| (name, bytes.clone()));
        write(folder.path(), &format!("{ust}{minor}"), &files);
        let traces = open(folder.path());
        assert_eq!(traces[0].streams.len(), 2);
        let options = WriteOptions {
            is_intersection: true,
            ..WriteOptions::default()
        };
        let mut text = Vec::new();
        write_events(&traces, options, &mut text).unwrap();
        assert_eq!(numbers_of(&text), expected, "lttng-ust 2.{minor}");
        compare_intersection(folder.path(), &text);
    }
}

#[test]
fn streams_without_a_common_time_are_disjoint() {
    let packets = three();
    for (second, expected) in [(&packets[2..], true), (&packets[..], false)] {
        let folder = tempfile::tempdir().unwrap();
        let files = [("a", stream(1, &packets[..1])), ("b", stream(2, second))];
        write(folder.path(), "", &files);
        let traces = open(folder.path());
        assert_eq!(traces[0].is_disjoint(), expected);
    }
}

#[test]
fn streams_without_times_have_no_intersection() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = "/* CTF 1.8 */\n\
        typealias integer { size = 8; align = 8; signed = false; } := u8;\n\
        trace { major = 1; minor = 8; byte_order = le; };\n\
        stream { event.header := struct { u8 id; }; };\n\
        event { name = e; id = 0; fields := struct { u8 v; }; };\n";
    std::fs::write(folder.path().join("metadata"), metadata).unwrap();
    std::fs::write(folder.path().join("stream"), [0, 1, 0, 2]).unwrap();
    assert!(open(folder.path())[0].lacks_times());
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "", &[("a", stream(1, &three()))]);
    assert!(!open(folder.path())[0].lacks_times());
}

fn compare_intersection(path: &Path, text: &[u8]) {
    let mut program = std::process::Command::new("babeltrace2");
    let run = program
        .args(["--clock-gmt", "--stream-intersection"])
        .arg(path)
        .env("TZ", "UTC")
        .output();
    match run {
        Ok(output) => assert!(output.stdout == text),
        Err(error) => println!("skipped: babeltrace2: {error}"),
    }
}

#[test]
fn events_before_the_beginning_of_their_packet_are_found() {
    let mut packets = three();
    packets[1].begin = 25;
    let barectf = "tracer_name = \"barectf\"; tracer_major = 2; tracer_minor = 3; tracer_patch = ";
    for (patch, is_corrected) in [(0, true), (1, false)] {
        let folder = tempfile::tempdir().unwrap();
        let environment = format!("{barectf}{patch};");
        write(folder.path(), &environment, &[("a", stream(1, &packets))]);
        let traces = open(folder.path());
        check(
            &traces,
            Some(20),
            Some(22),
            if is_corrected { &[3] } else { &[] },
        );
    }
}

#[test]
fn packets_of_overlapping_snapshots_are_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let packets = three();
    let parts = [&packets[..2], &packets[1..]];
    for (name, part) in ["snapshot-1", "snapshot-2"].iter().zip(parts) {
        write(&folder.path().join(name), "", &[("a", stream(1, part))]);
    }
    let traces = open(folder.path());
    assert_eq!(traces.len(), 1);
    check(&traces, None, None, &[1, 2, 3, 4, 5, 6]);
    assert!(losses(&traces[0]).is_empty());
    // A packet with the same times and another sequence number is a different packet.
    let mut other = packets[1].clone();
    other.sequence = 7;
    let third = folder.path().join("snapshot-3");
    write(&third, "", &[("a", stream(1, &[other]))]);
    assert_eq!(numbers(&open(folder.path()), None, None).0.len(), 8);
}

#[test]
fn discarded_events_and_packets_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut packets = three();
    packets[1].discarded = 5;
    packets[2].discarded = 6;
    packets[2].sequence = 4;
    write(folder.path(), "", &[("a", stream(1, &packets))]);
    let traces = open(folder.path());
    let found = losses(&traces[0]);
    let short: Vec<_> = found
        .iter()
        .map(|loss| (loss.kind, loss.count, loss.between))
        .collect();
    let between = |begin, end| Some((SECOND + begin, SECOND + end));
    assert_eq!(
        short,
        [
            (LossKind::Events, 5, between(19, 29)),
            (LossKind::Packets, 2, between(29, 30)),
            (LossKind::Events, 1, between(29, 39)),
        ]
    );
    let sentence = "WARNING: Tracer discarded 5 events between [00:00:01.000000019] and \
                    [00:00:01.000000029] in trace ";
    assert!(
        found[0].message.starts_with(sentence),
        "{}",
        found[0].message
    );
    assert!(found[2].message.contains("discarded 1 event between"));
}

/// `ctf::write` writes every type of field, in both dialects of metadata.
#[test]
fn a_written_trace_is_read_like_by_babeltrace() {
    use ctf::write::{FieldType, FieldValue, PacketWriter, Schema};
    let clock = ctf::class::ClockClass::new("utc");
    let mut schema = Schema::new(uuid::Uuid::from_u128(7), clock);
    schema.environment("hostname", "here").unwrap();
    let labels = vec![("hit".to_owned(), 0), ("miss".to_owned(), 1)];
    let fields = [
        ("path", FieldType::Text),
        ("bytes", FieldType::Unsigned { bits: 64 }),
        ("flags", FieldType::Hexadecimal { bits: 32 }),
        ("result", FieldType::Signed { bits: 32 }),
        ("cache", FieldType::Enumeration { bits: 8, labels }),
        ("direct", FieldType::Bool),
        ("seconds", FieldType::Float),
    ];
    let read = schema.event("read", fields).unwrap();
    let mut writer = PacketWriter::new(&schema, 0);
    let mut bytes = Vec::new();
    for number in 0..10_u64 {
        let values = [
            FieldValue::Text("/var/lib/\"data\""),
            FieldValue::Unsigned(number << 40),
            FieldValue::Unsigned(number * 31),
            FieldValue::Signed(-5),
            FieldValue::Unsigned(number % 3),
            FieldValue::Bool(number % 2 == 0),
            FieldValue::Float(0.1 * number as f64),
        ];
        let time = 1_795_240_026_000_000_000 + number * 1_000;
        writer.event(read, time, &values).unwrap();
        if number == 4 {
            bytes.extend(writer.finish(0));
        }
    }
    bytes.extend(writer.finish(0));
    let folder = tempfile::tempdir().unwrap();
    let dialects = [
        ("ctf-2", schema.metadata()),
        ("tsdl", schema.tsdl().into_bytes()),
    ];
    let texts = dialects.map(|(name, metadata)| {
        let path = folder.path().join(name);
        write(&path, "", &[("stream", bytes.clone())]);
        fs::write(path.join("metadata"), metadata).unwrap();
        let mut text = Vec::new();
        let written = write_events(&open(&path), WriteOptions::default(), &mut text).unwrap();
        assert_eq!((written.events, written.faults.len()), (10, 0), "{name}");
        String::from_utf8(text).unwrap()
    });
    // Only CTF 2 has booleans; TSDL uses an integer.
    let [new, old] = texts;
    let new = new.replace("direct = true", "direct = 1");
    assert_eq!(new.replace("direct = false", "direct = 0"), old);
    let run = std::process::Command::new("babeltrace2")
        .arg("--clock-gmt")
        .arg(folder.path().join("tsdl"))
        .env("TZ", "UTC")
        .output();
    let Ok(output) = run else {
        println!("skipped: babeltrace2 is not installed");
        return;
    };
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), old);
}
