//! Events as text, byte for byte what `babeltrace2 --clock-gmt` prints.
//!
//! The line of an event does not depend on other events but for the time since the one before it.
//! So each stream makes the lines of its events in blocks, whatever the order in which the streams
//! will be merged, and only that time is filled in when the turn of a line comes.

mod array;
mod body;
mod plan;
mod time;

use body::{BodyWriter, Texts};
use ctf::class::{EnvironmentValue, EventClass, Scope, StreamClassIndex, TraceClass};
use ctf::text::push_signed;
use ctf::{DecodeError, Event, EventPosition, EventReader, NodeId, Procedure};
use plan::Plan;
use time::push_duration;
pub(super) use time::{BabeltraceClock, TimeText};

/// Bytes of text after which a block ends with the current event.
const BLOCK_BYTES: usize = 256 * 1024;
/// Holds the place of the time since the line before, and is what the first line has.
const NO_DELTA: &[u8; 11] = b"?.?????????";
/// Scopes of an event that are shown, after the packet context.
const SCOPES: [Scope; 3] = [
    Scope::EventCommonContext,
    Scope::EventSpecificContext,
    Scope::EventPayload,
];

/// What the text of all events of a trace has in common.
#[derive(Debug)]
pub struct TextPlan {
    procedure: Procedure,
    plan: Plan,
    /// Decodes what is shown.
    events: ctf::Plan,
    /// By the index of the stream class.
    streams: Vec<StreamText>,
}

#[derive(Clone, Debug)]
struct StreamText {
    /// `hostname:procname:(vpid) name: ` of every event class.
    heads: Vec<Box<[u8]>>,
    clock: Option<BabeltraceClock>,
}

/// An event of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Nanoseconds since the origin of the clock, when the stream has one.
    pub(super) time: Option<i64>,
    start: usize,
    end: usize,
    /// Where the time since the line before stands, from the beginning of the line.
    delta: Option<u32>,
}

/// Events of one stream, decoded and not yet written. Those of one packet may be spread over
/// several blocks.
#[derive(Debug, Default)]
pub(super) struct Block {
    writer: BodyWriter,
    lines: Vec<Line>,
    time: TimeText,
    /// The text of the packet context, which is in the line of each event.
    packet_context: Vec<u8>,
}

impl Block {
    /// The events, in the order of the stream.
    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Forgets the events.
    pub(super) fn clear(&mut self) {
        self.writer.out.clear();
        self.lines.clear();
    }

    /// Adds an event whose line is `text` as it stands.
    pub(super) fn push_whole(&mut self, time: Option<i64>, text: &[u8]) {
        let start = self.writer.out.len();
        self.writer.out.extend_from_slice(text);
        self.writer.out.push(b'\n');
        self.lines.push(Line {
            time,
            start,
            end: self.writer.out.len(),
            delta: None,
        });
    }
}

/// How far a packet was decoded.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    /// Up to here.
    At(EventPosition),
    /// To its end.
    Done,
}

impl TextPlan {
    /// Prepares the text of the events of a trace.
    pub fn new(procedure: Procedure) -> Self {
        let plan = Plan::new(&procedure);
        let trace = procedure.trace_class();
        let origin = origin_text(trace);
        let stream = |stream: &ctf::class::StreamClass| {
            let classes = stream.event_classes().iter();
            let clock = stream.default_clock;
            StreamText {
                heads: classes.map(|event| head(&origin, event)).collect(),
                clock: clock.map(|id| BabeltraceClock::new(trace.clock_class(id))),
            }
        };
        let streams = trace.stream_classes().iter().map(stream).collect();
        let events = ctf::Plan::new(&procedure, |field| {
            SCOPES.contains(&field.scope) && plan.is_shown(field.node)
        });
        Self {
            procedure,
            plan,
            events,
            streams,
        }
    }

    /// The procedure of the trace.
    pub fn procedure(&self) -> &Procedure {
        &self.procedure
    }

    /// The clock of a stream class.
    pub(super) fn clock(&self, class: Option<StreamClassIndex>) -> Option<BabeltraceClock> {
        self.streams.get(class?.0 as usize)?.clock
    }

    /// Decodes events of the packet `data` into `block`, from `from` on, until the packet ends or
    /// the block is full.
    ///
    /// # Errors
    /// When the packet cannot be decoded any further; the events before are in the block.
    pub(super) fn decode(
        &self,
        data: &[u8],
        from: Option<&EventPosition>,
        block: &mut Block,
    ) -> Result<Progress, DecodeError> {
        let mut reader = EventReader::new(&self.events, data);
        match from {
            Some(position) => reader.restore(position)?,
            None => {
                reader.next_packet()?;
            }
        }
        self.packet_context(&reader, block);
        let Some(class) = reader.packet().stream_class else {
            return Ok(Progress::Done);
        };
        let stream = &self.streams[class.0 as usize];
        while let Some(event) = reader.next_event()? {
            self.line(stream, &event, block);
            if block.writer.out.len() >= BLOCK_BYTES {
                return Ok(reader.position().map_or(Progress::Done, Progress::At));
            }
        }
        Ok(Progress::Done)
    }

