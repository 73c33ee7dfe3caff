//! Leaves with an index, with a part of one and without, in memory and from afar, give the answers
//! of a plain scan.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use query_language::{FieldPath, OrderKey, Query};
use row_formats::{Columns, Ndjson, write_group_ndjson};
use storage_format::checksum::crc32c;
use storage_format::data_file::{DataFileHeader, LeafPath};
use storage_format::frame::{Facts, FrameHeader, FrameLocation};
use storage_format::{Codec, Kind, LeafId, LeafType, StorageId, StreamPosition};

use super::*;
use crate::{
    ChunkSource, GroupSpec, LeafIndexOptions, Limits, Report, Request, ResultOrder, count,
    group_by, write_rows,
};

mod cancelled;
mod damage;
mod groups;
mod limited;
mod pieces;
mod slices;
mod splits;
mod times;

/// Bytes in memory that count the requests.
#[derive(Default)]
struct Memory {
    bytes: Vec<u8>,
    requests: AtomicU64,
    moved: AtomicU64,
    batch: u64,
    is_near: bool,
    /// Bytes that are damaged, so that no range with one of them is returned.
    damaged: Vec<Range<u64>>,
}

impl Memory {
    fn damage_in(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let end = self.bytes.len() as u64..u64::MAX;
        let lost = self.damaged.iter().cloned().chain([end]);
        let inside = lost.map(move |lost| lost.start.max(range.start)..lost.end.min(range.end));
        inside.filter(|lost| lost.start < lost.end)
    }
}

impl Fetch for Memory {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn batch_bytes(&self) -> u64 {
        self.batch
    }

    fn is_near(&self) -> bool {
        self.is_near
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Vec<u8>>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let read = |range: &Range<u64>| {
            let index = |at: u64| usize::try_from(at).unwrap();
            if self.damage_in(range).next().is_some() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let bytes = &self.bytes[index(range.start)..index(range.end)];
            self.moved.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Ok(bytes.to_vec())
        };
        ranges.iter().map(read).collect()
    }

    fn lost(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
        Ok(ranges
            .iter()
            .flat_map(|range| self.damage_in(range))
            .collect())
    }
}

const STORAGE: [u8; 16] = [7; 16];

/// A leaf of these packets, and how long its data file was after each.
fn leaf_of(leaf: u64, packets: &[Vec<u8>], codec: Codec) -> (Leaf, Vec<u8>, Vec<u64>) {
    let storage = StorageId::from_bytes(STORAGE);
    let path = LeafPath {
        agent: "host".parse().unwrap(),
        kind: Kind::Dft,
        stream: format!("s{leaf}").parse().unwrap(),
        bucket: None,
    };
    let header = DataFileHeader {
        storage,
        leaf: LeafId(leaf),
        leaf_type: LeafType::Array,
        path: path.clone(),
        created: 1,
    };
    let mut bytes = header.encode().to_vec();
    let mut ends = Vec::new();
    for (number, packet) in (0_u64..).zip(packets) {
        let stored = match codec {
            Codec::None => packet.clone(),
            Codec::Zstd => zstd::bulk::compress(packet, 1).unwrap(),
        };
        let frame = FrameHeader {
            codec,
            stored_size: u32::try_from(stored.len()).unwrap(),
            raw_size: u32::try_from(packet.len()).unwrap(),
            number,
            position: StreamPosition::new(1, number),
            arrival: 1,
            facts: Facts::default(),
            stored_checksum: crc32c(&stored),
            raw_checksum: crc32c(packet),
        };
        let place = FrameLocation {
            storage,
            leaf: LeafId(leaf),
            offset: bytes.len() as u64,
        };
        bytes.extend(frame.encode(place));
        bytes.extend(stored);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        ends.push(bytes.len() as u64);
    }
    let length = bytes.len() as u64;
    let leaf = Leaf {
        storage,
        storage_name: "first".to_owned(),
        leaf: LeafId(leaf),
        path,
        first_number: leaf,
        length,
        checksum: Some(crc32c(&bytes)),
        cuts: 0,
        runs: std::iter::once(512..length).collect(),
    };
    (leaf, bytes, ends)
}

