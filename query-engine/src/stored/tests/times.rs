//! Ruling out packets by the times in the index of their storage never changes an answer.

use query_language::FieldTable;
use storage_format::StreamPosition;
use storage_format::TimeBasis;
use storage_format::frame::HEADER_BYTES;
use storage_format::index_part::PacketEntry;
use trace_kinds::io_trace::{Anchor, Begin, Encoder};
use trace_kinds::{Event, StreamContext, decoder_for};

use super::*;
use crate::stored::times::basis;

/// The facts that a storage's index has about packets.
pub(super) struct IndexedPackets(Vec<PacketEntry>);

impl PacketTimes for IndexedPackets {
    fn each(&self, from: u64, each: &mut dyn FnMut(&PacketEntry)) -> io::Result<()> {
        // Also earlier packets, because the block that contains `from` has them.
        let near = from.saturating_sub(200);
        let wanted = self.0.iter().filter(|entry| entry.offset > near);
        wanted.for_each(each);
        Ok(())
    }
}

/// An operation: when it begins, how long it takes, and what it is.
pub(super) type Done = (u16, u8, bool);

pub(super) fn packets(kind: Kind, packets: &[Vec<Done>]) -> Vec<Vec<u8>> {
    match kind {
        Kind::Dft => packets.iter().map(|done| dft_packet(done)).collect(),
        Kind::Ctf => packets.iter().map(|done| ctf_packet(done)).collect(),
        _ => io_trace_packets(packets),
    }
}

fn dft_packet(done: &[Done]) -> Vec<u8> {
    let line = |(start, latency, is_read): &Done| {
        let name = name_of(*is_read);
        format!(
            "{{\"name\":\"{name}\",\"cat\":\"a\",\"pid\":1,\"tid\":1,\"ts\":{start},\
             \"dur\":{latency},\"ph\":\"X\"}}\n"
        )
    };
    // A packet has at least one byte.
    let lines = done.iter().map(line).collect::<String>() + "no record\n";
    lines.into_bytes()
}

fn name_of(is_read: bool) -> &'static str {
    if is_read { "read" } else { "write" }
}

/// The metadata of [`ctf_packet`], with a clock that began at `offset` seconds.
fn ctf_metadata(offset: u32) -> String {
    format!(
        "/* CTF 1.8 */\n\
         typealias integer {{ size = 8; align = 8; signed = false; }} := u8;\n\
         trace {{ major = 1; minor = 8; byte_order = le; }};\n\
         clock {{ name = c; freq = 1000000000; offset_s = {offset}; }};\n\
         typealias integer {{ size = 64; align = 8; signed = false; map = clock.c.value; }} := t;\n\
         stream {{\n\
           packet.context := struct {{ t timestamp_begin; t timestamp_end; }};\n\
           event.header := struct {{ u8 id; t timestamp; }};\n\
         }};\n\
         event {{ name = read; id = 0; fields := struct {{ u8 v; }}; }};\n\
         event {{ name = write; id = 1; fields := struct {{ u8 v; }}; }};\n"
    )
}

/// A packet with arbitrary times: its span may be zero, and events may be outside of it.
fn ctf_packet(done: &[Done]) -> Vec<u8> {
    let first = done.first().map_or(0, |(start, ..)| u64::from(*start));
    let mut bytes = Vec::new();
    bytes.extend((first / 2).to_le_bytes());
    bytes.extend(first.saturating_sub(1_000).to_le_bytes());
    for (start, latency, is_read) in done {
        bytes.push(u8::from(!is_read));
        bytes.extend(u64::from(*start).to_le_bytes());
        bytes.push(*latency);
    }
    bytes
}

