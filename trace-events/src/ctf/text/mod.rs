//! Events as text, byte for byte what `babeltrace2 --clock-gmt` prints.
//!
//! The text of an event does not depend on other events but for the time since the one before it.
//! So each stream makes the *bodies* of its events in blocks, whatever the order in which the
//! streams will be merged, and a line is put together when its turn comes.

mod body;
mod number;
mod plan;
mod strings;
mod time;

use body::BodyWriter;
use ctf::class::{EnvironmentValue, EventClass, StreamClassIndex, TraceClass};
use ctf::{DecodeError, Element, ElementReader, Position, Procedure};
pub(super) use number::{push_float, push_signed, push_unsigned};
use plan::Plan;
pub(super) use strings::to_utf8;
pub(super) use time::{Clock, TimeText, push_duration};

/// Bytes of text after which a block ends with the current event.
const BLOCK_BYTES: usize = 256 * 1024;

/// What the text of all events of a trace has in common.
#[derive(Debug)]
pub struct TextPlan {
    procedure: Procedure,
    plan: Plan,
    /// `hostname:procname:(vpid) name: ` of every event class.
    heads: Vec<Box<[u8]>>,
    /// By the index of the stream class.
    streams: Vec<StreamText>,
}

#[derive(Clone, Copy, Debug)]
struct StreamText {
    /// Index of the head of its first event class.
    heads: u32,
    clock: Option<Clock>,
}

/// An event of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Nanoseconds since the origin of the clock, when the stream has one.
    pub time: Option<i64>,
    head: u32,
    start: usize,
    end: usize,
}

/// The head of a line that stands for itself.
const WHOLE: u32 = u32::MAX;

/// Events of one stream, decoded and not yet written. The bodies of one packet may be spread over
/// several blocks.
#[derive(Debug, Default)]
pub struct Block {
    writer: BodyWriter,
    lines: Vec<Line>,
    class: Option<StreamClassIndex>,
    cycles: u64,
}

impl Block {
    /// The events, in the order of the stream.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Forgets the events, not the packet.
    pub fn clear(&mut self) {
        self.writer.clear();
        self.lines.clear();
    }

    /// Adds an event whose line is `text` as it stands.
    pub fn push_whole(&mut self, time: Option<i64>, text: &[u8]) {
        let start = self.writer.text().len();
        self.writer.push(text);
        let end = self.writer.text().len();
        self.lines.push(Line {
            time,
            head: WHOLE,
            start,
            end,
        });
    }

    /// True when the block has as many events as a block should have.
    pub fn is_full(&self) -> bool {
        self.writer.text().len() >= BLOCK_BYTES
    }
}

/// How far a packet was decoded.
#[derive(Clone, Debug)]
pub enum Progress {
    /// Up to this event of the packet.
    At(Box<Position>),
    /// To its end.
    Done,
}

impl TextPlan {
    /// Prepares the text of the events of a trace.
    pub fn new(procedure: Procedure) -> Self {
        let plan = Plan::new(&procedure);
        let trace = procedure.trace_class();
        let origin = origin_text(trace);
        let mut heads = vec![head(&origin, None)];
        let mut streams = Vec::new();
        for stream in trace.stream_classes() {
            let clock = stream
                .default_clock
                .map(|id| Clock::new(trace.clock_class(id)));
            streams.push(StreamText {
                heads: heads.len() as u32,
                clock,
            });
            heads.extend(
                stream
                    .event_classes()
                    .iter()
                    .map(|event| head(&origin, Some(event))),
            );
        }
        Self {
            procedure,
            plan,
            heads,
            streams,
        }
    }

    /// The procedure of the trace.
    pub fn procedure(&self) -> &Procedure {
        &self.procedure
    }

    /// The clock of a stream class.
    pub(super) fn clock(&self, class: Option<StreamClassIndex>) -> Option<Clock> {
        self.streams.get(class?.0 as usize)?.clock
    }

