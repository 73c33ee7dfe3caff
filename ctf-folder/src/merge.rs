//! Events of several streams in the order of their times.

use super::error::FolderError;
use super::folder::TraceFolder;
use super::stream::{PacketEntry, TraceStream};
use super::text::{Block, LineWriter, Progress, TextPlan};
use ctf::EventPosition;
use query_language::{FieldTable, Value};
use serde_json::{Map, Value as Json};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use trace_kinds::ctf::{CtfDecoder, in_packet};
use trace_kinds::{Decoder, Event};

/// Bytes of lines that are written at once.
const OUTPUT_BYTES: usize = 128 * 1024;

/// Which events are wanted, by nanoseconds since the epoch; both ends are inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeWindow {
    /// The first instant inside the window.
    pub from: Option<i64>,
    /// The first instant past the window.
    pub to: Option<i64>,
}

impl TimeWindow {
    fn holds(&self, time: Option<i64>) -> bool {
        let Some(time) = time else { return true };
        self.from.is_none_or(|from| from <= time) && self.to.is_none_or(|to| time < to)
    }

    fn may_hold(&self, packet: &PacketEntry) -> bool {
        let too_late = self
            .to
            .is_some_and(|to| packet.begin.is_some_and(|begin| begin >= to));
        let too_early = self
            .from
            .is_some_and(|from| packet.end.is_some_and(|end| end < from));
        !too_late && !too_early
    }
}

/// What was written, and what could not be.
#[derive(Debug, Default)]
pub struct Written {
    /// Events.
    pub events: u64,
    /// Packets that could not be decoded to their end.
    pub faults: Vec<FolderError>,
}

/// What is written of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventFormat {
    /// The line that `babeltrace2 --clock-gmt` prints.
    #[default]
    Text,
    /// An object of JSON: the fields of the one view of events, `args` in an object of their own.
    Json,
}

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// What is written of each.
    pub format: EventFormat,
    /// Which of them.
    pub window: TimeWindow,
    /// What to do about packets that cannot be decoded.
    pub on_fault: OnFault,
}

/// What to do about a packet that cannot be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFault {
    /// Write the events before it and end there.
    #[default]
    Stop,
    /// Go on with the next packet of the stream.
    Skip,
}

/// Why text could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] FolderError),
    /// The output takes no more.
    #[error("the text cannot be written: {0}")]
    Output(#[from] std::io::Error),
}

/// A stream on its way through its packets.
struct Cursor<'t> {
    plan: Arc<TextPlan>,
    stream: &'t TraceStream,
    options: WriteOptions,
    /// Makes events of packets, when they are not written as text.
    decoder: Option<CtfDecoder>,
    /// The next packet, and where to go on in the current one.
    packet: usize,
    position: Option<EventPosition>,
    open: Option<(usize, File)>,
    data: Vec<u8>,
    block: Block,
    /// The next line of the block.
    line: usize,
    is_broken: bool,
}

impl<'t> Cursor<'t> {
    fn new(plan: Arc<TextPlan>, stream: &'t TraceStream, options: WriteOptions) -> Self {
        let is_text = options.format == EventFormat::Text;
        let decoder = || CtfDecoder::new(plan.procedure(), &FieldTable::new());
        Self {
            decoder: (!is_text).then(decoder),
            plan,
            stream,
            options,
            packet: 0,
            position: None,
            open: None,
            data: Vec::new(),
            block: Block::default(),
            line: 0,
            is_broken: false,
        }
    }

    /// Time of the current event; `None` when there is none.
    fn time(&self) -> Option<Option<i64>> {
        self.block.lines().get(self.line).map(|line| line.time)
    }

    /// Goes to the next event that is wanted.
    fn next(&mut self, faults: &mut Vec<FolderError>) -> Result<(), FolderError> {
        self.line += 1;
        self.settle(faults)
    }

    /// Makes sure that the current event is one that is wanted, if there is any.
    fn settle(&mut self, faults: &mut Vec<FolderError>) -> Result<(), FolderError> {
        loop {
            while let Some(line) = self.block.lines().get(self.line) {
                if self.options.window.holds(line.time) {
                    return Ok(());
                }
                self.line += 1;
            }
            if !self.refill(faults)? {
                return Ok(());
            }
        }
    }

