//! Totals of groups of spans and events, period by period.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;

use chunk_index::Sketch;
use query_language::{FieldId, FieldPath, FieldTable, Number, Value};
use storage_format::{AgentId, Kind, StreamId};
use trace_kinds::otlp::{
    Attribute, Emitter, NewValue, SpanWriter, add_resource_attribute, attribute_message,
    each_resource_attribute, scope_named,
};
use trace_kinds::{Event, decoder_for};

use crate::invocation::{Member, SharedSource};
use crate::outbox::Outbox;
use crate::packet::{Derived, Packet};
use crate::processor::{Item, Processor};

/// Longest part of a name or an attribute in the key of a group, bytes.
const TEXT_BYTES_MAX: usize = 1024;
/// A group is written this long after its period, ns; spans of the period that arrive until then
/// count.
const GRACE_NS: i64 = 2_000_000_000;
/// Agents and streams that are remembered; at the limit their groups are written.
const HOMES_MAX: usize = 4096;
/// Code of the status `error`.
const STATUS_ERROR: u64 = 2;

/// Writes count, sum, minimum, maximum, exclusive time and a quantile sketch of the durations of
/// each group: agent, stream, period, name and chosen attributes.
pub(super) struct Aggregator {
    period_ns: i64,
    wanted: Vec<FieldPath>,
    groups_max: usize,
    homes: Vec<Home>,
    groups: HashMap<Box<[u8]>, Group>,
    /// Keys in the order in which their groups were opened.
    order: VecDeque<Box<[u8]>>,
    /// Memory of the groups.
    bytes: usize,
    scope: Vec<u8>,
    key: Vec<u8>,
    fields: EventFields,
}

/// The origins of the spans of groups.
struct Home {
    agent: AgentId,
    stream: StreamId,
    resource: Vec<u8>,
}

struct Group {
    opened: i64,
    count: u64,
    errors: u64,
    sum: u128,
    min: u64,
    max: u64,
    exclusive: Option<u128>,
    sketch: Sketch,
}

/// Memory of a group without its sketch: its key is in two places.
fn group_bytes(key: &[u8]) -> usize {
    /// Entries of a map and a list.
    const BESIDES: usize = 64;
    2 * key.len() + size_of::<Group>() + BESIDES
}

/// The fields of events of other kinds.
struct EventFields {
    table: FieldTable,
    name: FieldId,
    duration: FieldId,
    wanted: Vec<FieldId>,
}

impl EventFields {
    fn new(wanted: &[FieldPath]) -> Self {
        let mut table = FieldTable::new();
        Self {
            name: table.insert(&FieldPath::new("name")),
            duration: table.insert(&FieldPath::new("dur")),
            wanted: wanted.iter().map(|path| table.insert(path)).collect(),
            table,
        }
    }
}

/// One span or event as a group counts it.
struct Sample<'a> {
    name: &'a [u8],
    start: i64,
    dur: u64,
    exclusive: Option<u64>,
    is_error: bool,
}

impl Aggregator {
    pub(super) fn new(period_seconds: u32, attributes: &[String], groups_max: u32) -> Self {
        let wanted: Vec<_> = attributes.iter().map(|text| FieldPath::new(text)).collect();
        Self {
            period_ns: i64::from(period_seconds) * 1_000_000_000,
            fields: EventFields::new(&wanted),
            wanted,
            groups_max: usize::try_from(groups_max).unwrap_or(usize::MAX),
            homes: Vec::new(),
            groups: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            scope: scope_named("tracehold.aggregator"),
            key: Vec::new(),
        }
    }

    fn home(
        &mut self,
        agent: &AgentId,
        stream: &StreamId,
        resource: Option<&SharedSource>,
        out: &mut Outbox,
    ) -> usize {
        let is_it = |home: &Home| home.agent == *agent && home.stream == *stream;
        if let Some(at) = self.homes.iter().position(is_it) {
            return at;
        }
        if self.homes.len() >= HOMES_MAX {
            self.write_where(out, |_| true);
            self.homes.clear();
        }
        let resource = match resource {
            Some(resource) => resource.marked(Derived::Aggregate).message.into_owned(),
            None => {
                let mut resource = Vec::new();
                let mark = Derived::Aggregate.as_str();
                add_resource_attribute(&mut resource, "tracehold.derived", mark);
                resource
            }
        };
        self.homes.push(Home {
            agent: agent.clone(),
            stream: stream.clone(),
            resource,
        });
        self.homes.len() - 1
    }

    /// Begins the key of a group: home, period, name. Attributes follow.
    fn begin_key(&mut self, home: usize, sample: &Sample<'_>) {
        let period = sample.start.div_euclid(self.period_ns);
        let name = &sample.name[..sample.name.len().min(TEXT_BYTES_MAX)];
        self.key.clear();
        self.key.extend_from_slice(
            &u32::try_from(home)
                .expect("homes are bounded")
                .to_le_bytes(),
        );
        self.key.extend_from_slice(&period.to_le_bytes());
        put_text(&mut self.key, name);
    }

