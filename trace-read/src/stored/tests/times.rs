//! Ruling packets out by what the index of their storage says of their times never changes an
//! answer.

use trace_events::io_trace::{Anchor, Begin, Encoder};
use trace_events::{Event, decoder_for};
use trace_format::frame::HEADER_BYTES;
use trace_format::index_part::PacketEntry;
use trace_query::FieldTable;

use super::*;

/// What a storage's index says of packets.
struct Told(Vec<PacketEntry>);

impl PacketTimes for Told {
    fn each(&self, from: u64, each: &mut dyn FnMut(&PacketEntry)) -> io::Result<()> {
        // Also those in front, as the block has them that `from` lies in.
        let near = from.saturating_sub(200);
        let wanted = self.0.iter().filter(|entry| entry.offset > near);
        wanted.for_each(each);
        Ok(())
    }
}

/// An operation: when it begins, how long it takes, and what it is.
type Done = (u16, u8, bool);

fn packets(packets: &[Vec<Done>]) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(&Begin {
        anchor: Anchor { clock: 0, wall: 0 },
        mode: "stop_at_limit".to_owned(),
        bytes_max: 1 << 20,
        blocks_one_in: 1,
        one_in: [1; io_trace::Operation::COUNT],
        storages: Vec::new(),
    });
    let tracer = Arc::new(io_trace::Tracer::default());
    let mut encode = |done: &Vec<Done>| {
        for (start, latency, is_read) in done {
            encoder.put(&io_trace::Record {
                start: u64::from(*start),
                latency: u64::from(*latency),
                operation: match is_read {
                    true => io_trace::Operation::Read,
                    false => io_trace::Operation::Write,
                },
                cause: io_trace::Cause::Ingest,
                thread: 17,
                file: &io_trace::FileTag::new(
                    &tracer,
                    "f".to_owned(),
                    io_trace::FileClass::Data,
                    None,
                ),
                access: io_trace::Access::default(),
                request: None,
                requests: 0,
            });
        }
        encoder.finish(&io_trace::Drained::default()).bytes
    };
    packets.iter().map(&mut encode).collect()
}

/// The facts of a packet, as the server reads them.
fn facts(packet: &[u8]) -> Facts {
    let mut table = FieldTable::new();
    let duration = table.insert(&FieldPath::new("dur"));
    let context = trace_events::StreamContext::default();
    let mut decoder = decoder_for(Kind::IoTrace, &context, &table)
        .unwrap()
        .unwrap();
    let mut facts = Facts {
        events: Some(0),
        ..Facts::default()
    };
    let mut each = |event: &dyn Event| {
        let begin = event.ts().unwrap();
        let number = event.field(duration).and_then(|value| value.as_number());
        let Some(trace_query::Number::Int(latency)) = number else {
            panic!("no duration");
        };
        let end = begin + i64::try_from(latency).unwrap();
        let (first, last) = facts.time_span.unwrap_or((begin, end));
        facts.time_span = Some((first.min(begin), last.max(end)));
        facts.events = facts.events.map(|events| events + 1);
        std::ops::ControlFlow::Continue(())
    };
    decoder.decode(packet, &mut each).unwrap();
    facts
}

/// What is told of each packet: everything, nothing of its times, or nothing at all.
fn told(sent: &[Vec<u8>], ends: &[u64], how: &[u8]) -> Told {
    let starts = std::iter::once(&512).chain(ends);
    let packets = (0_u64..).zip(sent).zip(starts).zip(how);
    let told = packets.filter(|(_, how)| **how != 0);
    Told(
        told.map(|(((number, packet), start), how)| PacketEntry {
            number,
            offset: start + HEADER_BYTES as u64,
            stored_size: packet.len() as u32,
            raw_size: packet.len() as u32,
            epoch: 1,
            sequence: number,
            facts: match how {
                1 => Facts::default(),
                _ => facts(packet),
            },
            raw_checksum: crc32c(packet),
            codec: Codec::None,
        })
        .collect(),
    )
}

/// A leaf of these packets, with and without what is told of them.
fn leaves(sent: &[Vec<u8>], how: &[u8], kind: Kind, runs: usize) -> [StoredLeaf; 2] {
    let (mut leaf, bytes, ends) = leaf_of(1, sent, Codec::None);
    leaf.path.kind = kind;
    let cut = ends[runs % ends.len()];
    leaf.runs = [512..cut, cut..leaf.length].to_vec();
    leaf.runs.retain(|run| run.start < run.end);
    let data = Arc::new(Memory {
        bytes,
        batch: 300,
        ..Memory::default()
    });
    let plain = stored(&leaf, &data, None);
    let times: Arc<dyn PacketTimes> = Arc::new(told(sent, &ends, how));
    let timed = StoredLeaf {
        times: Some(times),
        ..plain.clone()
    };
    [plain, timed]
}

