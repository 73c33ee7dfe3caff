//! Every message of a trace, as Babeltrace's `sink.text.details` prints it.
//!
//! | part | where |
//! | --- | --- |
//! | which fields are printed, and the way to lengths and selectors | [`layout`] |
//! | the classes of a trace | [`class`] |
//! | the beginning of a stream | [`stream`] |
//! | its other messages | [`message`], with the values of [`field`] |
//! | messages in a window of time | [`window`] |
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
mod window;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write;
use std::sync::Arc;

pub use options::DetailsOptions;

use crate::error::OnFault;
use crate::folder::TraceFolder;
use crate::merge::{WriteError, WriteOptions, WriteSummary};
use class::ClassWriter;
use message::StreamMessages;
use stream::{StreamIds, push_beginning};
use text::Lines;
use trace::TraceText;
use window::{StreamState, TraceWindow};

/// Bytes of text after which the output is written.
const OUTPUT_BYTES: usize = 128 * 1024;

/// Writes the messages of `traces` in a window of time, merged by time.
///
/// # Errors
/// When a trace cannot be read or the output fails. Packets that cannot be decoded are in
/// [`WriteSummary::faults`] instead.
pub fn write_details(
    traces: &[TraceFolder],
    options: DetailsOptions,
    how: WriteOptions,
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
    let mut all = Streams::default();
    for (number, trace) in traces.into_iter().enumerate() {
        let common = Arc::new(TraceText::new(trace.plan.clone()));
        let ids = StreamIds::of(trace, number);
        let mut of_trace: Vec<usize> = (0..trace.streams.len()).collect();
        of_trace.sort_by_key(|index| (ids[*index].class, ids[*index].id));
        let mut of_window = how.window;
        if how.is_intersection {
            of_window = of_window.and(&trace.intersection());
        }
        let metadata = options.with_metadata.then(|| classes(&common, options));
        let mut window = TraceWindow::new(of_window, metadata);
        for index in of_trace {
            let (stream, of_stream) = (&trace.streams[index], &ids[index]);
            let has_clock = common.clock(stream.class).is_some();
            let mut unknown = Lines::default();
            if has_clock && options.with_time {
                unknown.push("[Unknown]");
                unknown.push(if options.compact { " " } else { "\n" });
            }
            let mut lines = Lines::default();
            push_beginning(&mut lines, options, trace, stream, (of_stream, &ids));
            if !window.is_late() || !has_clock || !options.with_data {
                let beginning = [&*unknown.out, &lines.out].concat();
                text.beginning(window.classes.take(), &beginning);
            }
            let (common, ids) = (common.clone(), of_stream.clone());
            let messages = StreamMessages::new(common, stream, ids, options, how.on_fault);
            if let Some(messages) = messages {
                window.add(all.messages.len());
                all.trace_of.push(all.windows.len());
                all.messages.push(messages);
                all.states
                    .push(StreamState::new(lines.out, unknown.out, has_clock));
            }
        }
        all.windows.push(window);
    }
    if options.with_data {
        merge(&mut all, how.on_fault, &mut text, &mut summary, output)?;
        let disorder = all.messages.iter().filter_map(StreamMessages::disorder);
        summary.faults.extend(disorder);
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
    all: &mut Streams<'_>,
    on_fault: OnFault,
    text: &mut Text,
    summary: &mut WriteSummary,
    output: &mut dyn Write,
) -> Result<(), WriteError> {
    let mut last = i64::MIN;
    let mut heap = BinaryHeap::new();
    for (index, stream) in all.messages.iter_mut().enumerate() {
        let time = stream.time(&mut summary.faults)?;
        heap.extend(time.map(|time| Reverse((time.unwrap_or(last), index))));
    }
    while let Some(Reverse((time, index))) = heap.pop() {
        last = last.max(time);
        all.advance(last, text);
        if all.have_ended() {
            break;
        }
        let stream = &mut all.messages[index];
        let (window, state) = (&all.windows[all.trace_of[index]], &mut all.states[index]);
        if let Some(message) = stream.next()
            && window.takes(state, &message)
        {
            text.message(message.text);
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

/// The streams of all traces.
#[derive(Default)]
struct Streams<'t> {
    messages: Vec<StreamMessages<'t>>,
    /// Of each stream.
    states: Vec<StreamState>,
    /// The trace of each stream.
    trace_of: Vec<usize>,
    /// Of each trace.
    windows: Vec<TraceWindow>,
}

impl Streams<'_> {
    /// Whether nothing more is printed.
    fn have_ended(&self) -> bool {
        let have_clocks = self.states.iter().all(|state| state.has_clock);
        have_clocks && self.windows.iter().all(TraceWindow::has_ended)
    }

    /// Prints what begins and ends because the time is now `now`.
    fn advance(&mut self, now: i64, text: &mut Text) {
        for window in &mut self.windows {
            let print = &mut |classes: Option<Vec<u8>>, message: &[u8]| match classes {
                Some(classes) => text.beginning(Some(classes), message),
                None => text.message(message),
            };
            window.advance(now, &self.messages, &mut self.states, print);
        }
    }
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
