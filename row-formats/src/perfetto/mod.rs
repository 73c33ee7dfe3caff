//! Perfetto traces: events as slices on the tracks of their threads.
//!
//! A trace is a sequence of `TracePacket` messages (protobuf, encoded by hand as `trace-kinds` does
//! for OTLP): a clock snapshot that relates the timestamps to the wall clock, a descriptor of each
//! track before its first use, and for each event a begin and an end, or an instant if it has no
//! duration.

mod message;
mod sink;
mod tracks;

use query_language::{FieldId, FieldPath, FieldTable, Value};
use trace_kinds::Event;

use crate::cells::write_cell;
use crate::{Column, Columns, RowFormat, RowSink, SinkOptions};
use message::{Message, track_event};
use sink::PerfettoSink;

/// Events as slices.
#[derive(Debug, Clone, Default)]
pub struct Perfetto {
    fields: Option<Fields>,
    /// Fields that become annotations of a slice; `None` for all.
    columns: Option<Vec<Column>>,
}

/// The fields of a slice.
#[derive(Debug, Clone, Copy)]
struct Fields {
    dur: FieldId,
    name: FieldId,
    cat: FieldId,
    /// `agent`, `kind`, `pid` and `tid`, which select the track.
    track: [FieldId; 4],
}

/// Fields that are not annotations, because the slice or its track shows them.
const SLICE_FIELDS: [&str; 8] = ["ts", "dur", "name", "cat", "agent", "kind", "pid", "tid"];

impl RowFormat for Perfetto {
    fn prepare(&mut self, columns: &Columns, table: &mut FieldTable) {
        self.columns = columns.bind(table);
        let mut field = |name| table.insert(&FieldPath::new(name));
        self.fields = Some(Fields {
            dur: field("dur"),
            name: field("name"),
            cat: field("cat"),
            track: ["agent", "kind", "pid", "tid"].map(field),
        });
    }

    /// Start, duration and the values that select the track as cells, then fields of a
    /// `TrackEvent`.
    fn row(&self, event: &dyn Event, out: &mut Vec<u8>) {
        let Some(fields) = self.fields else {
            return;
        };
        write_cell(event.ts().map(Value::Int), out);
        write_cell(event.field(fields.dur), out);
        for field in fields.track {
            write_cell(event.field(field), out);
        }
        let mut message = Message::append_to(out);
        if let Some(cat) = event.field(fields.cat) {
            message.text(track_event::CATEGORIES, &text_of(cat));
        }
        if let Some(name) = event.field(fields.name) {
            message.text(track_event::NAME, &text_of(name));
        }
        let mut annotate = |name: &str, value: Value<'_>| {
            let annotation = annotation(name, value);
            message.bytes(track_event::DEBUG_ANNOTATIONS, &annotation);
        };
        match &self.columns {
            None => event.each_field(&mut |path, value| {
                if !SLICE_FIELDS.contains(&path) {
                    annotate(path, value);
                }
            }),
            Some(columns) => {
                let others = columns
                    .iter()
                    .filter(|column| !SLICE_FIELDS.contains(&column.label.as_str()));
                for column in others {
                    if let Some(value) = event.field(column.id) {
                        annotate(&column.label, value);
                    }
                }
            }
        }
    }

    fn sink(&self, _: SinkOptions) -> Box<dyn RowSink + '_> {
        Box::new(PerfettoSink::default())
    }
}

fn text_of(value: Value<'_>) -> Vec<u8> {
    match value {
        Value::Str(text) => text.to_vec(),
        other => {
            let mut text = Vec::new();
            crate::csv::write_value(other, &mut text);
            text
        }
    }
}

fn annotation(name: &str, value: Value<'_>) -> Vec<u8> {
    use message::debug_annotation as numbers;
    let mut bytes = Vec::with_capacity(name.len() + 16);
    let mut message = Message::append_to(&mut bytes);
    message.text(numbers::NAME, name.as_bytes());
    match value {
        Value::Str(text) => message.text(numbers::STRING_VALUE, text),
        Value::Int(value) => message.number(numbers::INT_VALUE, value.cast_unsigned()),
        Value::Uint(value) => message.number(numbers::UINT_VALUE, value),
        Value::Float(value) => message.double(numbers::DOUBLE_VALUE, value),
        Value::Bool(value) => message.number(numbers::BOOL_VALUE, u64::from(value)),
    }
    bytes
}
