//! The events of several streams, merged by time.

use super::error::{FolderError, OnFault};
use super::folder::TraceFolder;
use super::json::JsonDecoder;
use super::order::OrderCheck;
use super::stream::TraceStream;
use super::text::{Block, LineWriter, Progress, TextPlan};
use super::time_window::TimeWindow;
use ctf::{DecodeError, EventPosition};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes of lines after which the output is written.
const OUTPUT_BYTES: usize = 128 * 1024;

/// The number of events written, and packets that could not be decoded.
#[derive(Debug, Default)]
pub struct WriteSummary {
    /// Number of events.
    pub events: u64,
    /// Errors of packets that could not be decoded completely, and the streams whose time goes
    /// back.
    pub faults: Vec<FolderError>,
}

/// The format of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventFormat {
    /// The line that `babeltrace2 --clock-gmt` prints.
    #[default]
    Text,
    /// A JSON object with the fields of an event, and `args` as a nested object.
    Json,
}

/// Options of [`write_events`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// The format.
    pub format: EventFormat,
    /// The window of time.
    pub window: TimeWindow,
    /// What to do when a packet cannot be decoded.
    pub on_fault: OnFault,
    /// Write only the events of a trace while all of its streams are active.
    pub is_intersection: bool,
}

/// Why events could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] FolderError),
    /// The output failed.
    #[error("the events cannot be written: {0}")]
    Output(#[from] std::io::Error),
}

/// The position in a stream during the merge.
struct StreamCursor<'t> {
    plan: Arc<TextPlan>,
    stream: &'t TraceStream,
    options: WriteOptions,
    /// Decodes events that are written as JSON.
    json: Option<JsonDecoder>,
    /// Index of the next packet.
    packet: usize,
    /// Where decoding of the current packet continues; `None` at its end.
    position: Option<EventPosition>,
    /// The open file, and its index.
    open: Option<(usize, File)>,
    data: Vec<u8>,
    block: Block,
    /// Index of the current line in the block.
    line: usize,
    has_failed: bool,
    order: OrderCheck,
}

impl<'t> StreamCursor<'t> {
    fn new(plan: Arc<TextPlan>, stream: &'t TraceStream, options: WriteOptions) -> Self {
        let is_text = options.format == EventFormat::Text;
        Self {
            json: (!is_text).then(|| JsonDecoder::new(&plan)),
            plan,
            stream,
            options,
            packet: 0,
            position: None,
            open: None,
            data: Vec::new(),
            block: Block::default(),
            line: 0,
            has_failed: false,
            order: OrderCheck::default(),
        }
    }

    /// Time of the current event; `None` at the end of the stream.
    fn time(&self) -> Option<Option<i64>> {
        self.block.lines().get(self.line).map(|line| line.time)
    }

    /// Advances to the next event in the window.
    fn next(&mut self, faults: &mut Vec<FolderError>) -> Result<(), FolderError> {
        self.line += 1;
        self.skip_to_window(faults)
    }

    /// Advances until the current event is in the window, or the stream ends.
    fn skip_to_window(&mut self, faults: &mut Vec<FolderError>) -> Result<(), FolderError> {
        loop {
            while let Some(line) = self.block.lines().get(self.line) {
                if self.options.window.contains(line.time) {
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
            if self.has_failed || (self.position.is_none() && !self.read_packet()?) {
                return Ok(false);
            }
            if let Err(fault) = self.decode() {
                let packet = &self.stream.packets[self.packet - 1];
                let path = &self.stream.files[packet.file].path;
                faults.push(FolderError::events(path, packet.offset, fault.into()));
                self.has_failed = self.options.on_fault == OnFault::Stop;
            }
            for line in self.block.lines() {
                self.order.event(self.packet - 1, line.time);
            }
        }
        Ok(true)
    }

    /// Decodes the next block of the current packet.
    fn decode(&mut self) -> Result<(), DecodeError> {
        let from = self.position.take();
        let block = &mut self.block;
        let progress = match &mut self.json {
            Some(json) => json.decode(&self.data, from.as_ref(), block)?,
            None => self.plan.decode(&self.data, from.as_ref(), block)?,
        };
        if let Progress::At(position) = progress {
            self.position = Some(position);
        }
        Ok(())
    }

    /// Reads the next packet that can contain events in the window; false when there is none.
    fn read_packet(&mut self) -> Result<bool, FolderError> {
        let packet = loop {
            let Some(packet) = self.stream.packets.get(self.packet) else {
                return Ok(false);
            };
            self.packet += 1;
            if self.options.window.overlaps(packet) {
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

/// Writes the events of `traces`, one line each, merged by time.
///
/// # Errors
/// When a trace cannot be read or the output fails. Packets that cannot be decoded are in
/// [`WriteSummary::faults`] instead.
pub fn write_events(
    traces: &[TraceFolder],
    options: WriteOptions,
    output: &mut dyn Write,
) -> Result<WriteSummary, WriteError> {
    let mut summary = WriteSummary::default();
    let mut cursors = Vec::new();
    for trace in traces {
        let mut options = options;
        if options.is_intersection {
            options.window = options.window.and(&trace.intersection());
        }
        let streams = trace.streams.iter();
        cursors
            .extend(streams.map(|stream| StreamCursor::new(trace.plan.clone(), stream, options)));
    }
    let mut heap = BinaryHeap::new();
    for (index, cursor) in cursors.iter_mut().enumerate() {
        cursor.skip_to_window(&mut summary.faults)?;
        heap.extend(cursor.time().map(|time| Reverse((time, index))));
    }
    let mut lines = traces
        .first()
        .map_or_else(LineWriter::default, |trace| LineWriter::new(&trace.plan));
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
            summary.events += 1;
            if out.len() >= OUTPUT_BYTES {
                output.write_all(&out)?;
                out.clear();
            }
            cursor.next(&mut summary.faults)?;
        }
        if options.on_fault == OnFault::Stop
            && !summary.faults.is_empty()
            && cursor.time().is_none()
        {
            break;
        }
    }
    output.write_all(&out)?;
    output.flush()?;
    let disorder = cursors.iter().filter_map(|cursor| {
        let stream = cursor.stream;
        cursor.order.fault(|packet| stream.place(packet))
    });
    summary.faults.extend(disorder);
    Ok(summary)
}
