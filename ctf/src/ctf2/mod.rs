//! CTF 2 metadata: a JSON text sequence (RFC 7464) of fragments.

mod fields;
mod json;
mod names;
mod object;

use crate::class::{
    BuildError, ClockClass, ClockOrigin, EnvironmentValue, EventClass, FIELD_COUNT_BASE,
    FIELD_DEPTH_MAX, LOG_LEVELS, MajorVersion, PLAIN_DEPTH_MAX, StreamClass, Subject, TraceClass,
    TraceClassBuilder, Value,
};
use crate::deep_stack::run_deep;
use crate::integer::low_u8;
use crate::metadata::error::RECORD_SEPARATOR;
use fields::Fields;
use json::{Json, JsonValue, fault};
use object::{COMMON, Object};
use uuid::Uuid;

const IDENTITY: [&str; 3] = ["namespace", "name", "uid"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fragment {
    Preamble,
    Alias,
    Trace,
    Clock,
    Stream,
    Event,
}

const FRAGMENTS: [(&str, Fragment); 6] = [
    ("clock-class", Fragment::Clock),
    ("data-stream-class", Fragment::Stream),
    ("event-record-class", Fragment::Event),
    ("field-class-alias", Fragment::Alias),
    ("preamble", Fragment::Preamble),
    ("trace-class", Fragment::Trace),
];

/// Namespace of the attributes of event classes that Babeltrace defines.
const BABELTRACE_NAMESPACE: &str = "babeltrace.org,2020";

/// Parses `text`; one that nests deeply again, on a larger stack. Warnings are pairs of byte offset
/// and message.
pub(crate) fn parse(text: &[u8]) -> Result<(TraceClass, Vec<(u32, String)>), BuildError> {
    match parse_within(text, PLAIN_DEPTH_MAX) {
        Err(error) if error.is_too_deep => {
            let parse = || parse_within(text, FIELD_DEPTH_MAX);
            run_deep(FIELD_DEPTH_MAX, parse).unwrap_or(Err(error))
        }
        parsed => parsed,
    }
}

fn parse_within(
    text: &[u8],
    depth_max: u32,
) -> Result<(TraceClass, Vec<(u32, String)>), BuildError> {
    let mut builder = TraceClassBuilder::new(MajorVersion::V2);
    builder.depth_max = depth_max;
    builder.limit_fields(FIELD_COUNT_BASE.saturating_add(text.len()));
    let mut parser = Parser {
        fields: Fields::new(builder),
        is_first: true,
        trace: None,
    };
    let mut start = 0;
    while start < text.len() {
        if text[start] == RECORD_SEPARATOR {
            start += 1;
            continue;
        }
        let length = text[start..]
            .iter()
            .position(|byte| *byte == RECORD_SEPARATOR);
        let end = length.map_or(text.len(), |length| start + length);
        parser.fragment(&json::read(text, start, end, depth_max)?)?;
        start = end;
    }
    if parser.trace.is_none() {
        return Err(BuildError::new(Subject::Whole, "missing trace class"));
    }
    Ok((parser.fields.builder.build()?, Vec::new()))
}

/// How the trace class was introduced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trace {
    /// By a fragment that requires one.
    Implicit,
    /// By a trace class fragment.
    Explicit,
}

struct Parser {
    fields: Fields,
    is_first: bool,
    trace: Option<Trace>,
}

impl Parser {
    fn fragment(&mut self, json: &Json) -> Result<(), BuildError> {
        let object = Object::any(json)?;
        let kind = object::choice(object.required("type")?, &FRAGMENTS)?;
        let is_first = std::mem::replace(&mut self.is_first, false);
        if is_first != (kind == Fragment::Preamble) {
            return fault(
                json.at,
                "the first fragment must be the preamble, and no other fragment can be one",
            );
        }
        let result = match kind {
            Fragment::Preamble => self.preamble(object),
            Fragment::Alias => self.alias(object),
            Fragment::Trace => self.trace(object),
            Fragment::Clock => self.clock(object),
            Fragment::Stream => self.stream(object),
            Fragment::Event => self.event(object),
        };
        result.map_err(|error| {
            let name = FRAGMENTS
                .iter()
                .find(|(_, k)| *k == kind)
                .map_or("", |(name, _)| name);
            error.within(Subject::Origin(json.at), format!("in the {name} fragment"))
        })
    }

