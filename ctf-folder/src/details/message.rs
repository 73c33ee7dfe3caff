//! The messages of one stream, in order.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ctf::class::{DisplayBase, Scope};
use ctf::{DecodeError, Event, EventPosition, EventReader};

use super::class::PacketTimes;
use super::field::push_root;
use super::number::{push_decimal, push_int};
use super::options::DetailsOptions;
use super::stream::{StreamIds, push_tag};
use super::text::Lines;
use super::trace::TraceText;
use crate::error::{FolderError, OnFault};
use crate::order::OrderCheck;
use crate::stream::{PacketEntry, TraceStream};
use crate::text::BLOCK_BYTES;

/// A message in a block of text.
#[derive(Clone, Copy, Debug)]
struct Message {
    /// Where Babeltrace places it in time; `None` directly behind the message before.
    time: Option<i64>,
    kind: MessageKind,
    /// Where its text begins behind its time.
    untimed: usize,
    end: usize,
}

/// What a message begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    PacketBeginning,
    PacketEnd,
    StreamEnd,
    Other,
}

/// The text of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageText<'t> {
    pub(super) kind: MessageKind,
    pub(super) is_timed: bool,
    pub(super) text: &'t [u8],
    pub(super) without_time: &'t [u8],
}

/// Where a stream is.
#[derive(Debug)]
enum Stage {
    /// Before the packet with this index.
    Before(usize),
    /// Inside it: where decoding continues, and the cycles of the last event.
    Inside(usize, EventPosition, Option<u64>),
    /// Behind the end of the stream.
    After,
}

/// The messages of a stream behind its beginning.
pub(super) struct StreamMessages<'t> {
    text: Arc<TraceText>,
    stream: &'t TraceStream,
    ids: StreamIds,
    options: DetailsOptions,
    on_fault: OnFault,
    times: PacketTimes,
    stage: Stage,
    data: Vec<u8>,
    lines: Lines,
    /// Where the next message begins in the text.
    at: usize,
    /// Where the text of the last message begins behind its time.
    untimed: usize,
    pending: VecDeque<Message>,
    order: OrderCheck,
}

impl<'t> StreamMessages<'t> {
    pub(super) fn new(
        text: Arc<TraceText>,
        stream: &'t TraceStream,
        ids: StreamIds,
        options: DetailsOptions,
        on_fault: OnFault,
    ) -> Option<Self> {
        let class = text.class().stream_class(stream.class?);
        let times = PacketTimes::of(text.procedure(), class);
        Some(Self {
            text,
            stream,
            ids,
            options,
            on_fault,
            times,
            stage: Stage::Before(0),
            data: Vec::new(),
            lines: Lines::default(),
            at: 0,
            untimed: 0,
            pending: VecDeque::new(),
            order: OrderCheck::default(),
        })
    }

    /// What is wrong with the order of the events so far.
    pub(super) fn disorder(&self) -> Option<FolderError> {
        self.order.fault(|packet| self.stream.place(packet))
    }

    /// The time of the next message; `None` at the end of the stream.
    pub(super) fn time(
        &mut self,
        faults: &mut Vec<FolderError>,
    ) -> Result<Option<Option<i64>>, FolderError> {
        while self.pending.is_empty() {
            if let Stage::After = self.stage {
                return Ok(None);
            }
            self.lines.out.clear();
            self.at = 0;
            self.refill(faults)?;
        }
        Ok(self.pending.front().map(|message| message.time))
    }

