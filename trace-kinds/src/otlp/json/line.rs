//! Requests as JSON, converted from protobuf: the reverse of reading JSON, in one line.

use super::super::schema::Form::{Base64, Bool, Double, Id, List, Number, One, Signed, Text, Time};
use super::super::schema::{Field, Form, Message, REQUEST};
use super::super::wire::{FORMAT, Part, Wire};
use super::base64::to_base64;
use super::is_json;
use crate::DecodeError;

/// Values of attributes nest at most this deep, as in other readers of protobuf.
const DEPTH_MAX: usize = 100;

/// A packet as JSON in one line, without a line end. JSON stays as it was sent, apart from line
/// ends between its tokens. Fields that OpenTelemetry does not define are omitted.
///
/// # Errors
///
/// When the packet is damaged, or its values are nested more than 100 deep.
pub fn to_json_line(packet: &[u8]) -> Result<Vec<u8>, DecodeError> {
    if is_json(packet) {
        // A text of JSON contains no line end as such, so these are between tokens.
        let plain = |byte: &u8| match byte {
            b'\n' | b'\r' => b' ',
            other => *other,
        };
        return Ok(packet.iter().map(plain).collect());
    }
    let mut out = Vec::with_capacity(packet.len() * 2);
    put_message(&mut out, Part::whole(packet), &REQUEST, 0)?;
    Ok(out)
}

fn put_message(
    out: &mut Vec<u8>,
    part: Part<'_>,
    message: &Message,
    depth: usize,
) -> Result<(), DecodeError> {
    if depth > DEPTH_MAX {
        return Err(DecodeError::Damaged {
            format: FORMAT,
            offset: part.base as u64,
            reason: format!("values are nested more than {DEPTH_MAX} deep"),
        });
    }
    let mut found = Vec::new();
    let mut fields = part.fields();
    while let Some(field) = fields.next()? {
        found.push(field);
    }
    out.push(b'{');
    let begin = out.len();
    for Field(number, name, form) in message.0 {
        let of_field = || found.iter().filter(|(found, _)| found == number);
        if let List(element, _) = form {
            let mut parts = of_field()
                .filter_map(|(_, value)| part_of(*value))
                .peekable();
            if parts.peek().is_none() {
                continue;
            }
            put_name(out, name, begin);
            out.push(b'[');
            let first = out.len();
            for part in parts {
                if out.len() > first {
                    out.push(b',');
                }
                put_message(out, part, element, depth + 1)?;
            }
            out.push(b']');
        } else if let Some((_, value)) = of_field().next_back() {
            put_one(out, name, begin, form, *value, depth)?;
        }
    }
    out.push(b'}');
    Ok(())
}

