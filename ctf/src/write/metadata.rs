//! The metadata of a schema, in both dialects.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{FieldType, Schema};
use crate::class::ClockOrigin;

/// Begins every fragment of a JSON text sequence.
const RECORD_SEPARATOR: u8 = 0x1e;

pub(super) fn json(schema: &Schema) -> Vec<u8> {
    let mut fragments = vec![
        json!({"type": "preamble", "version": 2, "uuid": schema.uuid.as_bytes()}),
        trace_class(schema),
        clock_class(schema),
        stream_class(schema),
    ];
    let events = schema.events.iter().enumerate().map(|(id, event)| {
        let members = event
            .fields
            .iter()
            .flat_map(|(name, field)| json_members(name, field));
        json!({
            "type": "event-record-class",
            "id": id,
            "name": event.name,
            "payload-field-class": structure(members.collect()),
        })
    });
    fragments.extend(events);
    let mut out = Vec::new();
    for fragment in fragments {
        out.push(RECORD_SEPARATOR);
        out.extend_from_slice(fragment.to_string().as_bytes());
        out.push(b'\n');
    }
    out
}

fn trace_class(schema: &Schema) -> Value {
    let header = vec![
        member("magic", unsigned(32, &["packet-magic-number"])),
        member(
            "uuid",
            json!({"type": "static-length-blob", "length": 16, "roles": ["metadata-stream-uuid"]}),
        ),
        member("stream_class_id", unsigned(32, &["data-stream-class-id"])),
        member("stream_id", unsigned(64, &["data-stream-id"])),
    ];
    let environment: Map<String, Value> = schema
        .environment
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let mut class = json!({
        "type": "trace-class",
        "packet-header-field-class": structure(header),
    });
    if !environment.is_empty() {
        class["environment"] = Value::Object(environment);
    }
    class
}

fn clock_class(schema: &Schema) -> Value {
    let clock = &schema.clock;
    let mut class = json!({
        "type": "clock-class",
        "id": clock.id,
        "frequency": clock.frequency,
        "offset-from-origin": {"seconds": clock.offset_seconds, "cycles": clock.offset_cycles},
    });
    let optional = [
        ("name", clock.name.as_deref()),
        ("namespace", clock.namespace.as_deref()),
        ("uid", clock.uid.as_deref()),
        ("description", clock.description.as_deref()),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            class[key] = json!(value);
        }
    }
    if clock.origin == ClockOrigin::UnixEpoch {
        class["origin"] = json!("unix-epoch");
    }
    class
}

fn stream_class(schema: &Schema) -> Value {
    let context = vec![
        member("packet_size", unsigned(64, &["packet-total-length"])),
        member("content_size", unsigned(64, &["packet-content-length"])),
        member(
            "timestamp_begin",
            unsigned(64, &["default-clock-timestamp"]),
        ),
        member(
            "timestamp_end",
            unsigned(64, &["packet-end-default-clock-timestamp"]),
        ),
        member(
            "events_discarded",
            unsigned(64, &["discarded-event-record-counter-snapshot"]),
        ),
        member("packet_seq_num", unsigned(64, &["packet-sequence-number"])),
    ];
    let header = vec![
        member("id", unsigned(16, &["event-record-class-id"])),
        member("timestamp", unsigned(64, &["default-clock-timestamp"])),
    ];
    json!({
        "type": "data-stream-class",
        "id": 0,
        "default-clock-class-id": schema.clock.id,
        "packet-context-field-class": structure(context),
        "event-record-header-field-class": structure(header),
    })
}

fn member(name: &str, class: Value) -> Value {
    json!({"name": name, "field-class": class})
}

fn structure(members: Vec<Value>) -> Value {
    json!({"type": "structure", "minimum-alignment": 8, "member-classes": members})
}

fn fixed(kind: &str, bits: u8) -> Value {
    json!({"type": kind, "length": bits, "alignment": 8, "byte-order": "little-endian"})
}

fn unsigned(bits: u8, roles: &[&str]) -> Value {
    let mut class = fixed("fixed-length-unsigned-integer", bits);
    if !roles.is_empty() {
        class["roles"] = json!(roles);
    }
    class
}

fn json_members(name: &str, field: &FieldType) -> Vec<Value> {
    let class = match field {
        FieldType::Unsigned { bits } => unsigned(*bits, &[]),
        FieldType::Hexadecimal { bits } => {
            let mut class = unsigned(*bits, &[]);
            class["preferred-display-base"] = json!(16);
            class
        }
        FieldType::Enumeration { bits, labels } => {
            let mut class = unsigned(*bits, &[]);
            let mut mappings: Map<String, Value> = Map::new();
            for (label, value) in labels {
                let ranges = mappings.entry(label).or_insert_with(|| json!([]));
                if let Some(ranges) = ranges.as_array_mut() {
                    ranges.push(json!([value, value]));
                }
            }
            if !mappings.is_empty() {
                class["mappings"] = Value::Object(mappings);
            }
            class
        }
        FieldType::Signed { bits } => fixed("fixed-length-signed-integer", *bits),
        FieldType::Bool => fixed("fixed-length-boolean", 8),
        FieldType::Float => fixed("fixed-length-floating-point-number", 64),
        FieldType::Text => json!({"type": "null-terminated-string"}),
        FieldType::Bytes => {
            let length = format!("{name}_length");
            let blob = json!({
                "type": "dynamic-length-blob",
                "length-field-location": {"origin": "event-record-payload", "path": [length]},
            });
            return vec![member(&length, unsigned(32, &[])), member(name, blob)];
        }
    };
    vec![member(name, class)]
}

