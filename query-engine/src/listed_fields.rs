//! Which fields the matching events have, by kind.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use chunk_index::OwnedValue;
use query_language::{FieldId, FieldPath, FieldTable, Value};
use row_formats::{GroupColumn, GroupColumnKind, GroupRow};
use trace_kinds::Event;

use crate::engine::{TaskRef, Worker, read, tasks};
use crate::plan::{Shortcut, plan};
use crate::source::ChunkSource;
use crate::{Limits, ReadError, Report, Request};

/// Fields of one kind that a list may have; names of fields may come from the traced program.
pub const FIELDS_MAX: usize = 1 << 14;

/// The columns of a list of fields.
pub fn field_columns() -> Vec<GroupColumn> {
    let column = |(label, kind): (&str, _)| GroupColumn {
        label: label.to_owned(),
        kind,
    };
    let text = |label: &str| GroupColumnKind::Values(FieldPath::new(label));
    let columns = [
        ("kind", text("kind")),
        ("field", text("field")),
        ("types", text("types")),
        ("events", GroupColumnKind::Integers),
    ];
    columns.map(column).into()
}

/// The fields of the matching events by kind and name, each with the types of its values and the
/// number of events that have it. The fields that describe the origin of an event are not listed.
///
/// # Errors
///
/// When the query is invalid for the sources, or something cannot be read.
pub fn list_fields(
    sources: &[Box<dyn ChunkSource>],
    request: &Request,
    limits: Limits,
) -> Result<(Vec<GroupRow>, Report), ReadError> {
    let filter = request.filter(sources)?;
    let mut table = FieldTable::new();
    let kind = table.insert(&FieldPath::new("kind"));
    // Every field is asked for.
    table.insert(&FieldPath::new("dur"));
    let query = (filter.as_ref(), &table);
    let plan = plan(sources, query, Shortcut::None, request)?;
    let tasks = tasks(&plan.sources);
    let make = || Listing {
        kind,
        kinds: BTreeMap::new(),
        omitted: 0,
        events: 0,
    };
    let reading = read(&plan.sources, &tasks, &table, (limits, request), make)?;
    let mut report = plan.report;
    let workers = reading.report(plan.sources, &mut report);
    let mut all = Listing {
        kind,
        kinds: BTreeMap::new(),
        omitted: 0,
        events: 0,
    };
    for worker in workers {
        all.omitted += worker.omitted;
        for (kind, fields) in worker.kinds {
            for (field, found) in fields {
                all.add(&kind, &field, Found { last: 0, ..found });
            }
        }
    }
    if all.omitted > 0 {
        report.notes.push(format!(
            "there are more than {FIELDS_MAX} fields of a kind; the others are not listed"
        ));
    }
    let cell = |text: &[u8]| Some(OwnedValue::Str(text.into()));
    let rows = all.kinds.iter().flat_map(|(kind, fields)| {
        fields.iter().map(move |(field, found)| {
            vec![
                cell(kind),
                cell(field.as_bytes()),
                cell(found.types_text().as_bytes()),
                Some(OwnedValue::Uint(found.events)),
            ]
        })
    });
    let rows: Vec<GroupRow> = rows.collect();
    report.rows = rows.len() as u64;
    Ok((rows, report))
}

/// What is known of a field.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    events: u64,
    /// A bit for each of [`TYPES`].
    types: u8,
    /// The number of the last event that has it, in the list of one worker; 0 in that of all.
    last: u64,
}

const TYPES: [&str; 4] = ["text", "integer", "fraction", "boolean"];

impl Found {
    fn of(value: Value<'_>, last: u64) -> Found {
        let index = match value {
            Value::Str(_) => 0,
            Value::Int(_) | Value::Uint(_) => 1,
            Value::Float(_) => 2,
            Value::Bool(_) => 3,
        };
        Found {
            events: 1,
            types: 1 << index,
            last,
        }
    }

    fn types_text(self) -> String {
        let types = TYPES.iter().enumerate();
        let types = types.filter(|(index, _)| self.types >> index & 1 == 1);
        let types: Vec<&str> = types.map(|(_, name)| *name).collect();
        types.join(" ")
    }
}

struct Listing {
    kind: FieldId,
    kinds: BTreeMap<Box<[u8]>, BTreeMap<Box<str>, Found>>,
    omitted: u64,
    /// Events so far.
    events: u64,
}

impl Listing {
    fn add(&mut self, kind: &[u8], field: &str, found: Found) {
        if !self.kinds.contains_key(kind) {
            self.kinds.insert(kind.into(), BTreeMap::new());
        }
        let Some(fields) = self.kinds.get_mut(kind) else {
            return;
        };
        if let Some(known) = fields.get_mut(field) {
            // A key with a dot and a nested member may have the same path.
            let is_same_event = found.last != 0 && found.last == known.last;
            known.events += if is_same_event { 0 } else { found.events };
            known.last = found.last;
            known.types |= found.types;
        } else if fields.len() < FIELDS_MAX {
            fields.insert(field.into(), found);
        } else {
            self.omitted += 1;
        }
    }
}

impl Worker for Listing {
    fn begin(&mut self, _: TaskRef<'_>) {}

    fn event(&mut self, event: &dyn Event) -> ControlFlow<()> {
        let kind = match event.field(self.kind) {
            Some(Value::Str(kind)) => kind,
            _ => b"",
        };
        self.events += 1;
        let last = self.events;
        event.each_field(&mut |field, value| {
            // The kind is requested here, and so it is among the fields.
            if !matches!(field, "agent" | "stream" | "storage" | "kind") {
                self.add(kind, field, Found::of(value, last));
            }
        });
        ControlFlow::Continue(())
    }

    fn end(&mut self, _: TaskRef<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
