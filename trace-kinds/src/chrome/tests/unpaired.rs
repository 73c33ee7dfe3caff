//! Slices have the same durations however their file is cut into packets.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use proptest::prelude::*;
use query_language::{FieldPath, FieldTable, Value};

use crate::Decoder;
use crate::chrome::{
    ChromeDecoder, Durations, MARKS_MAX, OutsideDurations, PacketReader, Unpaired,
};

/// Starts, phases and durations of all events, and the number of begins without an end.
type Slices = (Vec<(Option<i64>, String, Option<i64>)>, u64);

fn packets(trace: &str, target: usize) -> Vec<(u64, Vec<u8>)> {
    let mut reader = PacketReader::new(trace.as_bytes(), target);
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        packets.push((packet.offset, packet.bytes));
    }
    packets
}

/// The durations between packets, of parts of these many packets.
fn durations(packets: &[(u64, Vec<u8>)], of_part: usize) -> Vec<Durations> {
    let mut all = Unpaired::default();
    let parts = packets.chunks(of_part.max(1));
    let count = parts.len();
    for (number, packets) in (0_u32..).zip(parts) {
        let mut part = Unpaired::default();
        for (position, packet) in packets {
            part.add_packet(0, *position, packet);
        }
        let (texts, marks, is_cut) = part.as_parts();
        let again = Unpaired::from_parts(texts.to_vec(), marks.to_vec(), is_cut);
        all.append(number, &again);
    }
    all.durations(count)
}

fn slices(packets: &[(u64, Vec<u8>)], of_part: usize) -> Slices {
    let mut table = FieldTable::new();
    let [phase, dur] = ["ph", "dur"].map(|field| table.insert(&FieldPath::new(field)));
    let mut found = (Vec::new(), 0);
    let parts = packets.chunks(of_part.max(1));
    for (packets, durations) in parts.zip(durations(packets, of_part)) {
        let decoder = ChromeDecoder::new(&table);
        let mut decoder = decoder.with_outside(Some(Arc::new(durations)));
        for (position, packet) in packets {
            decoder.set_position(*position);
            let decoded = decoder.decode(packet, &mut |event| {
                let phase = event.field(phase).map(|phase| match phase {
                    Value::Str(text) => String::from_utf8_lossy(text).into_owned(),
                    other => format!("{other:?}"),
                });
                let duration = event.field(dur).and_then(Value::whole);
                found
                    .0
                    .push((event.ts(), phase.unwrap_or_default(), duration));
                ControlFlow::Continue(())
            });
            decoded.unwrap();
        }
        found.1 += decoder.unpaired();
    }
    found
}

/// An event: time, phase, name or none, thread or id.
fn put(trace: &mut String, (ts, phase, name, own): (usize, &str, Option<&str>, u32)) {
    let name = name
        .map(|name| format!("\"name\":\"{name}\","))
        .unwrap_or_default();
    let own = match phase {
        "b" | "e" => format!("\"id\":\"0x{own}\",\"cat\":\"c\""),
        _ => format!("\"tid\":{own}"),
    };
    let separator = if trace.len() > 1 { ",\n" } else { "" };
    write!(
        trace,
        "{separator}{{{name}\"ph\":\"{phase}\",\"ts\":{ts},\"pid\":1,{own}}}"
    )
    .unwrap();
}

#[test]
fn a_slice_that_ends_in_another_packet_has_its_duration() {
    let mut trace = "[".to_owned();
    put(&mut trace, (0, "B", Some("main"), 1));
    put(&mut trace, (1, "b", Some("request"), 7));
    put(&mut trace, (2, "B", Some("never ends"), 2));
    for ts in 3..100 {
        put(&mut trace, (ts, "i", Some("tick"), 1));
    }
    put(&mut trace, (100, "e", Some("request"), 7));
    put(&mut trace, (101, "E", Some("another"), 1));
    put(&mut trace, (102, "E", None, 1));
    trace.push(']');
    let packets = packets(&trace, 300);
    assert!(packets.len() > 10, "{}", packets.len());
    let (events, unpaired) = slices(&packets, 3);
    let of = |phase: &str| {
        let mut events = events.iter().filter(|(_, found, _)| found == phase);
        events.find_map(|(.., duration)| *duration)
    };
    assert_eq!(
        (of("B"), of("b"), unpaired),
        (Some(102_000), Some(99_000), 1)
    );
}

#[test]
fn slices_do_not_continue_in_the_next_file() {
    let begin = (0, b"[{\"ph\":\"B\",\"ts\":1,\"tid\":1}".to_vec());
    let end = (100, b",{\"ph\":\"E\",\"ts\":3,\"tid\":1}]".to_vec());
    let other = (50, b" [{\"ph\":\"i\",\"ts\":2,\"tid\":1}".to_vec());
    let one_file = slices(&[begin.clone(), end.clone()], 1);
    assert_eq!((one_file.0[0].2, one_file.1), (Some(2_000), 0));
    let two_files = slices(&[begin, other, end], 1);
    assert_eq!((two_files.0[0].2, two_files.1), (None, 1));
}