fn stored(leaf: &Leaf, data: &Arc<Memory>, index: Option<Vec<u8>>) -> StoredLeaf {
    let sidecar = index.map(|bytes| {
        let length = bytes.len() as u64;
        let file: Arc<dyn Fetch> = Arc::new(Memory {
            bytes,
            ..Memory::default()
        });
        (file, length)
    });
    StoredLeaf {
        leaf: leaf.clone(),
        data: Arc::clone(data) as Arc<dyn Fetch>,
        sidecar,
        trace: Arc::default(),
        times: None,
    }
}

fn index(stored: StoredLeaf, chunk_bytes: u64) -> Vec<u8> {
    let set = StorageSet::open(vec![stored], None).unwrap();
    let options = LeafIndexOptions {
        chunk_bytes,
        fields: vec!["ret".to_owned()],
    };
    let indexed = set.index(0, &options, &|| true).unwrap().unwrap();
    indexed.index.encode().unwrap()
}

/// The answers to all forms of a question, and what the rows cost.
fn answers(leaves: Vec<StoredLeaf>, request: &Request) -> (Vec<String>, Report) {
    let columns = Columns::Fields(
        [
            "name", "cat", "ts", "dur", "pid", "ret", "fname", "agent", "storage",
        ]
        .map(str::to_owned)
        .to_vec(),
    );
    let sources = |fields: &[FieldPath]| -> Vec<Box<dyn ChunkSource>> {
        let set = StorageSet::open(leaves.clone(), None).unwrap();
        set.sources(request, fields).unwrap()
    };
    let limits = Limits {
        threads: 2,
        waiting_bytes_max: 1 << 10,
        ..Limits::default()
    };
    let mut rows = Vec::new();
    let mut out = |row: &[u8]| {
        rows.extend_from_slice(row);
        Ok(())
    };
    let all = sources(&columns.fields());
    let report = write_rows(
        &all,
        request,
        &columns,
        &mut Ndjson::default(),
        limits,
        &mut out,
    );
    let report = report.unwrap();
    let text = String::from_utf8(rows).unwrap();
    let mut answers: Vec<String> = text.lines().map(str::to_owned).collect();
    let starts = |row: &String| {
        row.split("\"ts\":").nth(1).map(|ts| {
            let digits: String = ts.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().unwrap()
        })
    };
    let times: Vec<_> = answers.iter().filter_map(starts).collect();
    assert!(times.is_sorted(), "rows are in the order of time");
    answers.sort();
    let (number, _) = count(&sources(&[]), request, limits).unwrap();
    assert_eq!(usize::try_from(number).unwrap(), text.lines().count());
    for field in ["name", "pid", "fname"] {
        let path = FieldPath::new(field);
        let spec = GroupSpec::by(field);
        let columns = spec.columns().unwrap();
        let of_field = sources(std::slice::from_ref(&path));
        let (groups, _) = group_by(&of_field, request, &spec, limits).unwrap();
        for group in groups {
            let mut row = Vec::new();
            write_group_ndjson(&columns, &group, &mut row);
            answers.push(String::from_utf8(row).unwrap());
        }
    }
    (answers, report)
}

fn lines() -> impl Strategy<Value = Vec<String>> {
    let event = (
        0..4_usize,
        0..3_u32,
        0..500_u64,
        0..300_u64,
        0..40_u32,
        0..5_u8,
    );
    let line = event.prop_map(|(name, pid, ts, dur, ret, form)| {
        let name = ["read", "write", "open", "weird\\\"name"][name];
        match form {
            // Declares a hash, which need not come before its use.
            0 => format!(
                "{{\"name\":\"FH\",\"ph\":\"M\",\"pid\":{pid},\"tid\":1,\"args\":{{\"name\":\
                 \"/f/{ret}\",\"value\":{ret}}}}}"
            ),
            1 => "no record".to_owned(),
            // A number in quotes, as old dialects have them, and no duration.
            2 => format!("{{\"name\":\"{name}\",\"cat\":\"a\",\"pid\":\"{pid}\",\"ts\":\"{ts}\"}}"),
            _ => format!(
                "{{\"id\":1,\"name\":\"{name}\",\"cat\":\"POSIX\",\"pid\":{pid},\"tid\":2,\"ts\":{ts},\
                 \"dur\":{dur},\"ph\":\"X\",\"args\":{{\"fhash\":{ret},\"ret\":{ret}}}}}"
            ),
        }
    });
    proptest::collection::vec(line, 0..12)
}

