//! The same answers with and without an index, for every kind of file of packets.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use io_trace::{Access, Cause, Drained, FileClass, FileTag, Operation, Record, Tracer};
use proptest::prelude::*;
use query_language::{FieldPath, Query};
use row_formats::{Columns, Ndjson, write_group_ndjson};
use tempfile::TempDir;
use trace_kinds::io_trace::{Anchor, Begin, Encoder};

use super::open_paths;
use crate::sidecar_file::sidecar_path;
use crate::{
    GroupSpec, IndexOptions, Limits, Report, Request, Scratch, Update, count, group_by,
    index_files, write_rows,
};

/// A packet of a CTF stream: its begin, and events with a time after it, a class and a number.
type CtfPacket = (u8, Vec<(u8, bool, u8)>);

const METADATA: &str = "/* CTF 1.8 */
    typealias integer { size = 8; } := u8;
    typealias integer { size = 64; } := u64;
    trace { major = 1; minor = 8; byte_order = le;
      uuid = \"2153e19e-968b-4e4e-ba89-2a17be7fec1b\";
      packet.header := struct { u64 stream_id; u64 stream_instance_id; }; };
    clock { name = c; freq = 1000000000; offset_s = 1; };
    typealias integer { size = 64; map = clock.c.value; } := time;
    stream { id = 0;
      packet.context := struct { time timestamp_begin; time timestamp_end; u64 packet_size;
        u64 content_size; };
      event.header := struct { u8 id; time timestamp; }; };
    event { name = first; id = 0; stream_id = 0; fields := struct { u8 n; }; };
    event { name = second; id = 1; stream_id = 0; fields := struct { u8 n; }; };";

fn ctf_packet(stream: u64, (begin, events): &CtfPacket) -> Vec<u8> {
    let begin = u64::from(*begin) * 1_000;
    let bits = (48 + events.len() as u64 * 10) * 8;
    let head = [0, stream, begin, begin + 255, bits, bits];
    let mut bytes: Vec<u8> = head.into_iter().flat_map(u64::to_le_bytes).collect();
    let mut events = events.clone();
    events.sort_unstable();
    for (delay, is_second, number) in events {
        bytes.push(u8::from(is_second));
        bytes.extend((begin + u64::from(delay)).to_le_bytes());
        bytes.push(number);
    }
    bytes
}

fn ctf_stream(stream: u64, packets: &[CtfPacket]) -> Vec<u8> {
    let packets = packets.iter();
    packets
        .flat_map(|packet| ctf_packet(stream, packet))
        .collect()
}

/// A trace of these operations, a packet for each list of (path, bytes, latency).
fn io_trace(packets: &[Vec<(u8, u32, u8)>]) -> Vec<u8> {
    let mut encoder = Encoder::new(&Begin {
        anchor: Anchor {
            clock: 0,
            wall: 2_000_000_000,
        },
        mode: "stop_at_limit".to_owned(),
        bytes_max: 1 << 20,
        blocks_one_in: 1,
        one_in: [1; Operation::COUNT],
        storages: Vec::new(),
    });
    let tracer = Arc::new(Tracer::default());
    let (mut bytes, mut clock) = (Vec::new(), 0);
    for packet in packets {
        for (path, length, latency) in packet {
            clock += 100;
            let path = format!("files/{path}");
            encoder.put(&Record {
                start: clock,
                latency: u64::from(*latency),
                operation: match length % 2 {
                    0 => Operation::Read,
                    _ => Operation::Write,
                },
                cause: Cause::Ingest,
                thread: 17,
                file: &FileTag::new(&tracer, path, FileClass::Data, None),
                access: Access {
                    offset: Some(4096),
                    asked: u64::from(*length),
                    done: 1,
                    ..Access::default()
                },
                request: None,
                requests: 0,
            });
        }
        bytes.extend(encoder.finish(&Drained::default()).bytes);
    }
    bytes
}

/// A trace of RocksDB that has the records of one of ours several times.
fn rocksdb(name: &str, times: usize) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/data")
        .join(name);
    let file = fs::read(path).unwrap();
    let (header, records) = file.split_at(trace_kinds::rocksdb::HEADER_BYTES);
    [header, &records.repeat(times)].concat()
}

fn options(chunk_bytes: u64, fields: &[&str]) -> IndexOptions {
    IndexOptions {
        fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        chunk_bytes: Some(chunk_bytes),
        ..IndexOptions::default()
    }
}