fn question() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (0_u32..70_000).prop_map(|n| format!("ts >= {n}")),
        (0_u32..70_000).prop_map(|n| format!("ts < {n}")),
        (0_u32..70_000).prop_map(|n| format!("ts in [{n}, 500]")),
        (0_u32..300).prop_map(|n| format!("dur > {n}")),
        Just("name == 'read'".to_owned()),
        Just("exists(ts)".to_owned()),
    ];
    combined(leaf)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn times_of_packets_never_change_an_answer(
        done in proptest::collection::vec(
            proptest::collection::vec(any::<Done>(), 0..4), 1..12),
        how in proptest::collection::vec(0_u8..6, 12),
        runs in 0_usize..12,
        query in question(),
        window in proptest::option::of((0_i64..65_000, 0_i64..9_000)),
    ) {
        let request = Request {
            query: Some(Query::parse(&query).unwrap()),
            from: window.map(|(from, _)| from),
            to: window.map(|(from, length)| from + length),
            ..Request::default()
        };
        let [plain, timed] = leaves(&packets(&done), &how, Kind::IoTrace, runs);
        let ranges = |leaf: &StoredLeaf| {
            let set = StorageSet::open(vec![leaf.clone()], None).unwrap();
            set.candidates(&request).unwrap().remove(0)
        };
        let (all, left) = (ranges(&plain), ranges(&timed));
        let inside = |range: &Range<u64>| (range.start..range.end).all(|at| all.contains(at));
        prop_assert!(left.ranges.iter().all(inside));
        let (expected, _) = answers(vec![plain], &request);
        let (found, report) = answers(vec![timed], &request);
        prop_assert_eq!(found, expected, "{:?}", report);
        if query.contains("ts") || window.is_some() {
            prop_assert!(report.timed > 0);
        }
        prop_assert_eq!(report.indexed, 0);
    }
}

/// Eight packets, a second after another.
fn eight() -> Vec<Vec<u8>> {
    let packet = |second: u16| vec![(second * 1_000, 10, true); 3];
    packets(&(0..8).map(packet).collect::<Vec<_>>())
}

#[test]
fn a_window_reads_only_the_packets_in_it() {
    let [plain, timed] = leaves(&eight(), &[2; 8], Kind::IoTrace, 3);
    let request = Request {
        query: Some(Query::parse("name == 'read'").unwrap()),
        from: Some(3_000),
        to: Some(5_000),
        ..Request::default()
    };
    let (expected, unpruned) = answers(vec![plain], &request);
    let (found, report) = answers(vec![timed], &request);
    assert_eq!((&found, report.matched), (&expected, 6));
    assert_eq!((report.timed, report.out_of_time), (8, 6), "{report:?}");
    assert_eq!(report.counters.decoded.events, 6);
    assert!(report.counters.fetched_bytes < unpruned.counters.fetched_bytes / 2);
    let told =
        "runs of packets without a chunk index: 8, ruled out by the times of their packets: 6";
    assert!(
        report.lines().iter().any(|line| line == told),
        "{:?}",
        report.lines()
    );
}

#[test]
fn what_is_not_known_or_not_relied_on_is_read() {
    let request = Request {
        from: Some(3_000),
        to: Some(5_000),
        ..Request::default()
    };
    // Nothing of the second packet's times, and nothing at all of the seventh.
    let [_, timed] = leaves(&eight(), &[2, 1, 2, 2, 2, 2, 0, 2], Kind::IoTrace, 7);
    let (_, report) = answers(vec![timed], &request);
    assert_eq!((report.timed, report.out_of_time), (8, 4), "{report:?}");
    assert_eq!((report.counters.decoded.events, report.matched), (12, 6));
    // Times that hang on what was told beside the packets.
    let line =
        b"{\"name\":\"a\",\"cat\":\"b\",\"pid\":1,\"tid\":1,\"ts\":9,\"dur\":1,\"ph\":\"X\"}\n";
    let (leaf, bytes, ends) = leaf_of(1, &[line.to_vec()], Codec::None);
    let data = Arc::new(Memory {
        bytes,
        batch: 300,
        ..Memory::default()
    });
    let mut told = told(&[packets(&[vec![(1, 1, true)]]).remove(0)], &ends, &[2]);
    told.0[0].stored_size = line.len() as u32;
    let dft = StoredLeaf {
        times: Some(Arc::new(told)),
        ..stored(&leaf, &data, None)
    };
    let request = Request {
        from: Some(5_000),
        ..Request::default()
    };
    let (_, report) = answers(vec![dft], &request);
    assert_eq!((report.timed, report.matched), (0, 1));
    // A question that asks for no time asks for no times.
    let [_, timed] = leaves(&eight(), &[2; 8], Kind::IoTrace, 1);
    let request = Request {
        query: Some(Query::parse("dur > 1ns").unwrap()),
        ..Request::default()
    };
    let (_, report) = answers(vec![timed], &request);
    assert_eq!((report.timed, report.matched), (0, 24));
}
