//! Counts and groups, from chunk summaries where these are exact.

use std::collections::HashMap;
use std::ops::ControlFlow;

use chunk_index::{OwnedValue, TimeRange, Totals};
use query_language::{FieldId, FieldPath, FieldTable, Value};
use row_formats::GroupRow;
use trace_kinds::Event;

use crate::engine::{Shortcut, TaskRef, Worker, plan, read, tasks};
use crate::source::ChunkSource;
use crate::{Limits, ReadError, Report, Request};

/// The number of matching events.
///
/// # Errors
///
/// When the query is invalid for the sources, or something cannot be read.
pub fn count(
    sources: &[Box<dyn ChunkSource>],
    request: &Request,
    limits: Limits,
) -> Result<(u64, Report), ReadError> {
    let filter = request.filter(sources)?;
    let plan = plan(sources, filter.as_ref(), Shortcut::Count, request)?;
    let tasks = tasks(&plan.sources);
    let (table, work) = (FieldTable::new(), (limits, request));
    let reading = read(&plan.sources, &tasks, &table, work, || Counting)?;
    let mut report = plan.report;
    report.matched = plan.counted;
    reading.report(plan.sources, &mut report);
    Ok((report.matched, report))
}

/// Counts only: the reader counts the matching events itself.
struct Counting;

impl Worker for Counting {
    const COUNTS_ONLY: bool = true;

    fn begin(&mut self, _: TaskRef<'_>) {}

    fn event(&mut self, _: &dyn Event) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn end(&mut self, _: TaskRef<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Groups that one result may have.
pub const GROUPS_MAX: usize = 1 << 20;

/// The matching events by the value of a field, the group with most events first.
///
/// # Errors
///
/// When the query is invalid for the sources, something cannot be read, or the field has more than
///  [`GROUPS_MAX`] values.
pub fn group_by(
    sources: &[Box<dyn ChunkSource>],
    request: &Request,
    field: &FieldPath,
    limits: Limits,
) -> Result<(Vec<GroupRow>, Report), ReadError> {
    let filter = request.filter(sources)?;
    let by_name = field.as_str() == "name";
    let summarized = by_name || field.as_str() == "cat";
    let shortcut = if summarized {
        Shortcut::Groups
    } else {
        Shortcut::None
    };
    let plan = plan(sources, filter.as_ref(), shortcut, request)?;
    let tasks = tasks(&plan.sources);
    let mut table = FieldTable::new();
    let fields = GroupFields {
        key: table.insert(field),
        ts: table.insert(&FieldPath::new("ts")),
        dur: table.insert(&FieldPath::new("dur")),
    };
    let make = || Grouping {
        fields,
        groups: Groups::default(),
        full: false,
    };
    let reading = read(&plan.sources, &tasks, &table, (limits, request), make)?;
    let mut report = plan.report;
    report.matched = plan.statistics.events();
    let workers = reading.report(plan.sources, &mut report);
    let mut full = workers.iter().any(|worker| worker.full);
    let mut groups = Groups::default();
    for group in plan.statistics.groups {
        let text = if by_name { group.name } else { group.cat };
        let totals = groups.totals(text.as_deref().map(Value::Str));
        full |= totals.map(|totals| totals.merge(&group.totals)).is_none();
    }
    for row in workers.into_iter().flat_map(|worker| worker.groups.rows) {
        let totals = groups.totals(row.value.as_ref().map(OwnedValue::as_value));
        full |= totals.map(|totals| totals.merge(&row.totals)).is_none();
    }
    if full {
        return Err(ReadError::TooManyGroups {
            field: field.to_string(),
            max: GROUPS_MAX,
        });
    }
    let mut rows = groups.rows;
    rows.sort_by(|a, b| {
        let key = |row: &GroupRow| key_of(row.value.as_ref().map(OwnedValue::as_value));
        b.totals
            .events
            .cmp(&a.totals.events)
            .then_with(|| key(a).cmp(&key(b)))
    });
    Ok((rows, report))
}

#[derive(Debug, Clone, Copy)]
struct GroupFields {
    key: FieldId,
    ts: FieldId,
    dur: FieldId,
}

/// Groups, and the index of each value's group.
#[derive(Debug, Default)]
struct Groups {
    rows: Vec<GroupRow>,
    indexes: HashMap<Vec<u8>, usize>,
    /// Scratch space: the key of the value that is looked up.
    key: Vec<u8>,
}

impl Groups {
    /// The totals of a value; `None` when there are too many values.
    fn totals(&mut self, value: Option<Value<'_>>) -> Option<&mut Totals> {
        self.key.clear();
        write_key(value, &mut self.key);
        let index = match self.indexes.get(&self.key) {
            Some(index) => *index,
            None if self.rows.len() >= GROUPS_MAX => return None,
            None => {
                self.indexes.insert(self.key.clone(), self.rows.len());
                let value = value.map(OwnedValue::from);
                self.rows.push(GroupRow {
                    value,
                    totals: Totals::default(),
                });
                self.rows.len() - 1
            }
        };
        self.rows.get_mut(index).map(|row| &mut row.totals)
    }
}

/// A key that is equal for the values of one group: those of the same type and spelling.
fn write_key(value: Option<Value<'_>>, key: &mut Vec<u8>) {
    let (tag, word) = match value {
        None => (0, [0; 8]),
        Some(Value::Str(text)) => {
            key.push(1);
            return key.extend_from_slice(text);
        }
        Some(Value::Int(value)) if value < 0 => (2, value.to_le_bytes()),
        Some(Value::Int(value)) => (3, value.to_le_bytes()),
        Some(Value::Uint(value)) => (3, value.to_le_bytes()),
        Some(Value::Float(value)) => (4, value.to_bits().to_le_bytes()),
        Some(Value::Bool(value)) => (5, [u8::from(value); 8]),
    };
    key.push(tag);
    key.extend_from_slice(&word);
}

fn key_of(value: Option<Value<'_>>) -> Vec<u8> {
    let mut key = Vec::new();
    write_key(value, &mut key);
    key
}

struct Grouping {
    fields: GroupFields,
    groups: Groups,
    full: bool,
}

impl Worker for Grouping {
    fn begin(&mut self, _: TaskRef<'_>) {}

    fn event(&mut self, event: &dyn Event) -> ControlFlow<()> {
        let Some(totals) = self.groups.totals(event.field(self.fields.key)) else {
            self.full = true;
            return ControlFlow::Break(());
        };
        let (start, length) = (event.field(self.fields.ts), event.field(self.fields.dur));
        add(totals, start, length);
        ControlFlow::Continue(())
    }

    fn end(&mut self, _: TaskRef<'_>) -> ControlFlow<()> {
        if self.full {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Adds an event exactly as chunk summaries do, so that both kinds of totals can be merged.
fn add(totals: &mut Totals, start: Option<Value<'_>>, length: Option<Value<'_>>) {
    totals.events += 1;
    let given = u8::from(start.is_some()) + u8::from(length.is_some());
    let (start, length) = (start.and_then(Value::whole), length.and_then(Value::whole));
    totals.odd += u64::from(given != u8::from(start.is_some()) + u8::from(length.is_some()));
    if let Some(length) = length {
        totals.durations.add(length);
    }
    if let Some(start) = start {
        totals.timed += 1;
        let end = start.saturating_add(length.unwrap_or(0).max(0));
        let times = totals.times.get_or_insert(TimeRange {
            first: start,
            last: start,
            end,
        });
        times.first = times.first.min(start);
        times.last = times.last.max(start);
        times.end = times.end.max(end);
    }
}