    fn count(&mut self, sample: &Sample<'_>, out: &mut Outbox) {
        let group = match self.groups.get_mut(&self.key[..]) {
            Some(group) => group,
            None => {
                while self.groups.len() >= self.groups_max {
                    self.write_oldest(out);
                }
                let key: Box<[u8]> = self.key.as_slice().into();
                self.order.push_back(key.clone());
                self.bytes += group_bytes(&key);
                self.groups.entry(key).or_insert(Group {
                    opened: out.now(),
                    count: 0,
                    errors: 0,
                    sum: 0,
                    min: u64::MAX,
                    max: 0,
                    exclusive: None,
                    sketch: Sketch::default(),
                })
            }
        };
        group.count += 1;
        group.errors += u64::from(sample.is_error);
        group.sum += u128::from(sample.dur);
        group.min = group.min.min(sample.dur);
        group.max = group.max.max(sample.dur);
        if let Some(exclusive) = sample.exclusive {
            *group.exclusive.get_or_insert(0) += u128::from(exclusive);
        }
        let before = group.sketch.memory();
        group
            .sketch
            .add(i64::try_from(sample.dur).unwrap_or(i64::MAX));
        self.bytes += group.sketch.memory().saturating_sub(before);
    }

    fn count_member(&mut self, home: usize, member: &Member<'_>, out: &mut Outbox) {
        let span = &member.span;
        let sample = Sample {
            name: span.name,
            start: span.ts().unwrap_or(0),
            dur: span.dur().unwrap_or(0),
            exclusive: Some(member.exclusive),
            is_error: span.status == STATUS_ERROR,
        };
        self.begin_key(home, &sample);
        for path in &self.wanted {
            let key = &mut self.key;
            let at = key.len();
            put_text(key, &[]);
            let mut take = |attribute: Attribute<'_>, name: &str| {
                if attribute.key == name.as_bytes() {
                    key.truncate(at);
                    let message = attribute.message();
                    put_text(key, &message[..message.len().min(TEXT_BYTES_MAX)]);
                }
            };
            // Damaged spans were refused on arrival.
            let _ = match (path.argument(), path.as_str().strip_prefix("ctx.")) {
                (Some(name), _) => span.each_attribute(&mut |attribute| take(attribute, name)),
                (None, Some(name)) => {
                    let resource = member.resource.plain();
                    each_resource_attribute(&resource.message, &mut |attribute| {
                        take(attribute, name);
                    })
                }
                (None, None) => Ok(()),
            };
        }
        self.count(&sample, out);
    }

    fn count_packet(&mut self, packet: &Packet, out: &mut Outbox) {
        let table = self.fields.table.clone();
        let Ok(Some(mut decoder)) = decoder_for(packet.kind, &packet.context, &table) else {
            return;
        };
        let home = self.home(&packet.agent, &packet.stream, None, out);
        let decoded = decoder.decode(&packet.payload, &mut |event| {
            self.count_event(home, event, out);
            ControlFlow::Continue(())
        });
        // Events that precede damage are counted; a saver writes the packet itself.
        drop(decoded);
    }

    fn count_event(&mut self, home: usize, event: &dyn Event, out: &mut Outbox) {
        let dur = event
            .field(self.fields.duration)
            .and_then(|dur| dur.as_number());
        let sample = Sample {
            name: match event.field(self.fields.name) {
                Some(Value::Str(name)) => name,
                _ => b"",
            },
            start: event.ts().unwrap_or(0),
            dur: match dur {
                Some(Number::Int(ns)) => u64::try_from(ns).unwrap_or(0),
                Some(Number::Float(ns)) => saturating_nanos(ns),
                _ => 0,
            },
            exclusive: None,
            is_error: false,
        };
        self.begin_key(home, &sample);
        for at in 0..self.wanted.len() {
            let value = event
                .field(self.fields.wanted[at])
                .map(|value| match value {
                    Value::Str(text) => NewValue::Text(&text[..text.len().min(TEXT_BYTES_MAX)]),
                    Value::Int(value) => NewValue::Int(value),
                    Value::Uint(value) => NewValue::Int(value.cast_signed()),
                    Value::Float(value) => NewValue::Double(value),
                    Value::Bool(value) => NewValue::Bool(value),
                });
            let path = &self.wanted[at];
            let name = path.argument().unwrap_or(path.as_str());
            let message = value.map(|value| attribute_message(name, value));
            put_text(&mut self.key, message.as_deref().unwrap_or_default());
        }
        self.count(&sample, out);
    }

    fn write_oldest(&mut self, out: &mut Outbox) {
        if let Some(key) = self.order.pop_front()
            && let Some(group) = self.groups.remove(&key)
        {
            self.bytes -= group_bytes(&key) + group.sketch.memory();
            self.write(&key, &group, out);
        }
    }

    /// Writes groups, the oldest first, as long as `is_due`.
    fn write_where(&mut self, out: &mut Outbox, is_due: impl Fn(&Group) -> bool) {
        while let Some(key) = self.order.front()
            && self.groups.get(key).is_none_or(&is_due)
        {
            self.write_oldest(out);
        }
    }

    fn write(&self, key: &[u8], group: &Group, out: &mut Outbox) {
        let Some((home, period, name, attributes)) = read_key(key) else {
            return;
        };
        let Some(home) = self.homes.get(home) else {
            return;
        };
        let begin = period.saturating_mul(self.period_ns);
        let end = begin.saturating_add(self.period_ns);
        let time = |ns: i64| u64::try_from(ns).unwrap_or(0);
        let mut span = SpanWriter::new(name, 0, (time(begin), time(end)));
        let int = |value: u128| NewValue::Int(i64::try_from(value).unwrap_or(i64::MAX));
        span.attribute("count", int(group.count.into()));
        span.attribute("errors", int(group.errors.into()));
        span.attribute("sum", int(group.sum));
        span.attribute("min", int(group.min.into()));
        span.attribute("max", int(group.max.into()));
        if let Some(exclusive) = group.exclusive {
            span.attribute("exclusive", int(exclusive));
        }
        for (name, quantile) in [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)] {
            if let Some(about) = group.sketch.quantile(quantile) {
                // The sketch has an error of one percent; the group has exact bounds.
                let value = about.max(group.min as f64).min(group.max as f64);
                span.attribute(name, NewValue::Double(value));
            }
        }
        span.attribute("sketch", NewValue::Bytes(&group.sketch.to_bytes()));
        for message in attributes.into_iter().filter(|message| !message.is_empty()) {
            span.attribute_message(message);
        }
        out.write_new_span(
            (&home.agent, &home.stream, Derived::Aggregate),
            (
                &Emitter::new(&home.resource[..], b""),
                &Emitter::new(&self.scope[..], b""),
            ),
            span,
            (begin, end),
        );
    }
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(
        &u32::try_from(text.len())
            .expect("parts of a key are short")
            .to_le_bytes(),
    );
    out.extend_from_slice(text);
}

