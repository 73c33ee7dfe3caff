use uuid::Uuid;

use super::{EventId, FieldType, FieldValue, PacketWriter, Schema, WriteError};
use crate::class::{ClockClass, Scope};
use crate::{EventReader, Plan, Procedure, Value, parse_metadata};

fn schema() -> (Schema, [EventId; 2]) {
    let mut clock = ClockClass::new("monotonic-raw");
    clock.offset_seconds = 1_795_240_026;
    let mut schema = Schema::new(Uuid::from_u128(0x1234), clock);
    schema.environment("domain", "io").unwrap();
    let levels = vec![("low".into(), 0), ("high".into(), 1), ("top".into(), 1)];
    let fields = [
        ("path", FieldType::Text),
        ("bytes", FieldType::Unsigned { bits: 64 }),
        ("flags", FieldType::Hexadecimal { bits: 32 }),
        ("result", FieldType::Signed { bits: 16 }),
        (
            "level",
            FieldType::Enumeration {
                bits: 8,
                labels: levels,
            },
        ),
        ("cached", FieldType::Bool),
        ("seconds", FieldType::Float),
        ("data", FieldType::Bytes),
        ("end", FieldType::Unsigned { bits: 8 }),
    ];
    let read = schema.event("read", fields).unwrap();
    let none = schema
        .event("flush", [("event", FieldType::Unsigned { bits: 8 })])
        .unwrap();
    (schema, [read, none])
}

const VALUES: [FieldValue<'_>; 9] = [
    FieldValue::Text("/var/café"),
    FieldValue::Unsigned(u64::MAX),
    FieldValue::Unsigned(0xdead_beef),
    FieldValue::Signed(-2),
    FieldValue::Unsigned(1),
    FieldValue::Bool(true),
    FieldValue::Float(0.5),
    FieldValue::Bytes(&[1, 2, 3]),
    FieldValue::Unsigned(255),
];

fn packets(schema: &Schema, [read, flush]: [EventId; 2]) -> Vec<u8> {
    let mut writer = PacketWriter::new(schema, 3);
    writer.event(read, 1_000, &VALUES).unwrap();
    writer
        .event(flush, 2_000, &[FieldValue::Unsigned(9)])
        .unwrap();
    let mut data = writer.finish(0);
    writer
        .event(flush, 3_000, &[FieldValue::Unsigned(8)])
        .unwrap();
    data.extend(writer.finish(4));
    data.extend(writer.finish(5));
    data
}

/// The events of `data`, decoded with `metadata`, as text.
fn read_back(metadata: &[u8], data: &[u8]) -> String {
    let procedure = Procedure::new(parse_metadata(metadata).unwrap()).unwrap();
    let plan = Plan::everything(&procedure);
    let mut reader = EventReader::new(&plan, data);
    let mut out = String::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        out += &format!(
            "packet {:?} of stream {:?}, {:?} to {:?}, {:?} lost\n",
            packet.sequence,
            packet.stream_id,
            packet.begin_clock,
            packet.end_clock,
            packet.discarded_events
        );
        while let Some(event) = reader.next_event().unwrap() {
            out += &format!("{} {:?}:", event.name().unwrap(), event.nanoseconds());
            for datum in event.fields(Scope::EventPayload) {
                let name = datum.field.display_name().unwrap_or_default();
                out += &match datum.value {
                    Value::Text(text) => format!(" {name}={}", str::from_utf8(text).unwrap()),
                    Value::Blob(bytes) => format!(" {name}={bytes:?}"),
                    value => format!(" {name}={value:?}"),
                };
            }
            out.push('\n');
        }
    }
    out
}