fn io_trace_packets(packets: &[Vec<Done>]) -> Vec<Vec<u8>> {
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
                operation: if *is_read {
                    io_trace::Operation::Read
                } else {
                    io_trace::Operation::Write
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

/// What a query decodes packets of `kind` with, where an agent sent metadata: that with this
/// offset; and the unit of a stream of lines.
pub(super) fn trace_of(kind: Kind, offset: u32) -> AgentTrace {
    match kind {
        Kind::Ctf => AgentTrace::new(Some(ctf_metadata(offset).as_bytes())),
        _ => AgentTrace::default(),
    }
}

/// The facts of a packet, as the server reads them with this metadata.
fn facts(kind: Kind, packet: &[u8], trace: &AgentTrace) -> Facts {
    let mut table = FieldTable::new();
    let duration = table.insert(&FieldPath::new("dur"));
    let context = StreamContext {
        procedure: trace.procedure.clone(),
        ..StreamContext::default()
    };
    let mut decoder = decoder_for(kind, &context, &table).unwrap().unwrap();
    let mut facts = Facts {
        events: Some(0),
        time_basis: match basis(kind, trace, &context) {
            TimeBasis::Number(number) => Some(number),
            TimeBasis::Bytes | TimeBasis::Unknown => None,
        },
        ..Facts::default()
    };
    let mut each = |event: &dyn Event| {
        let begin = event.ts().unwrap();
        let number = event.field(duration).and_then(|value| value.as_number());
        let latency = match number {
            Some(query_language::Number::Int(latency)) => i64::try_from(latency).unwrap(),
            _ => 0,
        };
        let end = begin + latency;
        let (first, last) = facts.time_span.unwrap_or((begin, end));
        facts.time_span = Some((first.min(begin), last.max(end)));
        facts.events = facts.events.map(|events| events + 1);
        std::ops::ControlFlow::Continue(())
    };
    decoder.decode(packet, &mut each).unwrap();
    facts
}

/// The facts about each packet in the index: no entry, an entry without times, facts decoded with
/// another time basis (where that makes a difference), or all facts.
pub(super) fn indexed(kind: Kind, sent: &[Vec<u8>], ends: &[u64], how: &[u8]) -> IndexedPackets {
    let (trace, before) = (trace_of(kind, 7), trace_of(kind, 8));
    let stale = |packet: &[u8]| {
        let facts = facts(kind, packet, &before);
        match kind {
            // Facts decoded with milliseconds instead of microseconds.
            Kind::Dft => Facts {
                time_span: facts
                    .time_span
                    .map(|(first, last)| (first * 1_000, last * 1_000)),
                time_basis: Some(1_000_000),
                ..facts
            },
            // Other metadata may show other events, or none.
            Kind::Ctf => Facts {
                events: Some(0),
                ..facts
            },
            _ => facts,
        }
    };
    let starts = std::iter::once(&512).chain(ends);
    let packets = (0_u64..).zip(sent).zip(starts).zip(how);
    let indexed = packets.filter(|(_, how)| **how != 0);
    IndexedPackets(
        indexed
            .map(|(((number, packet), start), how)| PacketEntry {
                number,
                offset: start + HEADER_BYTES as u64,
                stored_size: u32::try_from(packet.len()).unwrap(),
                raw_size: u32::try_from(packet.len()).unwrap(),
                position: StreamPosition::new(1, number),
                facts: match how {
                    1 => Facts::default(),
                    2 => stale(packet),
                    _ => facts(kind, packet, &trace),
                },
                raw_checksum: crc32c(packet),
                codec: Codec::None,
            })
            .collect(),
    )
}

/// A leaf of these packets, without and with the facts in the index.
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
    let plain = StoredLeaf {
        trace: Arc::new(trace_of(kind, 7)),
        ..stored(&leaf, &data, None)
    };
    let times: Arc<dyn PacketTimes> = Arc::new(indexed(kind, sent, &ends, how));
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
        (0_u32..70_000).prop_map(|n| format!("ts > 7000000000 and ts <= 70000{n:05}")),
        (0_u32..300).prop_map(|n| format!("dur > {n}")),
        Just("name == 'read'".to_owned()),
        Just("exists(ts)".to_owned()),
    ];
    combined(leaf)
}

