//! Events as text, byte for byte what `babeltrace2 --clock-gmt` prints.
//!
//! The line of an event depends on other events only in the time since the previous line. So the
//! lines of each stream are produced in blocks, independently of the order in which streams are
//! merged, and only this time is filled in when a line is written.

mod array;
mod body;
mod head;
mod layout;
mod style;
mod time;

use body::{BodyContext, BodyWriter};
use ctf::class::{Scope, StreamClassIndex};
use ctf::text::push_unsigned;
use ctf::{DecodeError, DecodeFault, Event, EventPosition, EventReader, NodeId, Procedure};
use head::Heads;
use layout::TextLayout;
pub(super) use layout::visibility;
pub use style::{ClockText, FieldChoice, NameChoice, TextStyle};
use time::push_duration;
use time::push_seconds;
pub(super) use time::{BabeltraceClock, TimeText};

/// Bytes of text after which a block ends with the current event.
pub(super) const BLOCK_BYTES: usize = 256 * 1024;
/// Placeholder for the time since the previous line, and the text of the first line.
const NO_DELTA: &[u8; 11] = b"?.?????????";
/// The same in cycles.
const NO_CYCLES: &[u8; 12] = b"????????????";
/// Scopes of an event that are printed, after the packet context, and their names.
const SCOPES: [(Scope, &str); 3] = [
    (Scope::EventCommonContext, "stream.event.context = "),
    (Scope::EventSpecificContext, "event.context = "),
    (Scope::EventPayload, "event.fields = "),
];

/// The compiled metadata of a trace, with the parts of the text that all its events share.
#[derive(Debug)]
pub struct TextPlan {
    procedure: Procedure,
    layout: TextLayout,
    /// Decodes the fields that are printed.
    events: ctf::Plan,
    /// By the index of the stream class.
    streams: Vec<StreamText>,
    style: TextStyle,
    /// Host and folder.
    name: String,
    has_plain_times: bool,
}

#[derive(Clone, Debug)]
struct StreamText {
    /// `hostname:procname:(vpid) name: ` of each event class.
    heads: Vec<Box<[u8]>>,
    clock: Option<BabeltraceClock>,
}

/// An event of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Nanoseconds since the origin of the clock, when the stream has one.
    pub(super) time: Option<i64>,
    cycles: u64,
    start: usize,
    end: usize,
    /// Offset in the line of the time since the previous line.
    delta: Option<usize>,
}

/// Decoded events of one stream that are not written yet. A packet can have several blocks.
#[derive(Debug, Default)]
pub(super) struct Block {
    writer: BodyWriter,
    lines: Vec<Line>,
    time: TimeText,
    /// The text of the packet context, which is part of each line.
    packet_context: Vec<u8>,
}

impl Block {
    /// The lines, in the order of the stream.
    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Removes all lines.
    pub(super) fn clear(&mut self) {
        self.writer.out.clear();
        self.lines.clear();
    }

    /// Adds an event whose line is `text`.
    pub(super) fn push_line(&mut self, time: Option<i64>, text: &[u8]) {
        let start = self.writer.out.len();
        self.writer.out.extend_from_slice(text);
        self.writer.out.push(b'\n');
        self.lines.push(Line {
            time,
            cycles: 0,
            start,
            end: self.writer.out.len(),
            delta: None,
        });
    }
}

/// How much of a packet was decoded.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    /// Up to this position.
    At(EventPosition),
    /// All of it.
    Done,
}

impl TextPlan {
    /// Compiles the text of the events of a trace.
    pub fn new(procedure: Procedure) -> Self {
        Self::with_style(procedure, TextStyle::default(), "")
    }

    /// The same in another style, for the trace with this name.
    pub fn with_style(procedure: Procedure, style: TextStyle, name: &str) -> Self {
        let layout = TextLayout::new(&procedure, &style.names);
        let trace = procedure.trace_class();
        let heads = Heads {
            style: &style,
            trace,
            name,
        };
        let name = heads.trace_name();
        let stream = |stream: &ctf::class::StreamClass| {
            let classes = stream.event_classes().iter();
            let clock = stream.default_clock;
            StreamText {
                heads: classes
                    .map(|event| heads.head(event, clock.is_some()))
                    .collect(),
                clock: clock.map(|id| {
                    BabeltraceClock::new(trace.clock_class(id)).shifted(style.clock_offset)
                }),
            }
        };
        let streams = trace.stream_classes().iter().map(stream).collect();
        let events = ctf::Plan::new(&procedure, |field| {
            SCOPES.iter().any(|(scope, _)| *scope == field.scope) && layout.is_visible(field.node)
        });
        Self {
            procedure,
            layout,
            events,
            streams,
            has_plain_times: style.has_plain_times(),
            name,
            style,
        }
    }