fn query() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (0..4_usize).prop_map(|n| format!("name == '{}'", ["read", "write", "open", "x"][n])),
        (0..500_u64).prop_map(|n| format!("ts >= {n}")),
        (0..300_u64).prop_map(|n| format!("dur > {n}us")),
        (0..4_u32).prop_map(|n| format!("pid in [{n}, 1.0]")),
        (0..40_u32).prop_map(|n| format!("ret == {n}")),
        (0..40_u32).prop_map(|n| format!("fname == '/f/{n}'")),
        (0..40_u32).prop_map(|n| format!("fhash == {n}")),
        Just("fname contains '1'".to_owned()),
        Just("exists(dur)".to_owned()),
        Just("agent == 'host'".to_owned()),
        Just("stream == 's1'".to_owned()),
        Just("name ~ '^w'".to_owned()),
    ];
    combined(leaf)
}

/// Conditions joined by and, or and not.
fn combined(condition: impl Strategy<Value = String> + 'static) -> impl Strategy<Value = String> {
    condition.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} and {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} or {b})")),
            inner.prop_map(|a| format!("not ({a})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn an_index_never_changes_a_result(
        streams in proptest::collection::vec(
            proptest::collection::vec(lines(), 1..8), 1..3),
        query in query(),
        chunk_bytes in 1_u64..2_000,
        batch in 1_u64..5_000,
        covered in any::<prop::sample::Index>(),
        window in proptest::option::of((0_i64..400, 0_i64..200)),
        compressed in any::<bool>(),
    ) {
        let request = Request {
            query: Some(Query::parse(&query).unwrap()),
            from: window.map(|(from, _)| from * 1_000),
            to: window.map(|(from, length)| (from + length) * 1_000),
            ..Request::default()
        };
        let codec = if compressed { Codec::Zstd } else { Codec::None };
        let (mut plain, mut whole, mut partial) = (Vec::new(), Vec::new(), Vec::new());
        for (number, packets) in (1_u64..).zip(&streams) {
            let packets: Vec<Vec<u8>> = packets
                .iter()
                .map(|lines| (lines.join("\n") + "\n").into_bytes())
                .collect();
            let (leaf, bytes, ends) = leaf_of(number, &packets, codec);
            let data = Arc::new(Memory { bytes, batch, ..Memory::default() });
            plain.push(stored(&leaf, &data, None));
            whole.push(stored(&leaf, &data, Some(index(stored(&leaf, &data, None), chunk_bytes))));
            // While it was written, an index was made of its first packets, and then gone on with.
            let end = ends[covered.index(ends.len())];
            let begun = Leaf {
                length: end,
                checksum: None,
                runs: std::iter::once(512..end).collect(),
                ..leaf.clone()
            };
            let first = index(stored(&begun, &data, None), chunk_bytes);
            let growing = Leaf { checksum: None, ..leaf.clone() };
            partial.push(stored(&growing, &data, Some(first.clone())));
            let grown = index(stored(&growing, &data, Some(first)), chunk_bytes);
            let (expected, _) = answers(vec![stored(&leaf, &data, None)], &request);
            let (found, report) = answers(vec![stored(&leaf, &data, Some(grown))], &request);
            prop_assert_eq!(found, expected);
            prop_assert!(report.indexed + report.excluded > 0, "the grown index is used");
        }
        let (expected, _) = answers(plain, &request);
        prop_assert_eq!(&answers(whole, &request).0, &expected, "with indexes");
        prop_assert_eq!(&answers(partial, &request).0, &expected, "with parts of indexes");
    }
}