/// Indexes the files at the paths; returns what was done, file by file.
fn index(paths: &[PathBuf], options: &IndexOptions) -> Vec<Update> {
    let files = paths
        .iter()
        .flat_map(|path| index_files(path, &mut Vec::new()).unwrap());
    files
        .map(|file| {
            file.update(options, &mut Scratch::default())
                .unwrap()
                .update
        })
        .collect()
}

fn request(query: &str) -> Request {
    Request {
        query: (!query.is_empty()).then(|| Query::parse(query).unwrap()),
        ..Request::default()
    }
}

fn ask_count(paths: &[PathBuf], query: &str, indexed: bool) -> (u64, Report) {
    let request = request(query);
    let sources = open_paths(paths, indexed, &request, &[]).unwrap().sources;
    count(&sources, &request, Limits::default()).unwrap()
}

/// Rows, the count and groups, as text.
fn answers(paths: &[PathBuf], query: &str, indexed: bool) -> (String, Report) {
    let request = request(query);
    let limits = Limits {
        threads: 2,
        waiting_bytes_max: 10_000,
        ..Limits::default()
    };
    let mut rows = Vec::new();
    let mut out = |row: &[u8]| {
        rows.extend_from_slice(row);
        Ok(())
    };
    let sources = open_paths(paths, indexed, &request, &[]).unwrap().sources;
    let mut format = Ndjson::default();
    let report = write_rows(
        &sources,
        &request,
        &Columns::All,
        &mut format,
        limits,
        &mut out,
    );
    let report = report.unwrap();
    rows.extend(format!("{}\n", ask_count(paths, query, indexed).0).bytes());
    for field in ["name", "kind", "file_name", "level", "n"] {
        let path = FieldPath::new(field);
        let spec = GroupSpec::by(field);
        let columns = spec.columns().unwrap();
        let of_field = std::slice::from_ref(&path);
        let sources = open_paths(paths, indexed, &request, of_field)
            .unwrap()
            .sources;
        let (groups, _) = group_by(&sources, &request, &spec, limits).unwrap();
        for group in groups {
            write_group_ndjson(&columns, &group, &mut rows);
        }
    }
    (String::from_utf8(rows).unwrap(), report)
}

fn check(paths: &[PathBuf], query: &str) -> Report {
    let (expected, _) = answers(paths, query, false);
    let (found, report) = answers(paths, query, true);
    assert!(
        found == expected,
        "{query}: {report:?}\n{found}\n{expected}"
    );
    report
}

/// A trace of every kind, each in several packets.
fn traces(
    folder: &TempDir,
    streams: &[Vec<CtfPacket>; 2],
    operations: &[Vec<(u8, u32, u8)>],
) -> Vec<PathBuf> {
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("ctf/inside")).unwrap();
    fs::write(at("ctf/inside/metadata"), METADATA).unwrap();
    for (stream, packets) in (0_u64..).zip(streams) {
        let name = format!("ctf/inside/stream{stream}");
        fs::write(at(&name), ctf_stream(stream, packets)).unwrap();
    }
    // A file of the first stream that shares a packet with it, as overlapping snapshots do.
    let mut shared: Vec<CtfPacket> = streams[0].first().cloned().into_iter().collect();
    shared.push((250, vec![(1, true, 77)]));
    fs::write(at("ctf/inside/snapshot"), ctf_stream(0, &shared)).unwrap();
    fs::write(at("own.iotrace"), io_trace(operations)).unwrap();
    fs::write(at("io.trace"), rocksdb("io_small.trace", 5)).unwrap();
    fs::write(at("bc.trace"), rocksdb("bc_small.trace", 2)).unwrap();
    ["ctf", "own.iotrace", "io.trace", "bc.trace"]
        .map(at)
        .to_vec()
}

fn query() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (0..6_usize).prop_map(|n| {
            let names = ["first", "second", "read", "Append", "Data", "x"];
            format!("name == '{}'", names[n])
        }),
        (0_u64..260).prop_map(|n| format!("ts >= {}", 1_000_000_000 + n * 1_000)),
        (0_u64..60).prop_map(|n| format!("ts < {}", 2_000_000_000 + n * 50)),
        (0_u64..300).prop_map(|n| format!("dur > {n}ns")),
        (0_u64..40).prop_map(|n| format!("n in [{n}, 77]")),
        (0_u64..9).prop_map(|n| format!("level == {n}")),
        (0_u64..9).prop_map(|n| format!("file_name contains '{n}'")),
        (0_u64..9).prop_map(|n| format!("len < {}", n * 40)),
        Just("exists(cf_name) and is_cache_hit == false".to_owned()),
        Just("kind in ['ctf', 'rocksdb-block-cache']".to_owned()),
        Just("file_name starts_with '0'".to_owned()),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} and {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} or {b})")),
            inner.prop_map(|a| format!("not ({a})")),
        ]
    })
}