    /// Makes the text of the packet context; nothing when nothing of it is shown.
    fn packet_context(&self, reader: &EventReader<'_>, block: &mut Block) {
        block.packet_context.clear();
        if !reader.has_packet_scope(Scope::PacketContext) {
            return;
        }
        let fields = reader.packet_fields(Scope::PacketContext);
        let first = fields.clone().next().map(|datum| datum.field.id());
        if !first.is_none_or(|field| self.plan.is_shown(self.root(field))) {
            return;
        }
        let length = block.writer.out.len();
        block.writer.root(self.texts(), fields);
        block
            .packet_context
            .extend_from_slice(&block.writer.out[length..]);
        block.writer.out.truncate(length);
    }

    fn texts(&self) -> Texts<'_> {
        Texts {
            plan: &self.plan,
            trace: self.procedure.trace_class(),
        }
    }

    /// The root structure that holds `field`.
    fn root(&self, mut field: NodeId) -> NodeId {
        while let Some(parent) = self.procedure.node(field).parent() {
            field = parent;
        }
        field
    }

    #[inline]
    fn line(&self, stream: &StreamText, event: &Event<'_>, block: &mut Block) {
        let writer = &mut block.writer;
        let start = writer.out.len();
        // A clock without a timestamp is at zero.
        let cycles = event.clock().unwrap_or(0);
        let time = stream.clock.map(|clock| clock.nanoseconds(cycles));
        let mut delta = None;
        if let Some(time) = time {
            writer.out.push(b'[');
            block.time.push(&mut writer.out, time);
            writer.out.extend_from_slice(b"] (+");
            delta = Some((writer.out.len() - start) as u32);
            writer.out.extend_from_slice(NO_DELTA);
            writer.out.extend_from_slice(b") ");
        }
        let head = &stream.heads[event.class_index().0 as usize];
        writer.out.extend_from_slice(head);
        writer.out.extend_from_slice(&block.packet_context);
        let mut has_scope = !block.packet_context.is_empty();
        for scope in SCOPES {
            // Of a root structure of which nothing is shown, nothing is decoded.
            if !event.has_scope(scope) {
                continue;
            }
            if has_scope {
                writer.out.extend_from_slice(b", ");
            }
            has_scope = true;
            writer.root(self.texts(), event.fields(scope));
        }
        writer.out.push(b'\n');
        block.lines.push(Line {
            time,
            start,
            end: writer.out.len(),
            delta,
        });
    }
}

/// Puts the lines of events together. The time since the line before is in each of them.
#[derive(Clone, Debug, Default)]
pub(super) struct LineWriter {
    last: Option<i64>,
}

impl LineWriter {
    /// Appends the line of an event of `block`.
    #[inline]
    pub(super) fn push(&mut self, out: &mut Vec<u8>, block: &Block, line: &Line) {
        let start = out.len();
        out.extend_from_slice(&block.writer.out[line.start..line.end]);
        let (Some(time), Some(delta)) = (line.time, line.delta) else {
            return;
        };
        let Some(last) = self.last.replace(time) else {
            return;
        };
        let at = start + delta as usize;
        let nanoseconds = time.wrapping_sub(last).cast_unsigned();
        match time::short_duration(nanoseconds) {
            Some(text) => out[at..at + NO_DELTA.len()].copy_from_slice(&text),
            None => {
                let mut text = Vec::new();
                push_duration(&mut text, nanoseconds);
                out.splice(at..at + NO_DELTA.len(), text);
            }
        }
    }
}

/// What the environment says about where the trace comes from.
fn origin_text(trace: &TraceClass) -> Vec<u8> {
    let mut text = Vec::new();
    for key in ["hostname", "procname", "vpid"] {
        let Some(value) = trace.environment_entry(key) else {
            continue;
        };
        if !text.is_empty() {
            text.push(b':');
        }
        match value {
            EnvironmentValue::String(value) => text.extend_from_slice(value.as_bytes()),
            EnvironmentValue::Integer(value) => {
                text.push(b'(');
                push_signed(&mut text, *value);
                text.push(b')');
            }
        }
    }
    if !text.is_empty() {
        text.push(b' ');
    }
    text
}

fn head(origin: &[u8], event: &EventClass) -> Box<[u8]> {
    let name = event.identity.name.as_deref().unwrap_or("<unknown>");
    [origin, name.as_bytes(), b": "].concat().into()
}