#[test]
fn written_packets_can_be_read() {
    let (schema, events) = schema();
    let data = packets(&schema, events);
    expect_test::expect![[r#"
        packet Some(0) of stream Some(3), Some(1000) to Some(2000), Some(0) lost
        read Some(1795240026000001000): path=/var/café bytes=Unsigned(18446744073709551615) flags=Unsigned(3735928559) result=Signed(-2) level=Unsigned(1) cached=Bool(true) seconds=Float(0.5) data_length=Unsigned(3) data=[1, 2, 3] end=Unsigned(255)
        flush Some(1795240026000002000): event=Unsigned(9)
        packet Some(1) of stream Some(3), Some(3000) to Some(3000), Some(4) lost
        flush Some(1795240026000003000): event=Unsigned(8)
        packet Some(2) of stream Some(3), Some(3000) to Some(3000), Some(5) lost
    "#]]
    .assert_eq(&read_back(&schema.metadata(), &data));
}

#[test]
fn tsdl_describes_the_same_packets() {
    let (schema, events) = schema();
    let data = packets(&schema, events);
    let by_json = read_back(&schema.metadata(), &data);
    let by_tsdl = read_back(schema.tsdl().as_bytes(), &data);
    // TSDL has neither booleans nor BLOBs.
    let by_tsdl = by_tsdl
        .replace("cached=Unsigned(1)", "cached=Bool(true)")
        .replace(
            "data=ArrayBegin(3) =Unsigned(1) =Unsigned(2) =Unsigned(3) data=ArrayEnd",
            "data=[1, 2, 3]",
        );
    assert_eq!(by_tsdl, by_json);
}

#[test]
fn packets_match_the_schema_in_both_dialects() {
    let (schema, events) = schema();
    let data = packets(&schema, events);
    for metadata in [schema.metadata(), schema.tsdl().into_bytes()] {
        let procedure = Procedure::new(parse_metadata(&metadata).unwrap()).unwrap();
        let plan = Plan::everything(&procedure);
        let mut reader = EventReader::new(&plan, &data);
        let mut count = 0;
        while let Some(packet) = reader.next_packet().unwrap() {
            assert_eq!(packet.uuid, Some(Uuid::from_u128(0x1234)));
            count += 1;
        }
        assert_eq!(count, 3);
    }
}

#[test]
fn invalid_values_are_rejected_without_a_change() {
    let (schema, [read, flush]) = schema();
    let mut writer = PacketWriter::new(&schema, 0);
    let wrong = |values: &[FieldValue<'_>]| PacketWriter::new(&schema, 0).event(flush, 0, values);
    let field = || WriteError::Value {
        field: "event".into(),
    };
    assert_eq!(wrong(&[FieldValue::Unsigned(256)]), Err(field()));
    assert_eq!(wrong(&[FieldValue::Signed(1)]), Err(field()));
    assert_eq!(
        wrong(&[]),
        Err(WriteError::ValueCount {
            given: 0,
            expected: 1
        })
    );
    let mut values = VALUES;
    values[0] = FieldValue::Text("a\0b");
    assert_eq!(
        writer.event(read, 0, &values),
        Err(WriteError::Value {
            field: "path".into()
        })
    );
    assert!(writer.is_empty());
    writer.event(flush, 5, &[FieldValue::Unsigned(1)]).unwrap();
    let late = writer.event(flush, 4, &[FieldValue::Unsigned(1)]);
    assert_eq!(late, Err(WriteError::Time { time: 4, before: 5 }));
    let unknown = writer.event(EventId(9), 6, &[]);
    assert_eq!(unknown, Err(WriteError::UnknownEvent { id: 9 }));
}

#[test]
fn names_that_cannot_be_written_are_rejected() {
    let (mut schema, _) = schema();
    let one = |name| [(name, FieldType::Bool)];
    assert!(matches!(
        schema.event("e", one("a b")),
        Err(WriteError::FieldName { .. })
    ));
    assert!(matches!(
        schema.event("e\"", one("a")),
        Err(WriteError::Quoted { .. })
    ));
    let twice = [("a", FieldType::Bool), ("a", FieldType::Bool)];
    assert!(matches!(
        schema.event("e", twice),
        Err(WriteError::FieldTwice { .. })
    ));
    let odd = [("a", FieldType::Unsigned { bits: 7 })];
    assert_eq!(schema.event("e", odd), Err(WriteError::Bits { bits: 7 }));
}
