//! Perfetto traces: events as slices on the tracks of their threads.
//!
//! A trace is a sequence of `TracePacket` messages (protobuf, encoded by hand as `trace-kinds` does
//! for OTLP): a clock snapshot that relates the timestamps to the wall clock, a descriptor of each
//! track before its first use, and for each event a begin and an end, or an instant if it has no
//! duration.

mod message;
mod packets;

use query_language::{FieldTable, Value};
use trace_kinds::Event;

use crate::timeline::{SliceFields, TimelineSink};
use crate::{Columns, RowFormat, RowSink, SinkOptions};
use message::{Message, track_event};
use packets::Packets;

/// Events as slices.
#[derive(Debug, Clone, Default)]
pub struct Perfetto {
    slice: Option<SliceFields>,
}

impl RowFormat for Perfetto {
    fn prepare(&mut self, columns: &Columns, table: &mut FieldTable) {
        self.slice = Some(SliceFields::insert(columns, table));
    }

    /// The place of the slice, then fields of a `TrackEvent`.
    fn row(&self, event: &dyn Event, out: &mut Vec<u8>) {
        let Some(fields) = &self.slice else {
            return;
        };
        fields.write_place(event, out);
        let mut message = Message::append_to(out);
        if let Some(cat) = event.field(fields.cat) {
            message.text(track_event::CATEGORIES, &text_of(cat));
        }
        if let Some(name) = event.field(fields.name) {
            message.text(track_event::NAME, &text_of(name));
        }
        fields.each_argument(event, &mut |name, value| {
            let annotation = annotation(name, value);
            message.bytes(track_event::DEBUG_ANNOTATIONS, &annotation);
        });
    }

    fn sink(&self, _: SinkOptions) -> Box<dyn RowSink + '_> {
        Box::new(TimelineSink::new(Packets))
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