type Key<'a> = (usize, i64, &'a [u8], Vec<&'a [u8]>);

/// The parts of a key: home, period, name, attributes.
fn read_key(key: &[u8]) -> Option<Key<'_>> {
    let (home, rest) = key.split_first_chunk()?;
    let (period, mut rest) = rest.split_first_chunk()?;
    let mut texts = Vec::new();
    while let Some((length, more)) = rest.split_first_chunk() {
        let (text, more) = more.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        texts.push(text);
        rest = more;
    }
    let (name, attributes) = texts.split_first()?;
    let home = u32::from_le_bytes(*home) as usize;
    Some((home, i64::from_le_bytes(*period), name, attributes.to_vec()))
}

impl Processor for Aggregator {
    fn process(&mut self, item: Item<'_>, out: &mut Outbox) {
        match item {
            // Spans are counted with their invocation, because exclusive time needs it.
            Item::Packet { packet, .. } if packet.kind == Kind::Otlp => {}
            Item::Packet { packet, .. } => self.count_packet(packet, out),
            Item::Invocation(of) => {
                let Some(root) = of.members.first() else {
                    return;
                };
                let home = self.home(of.agent, of.stream, Some(root.resource), out);
                for member in &of.members {
                    self.count_member(home, member, out);
                }
            }
            Item::Extracted {
                of,
                member,
                derived,
                exception,
            } => {
                let home = self.home(of.agent, of.stream, Some(member.resource), out);
                match derived {
                    Derived::Exception => {
                        if let Ok(span) = trace_kinds::otlp::Span::read(exception) {
                            let thrown = Member {
                                span,
                                exclusive: 0,
                                ..*member
                            };
                            self.count_member(home, &thrown, out);
                        }
                    }
                    _ => self.count_member(home, member, out),
                }
            }
        }
    }

    fn tick(&mut self, out: &mut Outbox) {
        let due = out.now().saturating_sub(self.period_ns + GRACE_NS);
        self.write_where(out, |group| group.opened <= due);
    }

    fn finish(&mut self, out: &mut Outbox) {
        self.write_where(out, |_| true);
    }

    fn memory(&self) -> usize {
        self.bytes
    }
}

/// Whole nanoseconds; 0 for negative durations and NaN.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates"
)]
fn saturating_nanos(nanos: f64) -> u64 {
    nanos as u64
}