fn ctf_packets() -> impl Strategy<Value = Vec<CtfPacket>> {
    let events = proptest::collection::vec((any::<u8>(), any::<bool>(), 0_u8..40), 0..6);
    proptest::collection::vec((0_u8..250, events), 1..9)
}

/// A byte of a file is changed, or its end is cut off, before it is indexed.
#[derive(Debug, Clone)]
enum Damage {
    None,
    Changed(prop::sample::Index),
    Cut(prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        2 => Just(Damage::None),
        1 => any::<prop::sample::Index>().prop_map(Damage::Changed),
        1 => any::<prop::sample::Index>().prop_map(Damage::Cut),
    ]
}

fn damage_file(path: &Path, damage: &Damage) {
    let mut bytes = fs::read(path).unwrap();
    match damage {
        Damage::None => {}
        Damage::Changed(at) => {
            // What the trace is stays known.
            let at = 200 + at.index(bytes.len() - 200);
            bytes[at] ^= 0x41;
        }
        Damage::Cut(at) => bytes.truncate(200 + at.index(bytes.len() - 200)),
    }
    fs::write(path, bytes).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn an_index_never_changes_a_result(
        streams in [ctf_packets(), ctf_packets()],
        operations in proptest::collection::vec(
            proptest::collection::vec((0_u8..5, 0_u32..256, any::<u8>()), 1..7), 2..7),
        queries in proptest::collection::vec(query(), 3),
        chunk_bytes in prop_oneof![1_u64..400, 60_000_u64..200_000],
        damages in [damage(), damage(), damage()],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let paths = traces(&folder, &streams, &operations);
        for (path, damage) in paths[1..].iter().zip(&damages) {
            damage_file(path, damage);
        }
        index(&paths, &options(chunk_bytes, &["n", "len"]));
        for query in queries {
            let report = check(&paths, &query);
            prop_assert_eq!(report.indexed + report.excluded, report.sources);
        }
    }
}

/// Traces that are always the same.
fn sample(folder: &TempDir) -> Vec<PathBuf> {
    let packet = |number: u8| {
        let events = (0..4).map(|event| (event, number.is_multiple_of(2), number));
        (number * 20, events.collect())
    };
    let stream: Vec<CtfPacket> = (0..10).map(packet).collect();
    let mut operations: Vec<Vec<(u8, u32, u8)>> = (0..9)
        .map(|number| vec![(number, u32::from(number), number); 5])
        .collect();
    // Lengths of which there are too many for a dictionary.
    let many = (1_u32..1_500).map(|number| (9, number.wrapping_mul(0x9e37_79b1), 1));
    operations.push(many.collect());
    traces(folder, &[stream.clone(), stream], &operations)
}

#[test]
fn every_tier_rules_out_chunks_and_summaries_answer_without_reading() {
    let folder = tempfile::tempdir().unwrap();
    let paths = sample(&folder);
    index(&paths, &options(1, &["n", "len"]));
    for query in [
        "",
        "name == 'second'",
        "not (name == 'first')",
        "kind == 'ctf'",
    ] {
        let report = ask_count(&paths, query, true).1;
        assert_eq!(report.counters.fetched_bytes, 0, "{query}: {report:?}");
        assert_eq!(ask_count(&paths, query, false).0, report.matched, "{query}");
    }
    // A packet is a chunk here: 23 of CTF, of which one is a copy, and 10 of our own.
    let report = check(&paths, "n == 5 and ts < 1971-01-01");
    assert_eq!(report.counters.decoded.events, 8, "{report:?}");
    assert_eq!(report.read, 2, "{report:?}");
    let [statistics, dictionaries, _] = report.ruled_out;
    assert!(statistics > 0 && dictionaries > 0, "{report:?}");
    let report = check(&paths, "len == 2147483647 and cause == 'ingest'");
    assert!(report.ruled_out[2] > 0, "{report:?}");
    assert_eq!((report.read, report.counters.fetched_bytes), (0, 0));
    let report = check(&paths, "file_name == '7' and kind == 'io-trace'");
    assert_eq!((report.read, report.matched), (1, 5), "{report:?}");
}