    /// The name that Babeltrace gives to the trace.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The style.
    pub(super) fn style(&self) -> &TextStyle {
        &self.style
    }

    /// The procedure of the trace.
    pub fn procedure(&self) -> &Procedure {
        &self.procedure
    }

    /// The clock of a stream class.
    pub(super) fn clock(&self, class: Option<StreamClassIndex>) -> Option<BabeltraceClock> {
        self.stream(class?)?.clock
    }

    fn stream(&self, class: StreamClassIndex) -> Option<&StreamText> {
        self.streams.get(usize::try_from(class.0).ok()?)
    }

    /// Decodes events of the packet `data` into `block`, beginning at `from`, until the packet ends
    /// or the block is full.
    ///
    /// # Errors
    /// When the packet cannot be decoded any further; the block contains the preceding events.
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
        let Some(stream) = self.stream(class) else {
            return Ok(Progress::Done);
        };
        while let Some(event) = reader.next_event()? {
            self.line(stream, &event, block)?;
            if block.writer.out.len() >= BLOCK_BYTES {
                return Ok(reader.position().map_or(Progress::Done, Progress::At));
            }
        }
        Ok(Progress::Done)
    }

    /// Writes the text of the packet context, if any of its fields are printed.
    fn packet_context(&self, reader: &EventReader<'_>, block: &mut Block) {
        block.packet_context.clear();
        if !reader.has_packet_scope(Scope::PacketContext) {
            return;
        }
        let fields = reader.packet_fields(Scope::PacketContext);
        let first = fields.clone().next().map(|datum| datum.field.id());
        if !first.is_none_or(|field| self.layout.is_visible(self.root(field))) {
            return;
        }
        let length = block.writer.out.len();
        self.scope_name(block, "stream.packet.context = ");
        block.writer.root(self.context(), fields);
        block
            .packet_context
            .extend_from_slice(&block.writer.out[length..]);
        block.writer.out.truncate(length);
    }

    fn context(&self) -> BodyContext<'_> {
        BodyContext {
            layout: &self.layout,
            trace: self.procedure.trace_class(),
        }
    }

    /// The root structure that contains `field`.
    fn root(&self, mut field: NodeId) -> NodeId {
        while let Some(parent) = self.procedure.node(field).parent() {
            field = parent;
        }
        field
    }

    #[inline]
    fn line(
        &self,
        stream: &StreamText,
        event: &Event<'_>,
        block: &mut Block,
    ) -> Result<(), DecodeError> {
        let start = block.writer.out.len();
        // Without a timestamp, the clock is at zero.
        let cycles = event.clock().unwrap_or(0);
        let time = stream.clock.and_then(|clock| clock.nanoseconds(cycles));
        if time.is_none() && stream.clock.is_some() {
            return Err(overflow(event.offset(), cycles));
        }
        let mut delta = None;
        if let Some(time) = time {
            if self.has_plain_times {
                let out = &mut block.writer.out;
                out.push(b'[');
                block.time.push(out, time);
                out.extend_from_slice(b"] (+");
                delta = Some(out.len() - start);
                out.extend_from_slice(NO_DELTA);
                out.extend_from_slice(b") ");
            } else {
                delta = self.styled_time(block, time, cycles).map(|at| at - start);
            }
        }
        let writer = &mut block.writer;
        let index = usize::try_from(event.class_index().0);
        let head = index.ok().and_then(|index| stream.heads.get(index));
        writer.out.extend_from_slice(head.map_or(&[], |head| head));
        writer.out.extend_from_slice(&block.packet_context);
        let mut has_scope = !block.packet_context.is_empty();
        for (scope, name) in SCOPES {
            // A root structure without visible fields is not decoded.
            if !event.has_scope(scope) {
                continue;
            }
            if has_scope {
                writer.out.extend_from_slice(b", ");
            }
            has_scope = true;
            if self.style.names.scope {
                writer.out.extend_from_slice(name.as_bytes());
            }
            writer.root(self.context(), event.fields(scope));
        }
        writer.out.push(b'\n');
        block.lines.push(Line {
            time,
            cycles,
            start,
            end: writer.out.len(),
            delta,
        });
        Ok(())
    }

    fn scope_name(&self, block: &mut Block, name: &str) {
        if self.style.names.scope {
            block.writer.out.extend_from_slice(name.as_bytes());
        }
    }

    /// Writes the time of an event in another style than the default. Returns where the time since
    /// the previous line is.
    fn styled_time(&self, block: &mut Block, time: i64, cycles: u64) -> Option<usize> {
        let (style, has_names) = (&self.style, self.style.names.header);
        let out = &mut block.writer.out;
        out.extend_from_slice(if has_names { b"timestamp = " } else { b"[" });
        match style.clock {
            ClockText::TimeOfDay => block.time.push_local(out, time, style.local_offset),
            ClockText::Date => block.time.push_date(out, time, style.local_offset),
            ClockText::Seconds => push_seconds(out, time),
            ClockText::Cycles => push_padded(out, cycles, 20),
        }
        let mut delta = None;
        if !style.no_delta {
            out.extend_from_slice(if has_names { b", delta = +" } else { b"] (+" });
            delta = Some(out.len());
            let unknown: &[u8] = if style.is_in_cycles() {
                NO_CYCLES
            } else {
                NO_DELTA
            };
            out.extend_from_slice(unknown);
        }
        let end: &[u8] = match (has_names, style.no_delta) {
            (true, _) => b", ",
            (false, true) => b"] ",
            (false, false) => b") ",
        };
        out.extend_from_slice(end);
        delta
    }
}