proptest! {
    #[test]
    fn packets_do_not_change_durations(
        events in prop::collection::vec((0..4_usize, 0..3_usize, 0..3_u32), 1..150),
        target in 50..2000_usize,
        of_part in 1..9_usize,
    ) {
        let mut trace = "[".to_owned();
        for (ts, (phase, name, own)) in events.into_iter().enumerate() {
            let phase = ["B", "E", "b", "e"][phase];
            put(&mut trace, (ts, phase, [None, Some("x"), Some("y")][name], own));
        }
        trace.push(']');
        let whole = slices(&packets(&trace, 1 << 20), 1);
        let cut = slices(&packets(&trace, target), of_part);
        prop_assert_eq!(cut, whole);
    }
}

/// More text than is remembered: nothing behind it is paired, which is said of all that may begin
/// there.
#[test]
fn begins_behind_too_much_text_are_told() {
    let long = "x".repeat(17 << 20);
    let begin = |ts: usize, name: &str| {
        let start = if ts == 0 { '[' } else { ',' };
        format!("{start}{{\"ph\":\"B\",\"ts\":{ts},\"tid\":1,\"name\":\"{name}\"}}").into_bytes()
    };
    let end = |ts| format!(",{{\"ph\":\"E\",\"ts\":{ts},\"tid\":1}}").into_bytes();
    let first = format!("{long}1");
    for (second, is_cut) in [("short".to_owned(), false), (format!("{long}2"), true)] {
        let packets = [begin(0, &first), end(5), begin(10, &second), end(15)];
        let (mut whole, mut in_parts) = (Unpaired::default(), Unpaired::default());
        for (at, packet) in (0_u32..).zip(&packets) {
            whole.add_packet(0, u64::from(at), packet);
            let mut part = Unpaired::default();
            part.add_packet(0, 0, packet);
            in_parts.append(at, &part);
        }
        let [one] = &whole.durations(1)[..] else {
            panic!("there is one part");
        };
        let found = if is_cut { 1 } else { 2 };
        assert_eq!(one.all().len(), found);
        assert_eq!(OutsideDurations::is_cut(one), is_cut);
        assert_eq!(
            (one.unpaired(&(0..1)), one.unpaired(&(1..4)) > 0),
            (0, is_cut)
        );
        let parts = in_parts.durations(4);
        assert!(
            parts
                .iter()
                .all(|part| OutsideDurations::is_cut(part) == is_cut)
        );
        let told = parts.iter().map(|part| part.unpaired(&(0..1)) > 0);
        assert_eq!(told.collect::<Vec<_>>(), [false, is_cut, is_cut, is_cut]);
    }
}

#[test]
fn begins_behind_too_many_marks_are_told() {
    let pair = br#",{"ph":"E","ts":2,"tid":1},{"ph":"B","ts":3,"tid":1}"#;
    let mut few = Unpaired::default();
    for position in 0..1 << 9 {
        few.add_packet(0, position, pair);
    }
    let (mut all, parts) = (Unpaired::default(), MARKS_MAX >> 10);
    for part in 0..parts {
        all.append(u32::try_from(part).unwrap(), &few);
    }
    assert_eq!(all.as_parts().1.len(), MARKS_MAX);
    assert!(!all.as_parts().2, "they are all remembered");
    all.add_packet(u32::try_from(parts).unwrap(), 0, pair);
    assert_eq!(all.as_parts().1.len(), MARKS_MAX);
    assert!(all.as_parts().2);
    // What an index says of a part holds for what follows.
    let cut = Unpaired::from_parts(Vec::new(), Vec::new(), true);
    let mut after = Unpaired::default();
    after.append(0, &cut);
    assert!(after.has_begins() && after.durations(1)[0].unpaired(&(0..1)) > 0);
}

#[test]
fn a_stream_has_more_parts_than_16_bits_count() {
    let begin = br#"[{"ph":"B","ts":1,"pid":1,"tid":1,"name":"main"}"#;
    let end = br#",{"ph":"E","ts":5,"pid":1,"tid":1}"#;
    let parts = 1_usize << 16;
    let mut all = Unpaired::default();
    all.add_packet(0, 0, begin);
    all.add_packet(u32::try_from(parts).unwrap(), 0, end);
    let durations = all.durations(parts + 1);
    assert!(!durations[0].all().is_empty(), "{:?}", durations[0]);
    let mut other = Unpaired::default();
    other.add_packet(u32::try_from(parts).unwrap(), 0, begin);
    other.add_packet(u32::try_from(parts).unwrap(), 9, end);
    let durations = other.durations(parts + 1);
    assert!(durations[0].all().is_empty());
    assert_eq!(durations[parts].all().len(), 1);
}
