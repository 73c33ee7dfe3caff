//! Every fault of packets: both readers report the same fault at the same bit.

use crate::class::ByteOrder;
use crate::{
    DecodeError, DecodeFault, ElementReader, EventReader, Leniency, Plan, Procedure,
    parse_metadata_with,
};

/// TSDL with aliases and the given rest of the `trace` block.
fn tsdl(body: &str) -> String {
    format!(
        "/* CTF 1.8 */
        typealias integer {{ size = 8; }} := u8;
        typealias integer {{ size = 16; align = 8; }} := u16;
        trace {{ major = 1; minor = 8; byte_order = le; {body}"
    )
}

/// One stream class with this packet context, and one event class with these fields.
fn packet(context: &str, fields: &str) -> String {
    tsdl(&format!(
        "}}; stream {{ packet.context := struct {{ {context} }}; }};
        event {{ name = e; fields := struct {{ {fields} }}; }};"
    ))
}

fn elements_fail(procedure: &Procedure, data: &[u8]) -> Option<DecodeError> {
    let mut reader = ElementReader::new(procedure, data);
    loop {
        match reader.next_element() {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(error) => return Some(error),
        }
    }
}

fn events_fail(procedure: &Procedure, data: &[u8]) -> Option<DecodeError> {
    let plan = Plan::nothing(procedure);
    let mut reader = EventReader::new(&plan, data);
    loop {
        match reader.next_packet() {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(error) => return Some(error),
        }
        loop {
            match reader.next_event() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => return Some(error),
            }
        }
    }
}

fn check(metadata: &str, data: &[u8], offset: u64, fault: DecodeFault) {
    let parsed = parse_metadata_with(metadata.as_bytes(), Leniency::Lenient).unwrap();
    let procedure = Procedure::new(parsed.trace).unwrap();
    let expected = Some(DecodeError { offset, fault });
    assert_eq!(elements_fail(&procedure, data), expected, "elements");
    assert_eq!(events_fail(&procedure, data), expected, "events");
}

#[test]
fn unknown_classes() {
    let streams = "packet.header := struct { u8 stream_id; }; };
        stream { id = 1; }; event { name = e; stream_id = 1; fields := struct { u8 x; }; };";
    let fault = DecodeFault::UnknownStreamClass { id: 9 };
    check(&tsdl(streams), &[9, 0], 8, fault);
    let events = "}; stream { event.header := struct { u8 id; }; };
        event { name = a; id = 0; fields := struct { u8 x; }; };
        event { name = b; id = 1; fields := struct { u8 x; }; };";
    let fault = DecodeFault::UnknownEventClass { id: 7 };
    check(&tsdl(events), &[0, 5, 7], 24, fault);
}

#[test]
fn impossible_lengths() {
    let fault = DecodeFault::TotalLengthNotBytes { total: 12 };
    check(&packet("u8 packet_size;", "u8 x;"), &[12, 0], 8, fault);
    let fault = DecodeFault::TotalLengthBelowContent {
        total: 16,
        content: 32,
    };
    let context = "u8 content_size; u8 packet_size;";
    check(&packet(context, "u8 x;"), &[32, 16, 0, 0], 16, fault);
    let fault = DecodeFault::TotalLengthBelowPosition {
        total: 8,
        position: 16,
    };
    check(
        &packet("u8 a; u8 packet_size;", "u8 x;"),
        &[0, 8],
        16,
        fault,
    );
    let fault = DecodeFault::ContentLengthBelowPosition {
        content: 8,
        position: 16,
    };
    let context = "u8 packet_size; u8 content_size;";
    check(
        &packet(context, "u8 x;"),
        &[64, 8, 0, 0, 0, 0, 0, 0],
        16,
        fault,
    );
}

#[test]
fn fields_beyond_the_end() {
    let metadata = packet("u8 packet_size; u8 content_size;", "u16 x;");
    let fault = DecodeFault::BeyondContent {
        needed: 16,
        remaining: 8,
    };
    check(&metadata, &[64, 24, 0, 0, 0, 0, 0, 0], 16, fault);
    let fault = DecodeFault::EndOfData { needed: 16 };
    check(&metadata, &[64, 64, 0], 16, fault);
}

#[test]
fn invalid_fields() {
    let nibble = |order| format!("integer {{ size = 4; align = 1; byte_order = {order}; }}");
    let fields = format!("{} a; {} b;", nibble("le"), nibble("be"));
    let fault = DecodeFault::ByteOrderChange {
        from: ByteOrder::Little,
        to: ByteOrder::Big,
    };
    check(&packet("u8 c;", &fields), &[0, 0], 12, fault);

    let variant = |signed, value| {
        format!(
            "enum : integer {{ size = 8; signed = {signed}; }} {{ a = {value} }} tag;
            variant <tag> {{ u8 a; }} v;"
        )
    };
    let fault = DecodeFault::InvalidUnsignedSelector { value: 5 };
    check(
        &packet("u8 c;", &variant("false", 0)),
        &[0, 5, 0],
        16,
        fault,
    );
    let fault = DecodeFault::InvalidSignedSelector { value: -2 };
    check(
        &packet("u8 c;", &variant("true", -1)),
        &[0, 0xfe, 0],
        16,
        fault,
    );
}

#[test]
fn integers_of_more_than_64_bits() {
    let fragments = [
        r#"{"type":"preamble","version":2}"#,
        r#"{"type":"trace-class"}"#,
        r#"{"type":"data-stream-class"}"#,
        r#"{"type":"event-record-class","payload-field-class":{"type":"structure",
            "member-classes":[{"name":"x",
            "field-class":{"type":"variable-length-unsigned-integer"}}]}}"#,
    ];
    let metadata: String = fragments.map(|text| format!("\u{1e}{text}\n")).concat();
    let mut data = [0xff; 11];
    check(&metadata, &data, 72, DecodeFault::OversizedInteger);
    // The tenth byte may contain only the 64th bit.
    data[9] = 0x02;
    check(&metadata, &data, 72, DecodeFault::OversizedInteger);
}