/// The time of the event record at `offset` does not fit 64 bits.
#[cold]
pub(super) fn overflow(offset: u64, cycles: u64) -> DecodeError {
    let fault = DecodeFault::ClockOverflow { cycles };
    DecodeError { offset, fault }
}

/// Writes the lines of merged streams, with the time since the previous line.
#[derive(Clone, Debug, Default)]
pub(super) struct LineWriter {
    last: Option<i64>,
    last_cycles: Option<u64>,
    is_in_cycles: bool,
}

impl LineWriter {
    /// A writer of lines in the style of `plan`.
    pub(super) fn new(plan: &TextPlan) -> Self {
        Self {
            is_in_cycles: plan.style.is_in_cycles(),
            ..Self::default()
        }
    }

    /// Appends the line of an event of `block`.
    #[inline]
    pub(super) fn push(&mut self, out: &mut Vec<u8>, block: &Block, line: &Line) {
        let start = out.len();
        out.extend_from_slice(&block.writer.out[line.start..line.end]);
        let (Some(time), Some(delta)) = (line.time, line.delta) else {
            return;
        };
        let at = start + delta;
        if self.is_in_cycles {
            return self.push_cycles(out, at, line.cycles);
        }
        let Some(last) = self.last.replace(time) else {
            return;
        };
        // A difference of two times always fits 64 bits without a sign.
        let nanoseconds = time.abs_diff(last);
        if time < last {
            out[at - 1] = b'-';
        }
        match time::short_duration(nanoseconds) {
            Some(text) => out[at..at + NO_DELTA.len()].copy_from_slice(&text),
            None => {
                let mut text = Vec::new();
                push_duration(&mut text, nanoseconds);
                out.splice(at..at + NO_DELTA.len(), text);
            }
        }
    }

    fn push_cycles(&mut self, out: &mut Vec<u8>, at: usize, cycles: u64) {
        if let Some(last) = self.last_cycles.replace(cycles) {
            let mut text = Vec::new();
            // Clocks of several traces can differ; then Babeltrace wraps, too.
            push_padded(&mut text, cycles.wrapping_sub(last), NO_CYCLES.len());
            out.splice(at..at + NO_CYCLES.len(), text);
        }
    }
}

/// A number with leading zeros.
fn push_padded(out: &mut Vec<u8>, value: u64, digits: usize) {
    let mut text = Vec::new();
    push_unsigned(&mut text, value);
    out.resize(out.len() + digits.saturating_sub(text.len()), b'0');
    out.extend_from_slice(&text);
}
