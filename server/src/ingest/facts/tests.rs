//! Facts of real packets, with and without a known preceding packet.

use std::io::Write;
use std::path::Path;

use ctf::{EventReader, Plan, Procedure};
use storage_format::frame::Facts;
use trace_kinds::chrome::ChromeDecoder;
use trace_kinds::dft::TimeUnit;
use trace_kinds::rocksdb::{RocksdbDecoder, TraceKind};

use super::{PacketContent, SpanFields, ctf_facts, dft_facts, span_facts};

#[expect(clippy::disallowed_methods, reason = "a test reads its traces")]
fn data(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    std::fs::read(folder.join(name)).unwrap()
}

fn lttng_plan() -> Plan {
    let metadata = data("lttng/uid/0/64-bit/metadata");
    let trace = ctf::parse_metadata(&metadata).unwrap();
    Plan::nothing(&Procedure::new(trace).unwrap())
}

#[test]
fn packets_of_lttng_have_time_span_count_and_losses() {
    let plan = lttng_plan();
    let stream = data("lttng/uid/0/64-bit/chan_1");
    // Offsets from LTTng's index of this stream.
    let cuts = [0, 16_384, 32_768, 49_152, 61_440];
    let mut before = Some(0);
    let mut all = Vec::new();
    for cut in cuts.windows(2) {
        let content = ctf_facts(&plan, &stream[cut[0]..cut[1]], before);
        before = content.discarded;
        assert_eq!(content.unreadable, 0);
        all.push(content.facts);
    }
    let mut reader = EventReader::new(&plan, &stream);
    let mut events = 0;
    while reader.next_packet().unwrap().is_some() {
        while reader.next_event().unwrap().is_some() {
            events += 1;
        }
    }
    assert_eq!(events, 800);
    assert_eq!(
        all.iter().filter_map(|facts| facts.events).sum::<u32>(),
        events
    );
    // The clock of the trace counts nanoseconds, so time spans are as long as in the index.
    let lengths = [4_242_409, 98_606, 41_131, 203_010_677];
    for (facts, length) in all.iter().zip(lengths) {
        let (begin, end) = facts.time_span.unwrap();
        assert_eq!((end - begin, facts.lost), (length, Some(0)));
    }
    assert!(
        all.windows(2)
            .all(|pair| pair[0].time_span < pair[1].time_span)
    );
}

#[test]
fn losses_need_the_preceding_packet() {
    let plan = lttng_plan();
    let packet = data("lttng/uid/0/64-bit/chan_0");
    for (before, lost) in [(Some(0), Some(0)), (None, None), (Some(7), None)] {
        let facts = ctf_facts(&plan, &packet, before).facts;
        assert_eq!(facts.lost, lost, "{before:?}");
    }
}

#[test]
fn an_invalid_packet_has_the_events_before_the_damage_and_no_other_facts() {
    let plan = lttng_plan();
    let packet = data("lttng/uid/0/64-bit/chan_1");
    let content = |events: u32| PacketContent {
        facts: Facts {
            events: (events > 0).then_some(events),
            has_unreadable: true,
            ..Facts::default()
        },
        unreadable: 1,
        ..PacketContent::default()
    };
    // Its times exceed 64 bits.
    let mut late = packet[49_152..].to_vec();
    late[36..40].copy_from_slice(&[0xfe, 0x5e, 0x34, 0xd1]);
    for (damaged, events) in [
        (&packet[..1000], 12),
        (&packet[1..5000], 0),
        (b"x", 0),
        (&late, 0),
    ] {
        assert_eq!(ctf_facts(&plan, damaged, Some(0)), content(events));
    }
    let fields = SpanFields::default();
    let mut decoder = RocksdbDecoder::new(TraceKind::Io, &fields.table);
    let trace = data("io_small.trace");
    for (damaged, events) in [
        (&trace[..trace.len() - 1], 556),
        (&trace[1..], 0),
        (b"x", 0),
    ] {
        assert_eq!(span_facts(&mut decoder, &fields, damaged), content(events));
    }
}