    fn preamble(&mut self, object: Object<'_>) -> Result<(), BuildError> {
        object.check(&["version"], &[&COMMON, &["uuid"]])?;
        let version = object.required("version")?;
        if object::unsigned(version)? != 2 {
            return fault(version.at, "unsupported version: expecting 2");
        }
        if let Some(json) = object.get("uuid") {
            let values = object::array(json)?;
            let bytes = values
                .iter()
                .map(|value| object::within(value, 0, 255).map(low_u8));
            let bytes = bytes.collect::<Result<Vec<u8>, _>>()?;
            let Ok(uuid) = Uuid::from_slice(&bytes) else {
                return fault(json.at, "expecting 16 bytes");
            };
            self.fields.builder.uuid = Some(uuid);
        }
        Ok(())
    }

    fn alias(&mut self, object: Object<'_>) -> Result<(), BuildError> {
        object.check(&["name", "field-class"], &[&COMMON])?;
        object::string(object.required("name")?)?;
        let class = self.fields.class(object.required("field-class")?)?;
        self.fields.declare(object.required("name")?, class)
    }

    fn trace(&mut self, object: Object<'_>) -> Result<(), BuildError> {
        let optional = ["packet-header-field-class", "environment"];
        object.check(&[], &[&COMMON, &IDENTITY, &optional])?;
        let is_late = self.fields.builder.has_any_stream();
        if self.trace == Some(Trace::Explicit) || is_late {
            return fault(
                object.at,
                "the trace class must be unique and precede all stream classes",
            );
        }
        self.trace = Some(Trace::Explicit);
        if let Some(json) = object.get("environment") {
            for (key, value) in Object::any(json)?.entries() {
                let entry = environment_entry(value)?;
                self.fields
                    .builder
                    .environment
                    .push((key.as_str().into(), entry));
            }
        }
        let header = self.fields.scope(object, "packet-header-field-class")?;
        self.fields.builder.packet_header = header;
        self.fields.builder.identity = object.identity()?;
        self.fields.builder.attributes = object.attributes()?;
        Ok(())
    }

    fn clock(&mut self, object: Object<'_>) -> Result<(), BuildError> {
        let optional = [
            "description",
            "origin",
            "offset-from-origin",
            "precision",
            "accuracy",
        ];
        object.check(&["id", "frequency"], &[&COMMON, &IDENTITY, &optional])?;
        self.trace.get_or_insert(Trace::Implicit);
        let id = object::string(object.required("id")?)?;
        let mut clock = ClockClass::new(id);
        let identity = object.identity()?;
        clock.namespace = identity.namespace;
        clock.name = identity.name;
        clock.uid = identity.uid;
        clock.frequency = object::within(object.required("frequency")?, 1, u64::MAX)?;
        clock.description = object.string("description")?.map(Into::into);
        clock.precision = object.unsigned("precision")?;
        clock.accuracy = object.unsigned("accuracy")?;
        clock.origin = object
            .get("origin")
            .map_or(Ok(ClockOrigin::Unknown), clock_origin)?;
        clock.attributes = object.attributes()?;
        if let Some(json) = object.get("offset-from-origin") {
            clock_offset(&mut clock, json)?;
        }
        if self.fields.builder.find_clock(id).is_some() {
            return fault(object.at, format!("duplicate clock class `{id}`"));
        }
        self.fields.builder.add_clock(clock);
        Ok(())
    }