    /// Decodes events of the packet `data` into `block`, from `from` on, until the packet ends or
    /// the block is full.
    ///
    /// # Errors
    /// When the packet cannot be decoded any further; the events before are in the block.
    pub fn decode(
        &self,
        data: &[u8],
        from: Option<&Position>,
        block: &mut Block,
    ) -> Result<Progress, DecodeError> {
        let mut reader = ElementReader::new(&self.procedure, data);
        match from {
            Some(position) => reader.restore(position),
            None => (block.class, block.cycles) = (None, 0),
        }
        let done = self.run(&mut reader, block);
        if done.is_err() {
            block
                .writer
                .abandon(block.lines.last().map_or(0, |line| line.end));
        }
        done
    }

    fn run(
        &self,
        reader: &mut ElementReader<'_>,
        block: &mut Block,
    ) -> Result<Progress, DecodeError> {
        let (plan, procedure) = (&self.plan, &self.procedure);
        let trace = procedure.trace_class();
        let mut start = block.writer.text().len();
        let mut head = 0;
        let mut clock = self.clock(block.class);
        while let Some(element) = reader.next_element()? {
            match element {
                Element::ScopeBegin(scope) => block.writer.begin_scope(*scope),
                Element::ScopeEnd(_) => block.writer.end_scope(),
                Element::ClockValue(cycles) => block.cycles = *cycles,
                Element::EventInfo(class) => head = self.head_index(trace, block.class, *class),
                Element::RecordBegin => {
                    start = block.writer.text().len();
                    block.writer.begin_record();
                }
                Element::RecordEnd => {
                    let end = block.writer.text().len();
                    let time = clock.map(|clock| clock.nanoseconds(block.cycles));
                    block.lines.push(Line {
                        time,
                        head,
                        start,
                        end,
                    });
                    if end >= BLOCK_BYTES {
                        return Ok(Progress::At(Box::new(reader.position())));
                    }
                }
                Element::StreamInfo(info) => {
                    block.class = info
                        .class
                        .and_then(|class| trace.find_stream_class(class.id));
                    clock = self.clock(block.class);
                }
                Element::PacketBegin => block.writer.begin_packet(),
                other => block.writer.element(other, plan, procedure),
            }
        }
        Ok(Progress::Done)
    }

    #[inline]
    fn head_index(
        &self,
        trace: &TraceClass,
        stream: Option<StreamClassIndex>,
        event: Option<&EventClass>,
    ) -> u32 {
        let (Some(stream), Some(event)) = (stream, event) else {
            return 0;
        };
        let index = trace.stream_class(stream).find_event_class(event.id);
        index.map_or(0, |index| self.streams[stream.0 as usize].heads + index.0)
    }
}

/// Puts the lines of events together. The time since the line before is in each of them.
#[derive(Clone, Debug, Default)]
pub struct LineWriter {
    last: Option<i64>,
    time: TimeText,
}

impl LineWriter {
    /// Appends the line of an event of `block`.
    #[inline]
    pub fn push(&mut self, out: &mut Vec<u8>, plan: &TextPlan, block: &Block, line: &Line) {
        let text = &block.writer.text()[line.start..line.end];
        if line.head == WHOLE {
            out.extend_from_slice(text);
            out.push(b'\n');
            return;
        }
        if let Some(time) = line.time {
            out.push(b'[');
            self.time.push(out, time);
            out.extend_from_slice(b"] (+");
            match self.last {
                None => out.extend_from_slice(b"?.?????????"),
                Some(last) => push_duration(out, time.wrapping_sub(last).cast_unsigned()),
            }
            out.extend_from_slice(b") ");
            self.last = Some(time);
        }
        out.extend_from_slice(&plan.heads[line.head as usize]);
        out.extend_from_slice(text);
        out.push(b'\n');
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

fn head(origin: &[u8], event: Option<&EventClass>) -> Box<[u8]> {
    let name = event
        .and_then(|event| event.identity.name.as_deref())
        .unwrap_or("<unknown>");
    [origin, name.as_bytes(), b": "].concat().into()
}