const TSDL_TYPES: &str = "\
typealias integer { size = 8; align = 8; } := u8;
typealias integer { size = 16; align = 8; } := u16;
typealias integer { size = 32; align = 8; } := u32;
typealias integer { size = 64; align = 8; } := u64;
";

pub(super) fn tsdl(schema: &Schema) -> String {
    let mut out = format!(
        "/* CTF 1.8 */\n\n{TSDL_TYPES}\ntrace {{\n\tmajor = 1;\n\tminor = 8;\n\tuuid = \"{}\";\n\
         \tbyte_order = le;\n\tpacket.header := struct {{\n\t\tu32 magic;\n\t\tu8 uuid[16];\n\
         \t\tu32 stream_id;\n\t\tu64 stream_instance_id;\n\t}};\n}};\n\n",
        schema.uuid
    );
    if !schema.environment.is_empty() {
        out.push_str("env {\n");
        for (key, value) in &schema.environment {
            push(&mut out, format_args!("\t{key} = \"{value}\";\n"));
        }
        out.push_str("};\n\n");
    }
    let clock = tsdl_clock(&mut out, schema);
    push(
        &mut out,
        format_args!(
            "typealias integer {{ size = 64; align = 8; map = clock.{clock}.value; }} := time;\n\n\
             stream {{\n\tid = 0;\n\tpacket.context := struct {{\n\t\tu64 packet_size;\n\
             \t\tu64 content_size;\n\t\ttime timestamp_begin;\n\t\ttime timestamp_end;\n\
             \t\tu64 events_discarded;\n\t\tu64 packet_seq_num;\n\t}};\n\
             \tevent.header := struct {{\n\t\tu16 id;\n\t\ttime timestamp;\n\t}};\n}};\n"
        ),
    );
    for (id, event) in schema.events.iter().enumerate() {
        push(
            &mut out,
            format_args!(
                "\nevent {{\n\tname = \"{}\";\n\tid = {id};\n\tstream_id = 0;\n\
                 \tfields := struct {{\n",
                event.name
            ),
        );
        for (name, field) in &event.fields {
            tsdl_field(&mut out, name, field);
        }
        out.push_str("\t};\n};\n");
    }
    out
}

/// Writes the clock and returns its name in TSDL.
fn tsdl_clock(out: &mut String, schema: &Schema) -> String {
    let clock = &schema.clock;
    let letter = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter
        } else {
            '_'
        }
    };
    let name: String = std::iter::once('c')
        .chain(clock.id.chars().map(letter))
        .collect();
    push(
        out,
        format_args!(
            "clock {{\n\tname = {name};\n\tfreq = {};\n\toffset_s = {};\n\toffset = {};\n\
             \tabsolute = {};\n}};\n\n",
            clock.frequency,
            clock.offset_seconds,
            clock.offset_cycles,
            clock.origin == ClockOrigin::UnixEpoch,
        ),
    );
    name
}

fn tsdl_field(out: &mut String, name: &str, field: &FieldType) {
    // A leading underscore is not part of the display name; with it, no name is a keyword.
    match field {
        FieldType::Unsigned { bits } => push(out, format_args!("\t\tu{bits} _{name};\n")),
        FieldType::Hexadecimal { bits } => push(
            out,
            format_args!("\t\tinteger {{ size = {bits}; align = 8; base = 16; }} _{name};\n"),
        ),
        FieldType::Signed { bits } => push(
            out,
            format_args!("\t\tinteger {{ size = {bits}; align = 8; signed = true; }} _{name};\n"),
        ),
        FieldType::Enumeration { bits, labels } if labels.is_empty() => {
            push(out, format_args!("\t\tu{bits} _{name};\n"));
        }
        FieldType::Enumeration { bits, labels } => {
            push(out, format_args!("\t\tenum : u{bits} {{"));
            for (label, value) in labels {
                push(out, format_args!(" \"{label}\" = {value},"));
            }
            push(out, format_args!(" }} _{name};\n"));
        }
        FieldType::Bool => push(out, format_args!("\t\tu8 _{name};\n")),
        FieldType::Float => push(
            out,
            format_args!(
                "\t\tfloating_point {{ exp_dig = 11; mant_dig = 53; align = 8; }} _{name};\n"
            ),
        ),
        FieldType::Text => push(out, format_args!("\t\tstring _{name};\n")),
        FieldType::Bytes => push(
            out,
            format_args!("\t\tu32 _{name}_length;\n\t\tu8 _{name}[_{name}_length];\n"),
        ),
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text)
        .expect("writing to a string does not fail");
}