/// A value that occurs once; one of another wire type is not of this field and omitted.
fn put_one(
    out: &mut Vec<u8>,
    name: &str,
    begin: usize,
    form: &Form,
    value: Wire<'_>,
    depth: usize,
) -> Result<(), DecodeError> {
    let text = match (form, value) {
        (One(message), Wire::Bytes(part)) => {
            put_name(out, name, begin);
            return put_message(out, part, message, depth + 1);
        }
        (Text, Wire::Bytes(part)) => quoted(&String::from_utf8_lossy(part.bytes)),
        (Id, Wire::Bytes(part)) => quoted(&hexadecimal(part.bytes)),
        (Base64, Wire::Bytes(part)) => quoted(&to_base64(part.bytes)),
        (Bool, Wire::Varint(bits)) => (bits != 0).to_string(),
        (Number, Wire::Varint(bits)) => bits.to_string(),
        (Number, Wire::Fixed32(bits)) => bits.to_string(),
        (Signed, Wire::Varint(bits)) => quoted(&bits.cast_signed().to_string()),
        (Time, Wire::Fixed64(bits)) => quoted(&bits.to_string()),
        (Double, Wire::Fixed64(bits)) => double(f64::from_bits(bits)),
        _ => return Ok(()),
    };
    put_name(out, name, begin);
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

fn part_of(value: Wire<'_>) -> Option<Part<'_>> {
    match value {
        Wire::Bytes(part) => Some(part),
        _ => None,
    }
}

/// Writes a name; `begin` is where the first name of the object is.
fn put_name(out: &mut Vec<u8>, name: &str, begin: usize) {
    if out.len() > begin {
        out.push(b',');
    }
    out.extend_from_slice(quoted(name).as_bytes());
    out.push(b':');
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn double(value: f64) -> String {
    match serde_json::Number::from_f64(value) {
        Some(number) => number.to_string(),
        None if value.is_nan() => quoted("NaN"),
        None if value > 0.0 => quoted("Infinity"),
        None => quoted("-Infinity"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::field::{any_value, key_value, list, request, resource, spans};
    use crate::otlp::to_protobuf;

    /// Reading the line gives the same request again.
    fn check(json: &str) {
        let packet = to_protobuf(json.as_bytes()).unwrap();
        let line = String::from_utf8(to_json_line(&packet).unwrap()).unwrap();
        assert!(!line.contains('\n'));
        let again = to_protobuf(line.as_bytes()).unwrap();
        assert!(again == packet, "{json}\n{line}");
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&line).unwrap(),
            value
        );
    }

    #[test]
    fn a_request_is_the_same_in_json_and_protobuf() {
        check(r#"{}"#);
        check(r#"{"resourceSpans":[{},{"scopeSpans":[{"spans":[{},{}]}]}]}"#);
        check(
            r#"{"resourceSpans":[{"resource":{"attributes":[
            {"key":"service.name","value":{"stringValue":"a \"b\"\n\u0001é"}},
            {"key":"empty","value":{}},
            {"key":"flag","value":{"boolValue":true}},
            {"key":"count","value":{"intValue":"-9223372036854775808"}},
            {"key":"ratio","value":{"doubleValue":0.1}},
            {"key":"none","value":{"doubleValue":"NaN"}},
            {"key":"most","value":{"doubleValue":"-Infinity"}},
            {"key":"bytes","value":{"bytesValue":"+/8="}},
            {"key":"list","value":{"arrayValue":{"values":[{"intValue":"1"},{}]}}},
            {"key":"map","value":{"kvlistValue":{"values":[{"key":"x","value":{"stringValue":""}}]}}}
            ],"droppedAttributesCount":4294967295},
            "scopeSpans":[{"scope":{"name":"n","version":"v"},"spans":[{
            "traceId":"00ff102030405060708090a0b0c0d0e0","spanId":"0102030405060708",
            "traceState":"a=b","parentSpanId":"ffffffffffffffff","flags":257,"name":"GET /",
            "kind":2,"startTimeUnixNano":"18446744073709551615","endTimeUnixNano":"1",
            "attributes":[{"key":"k","value":{"intValue":"7"}}],"droppedAttributesCount":1,
            "events":[{"timeUnixNano":"5","name":"e","droppedAttributesCount":2}],
            "droppedEventsCount":3,"links":[{"traceId":"01","spanId":"02","flags":1}],
            "droppedLinksCount":4,"status":{"message":"m","code":2}}],"schemaUrl":"s"}],
            "schemaUrl":"t"}]}"#,
        );
    }

    #[test]
    fn json_becomes_one_line() {
        let line = to_json_line(b"{\r\n \"a\": \"b\\n\"\n}").unwrap();
        assert_eq!(line, b"{   \"a\": \"b\\n\" }");
    }

    #[test]
    fn damage_and_deep_values_are_refused() {
        for damaged in [&[0x0a, 5, 1][..], &[0x0b], &[0x0a, 2, 0x0a, 9]] {
            assert!(to_json_line(damaged).is_err(), "{damaged:?}");
        }
        let mut value = Vec::new();
        for _ in 0..300 {
            let mut list = Vec::new();
            crate::protobuf::put_bytes(&mut list, list::VALUES, &value);
            value.clear();
            crate::protobuf::put_bytes(&mut value, any_value::ARRAY, &list);
        }
        let mut attribute = Vec::new();
        crate::protobuf::put_bytes(&mut attribute, key_value::VALUE, &value);
        let mut emitter = Vec::new();
        crate::protobuf::put_bytes(&mut emitter, resource::ATTRIBUTES, &attribute);
        let mut of_resource = Vec::new();
        crate::protobuf::put_bytes(&mut of_resource, spans::EMITTER, &emitter);
        let mut packet = Vec::new();
        crate::protobuf::put_bytes(&mut packet, request::RESOURCE_SPANS, &of_resource);
        assert!(to_json_line(&packet).is_err());
    }
}