#[test]
fn only_missing_parts_of_an_index_are_built() {
    let folder = tempfile::tempdir().unwrap();
    let paths = sample(&folder);
    let all = |update: Update| vec![update; 6];
    assert_eq!(index(&paths, &options(100, &[])), all(Update::Built));
    assert_eq!(index(&paths, &options(100, &[])), all(Update::Fresh));
    let before = ask_count(&paths, "n == 5", true).1;
    let added = Update::Extended(vec!["args.n".to_owned()]);
    assert_eq!(index(&paths, &options(100, &["n"])), all(added));
    assert_eq!(index(&paths, &options(100, &[])), all(Update::Fresh));
    let after = ask_count(&paths, "n == 5", true).1;
    assert!(after.read < before.read, "{before:?} {after:?}");
    check(&paths, "n == 5 or len > 100");
    // Cut in another way, so nothing can be added.
    let others = index(&paths, &options(1 << 20, &["n", "len"]));
    assert!(others.contains(&Update::Built), "{others:?}");
    check(&paths, "n == 5 or len > 100");
    let anew = IndexOptions {
        rebuild: true,
        ..options(100, &[])
    };
    assert_eq!(index(&paths, &anew), all(Update::Built));
}

#[test]
fn stale_foreign_and_damaged_indexes_are_reported_and_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let paths = sample(&folder);
    index(&paths, &options(100, &["n"]));
    let unused = || {
        let sources = open_paths(&paths, true, &Request::default(), &[])
            .unwrap()
            .sources;
        sources
            .iter()
            .filter_map(|source| source.unused_index())
            .count()
    };
    assert_eq!(unused(), 0);

    // Files that grew, and an index of another file.
    for path in &paths[1..3] {
        let mut bytes = fs::read(path).unwrap();
        bytes.extend_from_within(38..300);
        fs::write(path, bytes).unwrap();
    }
    fs::copy(sidecar_path(&paths[2]), sidecar_path(&paths[3])).unwrap();
    assert_eq!(unused(), 3);
    check(&paths, "len > 10");
    index(&paths, &options(100, &["n"]));
    assert_eq!(unused(), 0);

    // Bytes of sidecars, each kind once.
    let inside = paths[0].join("inside");
    let files = [inside.join("stream0"), paths[1].clone(), paths[3].clone()];
    for file in files {
        let sidecar = sidecar_path(&file);
        let sound = fs::read(&sidecar).unwrap();
        let queries = ["n == 5", "name == 'second'", "level == 1 or len == 3"];
        let expected = queries.map(|query| ask_count(&paths, query, false).0);
        let mut reported = 0;
        for at in (0..sound.len()).step_by(sound.len() / 23) {
            let mut damaged = sound.clone();
            damaged[at] ^= 0x10;
            fs::write(&sidecar, damaged).unwrap();
            for (query, expected) in queries.iter().zip(expected) {
                let (found, report) = ask_count(&paths, query, true);
                assert_eq!(
                    found,
                    expected,
                    "byte {at} of {}: {query}",
                    sidecar.display()
                );
                reported += report.damaged.len();
            }
            reported += unused();
        }
        assert!(reported > 0, "{}", sidecar.display());
        fs::write(&sidecar, sound).unwrap();
    }
}

#[test]
fn a_changed_folder_is_read_without_its_old_indexes() {
    let folder = tempfile::tempdir().unwrap();
    let paths = sample(&folder);
    let inside = paths[0].join("inside");
    let folders = &paths[..1];
    index(folders, &options(1, &["n"]));
    let total = ask_count(folders, "", true);
    assert_eq!((total.0, total.1.indexed), (81, 3));

    // Without the file that has it first, the copy of the packet counts.
    fs::rename(inside.join("snapshot"), folder.path().join("away")).unwrap();
    let (found, report) = ask_count(folders, "", true);
    assert_eq!(
        (found, report.indexed),
        (80, 1),
        "the index of the copy's file is not used"
    );
    check(folders, "n == 0 or n == 77");
    index(folders, &options(1, &["n"]));
    assert_eq!(ask_count(folders, "", true).1.indexed, 2);

    // One more file: the existing indexes are still used, and that of the new file once it is
    // built.
    let other = ctf_stream(9, &[(1, vec![(1, true, 3)])]);
    fs::write(inside.join("other"), other).unwrap();
    let (found, report) = ask_count(folders, "", true);
    assert_eq!((found, report.indexed), (81, 2));
    let updates = index(folders, &options(1, &["n"]));
    let built = updates
        .iter()
        .filter(|update| **update == Update::Built)
        .count();
    assert_eq!((updates.len(), built), (3, 1));
    check(folders, "n == 3");

    // With other metadata the same bytes decode differently.
    let metadata = METADATA.replace("name = second", "name = third");
    fs::write(inside.join("metadata"), metadata).unwrap();
    let (found, report) = ask_count(folders, "name == 'third'", true);
    assert!(found > 0);
    assert_eq!(report.indexed, 0);
    // Index files in the folder are not read as packets.
    assert!(inside.join(".stream1.idx").is_file());
}

