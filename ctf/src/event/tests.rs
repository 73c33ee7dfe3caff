//! The event reader, compared with the element reader as the reference.

use std::fmt::Write;
use std::path::Path;

use proptest::prelude::*;

use super::{EventReader, Fields, Packet, Plan, Value};
use crate::class::Scope;
use crate::element::{Element, ElementReader, Field};
use crate::{DecodeError, DecodeFault, Leniency, Procedure, parse_metadata, parse_metadata_with};

/// Everything that a reader reports about some data, one item a line.
#[derive(Debug, Default, PartialEq)]
struct Report {
    lines: Vec<String>,
    error: Option<DecodeError>,
}

fn line(field: Field<'_>, what: impl std::fmt::Display) -> String {
    format!("{} {what}", field.id().0)
}

/// The report of an element reader, with at most `lines_max` lines.
fn by_elements(procedure: &Procedure, data: &[u8], lines_max: usize) -> Report {
    let mut story = Report::default();
    let mut reader = ElementReader::new(procedure, data);
    let (mut record, mut text) = (Vec::new(), None::<(Field<'_>, Vec<u8>, bool)>);
    let (mut clock, mut depth, mut root) = (None, 0, false);
    while story.lines.len() < lines_max {
        let element = match reader.next_element() {
            Ok(Some(element)) => *element,
            Ok(None) => return story,
            Err(error) => {
                story.error = Some(error);
                return story;
            }
        };
        match element {
            Element::PacketBegin => clock = None,
            Element::PacketInfo => {
                let info = reader.packet_info();
                story.lines.push(format!("packet {info:?}"));
            }
            Element::RecordBegin => record.clear(),
            Element::EventInfo(class) => {
                record.insert(0, format!("event {:?}", class.map(|c| c.id)))
            }
            Element::RecordEnd => {
                record.insert(1, format!("clock {clock:?}"));
                story.lines.append(&mut record);
            }
            Element::ClockValue(cycles) => clock = Some(cycles),
            Element::ScopeBegin(scope) => {
                record.push(format!("scope {scope:?}"));
                (depth, root) = (0, true);
            }
            Element::StructBegin(field) => {
                if !std::mem::take(&mut root) {
                    record.push(line(field, "{"));
                }
                depth += 1;
            }
            Element::StructEnd(field) => {
                depth -= 1;
                if depth > 0 {
                    record.push(line(field, "}"));
                }
            }
            Element::FixedUnsigned(field, value) | Element::VariableUnsigned(field, value) => {
                record.push(line(field, value));
            }
            Element::FixedSigned(field, value) | Element::VariableSigned(field, value) => {
                record.push(line(field, value));
            }
            Element::FixedBitArray(field, value) => record.push(line(field, format!("b{value}"))),
            Element::FixedBitMap(field, value) => record.push(line(field, format!("m{value}"))),
            Element::FixedBool(field, value) => record.push(line(field, value)),
            Element::FixedFloat(field, value) => record.push(line(field, value.to_bits())),
            Element::NullTerminatedStringBegin(field) => text = Some((field, Vec::new(), true)),
            Element::StaticStringBegin(field, _)
            | Element::DynamicStringBegin(field, _)
            | Element::StaticBlobBegin(field, _)
            | Element::DynamicBlobBegin(field, _) => text = Some((field, Vec::new(), false)),
            Element::RawData(bytes) => {
                if let Some((_, text, _)) = &mut text {
                    text.extend_from_slice(bytes);
                }
            }
            Element::NullTerminatedStringEnd(_)
            | Element::StaticStringEnd(_)
            | Element::DynamicStringEnd(_)
            | Element::StaticBlobEnd(_)
            | Element::DynamicBlobEnd(_) => {
                let (field, mut text, terminated) = text.take().unwrap();
                if let (true, crate::class::FieldKind::NullTerminatedString(encoding)) =
                    (terminated, &field.class().kind)
                {
                    text.truncate(text.len() - encoding.unit_bytes());
                }
                record.push(line(field, format!("{text:?}")));
            }
            Element::StaticArrayBegin(field, count) | Element::DynamicArrayBegin(field, count) => {
                record.push(line(field, format!("[{count}")));
            }
            Element::StaticArrayEnd(field) | Element::DynamicArrayEnd(field) => {
                record.push(line(field, "]"));
            }
            Element::UnsignedVariantBegin(field, value) => {
                record.push(line(field, format!("<{value}")));
            }
            Element::SignedVariantBegin(field, value) => {
                record.push(line(field, format!("<{}", value.cast_unsigned())));
            }
            Element::UnsignedVariantEnd(field) | Element::SignedVariantEnd(field) => {
                record.push(line(field, ">"));
            }
            Element::BoolOptionalBegin(field, is_present)
            | Element::SignedOptionalBegin(field, is_present, _)
            | Element::UnsignedOptionalBegin(field, is_present, _) => {
                record.push(line(field, format!("({is_present}")));
            }
            Element::BoolOptionalEnd(field)
            | Element::SignedOptionalEnd(field)
            | Element::UnsignedOptionalEnd(field) => record.push(line(field, ")")),
            _ => {}
        }
    }
    story
}

fn report(lines: &mut Vec<String>, fields: Fields<'_>) {
    lines.extend(fields.map(|datum| {
        let field = datum.field;
        match datum.value {
            Value::Unsigned(value) => line(field, value),
            Value::Signed(value) => line(field, value),
            Value::Bool(value) => line(field, value),
            Value::Float(value) => line(field, value.to_bits()),
            Value::BitArray(value) => line(field, format!("b{value}")),
            Value::BitMap(value) => line(field, format!("m{value}")),
            Value::Text(bytes) | Value::Blob(bytes) => line(field, format!("{bytes:?}")),
            Value::StructBegin => line(field, "{"),
            Value::StructEnd => line(field, "}"),
            Value::ArrayBegin(count) => line(field, format!("[{count}")),
            Value::ArrayEnd => line(field, "]"),
            Value::VariantBegin { selector, .. } => line(field, format!("<{selector}")),
            Value::VariantEnd => line(field, ">"),
            Value::OptionalBegin(is_present) => line(field, format!("({is_present}")),
            Value::OptionalEnd => line(field, ")"),
        }
    }));
}

fn packet_line(facts: &Packet) -> String {
    let info = crate::PacketInfo {
        total_length: facts.total_length,
        content_length: facts.content_length,
        end_clock: facts.end_clock,
        sequence: facts.sequence,
        discarded_events: facts.discarded_events,
    };
    format!("packet {info:?}")
}

/// The report of an event reader with `plan`.
fn by_events(plan: &Plan, data: &[u8], lines_max: usize) -> Report {
    let mut story = Report::default();
    let mut reader = EventReader::new(plan, data);
    while story.lines.len() < lines_max {
        match reader.next_packet() {
            Ok(Some(facts)) if facts.stream_class.is_some() => {
                story.lines.push(packet_line(facts));
            }
            Ok(Some(_)) => {}
            Ok(None) => return story,
            Err(error) => {
                story.error = Some(error);
                return story;
            }
        }
        loop {
            let event = match reader.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    story.error = Some(error);
                    return story;
                }
            };
            story
                .lines
                .push(format!("event {:?}", Some(event.class().id)));
            story.lines.push(format!("clock {:?}", event.clock()));
            for scope in Scope::ALL {
                if event.has_scope(scope) {
                    story.lines.push(format!("scope {scope:?}"));
                    report(&mut story.lines, event.fields(scope));
                }
            }
            if story.lines.len() > lines_max {
                return story;
            }
        }
    }
    story
}