/// Packets of which one has a name of its own.
fn rare() -> (Leaf, Arc<Memory>, StoredLeaf) {
    let packets: Vec<Vec<u8>> = (0..400)
        .map(|number| {
            let name = if number == 123 { "rare" } else { "read" };
            let line = format!(
                "{{\"name\":\"{name}\",\"cat\":\"c\",\"pid\":1,\"tid\":1,\"ts\":{number},\"dur\":1,\
                 \"ph\":\"X\",\"args\":{{\"ret\":{number}}}}}\n"
            );
            line.repeat(20).into_bytes()
        })
        .collect();
    let (leaf, bytes, _) = leaf_of(1, &packets, Codec::None);
    let data = Arc::new(Memory {
        bytes,
        batch: 1 << 20,
        ..Memory::default()
    });
    let indexed = stored(&leaf, &data, Some(index(stored(&leaf, &data, None), 1)));
    (leaf, data, indexed)
}

#[test]
fn only_candidates_are_fetched_and_in_one_request() {
    let (leaf, data, indexed) = rare();
    data.requests.store(0, Ordering::Relaxed);
    data.moved.store(0, Ordering::Relaxed);
    let request = Request {
        query: Some(Query::parse("name == 'rare' or ret == 7 or ret == 300").unwrap()),
        ..Request::default()
    };
    let set = StorageSet::open(vec![indexed], None).unwrap();
    let sources = set.sources(&request, &[]).unwrap();
    let (columns, mut format) = (Columns::All, Ndjson::default());
    let limits = Limits::default();
    let found = write_rows(
        &sources,
        &request,
        &columns,
        &mut format,
        limits,
        &mut |_| Ok(()),
    );
    let report = found.unwrap();
    assert_eq!((report.matched, report.chunks, report.read), (60, 400, 3));
    assert_eq!(data.requests.load(Ordering::Relaxed), 1);
    let moved = data.moved.load(Ordering::Relaxed);
    assert!(moved * 100 < leaf.length, "{moved} of {}", leaf.length);
}

#[test]
fn the_index_of_another_leaf_is_not_used() {
    let (leaf, data, indexed) = rare();
    let (sidecar, length) = indexed.sidecar.clone().unwrap();
    let bytes = sidecar.fetch_one(0..length).unwrap();
    let check = |leaf: Leaf, bytes: Vec<u8>, expected: &str| {
        let set = StorageSet::open(vec![stored(&leaf, &data, Some(bytes))], None).unwrap();
        let sources = set.sources(&Request::default(), &[]).unwrap();
        let reason = sources.iter().find_map(|source| source.unused_index());
        assert!(
            reason.is_some_and(|reason| reason.contains(expected)),
            "{expected}"
        );
        let (found, report) = count(&sources, &Request::default(), Limits::default()).unwrap();
        assert_eq!((found, report.indexed), (8_000, 0));
    };
    let changed = Leaf {
        checksum: Some(1),
        ..leaf.clone()
    };
    check(changed, bytes.clone(), "another length or checksum");
    let repaired = Leaf {
        checksum: None,
        cuts: 1,
        ..leaf.clone()
    };
    check(repaired, bytes.clone(), "repaired since");
    let mut damaged = bytes.clone();
    let footer = bytes.len() - 60;
    damaged[footer] ^= 1;
    check(leaf.clone(), damaged, "memory");
    check(leaf.clone(), bytes[..bytes.len() - 1].to_vec(), "memory");
    let (_, other_bytes, _) = leaf_of(2, &[b"x\n".to_vec()], Codec::None);
    let other = Leaf {
        length: other_bytes.len() as u64,
        ..leaf_of(2, &[b"x\n".to_vec()], Codec::None).0
    };
    let other_data = Arc::new(Memory {
        bytes: other_bytes,
        ..Memory::default()
    });
    let foreign = index(stored(&other, &other_data, None), 1);
    check(leaf, foreign, "of another leaf");
}