#[test]
fn a_truncated_trace_is_reported_with_an_index_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("io.trace");
    let file = rocksdb("io_small.trace", 4);
    fs::write(&path, &file[..file.len() - 5]).unwrap();
    let paths = [path];
    index(&paths, &options(70_000, &[]));
    let skipped = |indexed| ask_count(&paths, "", indexed).1.skipped;
    assert_eq!(skipped(true), skipped(false));
    assert_eq!(skipped(true)[0].reasons.len(), 1);
}

#[test]
fn concatenated_packets_are_read_as_one_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("laid.trace");
    let file = rocksdb("io_small.trace", 4);
    let mut reader = trace_kinds::rocksdb::PacketReader::new(&file[..], 10_000);
    let mut laid = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        laid.extend(packet.bytes);
    }
    fs::write(&path, laid).unwrap();
    let paths = [path];
    index(&paths, &options(15_000, &["len"]));
    let report = check(&paths, "len > 4096");
    assert!(report.chunks > 5 && report.indexed == 1, "{report:?}");
    check(&paths, "");
}

#[test]
fn columns_are_refused_for_files_of_packets() {
    let folder = tempfile::tempdir().unwrap();
    let paths = sample(&folder);
    let options = IndexOptions {
        columns: true,
        ..IndexOptions::default()
    };
    let files = index_files(&paths[1], &mut Vec::new()).unwrap();
    let refused = files[0]
        .update(&options, &mut Scratch::default())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("DFTracer files only"), "{refused}");
}

#[test]
fn what_is_whole_of_a_damaged_trace_is_read_and_the_rest_is_told() {
    let packets: Vec<CtfPacket> = (0..4)
        .map(|begin| (begin, vec![(1, false, begin), (2, true, begin)]))
        .collect();
    let packet_bytes = ctf_packet(0, &packets[0]).len();
    let whole = ctf_stream(0, &packets);
    let mut other_lengths = whole.clone();
    // The field `packet_size` of the third packet.
    other_lengths[2 * packet_bytes + 32..2 * packet_bytes + 40].fill(0xff);
    let mut no_packet = whole.clone();
    no_packet[32..40].fill(0xff);
    for (what, damaged, expected) in [
        ("cut in an event", &whole[..3 * packet_bytes + 55], 8 + 6),
        ("cut in a header", &whole[..3 * packet_bytes + 20], 8 + 6),
        ("length", &other_lengths[..], 8 + 4),
        ("first length", &no_packet[..], 8),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("metadata"), METADATA).unwrap();
        fs::write(folder.path().join("a"), damaged).unwrap();
        fs::write(folder.path().join("b"), ctf_stream(1, &packets)).unwrap();
        let paths = [folder.path().to_owned()];
        let request = Request::default();
        let mut counts = Vec::new();
        for is_indexed in [false, true] {
            if is_indexed {
                for file in index_files(folder.path(), &mut Vec::new()).unwrap() {
                    let indexed = file.update(&IndexOptions::default(), &mut Scratch::default());
                    let indexed = indexed.unwrap();
                    let is_damaged = indexed.fault.is_some() || indexed.broken.unwrap_or(0) > 0;
                    assert_eq!(is_damaged, file.path().ends_with("a"), "{what}");
                }
            }
            let sources = open_paths(&paths, is_indexed, &request, &[])
                .unwrap()
                .sources;
            let (found, report) = count(&sources, &request, Limits::default()).unwrap();
            assert!(!report.is_complete(), "{what}");
            assert_eq!(report.skipped.len(), 1, "{what}: {:?}", report.skipped);
            counts.push(found);
            let strict = Request {
                strict: true,
                ..Request::default()
            };
            assert!(
                count(&sources, &strict, Limits::default()).is_err(),
                "{what}"
            );
        }
        assert_eq!(counts, [expected, expected], "{what}");
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_needs_no_index_to_be_told() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("trace.pfw");
    let line = r#"{"id":1,"name":"n","cat":"c","pid":1,"tid":1,"ts":1,"dur":1,"ph":"X"}"#;
    fs::write(&path, format!("{line}\n").repeat(100)).unwrap();
    let request = request("");
    let sources = open_paths(std::slice::from_ref(&path), false, &request, &[]);
    let sources = sources.unwrap().sources;
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(1_000).unwrap();
    let said = match count(&sources, &request, Limits::default()) {
        Ok((_, report)) => report.skipped_reasons().collect::<Vec<_>>().join("\n"),
        Err(error) => error.to_string(),
    };
    assert!(said.contains("when it was opened or indexed"), "{said}");
}