    /// Decodes more events; false at the end of the stream.
    fn refill(&mut self, faults: &mut Vec<FolderError>) -> Result<bool, FolderError> {
        self.block.clear();
        self.line = 0;
        while self.block.lines().is_empty() {
            if self.is_broken || (self.position.is_none() && !self.load()?) {
                return Ok(false);
            }
            if let Err(fault) = self.decode() {
                let packet = &self.stream.packets[self.packet - 1];
                let path = &self.stream.files[packet.file].path;
                faults.push(FolderError::events(path, packet.offset, fault));
                self.is_broken = self.options.on_fault == OnFault::Stop;
            }
        }
        Ok(true)
    }

    /// Decodes more of the current packet.
    fn decode(&mut self) -> Result<(), trace_kinds::DecodeError> {
        let from = self.position.take();
        if let Some(decoder) = &mut self.decoder {
            let (block, mut line) = (&mut self.block, Vec::new());
            decoder.decode(&self.data, &mut |event| {
                line.clear();
                push_object(&mut line, event);
                block.push_whole(event.ts(), &line);
                ControlFlow::Continue(())
            })?;
            return Ok(());
        }
        match self.plan.decode(&self.data, from.as_ref(), &mut self.block) {
            Ok(Progress::At(position)) => self.position = Some(position),
            Ok(Progress::Done) => {}
            Err(error) => return Err(in_packet(error)),
        }
        Ok(())
    }

    /// Reads the next packet that may hold wanted events; false when there is none.
    fn load(&mut self) -> Result<bool, FolderError> {
        let packet = loop {
            let Some(packet) = self.stream.packets.get(self.packet) else {
                return Ok(false);
            };
            self.packet += 1;
            if self.options.window.may_hold(packet) {
                break packet;
            }
        };
        let path = &self.stream.files[packet.file].path;
        let io = |error| FolderError::io(path, error);
        let source = match &self.open {
            Some((file, source)) if *file == packet.file => source,
            _ => {
                &self
                    .open
                    .insert((packet.file, File::open(path).map_err(io)?))
                    .1
            }
        };
        self.data
            .resize(usize::try_from(packet.length).unwrap_or(usize::MAX), 0);
        source
            .read_exact_at(&mut self.data, packet.offset)
            .map_err(io)?;
        Ok(true)
    }
}

/// Writes the events of `traces`, a line each, merged by time.
///
/// # Errors
/// When a trace cannot be read or the output takes no more. Packets that cannot be decoded are in
/// [`Written::faults`] instead.
pub fn write_events(
    traces: &[TraceFolder],
    options: WriteOptions,
    output: &mut dyn Write,
) -> Result<Written, WriteError> {
    let mut written = Written::default();
    let mut cursors = Vec::new();
    for trace in traces {
        let streams = trace.streams.iter();
        cursors.extend(streams.map(|stream| Cursor::new(trace.plan.clone(), stream, options)));
    }
    let mut heap = BinaryHeap::new();
    for (index, cursor) in cursors.iter_mut().enumerate() {
        cursor.settle(&mut written.faults)?;
        heap.extend(cursor.time().map(|time| Reverse((time, index))));
    }
    let mut lines = LineWriter::default();
    let mut out = Vec::with_capacity(OUTPUT_BYTES * 2);
    while let Some(Reverse((_, index))) = heap.pop() {
        let cursor = &mut cursors[index];
        let next = heap.peek().map(|Reverse(next)| *next);
        while let Some(line) = cursor.block.lines().get(cursor.line) {
            if next.is_some_and(|next| next < (line.time, index)) {
                heap.push(Reverse((line.time, index)));
                break;
            }
            lines.push(&mut out, &cursor.block, line);
            written.events += 1;
            if out.len() >= OUTPUT_BYTES {
                output.write_all(&out)?;
                out.clear();
            }
            cursor.next(&mut written.faults)?;
        }
        if options.on_fault == OnFault::Stop
            && !written.faults.is_empty()
            && cursor.time().is_none()
        {
            break;
        }
    }
    output.write_all(&out)?;
    output.flush()?;
    Ok(written)
}

/// Appends an event as an object of JSON.
fn push_object(line: &mut Vec<u8>, event: &dyn Event) {
    let (mut object, mut arguments) = (Map::new(), Map::new());
    event.each_field(&mut |path, value| {
        let value = match value {
            Value::Str(text) => String::from_utf8_lossy(text).into(),
            Value::Int(value) => value.into(),
            Value::Uint(value) => value.into(),
            Value::Float(value) => value.into(),
            Value::Bool(value) => value.into(),
        };
        match path.strip_prefix("args.") {
            Some(argument) => arguments.insert(argument.to_owned(), value),
            None => object.insert(path.to_owned(), value),
        };
    });
    object.insert("args".to_owned(), Json::Object(arguments));
    serde_json::to_writer(line, &Json::Object(object)).expect("a vector takes every byte");
}
