//! Timelines: events as slices on the tracks of their threads, in whatever bytes.
//!
//! Slices on one track must nest, and events of one thread need not, so an event that would overlap
//! another one partly is on a further track of its thread.

mod ends;
mod lanes;
mod sink;
mod tracks;

use query_language::{FieldId, FieldPath, FieldTable, Value};
use trace_kinds::Event;

use crate::cells::write_cell;
use crate::{Column, Columns};

pub(super) use sink::{Encoder, Slice, TimelineSink};
pub(super) use tracks::{Place, Track};

/// The fields of a slice.
#[derive(Debug, Clone)]
pub(super) struct SliceFields {
    dur: FieldId,
    phase: FieldId,
    pub(super) name: FieldId,
    pub(super) cat: FieldId,
    /// `agent`, `kind`, `pid` and `tid`, which select the track.
    track: [FieldId; 4],
    /// Fields that become arguments; `None` for all.
    columns: Option<Vec<Column>>,
}

/// Fields that are not arguments, because the slice or its track shows them.
const SHOWN: [&str; 8] = ["ts", "dur", "name", "cat", "agent", "kind", "pid", "tid"];

impl SliceFields {
    pub(super) fn insert(columns: &Columns, table: &mut FieldTable) -> SliceFields {
        let columns = columns.bind(table);
        let mut field = |name| table.insert(&FieldPath::new(name));
        SliceFields {
            dur: field("dur"),
            phase: field("ph"),
            name: field("name"),
            cat: field("cat"),
            track: ["agent", "kind", "pid", "tid"].map(field),
            columns,
        }
    }

    /// Appends start, duration, the phase of a Chrome event and the values that select the track,
    /// as a [`TimelineSink`] reads them.
    pub(super) fn write_place(&self, event: &dyn Event, out: &mut Vec<u8>) {
        write_cell(event.ts().map(Value::Int), out);
        write_cell(event.field(self.dur), out);
        write_cell(event.field(self.phase), out);
        for field in self.track {
            write_cell(event.field(field), out);
        }
    }

    /// Calls `each` with the requested fields that neither the slice nor its track shows.
    pub(super) fn each_argument(&self, event: &dyn Event, each: &mut dyn FnMut(&str, Value<'_>)) {
        let Some(columns) = &self.columns else {
            event.each_field(&mut |path, value| {
                if !SHOWN.contains(&path) {
                    each(path, value);
                }
            });
            return;
        };
        for column in columns {
            if !SHOWN.contains(&column.label.as_str())
                && let Some(value) = event.field(column.id)
            {
                each(&column.label, value);
            }
        }
    }
}