#[test]
fn records_of_rocksdb_have_time_span_and_count() {
    let fields = SpanFields::default();
    for (kind, name, events) in [
        (TraceKind::Io, "io_small.trace", 557),
        (TraceKind::BlockCache, "bc_small.trace", 1180),
    ] {
        let mut decoder = RocksdbDecoder::new(kind, &fields.table);
        let facts = span_facts(&mut decoder, &fields, &data(name)).facts;
        assert_eq!(facts.events, Some(events), "{name}");
        let (begin, end) = facts.time_span.unwrap();
        // Both were recorded within a minute of 2026-11-21.
        assert!(
            1_795_200_000_000_000_000 < begin && begin < end,
            "{name}: {begin} {end}"
        );
        assert!(end - begin < 60_000_000_000, "{name}: {begin} {end}");
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn lines_of_dftracer_have_time_span_and_count_in_their_unit() {
    const UNIT: &str =
        "{\"name\":\"CM\",\"ph\":4,\"args\":{\"name\":\"time_metric\",\"value\":\"NS\"}}\n";
    const EVENTS: &str = "{\"name\":\"a\",\"ph\":\"X\",\"ts\":50,\"dur\":7,\"args\":{}}\n\
                          {\"name\":\"b\",\"ph\":\"X\",\"ts\":40,\"dur\":30,\"args\":{}}\n";
    const NONSENSE: &str = "nonsense\n";
    let check = |packet: &str, unit, span, events, unit_after| {
        let content = dft_facts(&SpanFields::default(), packet.as_bytes(), unit);
        let facts = content.facts;
        assert_eq!((facts.time_span, facts.events), (span, events), "{packet}");
        assert_eq!(content.unit, unit_after, "{packet}");
        let unreadable = u64::from(packet.ends_with(NONSENSE));
        assert_eq!(content.unreadable, unreadable, "{packet}");
        assert_eq!(facts.has_unreadable, unreadable > 0, "{packet}");
        let basis = unit_after.map(|unit| u32::try_from(unit.nanoseconds()).unwrap());
        assert_eq!(facts.time_basis, basis, "{packet}");
        let compressed = dft_facts(&SpanFields::default(), &gzip(packet), unit);
        assert_eq!(compressed, content, "{packet}");
    };
    let (us, ns) = (Some(TimeUnit::Microsecond), Some(TimeUnit::Nanosecond));
    check(EVENTS, us, Some((40_000, 70_000)), Some(2), us);
    check(EVENTS, ns, Some((40, 70)), Some(2), ns);
    check(EVENTS, None, None, Some(2), None);
    check(&[UNIT, EVENTS].concat(), us, Some((40, 70)), Some(2), ns);
    check(&[EVENTS, UNIT].concat(), None, Some((40, 70)), Some(2), ns);
    check(UNIT, us, None, Some(0), ns);
    check(NONSENSE, us, None, Some(0), us);
    check(
        &[EVENTS, NONSENSE].concat(),
        us,
        Some((40_000, 70_000)),
        Some(2),
        us,
    );
    // A query can match a start that is not a whole number of nanoseconds.
    for odd in ["12.0005", "\"0.5\"", "18446744073709551615"] {
        let line = format!("{{\"name\":\"c\",\"ph\":\"X\",\"ts\":{odd},\"args\":{{}}}}\n");
        check(&[EVENTS, &line].concat(), ns, None, Some(3), ns);
    }
    let content = dft_facts(&SpanFields::default(), &[0x1f, 0x8b, 8], us);
    let facts = content.facts;
    assert_eq!((facts.time_span, facts.events), (None, Some(0)));
    assert_eq!((content.unreadable, content.unit), (1, us));
    // Too long to be inflated on arrival.
    let bomb = gzip(&" ".repeat(40 << 20));
    let content = dft_facts(&SpanFields::default(), &bomb, us);
    let not_read = PacketContent {
        unit: us,
        ..PacketContent::default()
    };
    assert_eq!(content, not_read);
}

#[test]
fn packets_of_chrome_traces_have_time_span_and_count() {
    let check = |packet: &str, span, events, unreadable| {
        let fields = SpanFields::default();
        let mut decoder = ChromeDecoder::new(&fields.table);
        let content = span_facts(&mut decoder, &fields, packet.as_bytes());
        let facts = content.facts;
        assert_eq!((facts.time_span, facts.events), (span, events), "{packet}");
        assert_eq!(content.unreadable, unreadable, "{packet}");
    };
    let begin = "{\"ph\":\"B\",\"ts\":7}";
    let slice = "{\"ph\":\"X\",\"ts\":2.5,\"dur\":3}";
    check(&format!("[{slice}]"), Some((2_500, 5_500)), Some(1), 0);
    check(
        &format!(",{slice},{begin},"),
        Some((2_500, 7_000)),
        Some(2),
        0,
    );
    let end = "{\"ph\":\"E\",\"ts\":9}";
    check(
        &format!("[{begin},{end}]"),
        Some((7_000, 9_000)),
        Some(2),
        0,
    );
    let odd = "{\"ph\":\"X\",\"ts\":\"x\"}";
    check(
        &format!("[{slice},{odd}]"),
        Some((2_500, 5_500)),
        Some(1),
        1,
    );
    check(&format!("[{slice},{{\"ph\""), None, Some(1), 1);
    check("nonsense", None, None, 1);
}