fn compare(procedure: &Procedure, data: &[u8]) -> Result<(), String> {
    const LINES_MAX: usize = 20_000;
    let elements = by_elements(procedure, data, LINES_MAX * 2);
    let events = by_events(&Plan::everything(procedure), data, LINES_MAX);
    if events.lines.len() > LINES_MAX {
        let lines = events.lines.len();
        return if elements.lines.get(..lines) == Some(&events.lines[..]) {
            Ok(())
        } else {
            Err("a long story differs".into())
        };
    }
    // The elements of a damaged record precede its error, but events are complete or absent; the
    // event reader does not report the scopes of packets.
    let mut wrong = String::new();
    for (number, event) in events.lines.iter().enumerate() {
        if elements.lines.get(number) != Some(event) {
            let found = elements.lines.get(number);
            write!(wrong, "line {number}: elements {found:?}, events {event:?}").unwrap();
            return Err(wrong);
        }
    }
    if elements.lines.len() != events.lines.len() {
        return Err(format!(
            "{} and {} lines",
            elements.lines.len(),
            events.lines.len()
        ));
    }
    if elements.error != events.error {
        return Err(format!(
            "elements {:?}, events {:?}",
            elements.error, events.error
        ));
    }
    Ok(())
}

#[test]
fn both_readers_agree_on_the_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora");
    if !corpus.is_dir() {
        println!("skipped: ../shared/corpora is not here");
        return;
    }
    let mut wrong = Vec::new();
    let mut streams = 0;
    let mut folders = vec![
        corpus.join("ctf/yactfr/iter-data"),
        corpus.join("ctf/babeltrace"),
        corpus.join("ctf/lttng-probe"),
    ];
    while let Some(folder) = folders.pop() {
        let entries: Vec<_> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        folders.extend(entries.iter().filter(|path| path.is_dir()).cloned());
        let Ok(metadata) = std::fs::read(folder.join("metadata")) else {
            continue;
        };
        let Ok(parsed) = parse_metadata_with(&metadata, Leniency::Lenient) else {
            continue;
        };
        let procedure = Procedure::new(parsed.trace).unwrap();
        for path in entries.iter().filter(|path| path.is_file()) {
            if path.file_name().is_some_and(|name| name == "metadata") {
                continue;
            }
            let data = std::fs::read(path).unwrap();
            streams += 1;
            if let Err(difference) = compare(&procedure, &data) {
                wrong.push(format!("{}: {difference}", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {streams} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(streams > 400, "only {streams} streams found");
}

/// Metadata with every kind of field and both byte orders.
const ALL_SHAPES: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; } := u8;
typealias integer { size = 16; align = 8; byte_order = be; } := u16be;
typealias integer { size = 32; align = 32; } := u32;
typealias integer { size = 3; align = 1; signed = true; } := i3;
typealias integer { size = 11; align = 1; byte_order = be; } := u11be;
trace { major = 1; minor = 8; byte_order = le;
    packet.header := struct { u8 stream_id; }; };
clock { name = c; };
typealias integer { size = 16; align = 8; map = clock.c.value; } := stamp;
stream { id = 1;
    packet.context := struct { stamp timestamp_begin; u16be packet_size; u16be content_size; };
    event.header := struct { enum : u8 { a = 0 ... 250, b = 251 ... 255 } id; stamp timestamp;
        variant <id> { struct { u8 x; } a; struct { u32 y; } b; } v; };
    event.context := struct { u8 vpid; integer { size = 8; encoding = UTF8; } name[4]; }; };
event { stream_id = 1; id = 0; name = bits; fields := struct { i3 a; i3 b; i3 many[5]; u8 end; }; };
event { stream_id = 1; id = 1; name = texts; fields := struct { string one; u8 len;
    integer { size = 8; encoding = UTF8; } two[len]; u16be after; }; };
event { stream_id = 1; id = 2; name = nested; fields := struct { u8 len;
    struct { u8 n; u16be all[n]; struct { string s; } inner; } each[len]; u32 aligned; }; };
event { stream_id = 1; id = 3; name = mixed; fields := struct { u11be a; i3 b; u8 c; u11be d; }; };
event { stream_id = 1; id = 4; name = floats; fields := struct {
    floating_point { exp_dig = 8; mant_dig = 24; align = 8; } f;
    floating_point { exp_dig = 11; mant_dig = 53; align = 64; } d; u8 rows[2][3]; }; };
stream { id = 2; packet.context := struct { u8 packet_size; }; };
event { stream_id = 2; id = 0; name = odd; fields := struct { u11be list[3]; u8 t; u11be n; }; };
"#;

fn all_shapes() -> Procedure {
    Procedure::new(parse_metadata(ALL_SHAPES.as_bytes()).unwrap()).unwrap()
}

/// Bytes that often are valid packets of [`ALL_SHAPES`].
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let body = prop::collection::vec(prop_oneof![0..6_u8, any::<u8>()], 0..120);
    let padding = 0..4_usize;
    let packet =
        (body, padding, any::<[u8; 2]>(), 0..40_u8).prop_map(|(body, padding, at, kind)| {
            let content = (u16::try_from(body.len()).unwrap() + 7) * 8;
            let total = content + u16::try_from(padding).unwrap() * 8;
            let mut packet = vec![if kind == 0 { 2 } else { 1 }];
            packet.extend_from_slice(&at);
            packet.extend_from_slice(&total.to_be_bytes());
            packet.extend_from_slice(&content.to_be_bytes());
            packet.extend_from_slice(&body);
            packet.resize(packet.len() + padding, 0xee);
            packet
        });
    prop::collection::vec(packet, 1..4).prop_map(|packets| packets.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn both_readers_agree_on_damaged_packets(data in packets(), cut in any::<u16>()) {
        let procedure = all_shapes();
        let cut = usize::from(cut) % (data.len() + 1);
        for data in [&data[..], &data[..cut], &data[cut..]] {
            let same = compare(&procedure, data);
            prop_assert!(same.is_ok(), "{}", same.unwrap_err());
        }
    }

    #[test]
    fn a_projection_finds_the_same_events(data in packets()) {
        let procedure = all_shapes();
        let plans = [
            Plan::nothing(&procedure),
            Plan::new(&procedure, |field| field.path.last() == Some(&"len")),
            Plan::everything(&procedure),
        ];
        let found = plans.each_ref().map(|plan| headlines(plan, &data));
        prop_assert_eq!(&found[0], &found[1]);
        prop_assert_eq!(&found[0], &found[2]);
    }
}

/// The event records from the position of the reader to the end of the packet.
fn rest_of_packet(reader: &mut EventReader<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    while let Ok(Some(event)) = reader.next_event() {
        lines.push(format!("{:?} {:?}", event.name(), event.clock()));
        report(&mut lines, event.all_fields());
    }
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn positions_between_event_records_can_be_restored(data in packets()) {
        let procedure = all_shapes();
        let plan = Plan::everything(&procedure);
        let mut reader = EventReader::new(&plan, &data);
        while let Ok(Some(facts)) = reader.next_packet() {
            let packet = facts.offset;
            let mut places = vec![reader.position().unwrap()];
            while let Ok(Some(_)) = reader.next_event() {
                places.extend(reader.position());
            }
            prop_assert_eq!(reader.position(), None);
            for place in &places {
                prop_assert_eq!(place.packet_offset(), packet);
                // A new reader, and one at another position.
                let mut other = EventReader::new(&plan, &data);
                other.restore(place).unwrap();
                prop_assert_eq!(other.position(), Some(place.clone()));
                let rest = rest_of_packet(&mut other);
                other.restore(place).unwrap();
                prop_assert_eq!(rest_of_packet(&mut other), rest);
            }
            // The first position gives all event records, each later one a suffix of them.
            let mut whole = reader.clone();
            whole.restore(&places[0]).unwrap();
            let whole = rest_of_packet(&mut whole);
            for place in &places {
                let mut other = reader.clone();
                other.restore(place).unwrap();
                prop_assert!(whole.ends_with(&rest_of_packet(&mut other)));
            }
        }
    }

    #[test]
    fn octets_are_the_elements(data in packets()) {
        let procedure = all_shapes();
        let plan = Plan::everything(&procedure);
        let mut reader = EventReader::new(&plan, &data);
        while let Ok(Some(_)) = reader.next_packet() {
            while let Ok(Some(event)) = reader.next_event() {
                let mut fields = event.all_fields();
                while fields.next().is_some() {
                    let mut same = fields.clone();
                    let Some(octets) = fields.take_octets() else { continue };
                    for octet in octets {
                        let value = same.next().map(|datum| datum.value);
                        prop_assert_eq!(value, Some(Value::Unsigned((*octet).into())));
                    }
                    let ends = (same.next(), fields.next());
                    let ends = (ends.0.map(|end| end.value), ends.1.map(|end| end.value));
                    prop_assert_eq!(ends, (Some(Value::ArrayEnd), Some(Value::ArrayEnd)));
                }
            }
        }
    }
}

/// Class, time and offset of every event record, and how reading ended.
fn headlines(plan: &Plan, data: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = EventReader::new(plan, data);
    loop {
        match reader.next_packet() {
            Ok(Some(facts)) => found.push(packet_line(facts)),
            Ok(None) => return found,
            Err(error) => found.push(error.to_string()),
        }
        loop {
            match reader.next_event() {
                Ok(Some(event)) => {
                    found.push(format!(
                        "{:?} {:?} {}",
                        event.name(),
                        event.clock(),
                        event.offset()
                    ));
                }
                Ok(None) => break,
                Err(error) => found.push(format!("{error} {:?}", reader.lost())),
            }
        }
    }
}

/// Two packets of the class [`ALL_SHAPES`]; the first one has an event record of an unknown class.
fn damaged() -> Vec<u8> {
    let good = [1, 0, 0, b'p', b'r', b'o', b'c', b'x', 0, 0, 0, 9];
    let header = |length: u16| {
        let bits = (length * 8).to_be_bytes();
        [1, 7, 0, bits[0], bits[1], bits[0], bits[1]]
    };
    let mut event = vec![1, 5, 0, 3, 42];
    event.extend_from_slice(&good[3..7]);
    event.extend_from_slice(b"hi\0\x02ab\x01\x02");
    let mut data = header(7 + u16::try_from(event.len()).unwrap() + 5).to_vec();
    data.extend_from_slice(&event);
    data.extend_from_slice(&[99, 1, 1, 1, 1]);
    data.extend_from_slice(&header(7 + u16::try_from(event.len()).unwrap()));
    data.extend_from_slice(&event);
    data
}

#[test]
fn reading_continues_after_a_damaged_packet() {
    let procedure = all_shapes();
    let plan = Plan::everything(&procedure);
    let data = damaged();
    let mut reader = EventReader::new(&plan, &data);
    assert_eq!(reader.next_packet().unwrap().unwrap().bytes, 29);
    assert_eq!(reader.next_event().unwrap().unwrap().name(), Some("texts"));
    let error = reader.next_event().unwrap_err();
    assert_eq!(error.fault, DecodeFault::UnknownEventClass { id: 99 });
    let lost = reader.lost().unwrap();
    assert_eq!((lost.packet, lost.from, lost.to), (0, 24 * 8, 29 * 8));
    assert!(reader.next_event().unwrap().is_none());
    assert_eq!(reader.next_packet().unwrap().unwrap().offset, 29);
    assert!(reader.next_event().unwrap().is_some());
    assert_eq!(reader.lost(), None);
    assert!(reader.next_packet().unwrap().is_none());
}

#[test]
fn a_projection_decodes_the_selected_fields() {
    let procedure = all_shapes();
    let plan = Plan::new(&procedure, |field| {
        field.scope == Scope::EventPayload && field.path == ["two"]
    });
    let data = damaged();
    let mut reader = EventReader::new(&plan, &data);
    reader.next_packet().unwrap();
    let event = reader.next_event().unwrap().unwrap();
    let found: Vec<_> = (event.all_fields())
        .map(|datum| (datum.field.name(), datum.text().map(<[u8]>::to_vec)))
        .collect();
    assert_eq!(found, [(Some("two"), Some(b"ab".to_vec()))]);
    // 16 bits that are less than those of the packet wrapped around once.
    assert_eq!(event.clock(), Some(65_536 + 5));
}