#[test]
fn the_unit_of_a_stream_may_be_declared_after_its_first_packet() {
    let line = |number: u64| {
        format!(
            "{{\"name\":\"read\",\"cat\":\"c\",\"pid\":1,\"tid\":1,\"ts\":{number},\"dur\":7,\
             \"ph\":1}}\n"
        )
    };
    let metric = "{\"name\":\"CM\",\"cat\":\"dftracer\",\"type\":1,\"pid\":7,\"tid\":7,\"ph\":4,\
                  \"args\":{\"name\":\"time_metric\",\"value\":\"NS\"}}\n";
    let mut packets: Vec<Vec<u8>> = (0..20).map(|number| line(number).into_bytes()).collect();
    packets.insert(3, metric.as_bytes().to_vec());
    let (leaf, bytes, _) = leaf_of(1, &packets, Codec::None);
    let data = Arc::new(Memory {
        bytes,
        ..Memory::default()
    });
    let plain = stored(&leaf, &data, None);
    let indexed = stored(&leaf, &data, Some(index(plain.clone(), 1)));
    for leaf in [plain, indexed] {
        for (query, expected) in [("dur == 7ns", 20), ("dur == 7", 20), ("dur == 7us", 0)] {
            let request = Request {
                query: Some(Query::parse(query).unwrap()),
                ..Request::default()
            };
            let set = StorageSet::open(vec![leaf.clone()], None).unwrap();
            let sources = set.sources(&request, &[]).unwrap();
            let (found, _) = count(&sources, &request, Limits::default()).unwrap();
            assert_eq!(found, expected, "{query}");
        }
    }
}

/// A packet that declares something cannot be read: whatever is asked, the answer says so.
#[test]
fn lost_declarations_are_reported() {
    let line = |number: u64| {
        format!(
            "{{\"name\":\"read\",\"cat\":\"c\",\"pid\":1,\"tid\":1,\"ts\":{number},\"dur\":7,\
             \"ph\":1,\"args\":{{\"fhash\":\"aa\"}}}}\n"
        )
    };
    let declared = [
        "{\"name\":\"CM\",\"cat\":\"dftracer\",\"type\":1,\"pid\":7,\"tid\":7,\"ph\":4,\
         \"args\":{\"name\":\"time_metric\",\"value\":\"NS\"}}\n",
        "{\"name\":\"FH\",\"cat\":\"dftracer\",\"type\":1,\"pid\":7,\"tid\":7,\"ph\":4,\
         \"args\":{\"name\":\"/data/a\",\"value\":\"aa\"}}\n",
    ];
    let mut packets: Vec<Vec<u8>> = (0..4).map(|number| line(number).into_bytes()).collect();
    packets.insert(1, declared.concat().into_bytes());
    let (leaf, bytes, ends) = leaf_of(1, &packets, Codec::None);
    let check = |bytes: Vec<u8>, query: &str, expected: (u64, Option<&str>)| {
        let data = Arc::new(Memory {
            bytes,
            ..Memory::default()
        });
        let request = Request {
            query: Some(Query::parse(query).unwrap()),
            ..Request::default()
        };
        let set = StorageSet::open(vec![stored(&leaf, &data, None)], None).unwrap();
        let sources = set.sources(&request, &[]).unwrap();
        let (found, report) = count(&sources, &request, Limits::default()).unwrap();
        let reasons: Vec<&str> = report.skipped_reasons().collect();
        assert_eq!(
            (found, reasons.len()),
            (expected.0, usize::from(expected.1.is_some()))
        );
        if let Some(wanted) = expected.1 {
            assert!(reasons[0].contains(wanted), "{query}: {reasons:?}");
        }
    };
    let mut damaged = bytes.clone();
    damaged[usize::try_from(ends[0]).unwrap() + 88] ^= 1;
    let checksum = "its checksum does not match";
    check(bytes.clone(), "dur == 7ns", (4, None));
    check(
        damaged.clone(),
        "dur == 7ns",
        (0, Some("read as microseconds")),
    );
    check(bytes.clone(), "fname == '/data/a'", (4, None));
    check(damaged.clone(), "fname == '/data/a'", (0, Some(checksum)));
    check(
        damaged,
        "fname == '/data/a' and stream == 'none'",
        (0, None),
    );
    check(bytes, "fname == '/data/b'", (0, None));
}
