//! Chunks that are read in parts have the same rows in the same order.

use super::times::{Done, indexed, packets, trace_of};
use super::*;

/// The streams of these packets, in chunks: as they are read from far away, and in parts.
fn streams(
    kind: Kind,
    sent: &[Vec<Vec<Done>>],
    (how, chunk_bytes): (&[u8], u64),
) -> [(Vec<StoredLeaf>, Vec<Arc<Memory>>); 2] {
    [false, true].map(|is_near| {
        let stream = |(number, done): (u64, &Vec<Vec<Done>>)| {
            let sent = packets(kind, done);
            let (mut leaf, bytes, ends) = leaf_of(number, &sent, Codec::None);
            leaf.path.kind = kind;
            let data = Arc::new(Memory {
                bytes,
                is_near,
                batch: 1 << 20,
                ..Memory::default()
            });
            let plain = StoredLeaf {
                trace: Arc::new(trace_of(kind, 7)),
                ..stored(&leaf, &data, None)
            };
            let index = index(plain.clone(), chunk_bytes);
            data.moved.store(0, Ordering::Relaxed);
            let with_index = StoredLeaf {
                trace: Arc::clone(&plain.trace),
                times: Some(Arc::new(indexed(kind, &sent, &ends, how))),
                ..stored(&leaf, &data, Some(index))
            };
            (with_index, data)
        };
        (0..).zip(sent).map(stream).unzip()
    })
}

/// The rows in order of time, and how often some were spilled.
fn rows(leaves: &[StoredLeaf], request: &Request, limits: Limits) -> (Vec<String>, u64) {
    let columns = Columns::Fields(["ts", "name", "dur", "stream"].map(str::to_owned).to_vec());
    let set = StorageSet::open(leaves.to_vec(), None).unwrap();
    let sources = set.sources(request, &columns.fields()).unwrap();
    let mut rows = Vec::new();
    let mut out = |row: &[u8]| {
        rows.extend_from_slice(row);
        Ok(())
    };
    let mut format = Ndjson::default();
    let report = write_rows(&sources, request, &columns, &mut format, limits, &mut out).unwrap();
    let text = String::from_utf8(rows).unwrap();
    (text.lines().map(str::to_owned).collect(), report.spills)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn parts_of_chunks_never_change_rows(
        sent in proptest::collection::vec(
            proptest::collection::vec(
                proptest::collection::vec((0_u16..50, any::<u8>(), any::<bool>()), 0..5), 1..9),
            1..4),
        how in proptest::collection::vec(0_u8..8, 9),
        kind in prop_oneof![Just(Kind::IoTrace), Just(Kind::Dft), Just(Kind::Ctf)],
        chunk_bytes in prop_oneof![Just(1_u64), Just(500), Just(1 << 20)],
        (threads, waiting_bytes_max) in (1_usize..4, prop_oneof![Just(0_usize), Just(1 << 20)]),
        query in prop_oneof![Just(""), Just("name == 'read'"), Just("ts < 30")],
        limit in proptest::option::of(1_u64..40),
        offset in 0_u64..10,
    ) {
        let request = Request {
            query: (!query.is_empty()).then(|| Query::parse(query).unwrap()),
            order: ResultOrder { limit, offset, ..ResultOrder::default() },
            ..Request::default()
        };
        let limits = Limits { threads, waiting_bytes_max, ..Limits::default() };
        let [(whole, _), (parts, _)] = streams(kind, &sent, (&how, chunk_bytes));
        let expected = rows(&whole, &request, limits).0;
        let found = rows(&parts, &request, limits).0;
        prop_assert_eq!(found, expected);
    }
}

/// Streams with the same times, each in one chunk.
fn side_by_side() -> [(Vec<StoredLeaf>, Vec<Arc<Memory>>); 2] {
    let packet = |number: u16| {
        (0..5)
            .map(|event| (number * 100 + event, 1, true))
            .collect()
    };
    let stream: Vec<Vec<Done>> = (0..40).map(packet).collect();
    streams(Kind::Dft, &vec![stream; 4], (&[3; 40], 1 << 20))
}

#[test]
fn rows_of_parts_wait_for_few_others() {
    let [(whole, _), (parts, data)] = side_by_side();
    let limits = Limits {
        threads: 1,
        // More than a part of each stream takes, and less than all rows.
        waiting_bytes_max: 8 << 10,
        ..Limits::default()
    };
    let all = Request::default();
    let (expected, spilled) = rows(&whole, &all, limits);
    assert!(spilled > 0);
    assert_eq!(rows(&parts, &all, limits), (expected.clone(), 0));
    let moved = || {
        data.iter()
            .map(|data| data.moved.swap(0, Ordering::Relaxed))
            .sum::<u64>()
    };
    let of_all = moved();
    let first = Request {
        order: ResultOrder {
            limit: Some(20),
            ..ResultOrder::default()
        },
        ..Request::default()
    };
    assert_eq!(rows(&parts, &first, limits).0, expected[..20]);
    let of_first = moved();
    assert!(of_first * 10 < of_all, "{of_first} of {of_all} bytes");
}

/// Without the times of packets, those of chunks are as good as they were.
#[test]
fn packets_with_unknown_times_are_not_before_their_chunk() {
    let packet = |number: u16| {
        (0..5)
            .map(|event| (number * 100 + event, 1, true))
            .collect()
    };
    let stream = |first: u16| (first..first + 40).map(packet).collect::<Vec<Vec<Done>>>();
    let sent: Vec<_> = (0..4).map(|number| stream(number * 40)).collect();
    let [(whole, _), (parts, _)] = streams(Kind::Dft, &sent, (&[0; 40], 1 << 20));
    let limits = Limits {
        threads: 1,
        // More than one stream takes, and less than two.
        waiting_bytes_max: 32 << 10,
        ..Limits::default()
    };
    let all = Request::default();
    let expected = rows(&whole, &all, limits);
    assert_eq!(expected.1, 0);
    assert_eq!(rows(&parts, &all, limits), expected);
}