/// When what a packet gives as `time` was, ns since the epoch.
fn at(kind: Kind, time: i64) -> i64 {
    match kind {
        Kind::Dft => time * 1_000,
        Kind::Ctf => time + 7_000_000_000,
        _ => time,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn times_of_packets_never_change_a_result(
        done in proptest::collection::vec(
            proptest::collection::vec(any::<Done>(), 0..4), 1..12),
        how in proptest::collection::vec(0_u8..8, 12),
        kind in prop_oneof![Just(Kind::IoTrace), Just(Kind::Dft), Just(Kind::Ctf)],
        runs in 0_usize..12,
        query in question(),
        window in proptest::option::of((0_i64..65_000, 0_i64..9_000)),
    ) {
        let request = Request {
            query: Some(Query::parse(&query).unwrap()),
            from: window.map(|(from, _)| at(kind, from)),
            to: window.map(|(from, length)| at(kind, from + length)),
            ..Request::default()
        };
        let [plain, timed] = leaves(&packets(kind, &done), &how, kind, runs);
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

/// The kinds whose packets contain the times of their events.
const KINDS: [Kind; 3] = [Kind::IoTrace, Kind::Dft, Kind::Ctf];

/// Eight packets, a second after another.
fn eight(kind: Kind) -> Vec<Vec<u8>> {
    let packet = |second: u16| vec![(second * 1_000, 10, true); 3];
    packets(kind, &(0..8).map(packet).collect::<Vec<_>>())
}

/// A question for the packets with the numbers 3 and 4 of [`eight`].
fn window(kind: Kind) -> Request {
    Request {
        from: Some(at(kind, 3_000)),
        to: Some(at(kind, 5_000)),
        ..Request::default()
    }
}

#[test]
fn a_window_reads_only_the_packets_in_it() {
    for kind in KINDS {
        let [plain, timed] = leaves(&eight(kind), &[3; 8], kind, 3);
        let request = Request {
            query: Some(Query::parse("name == 'read'").unwrap()),
            ..window(kind)
        };
        let (expected, unpruned) = answers(vec![plain], &request);
        let (found, report) = answers(vec![timed], &request);
        assert_eq!((&found, report.matched), (&expected, 6), "{kind}");
        assert_eq!(
            (report.timed, report.ruled_out_by_time),
            (8, 6),
            "{report:?}"
        );
        assert_eq!(report.counters.decoded.events, 6);
        assert!(report.counters.fetched_bytes < unpruned.counters.fetched_bytes / 2);
    }
}

#[test]
fn packets_with_unknown_times_are_read() {
    for kind in KINDS {
        // Nothing of the second packet's times, and nothing at all of the seventh.
        let how = [3, 1, 3, 3, 3, 3, 0, 3];
        let [_, timed] = leaves(&eight(kind), &how, kind, 7);
        let (_, report) = answers(vec![timed], &window(kind));
        assert_eq!(
            (report.timed, report.ruled_out_by_time),
            (8, 4),
            "{report:?}"
        );
        assert_eq!((report.counters.decoded.events, report.matched), (12, 6));
        // A query without a condition on time requests no packet times.
        let [_, timed] = leaves(&eight(kind), &[3; 8], kind, 1);
        let request = Request {
            query: Some(Query::parse("name == 'read'").unwrap()),
            ..Request::default()
        };
        let (_, report) = answers(vec![timed], &request);
        assert_eq!((report.timed, report.matched), (0, 24));
    }
}

#[test]
fn times_with_another_time_basis_are_not_used() {
    for (kind, left) in [(Kind::IoTrace, 2), (Kind::Dft, 4), (Kind::Ctf, 4)] {
        let how = [2, 3, 3, 2, 2, 3, 3, 2];
        let [plain, timed] = leaves(&eight(kind), &how, kind, 7);
        let (expected, _) = answers(vec![plain], &window(kind));
        let (found, report) = answers(vec![timed], &window(kind));
        assert_eq!(found, expected, "{kind}");
        let read = report.timed - report.ruled_out_by_time;
        assert_eq!((report.timed, read), (8, left), "{report:?}");
    }
}
