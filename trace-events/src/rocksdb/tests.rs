//! The corpus, cutting, versions that the corpus has no file of, and hostile bytes.

use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::PathBuf;

use proptest::prelude::*;
use trace_query::{FieldPath, FieldTable, Value};

use super::envelope::put_envelope;
use super::*;
use crate::{DecodeError, Decoder};

/// The folder of real traces; `None`, with a line about it, where it is not.
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
fn io_text_equals_that_of_the_parser() {
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
fn block_csv_equals_that_of_the_analyser() {
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
fn a_cut_trace_is_read_to_the_cut_and_reported() {
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
        cutter.tail(),
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
fn other_files_are_told_from_traces_by_their_first_bytes() {
    let mut file = Vec::new();
    header(7, 8).put(&mut file);
    for end in 0..file.len() {
        assert!(is_trace(&file[..end]), "{end}");
    }
    for other in [
        &b"# a text that is no trace of anything"[..],
        &[0; 40],
        &[1; 9],
    ] {
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
    assert_eq!(cutter.tail(), None);
    packets
}

#[test]
fn packets_are_decodable_alone_and_join_to_the_file() {
    let Some(folder) = corpus() else { return };
    for name in ["io_small", "io_variants", "bc_small", "bc_variants"] {
        let file = read(folder.join(format!("{name}.trace")));
        for (target, piece) in [(1, 1), (500, 7), (4096, 1000), (1 << 20, 1 << 20)] {
            let packets = cut(&file, target, piece);
            let joined = join(packets.iter().map(|packet| &packet.bytes[..])).unwrap();
            assert_eq!(joined, file, "{name} {target} {piece}");
            // A join by laying them end to end is understood as well.
            let laid: Vec<u8> = packets
                .iter()
                .flat_map(|packet| packet.bytes.iter().copied())
                .collect();
            let again = cut(&laid, target, piece);
            check_places(&file, &packets);
            check_places(&laid, &again);
            assert_eq!(placeless(again), placeless(packets.clone()), "{name}");
            check_packets(name, &file, &packets);
        }
    }
}

/// Where packets lie depends on the headers between them.
fn placeless(packets: Vec<Packet>) -> Vec<Packet> {
    let place = 0..0;
    let packets = packets.into_iter();
    packets
        .map(|packet| Packet {
            place: place.clone(),
            ..packet
        })
        .collect()
}

/// What lies at the places of packets are the packets, but for the headers that are made.
fn check_places(pushed: &[u8], packets: &[Packet]) {
    let mut cutter = Cutter::new(1 << 20);
    cutter.push(pushed).unwrap();
    let behind = cutter.continuation().unwrap();
    for packet in packets {
        let place = packet.place.start as usize..packet.place.end as usize;
        let mut made = Vec::new();
        if packet.place.start > 0 {
            behind.at(packet.offset).put(&mut made);
        }
        assert_eq!([&made, &pushed[place]].concat(), packet.bytes);
    }
}

fn check_packets(name: &str, file: &[u8], packets: &[Packet]) {
    if name.starts_with("bc") {
        let mut whole = BlockCacheTrace::open(file).unwrap();
        for packet in packets {
            let mut part = BlockCacheTrace::open(&packet.bytes).unwrap();
            assert_eq!(part.offset(), whole.offset());
            let mut records = 0;
            while let Some(record) = part.next_record().unwrap() {
                assert_eq!(Some(record), whole.next_record().unwrap());
                let ns = i64::try_from(record.time).unwrap() * 1000;
                assert!((packet.start_ns..=packet.end_ns).contains(&ns));
                records += 1;
            }
            assert_eq!(records, packet.records);
        }
        assert_eq!(whole.next_record(), Ok(None));
        return;
    }
    let mut whole = IoTrace::open(file).unwrap();
    for packet in packets {
        let mut part = IoTrace::open(&packet.bytes).unwrap();
        assert_eq!(part.offset(), whole.offset());
        let mut least = i64::MAX;
        while let Some(record) = part.next_record().unwrap() {
            assert_eq!(Some(record), whole.next_record().unwrap());
            assert_eq!(part.start_ns(&record), whole.start_ns(&record), "{name}");
            least = least.min(part.start_ns(&record));
        }
        assert_eq!(packet.start_ns, least, "{name} at {}", packet.offset);
    }
    assert_eq!(whole.next_record(), Ok(None));
}

#[test]
fn a_missing_packet_is_a_gap() {
    let Some(folder) = corpus() else { return };
    let packets = cut(&read(folder.join("io_small.trace")), 4096, 4096);
    assert!(packets.len() > 3);
    let without_second = packets
        .iter()
        .enumerate()
        .filter(|(n, _)| *n != 1)
        .map(|(_, packet)| &packet.bytes[..]);
    let error = join(without_second.clone()).unwrap_err();
    assert_eq!(
        error,
        RocksdbError::Gap {
            expected: packets[1].offset,
            found: packets[2].offset
        }
    );
    let laid: Vec<u8> = without_second.flatten().copied().collect();
    assert_eq!(Cutter::new(1 << 20).push(&laid), Err(error));
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

#[test]
fn io_records_of_the_first_releases() {
    let n = |value: u64| value.to_le_bytes();
    let (op, ok, name) = (prefixed("Read"), prefixed("OK"), prefixed("1.sst"));
    let cases: [(u8, Vec<u8>, &str); 5] = [
        (12, payload(&[&op, &n(5), &ok]), ""),
        (13, payload(&[&op, &n(5), &ok, &name]), ""),
        (
            14,
            payload(&[&op, &n(5), &ok, &n(9), &name]),
            ", File Size: 9",
        ),
        (15, payload(&[&op, &n(5), &ok, &n(77)]), ", Length: 77"),
        (
            16,
            payload(&[&op, &n(5), &ok, &n(4096), &n(77)]),
            ", Length: 77, Offset: 4096",
        ),
    ];
    for (record_type, payload, suffix) in cases {
        let mut file = Vec::new();
        header(6, 12).put(&mut file);
        put_envelope(&mut file, 100, record_type, &payload);
        assert_eq!(header(6, 12).kind(record_type), Some(TraceKind::Io));
        let (text, end) = io_text(&file);
        assert_eq!(end, None);
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().last().unwrap();
        assert!(
            line.ends_with(&format!("IO Status: OK{suffix}")),
            "{record_type}: {line}"
        );
    }
}

#[test]
fn io_records_without_trace_data_only_in_old_releases() {
    let n = |value: u64| value.to_le_bytes();
    let short = payload(&[
        &n(2),
        &prefixed("Append"),
        &n(5),
        &prefixed("OK"),
        &prefixed("1.log"),
        &n(8),
    ]);
    for (minor, expected) in [
        (18, None),
        (19, None),
        (
            20,
            Some(RocksdbError::MissingField {
                offset: 38,
                field: "trace_data",
            }),
        ),
    ] {
        let mut file = Vec::new();
        header(6, minor).put(&mut file);
        put_envelope(&mut file, 100, 12, &short);
        assert_eq!(io_text(&file).1, expected, "6.{minor}");
    }
    let mut file = Vec::new();
    header(11, 9).put(&mut file);
    put_envelope(
        &mut file,
        100,
        12,
        &payload(&[&short, &n(1), &prefixed("req-7")]),
    );
    let (text, end) = io_text(&file);
    assert_eq!(end, None);
    assert!(
        String::from_utf8(text)
            .unwrap()
            .ends_with("Length: 8, Request Id: req-7\n")
    );
}

#[test]
fn block_records_of_the_first_releases() {
    let n = |value: u64| value.to_le_bytes();
    let start = payload(&[
        &prefixed("key"),
        &n(4096),
        &n(3),
        &prefixed("cf"),
        &[2, 0, 0, 0],
        &n(12),
    ]);
    let data = payload(&[
        &start,
        &[1, 1, 0],
        &prefixed("abcdefghXXXXXXXX"),
        &n(20),
        &n(8),
        &[1],
    ]);
    let index = payload(&[&start, &[1, 0, 1]]);
    let mut file = Vec::new();
    header(6, 3).put(&mut file);
    put_envelope(&mut file, 5, 9, &data);
    put_envelope(&mut file, 6, 7, &index);
    let (csv, end) = block_csv(&file);
    assert_eq!(end, None);
    assert_eq!(
        String::from_utf8(csv).unwrap(),
        "5,1,9,4096,3,cf,2,12,1,0,0,0,20,1,1,8,1684234850,0,3,16,121\n\
         6,2,7,4096,3,cf,2,12,1,1,0,0,0,0,0,0,0,0,3,0,121\n"
    );
    let mut newer = Vec::new();
    header(6, 4).put(&mut newer);
    put_envelope(&mut newer, 6, 7, &index);
    assert_eq!(
        block_csv(&newer).1,
        Some(RocksdbError::MissingField {
            offset: 38,
            field: "get_id"
        })
    );
}

#[test]
fn a_length_that_cannot_be_is_damage() {
    let mut file = Vec::new();
    header(7, 8).put(&mut file);
    file.extend([0; 8]);
    file.push(12);
    file.extend(u32::MAX.to_le_bytes());
    let expected = RocksdbError::TooLong {
        offset: 38,
        length: u32::MAX,
        limit: PAYLOAD_BYTES_MAX,
    };
    assert_eq!(io_text(&file).1, Some(expected.clone()));
    assert_eq!(Cutter::new(100).push(&file), Err(expected));
}

/// Reads `bytes` in every way there is; nothing may panic or run on for ever.
fn read_all_ways(bytes: &[u8]) {
    let _text = io_text(bytes);
    let _csv = block_csv(bytes);
    for kind in [TraceKind::Io, TraceKind::BlockCache] {
        let mut decoder = RocksdbDecoder::new(kind, &FieldTable::new());
        let _end = decoder.decode(bytes, &mut |event| {
            event.each_field(&mut |_, _| {});
            ControlFlow::Continue(())
        });
    }
    let mut cutter = Cutter::new(300);
    for piece in bytes.chunks(97) {
        if cutter.push(piece).is_err() {
            break;
        }
    }
    let packets: Vec<_> = std::iter::from_fn(|| cutter.flush()).collect();
    let joined = join(packets.iter().map(|packet| &packet.bytes[..])).unwrap_or_default();
    assert!(joined.len() <= bytes.len());
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
fn small_traces_are_whole() {
    let [io, blocks] = small_traces();
    assert_eq!((io_text(&io).1, block_csv(&blocks).1), (None, None));
}

/// What a decoder shows of every event: all fields, and those of the table.
fn events(kind: TraceKind, packet: &[u8], wanted: &[&str]) -> Vec<String> {
    let mut table = FieldTable::new();
    for path in wanted {
        table.insert(&FieldPath::new(path));
    }
    let mut shown = Vec::new();
    let mut decoder = RocksdbDecoder::new(kind, &table);
    let decoded = decoder.decode(packet, &mut |event| {
        let mut text = String::new();
        event.each_field(&mut |path, value| text.push_str(&format!("{path}={} ", print(value))));
        for (id, path) in table.iter() {
            let value = event.field(id).map(print);
            text.push_str(&format!("[{path}={}]", value.unwrap_or_default()));
        }
        shown.push(text);
        ControlFlow::Continue(())
    });
    assert_eq!(decoded.unwrap().events, shown.len() as u64);
    shown
}

fn print(value: Value<'_>) -> String {
    match value {
        Value::Str(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Bool(value) => value.to_string(),
    }
}

#[test]
fn records_as_events() {
    let [io, blocks] = small_traces();
    let shown = events(TraceKind::Io, &io, &["cat", "offset", "no_such"]);
    assert_eq!(
        shown[1],
        "name=Read cat=sst ts=999999996 dur=5 args.end=1001 args.io_status=OK \
         args.file_name=1.sst args.file_size=1 args.len=2 args.offset=3 args.request_id=r \
         [cat=sst][args.offset=3][args.no_such=]"
    );
    let shown = events(
        TraceKind::BlockCache,
        &blocks,
        &["ts", "is_cache_hit", "block_key"],
    );
    assert_eq!(
        shown[3],
        "name=Data cat=Get ts=3000 args.block_key=30313233343536373839616263646566 \
         args.block_size=4096 args.cf_id=0 args.cf_name=default args.level=1 \
         args.sst_fd_number=9 args.is_cache_hit=true args.no_insert=false args.get_id=3 \
         args.get_from_user_specified_snapshot=true \
         args.referenced_key=757365726b65792d53455155454e4345 args.user_key=userkey- \
         args.referenced_data_size=100 args.num_keys_in_block=7 \
         args.referenced_key_exist_in_block=true \
         [ts=3000][args.is_cache_hit=true][args.block_key=30313233343536373839616263646566]"
    );
}

#[test]
fn faults_of_a_packet_count_from_its_start() {
    let [io, _] = small_traces();
    let packets = cut(&io, 1, 100);
    let mut torn = packets[2].bytes.clone();
    torn.pop();
    let mut decoder = RocksdbDecoder::new(TraceKind::Io, &FieldTable::new());
    let error = decoder
        .decode(&torn, &mut |_| ControlFlow::Continue(()))
        .unwrap_err();
    let offset = CONTINUATION_BYTES as u64;
    assert_eq!(
        error,
        DecodeError::Truncated {
            format: "rocksdb-io",
            offset
        }
    );
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        read_all_ways(&bytes);
    }

    #[test]
    fn mutated_traces_never_panic(
        which in 0..2usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = small_traces()[which].clone();
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        read_all_ways(&bytes);
    }
}
