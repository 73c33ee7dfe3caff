//! Every message of a trace, as Babeltrace's `sink.text.details` prints it.
//!
//! | part | where |
//! | --- | --- |
//! | which fields are printed, and the way to lengths and selectors | [`layout`] |
//! | the classes of a trace | [`class`] |
//! | the beginning of a stream | [`stream`] |
//! | its other messages | [`message`], with the values of [`field`] |
//! | all messages, merged by time | here |

mod class;
mod field;
mod layout;
mod message;
mod number;
mod options;
mod stream;
mod text;
mod trace;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write;
use std::sync::Arc;

pub use options::DetailsOptions;

use crate::error::OnFault;
use crate::folder::TraceFolder;
use crate::merge::{WriteError, WriteSummary};
use class::ClassWriter;
use message::StreamMessages;
use stream::{StreamIds, push_beginning};
use text::Lines;
use trace::TraceText;

/// Bytes of text after which the output is written.
const OUTPUT_BYTES: usize = 128 * 1024;

/// Writes all messages of `traces`, merged by time.
///
/// # Errors
/// When a trace cannot be read or the output fails. Packets that cannot be decoded are in
/// [`WriteSummary::faults`] instead.
pub fn write_details(
    traces: &[TraceFolder],
    options: DetailsOptions,
    on_fault: OnFault,
    output: &mut dyn Write,
) -> Result<WriteSummary, WriteError> {
    let mut traces: Vec<&TraceFolder> = traces.iter().collect();
    // Streams of other traces begin in this order; the order of their streams is that of a trace.
    traces.sort_by(|a, b| rank(a).cmp(&rank(b)));
    let mut summary = WriteSummary::default();
    let mut text = Text {
        options,
        out: Vec::new(),
        is_begun: false,
    };
    let mut streams = Vec::new();
    for (number, trace) in traces.into_iter().enumerate() {
        let common = Arc::new(TraceText::new(trace.plan.clone()));
        let ids = StreamIds::of(trace, number);
        let mut of_trace: Vec<usize> = (0..trace.streams.len()).collect();
        of_trace.sort_by_key(|index| (ids[*index].class, ids[*index].id));
        let mut metadata = options.with_metadata.then(|| classes(&common, options));
        for index in of_trace {
            let (stream, of_stream) = (&trace.streams[index], &ids[index]);
            let mut lines = Lines::default();
            if common.clock(stream.class).is_some() && options.with_time {
                lines.push("[Unknown]");
                lines.push(if options.compact { " " } else { "\n" });
            }
            push_beginning(&mut lines, options, trace, stream, (of_stream, &ids));
            text.beginning(metadata.take(), &lines.out);
            let (common, ids) = (common.clone(), of_stream.clone());
            streams.extend(StreamMessages::new(common, stream, ids, options, on_fault));
        }
    }
    if options.with_data {
        merge(&mut streams, on_fault, &mut text, &mut summary, output)?;
    }
    output.write_all(&text.out)?;
    output.flush()?;
    Ok(summary)
}

/// Traces with a UUID first, by UUID, then by name.
fn rank(trace: &TraceFolder) -> (bool, Option<[u8; 16]>, &str) {
    let uuid = trace.class().uuid().map(|uuid| uuid.into_bytes());
    (uuid.is_none(), uuid, trace.plan.name())
}

fn classes(common: &TraceText, options: DetailsOptions) -> Vec<u8> {
    let mut lines = Lines::default();
    let mut writer = ClassWriter {
        procedure: common.procedure(),
        layout: common.layout(),
        options,
        lines: &mut lines,
    };
    writer.trace_class();
    lines.out
}

/// Writes the messages behind the beginnings of all streams. Where times are equal, the order is
/// that of the streams; a message without a time directly follows the one before it.
fn merge(
    streams: &mut [StreamMessages<'_>],
    on_fault: OnFault,
    text: &mut Text,
    summary: &mut WriteSummary,
    output: &mut dyn Write,
) -> Result<(), WriteError> {
    let mut last = i64::MIN;
    let mut heap = BinaryHeap::new();
    for (index, stream) in streams.iter_mut().enumerate() {
        let time = stream.time(&mut summary.faults)?;
        heap.extend(time.map(|time| Reverse((time.unwrap_or(last), index))));
    }
    while let Some(Reverse((time, index))) = heap.pop() {
        last = last.max(time);
        let stream = &mut streams[index];
        if let Some(message) = stream.next() {
            text.message(message);
            summary.events += 1;
        }
        if text.out.len() >= OUTPUT_BYTES {
            output.write_all(&text.out)?;
            text.out.clear();
        }
        match stream.time(&mut summary.faults)? {
            Some(time) => heap.push(Reverse((time.unwrap_or(last), index))),
            None if on_fault == OnFault::Stop && !summary.faults.is_empty() => break,
            None => {}
        }
    }
    Ok(())
}

/// The text that is not written yet.
struct Text {
    options: DetailsOptions,
    out: Vec<u8>,
    is_begun: bool,
}

impl Text {
    /// Adds the beginning of a stream, and before it the classes of its trace.
    fn beginning(&mut self, classes: Option<Vec<u8>>, message: &[u8]) {
        let Some(classes) = classes else {
            if self.options.with_data {
                self.message(message);
            }
            return;
        };
        self.separate();
        self.out.extend_from_slice(&classes);
        if self.options.with_data {
            self.out.push(b'\n');
            self.out.extend_from_slice(message);
        }
    }

    fn message(&mut self, message: &[u8]) {
        if !self.options.compact {
            self.separate();
        }
        self.is_begun = true;
        self.out.extend_from_slice(message);
    }

    /// An empty line between blocks.
    fn separate(&mut self) {
        if self.is_begun {
            self.out.push(b'\n');
        }
        self.is_begun = true;
    }
}