    fn stream(&mut self, object: Object<'_>) -> Result<(), BuildError> {
        let optional = [
            "id",
            "default-clock-class-id",
            "packet-context-field-class",
            "event-record-header-field-class",
            "event-record-common-context-field-class",
        ];
        object.check(&[], &[&COMMON, &IDENTITY, &optional])?;
        self.trace.get_or_insert(Trace::Implicit);
        let id = object.unsigned("id")?.unwrap_or(0);
        if self.fields.builder.has_stream(id) {
            return fault(object.at, format!("duplicate stream class with id {id}"));
        }
        let mut stream = StreamClass::new(id);
        if let Some(json) = object.get("default-clock-class-id") {
            let clock = object::string(json)?;
            stream.default_clock = self.fields.builder.find_clock(clock);
            if stream.default_clock.is_none() {
                return fault(json.at, format!("there is no clock class `{clock}`"));
            }
        }
        stream.identity = object.identity()?;
        stream.attributes = object.attributes()?;
        let fields = &mut self.fields;
        stream.packet_context = fields.scope(object, "packet-context-field-class")?;
        stream.event_header = fields.scope(object, "event-record-header-field-class")?;
        stream.event_common_context =
            fields.scope(object, "event-record-common-context-field-class")?;
        if fields.builder.add_stream(stream) {
            return Ok(());
        }
        fault(object.at, format!("duplicate stream class with id {id}"))
    }

    fn event(&mut self, object: Object<'_>) -> Result<(), BuildError> {
        let optional = [
            "id",
            "data-stream-class-id",
            "specific-context-field-class",
            "payload-field-class",
        ];
        object.check(&[], &[&COMMON, &IDENTITY, &optional])?;
        self.trace.get_or_insert(Trace::Implicit);
        let at = |key: &str| object.get(key).map_or(object.at, |json| json.at);
        let stream = object.unsigned("data-stream-class-id")?.unwrap_or(0);
        let mut event = EventClass::new(object.unsigned("id")?.unwrap_or(0), None);
        event.identity = object.identity()?;
        event.attributes = object.attributes()?;
        event.specific_context = self.fields.scope(object, "specific-context-field-class")?;
        event.payload = self.fields.scope(object, "payload-field-class")?;
        if let Some(attributes) = event.attributes.get(BABELTRACE_NAMESPACE) {
            event.emf_uri = attributes
                .get("emf-uri")
                .and_then(Value::as_str)
                .map(Into::into);
            let level = attributes.get("log-level").and_then(Value::as_str);
            let index = level.and_then(|name| LOG_LEVELS.iter().position(|known| *known == name));
            event.log_level = index.and_then(|index| i64::try_from(index).ok());
        }
        if !self.fields.builder.has_stream(stream) {
            let message = format!("there is no stream class with id {stream}");
            return fault(at("data-stream-class-id"), message);
        }
        let id = event.id;
        if self.fields.builder.add_event(stream, event, object.at) {
            return Ok(());
        }
        fault(
            at("id"),
            format!("duplicate event class with id {id} in stream class {stream}"),
        )
    }
}

fn environment_entry(json: &Json) -> Result<EnvironmentValue, BuildError> {
    match &json.value {
        JsonValue::String(text) => Ok(EnvironmentValue::String(text.as_str().into())),
        JsonValue::Integer(_) => object::signed(json).map(EnvironmentValue::Integer),
        _ => fault(json.at, "expecting an integer or a string"),
    }
}

fn clock_origin(json: &Json) -> Result<ClockOrigin, BuildError> {
    if let JsonValue::String(text) = &json.value {
        if text == "unix-epoch" {
            return Ok(ClockOrigin::UnixEpoch);
        }
        return fault(json.at, "expecting `unix-epoch` or an object");
    }
    let object = Object::new(json, &["name", "uid"], &[&["namespace"]])?;
    Ok(ClockOrigin::Custom {
        namespace: object.string("namespace")?.map(Into::into),
        name: object.string("name")?.unwrap_or_default().into(),
        uid: object.string("uid")?.unwrap_or_default().into(),
    })
}

fn clock_offset(clock: &mut ClockClass, json: &Json) -> Result<(), BuildError> {
    let object = Object::new(json, &[], &[&["seconds", "cycles"]])?;
    clock.offset_seconds = object.get("seconds").map_or(Ok(0), object::signed)?;
    if let Some(json) = object.get("cycles") {
        clock.offset_cycles = object::unsigned(json)?;
        if clock.offset_cycles >= clock.frequency {
            return fault(
                json.at,
                "the cycles of the offset must be less than a second",
            );
        }
    }
    Ok(())
}