    /// The text of the next message.
    pub(super) fn next(&mut self) -> Option<MessageText<'_>> {
        let message = self.pending.pop_front()?;
        let begin = std::mem::replace(&mut self.at, message.end);
        Some(MessageText {
            kind: message.kind,
            is_timed: message.time.is_some(),
            text: self.lines.out.get(begin..message.end)?,
            without_time: self.lines.out.get(message.untimed..message.end)?,
        })
    }

    /// The text of an instant on the clock of the stream.
    pub(super) fn time_text(&self, nanoseconds: i64) -> Vec<u8> {
        let mut lines = Lines::default();
        let clock = self.text.clock(self.stream.class);
        let cycles = clock.and_then(|clock| clock.cycles(nanoseconds));
        if let Some(cycles) = cycles.filter(|_| self.options.with_time) {
            push_time(&mut lines, self.options, cycles, Some(nanoseconds));
        }
        lines.out
    }

    /// The end of a packet or of the stream, with the text of its time.
    pub(super) fn ending(&self, time: Vec<u8>, what: &str) -> Vec<u8> {
        let mut lines = Lines::default();
        push_tag(&mut lines, self.options, &self.ids);
        lines.push(what);
        [time, lines.out].concat()
    }

    /// Adds messages, or ends the stream.
    fn refill(&mut self, faults: &mut Vec<FolderError>) -> Result<(), FolderError> {
        let index = match self.stage {
            Stage::Before(index) | Stage::Inside(index, ..) => index,
            Stage::After => return Ok(()),
        };
        let Some(packet) = self.stream.packets.get(index) else {
            self.stream_end();
            self.stage = Stage::After;
            return Ok(());
        };
        if let Stage::Before(_) = self.stage {
            self.read(packet)?;
            let before = index.checked_sub(1);
            let before = before.and_then(|before| self.stream.packets.get(before));
            self.losses(before, packet);
        }
        if let Err(error) = self.decode(index, packet) {
            let path = &self.stream.files[packet.file].path;
            faults.push(FolderError::events(path, packet.offset, error.into()));
            self.stage = match self.on_fault {
                OnFault::Stop => Stage::After,
                OnFault::Skip => {
                    self.packet_end(packet, None);
                    Stage::Before(index + 1)
                }
            };
        }
        Ok(())
    }

    fn read(&mut self, packet: &PacketEntry) -> Result<(), FolderError> {
        let path = &self.stream.files[packet.file].path;
        let io = |error| FolderError::io(path, error);
        let file = File::open(path).map_err(io)?;
        let length = usize::try_from(packet.length).unwrap_or(usize::MAX);
        self.data.resize(length, 0);
        file.read_exact_at(&mut self.data, packet.offset)
            .map_err(io)
    }

    /// Decodes the next events of a packet.
    fn decode(&mut self, index: usize, packet: &PacketEntry) -> Result<(), DecodeError> {
        let (text, data) = (self.text.clone(), std::mem::take(&mut self.data));
        let decoded = self.decode_from(index, packet, &text, &data);
        self.data = data;
        decoded
    }

    fn decode_from(
        &mut self,
        index: usize,
        packet: &PacketEntry,
        text: &TraceText,
        data: &[u8],
    ) -> Result<(), DecodeError> {
        let mut reader = EventReader::new(text.events(), data);
        let stage = std::mem::replace(&mut self.stage, Stage::Before(index));
        let mut last = None;
        if let Stage::Inside(_, position, clock) = stage {
            reader.restore(&position)?;
            last = clock;
        } else {
            reader.next_packet()?;
            let mut ahead = EventReader::new(text.events(), data);
            ahead.next_packet()?;
            let first = ahead.next_event().ok().flatten();
            let first = first.and_then(|event| event.clock());
            self.packet_beginning(packet, first, &reader);
        }
        while let Some(event) = reader.next_event()? {
            last = event.clock().or(last);
            self.event(&event)?;
            let time = event.clock().and_then(|cycles| self.nanoseconds(cycles));
            self.order.event(index, time);
            if self.lines.out.len() >= BLOCK_BYTES
                && let Some(position) = reader.position()
            {
                self.stage = Stage::Inside(index, position, last);
                return Ok(());
            }
        }
        self.packet_end(packet, last);
        self.stage = Stage::Before(index + 1);
        Ok(())
    }

    fn nanoseconds(&self, cycles: u64) -> Option<i64> {
        self.text.clock(self.stream.class)?.nanoseconds(cycles)
    }

    /// Ends the current message.
    fn push(&mut self, time: Option<i64>, kind: MessageKind) {
        let (untimed, end) = (self.untimed, self.lines.out.len());
        self.pending.push_back(Message {
            time,
            kind,
            untimed,
            end,
        });
    }

    fn push_time(&mut self, cycles: u64) {
        if !self.options.with_time {
            return;
        }
        let nanoseconds = self.nanoseconds(cycles);
        push_time(&mut self.lines, self.options, cycles, nanoseconds);
    }

    fn tag(&mut self) {
        self.untimed = self.lines.out.len();
        push_tag(&mut self.lines, self.options, &self.ids);
    }

    /// Events and packets that were discarded before a packet, by its counters and those of the
    /// packet before it. As in Babeltrace, a counter that goes back wraps around.
    fn losses(&mut self, before: Option<&PacketEntry>, after: &PacketEntry) {
        let (begin, end) = (after.preamble.begin_clock, after.preamble.info.end_clock);
        let Some(before) = before else {
            // How many there were before the first packet is not known.
            if after
                .preamble
                .info
                .discarded_events
                .is_some_and(|count| count > 0)
            {
                self.loss("events", None, begin.zip(end));
            }
            return;
        };
        let (last, next) = (before.preamble.info, after.preamble.info);
        let difference = |last: Option<u64>, next: Option<u64>| Some(next?.wrapping_sub(last?));
        let events = difference(last.discarded_events, next.discarded_events);
        if let Some(count) = events.filter(|count| *count > 0) {
            self.loss("events", Some(count), last.end_clock.zip(end));
        }
        let packets = difference(last.sequence, next.sequence);
        if let Some(steps) = packets.filter(|steps| *steps > 1) {
            self.loss("packets", Some(steps - 1), last.end_clock.zip(begin));
        }
    }

    fn loss(&mut self, what: &str, count: Option<u64>, span: Option<(u64, u64)>) {
        let span = span.filter(|_| self.times.has_both());
        if let Some((begin, end)) = span {
            self.push_time(begin);
            self.push_time(end);
        }
        self.tag();
        self.lines.push(&format!("Discarded {what}"));
        if let Some(count) = count {
            self.lines.push(" (");
            push_decimal(&mut self.lines.out, count);
            self.lines.push(&format!(" {what})"));
        }
        self.lines.push("\n");
        let time = span.and_then(|(begin, _)| self.nanoseconds(begin));
        self.push(time, MessageKind::Other);
    }

    fn packet_beginning(
        &mut self,
        packet: &PacketEntry,
        first: Option<u64>,
        reader: &EventReader<'_>,
    ) {
        let read = packet.preamble.begin_clock.filter(|_| self.times.has_begin);
        let is_corrected = read.is_some_and(|cycles| self.nanoseconds(cycles) != packet.begin);
        let cycles = read.map(|read| {
            first
                .filter(|_| is_corrected)
                .map_or(read, |at| at.min(read))
        });
        if let Some(cycles) = cycles {
            self.push_time(cycles);
        }
        self.tag();
        self.lines.push("Packet beginning");
        let text = self.text.clone();
        let root = text.roots(self.stream.class).packet_context;
        match root.filter(|_| !self.options.compact) {
            Some(root) => {
                self.lines.push(":\n");
                self.lines.deeper();
                let fields = reader.packet_fields(Scope::PacketContext);
                push_root(&mut self.lines, text.layout(), "Context", root, fields);
                self.lines.back();
            }
            None => self.lines.push("\n"),
        }
        let time = cycles.and_then(|cycles| self.nanoseconds(cycles));
        self.push(time, MessageKind::PacketBeginning);
    }

    fn packet_end(&mut self, packet: &PacketEntry, last: Option<u64>) {
        let read = packet
            .preamble
            .info
            .end_clock
            .filter(|_| self.times.has_end);
        let cycles = read.map(|read| {
            let is_corrected = self.nanoseconds(read) != packet.end;
            let is_before_begin = packet
                .preamble
                .begin_clock
                .is_some_and(|begin| read < begin);
            match last.filter(|_| is_corrected) {
                Some(last) if is_before_begin => last,
                Some(last) => last.max(read),
                None => read,
            }
        });
        if let Some(cycles) = cycles {
            self.push_time(cycles);
        }
        self.tag();
        self.lines.push("Packet end\n");
        let time = cycles.and_then(|cycles| self.nanoseconds(cycles));
        self.push(time, MessageKind::PacketEnd);
    }

    fn stream_end(&mut self) {
        if self.options.with_time && self.text.clock(self.stream.class).is_some() {
            let unknown = if self.options.compact {
                "[Unknown] "
            } else {
                "[Unknown]\n"
            };
            self.lines.push(unknown);
        }
        self.tag();
        self.lines.push("Stream end\n");
        self.push(None, MessageKind::StreamEnd);
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), DecodeError> {
        let has_clock = self.text.clock(self.stream.class).is_some();
        let cycles = event.clock().unwrap_or(0);
        let time = self.nanoseconds(cycles);
        if has_clock && time.is_none() {
            return Err(crate::text::overflow(event.offset(), cycles));
        }
        if has_clock {
            self.push_time(cycles);
        }
        self.tag();
        self.lines.push("Event");
        let class = event.class();
        if let Some(name) = &class.identity.name {
            self.lines.push(&format!(" `{name}`"));
        }
        let is_compact = self.options.compact;
        self.lines
            .push(if is_compact { " (" } else { " (Class ID " });
        push_decimal(&mut self.lines.out, class.id);
        self.lines.push(if is_compact { ")\n" } else { "):\n" });
        if !is_compact {
            self.event_fields(event);
        }
        self.push(time, MessageKind::Other);
        Ok(())
    }

    fn event_fields(&mut self, event: &Event<'_>) {
        let text = self.text.clone();
        let roots = text.roots(self.stream.class);
        let index = usize::try_from(event.class_index().0);
        let of_event = index.ok().and_then(|index| roots.events.get(index));
        let scopes = [
            (
                "Common context",
                roots.common_context,
                Scope::EventCommonContext,
            ),
            (
                "Specific context",
                of_event.and_then(|roots| roots.specific_context),
                Scope::EventSpecificContext,
            ),
            (
                "Payload",
                of_event.and_then(|roots| roots.payload),
                Scope::EventPayload,
            ),
        ];
        self.lines.deeper();
        for (name, root, scope) in scopes {
            if let Some(root) = root {
                let fields = event.fields(scope);
                push_root(&mut self.lines, text.layout(), name, root, fields);
            }
        }
        self.lines.back();
    }
}

/// `[CYCLES cycles, NANOSECONDS ns from origin]`.
fn push_time(lines: &mut Lines, options: DetailsOptions, cycles: u64, nanoseconds: Option<i64>) {
    let is_compact = options.compact;
    lines.push("[");
    push_decimal(&mut lines.out, cycles);
    lines.push(if is_compact { "" } else { " cycles" });
    if let Some(nanoseconds) = nanoseconds {
        lines.push(if is_compact { " " } else { ", " });
        push_int(&mut lines.out, nanoseconds, DisplayBase::Decimal);
        lines.push(if is_compact { "" } else { " ns from origin" });
    }
    lines.push(if is_compact { "] " } else { "]\n" });
}
