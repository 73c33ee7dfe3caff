//! Groups of matching events with aggregates, from chunk summaries where these suffice.

mod distinct;
mod field_values;
mod group_key;
mod group_map;
mod number_sketch;
mod spec;
mod sum;
mod summaries;

use std::ops::ControlFlow;

use chunk_index::{OwnedValue, TimeRange, Totals};
use query_language::{Aggregate, FieldId, FieldPath, FieldTable, Function, Value};
use row_formats::GroupRow;
use trace_kinds::Event;

use self::distinct::{DISTINCT_ERROR, DISTINCT_EXACT_MAX};
use self::field_values::Needs;
use self::group_key::write_key;
use self::group_map::{Budget, Full, Group, GroupMap};
use self::spec::{Source, needed_values};
use crate::engine::{TaskRef, Worker, read, tasks};
use crate::hints::{Requested, add_hints};
use crate::interval::interval_of;
use crate::plan::{Shortcut, plan};
use crate::sort_key::write_field;
use crate::source::ChunkSource;
use crate::{Limits, ReadError, Report, Request};

pub use group_map::{GROUP_BYTES_MAX, GROUPS_MAX};
pub use spec::{GroupSpec, GroupSpecError};
pub(crate) use summaries::Summaries;

/// The matching events in groups, in the order of the request. Without keys of an order, groups are
/// ordered by interval and bucket, then the group with most events comes first.
///
/// # Errors
///
/// When the query is invalid for the sources, something cannot be read, or there are more groups
/// than [`GROUPS_MAX`] or than fit in [`GROUP_BYTES_MAX`].
pub fn group_by(
    sources: &[Box<dyn ChunkSource>],
    request: &Request,
    spec: &GroupSpec,
    limits: Limits,
) -> Result<(Vec<GroupRow>, Report), ReadError> {
    let order = order_of(spec, request)?;
    let filter = request.filter(sources)?;
    let have_origin = sources.iter().all(|source| source.origin().is_some());
    let budget = Budget::default();
    let shortcut = if spec.is_summarized(have_origin) {
        Shortcut::Groups(Box::new(Summaries::new(spec, request, &budget)))
    } else {
        Shortcut::None
    };
    let mut table = FieldTable::new();
    let fields = GroupFields::new(spec, &mut table);
    let requested = Requested::new(&fields.paths(spec), &mut table);
    let query = (filter.as_ref(), &table);
    let plan = plan(sources, query, shortcut, request)?;
    let tasks = tasks(&plan.sources);
    let make = || Grouping {
        fields: &fields,
        requested: &requested,
        budget: &budget,
        map: GroupMap::default(),
        key: Vec::new(),
        is_full: false,
    };
    let reading = read(&plan.sources, &tasks, &table, (limits, request), make)?;
    let mut report = plan.report;
    let summaries = plan.shortcut.into_summaries();
    if let Some(summaries) = &summaries {
        report.matched = summaries.events();
        report.is_matched_estimated = summaries.is_sum_estimated();
        report.notes.extend(summaries.note());
    }
    let workers = reading.report(plan.sources, &mut report);
    let is_full = workers.iter().any(|worker| worker.is_full);
    let mut map = GroupMap::default();
    let merged = || {
        if let Some(summaries) = summaries {
            summaries.add_to(&mut map, sources)?;
        }
        for group in workers.into_iter().flat_map(|worker| worker.map.groups) {
            map.merge(group)?;
        }
        if spec.is_total() {
            map.group(std::iter::empty(), fields.values.len())?;
        }
        Ok::<(), Full>(())
    };
    if is_full || merged().is_err() {
        return Err(ReadError::TooManyGroups {
            field: spec.keys_text(),
            max: GROUPS_MAX,
        });
    }
    note_estimates(&fields, &map.groups, &mut report);
    add_hints(sources, request, &requested, &mut report);
    let rows = rows_of(map.groups, &fields, spec, &order, request);
    report.rows = rows.len() as u64;
    Ok((rows, report))
}

fn columns_text(columns: &[String]) -> String {
    columns.join(", ")
}

/// The columns by which the groups are ordered, and whether descending.
fn order_of(spec: &GroupSpec, request: &Request) -> Result<Vec<(usize, bool)>, ReadError> {
    let labels: Vec<String> = spec.columns()?.into_iter().map(|one| one.label).collect();
    let keys = request.order.keys.iter();
    let order = keys.map(|key| {
        let found = labels.iter().position(|label| *label == key.label);
        let column = found.ok_or_else(|| GroupSpecError::NoColumn {
            name: key.label.clone(),
            columns: columns_text(&labels),
        })?;
        Ok((column, key.descending))
    });
    order.collect()
}

/// Says which numbers of distinct values are estimates.
fn note_estimates(fields: &GroupFields, groups: &[Group], report: &mut Report) {
    for (at, (_, _, name)) in fields.values.iter().enumerate() {
        let values = groups.iter().filter_map(|group| group.values.get(at));
        let estimates = values.filter(|values| values.is_estimate()).count();
        if estimates > 0 {
            report.notes.push(format!(
                "distinct:{name} is approximate (standard error {DISTINCT_ERROR}) for {estimates} \
                 groups with more than {DISTINCT_EXACT_MAX} values, or with more than 1 MiB of them"
            ));
        }
    }
    let odd: u64 = groups.iter().map(|group| group.totals.odd).sum();
    let is_needed =
        |aggregate: &Aggregate| matches!(Source::of(aggregate), Source::Durations | Source::Starts);
    if odd > 0 && fields.aggregates.iter().any(is_needed) {
        report.notes.push(format!(
            "aggregates of ts and dur are without those of {odd} events that are not whole \
             nanoseconds"
        ));
    }
}

/// Groups as rows, in order.
fn rows_of(
    groups: Vec<Group>,
    fields: &GroupFields,
    spec: &GroupSpec,
    order: &[(usize, bool)],
    request: &Request,
) -> Vec<GroupRow> {
    let buckets = usize::from(spec.every.is_some());
    let bucket_at = spec.keys.len() + buckets;
    let mut keyed: Vec<(Vec<u8>, GroupRow)> = Vec::with_capacity(groups.len());
    for group in groups {
        let events = group.totals.events;
        let row = fields.row(group);
        let cell = |at: usize| row.get(at)?.as_ref().map(OwnedValue::as_value);
        let mut key = Vec::new();
        for (column, descending) in order {
            write_field(cell(*column), *descending, &mut key);
        }
        for column in (0..buckets).chain(spec.histogram.iter().map(|_| bucket_at)) {
            write_field(cell(column), false, &mut key);
        }
        key.extend((u64::MAX - events).to_be_bytes());
        for column in buckets..bucket_at {
            write_field(cell(column), false, &mut key);
            // Groups differ in the spelling of equal values, too.
            write_key(cell(column), &mut key);
        }
        keyed.push((key, row));
    }
    keyed.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let rows = keyed.into_iter().map(|(_, row)| row);
    rows.skip(number(request.order.offset))
        .take(request.order.limit.map_or(usize::MAX, number))
        .collect()
}

/// The fields that groups are made of.
struct GroupFields {
    every: Option<i64>,
    keys: Vec<FieldId>,
    histogram: Option<FieldId>,
    ts: FieldId,
    /// If an aggregate is of durations.
    dur: Option<FieldId>,
    /// Fields whose values groups retain, with their names.
    values: Vec<(FieldId, Needs, FieldPath)>,
    aggregates: Vec<Aggregate>,
}

impl GroupFields {
    fn new(spec: &GroupSpec, table: &mut FieldTable) -> GroupFields {
        let aggregates = spec.chosen();
        let keys = spec.keys.iter();
        let keys = keys.map(|key| table.insert(&FieldPath::new(key))).collect();
        let histogram = spec.histogram.as_deref().map(FieldPath::new);
        let values = needed_values(&aggregates).into_iter();
        GroupFields {
            every: spec.every,
            keys,
            histogram: histogram.map(|field| table.insert(&field)),
            ts: table.insert(&FieldPath::new("ts")),
            dur: spec
                .needs_durations()
                .then(|| table.insert(&FieldPath::new("dur"))),
            values: values
                .map(|(field, needs)| (table.insert(&field), needs, field))
                .collect(),
            aggregates,
        }
    }

    /// The fields of keys and aggregates.
    fn paths(&self, spec: &GroupSpec) -> Vec<FieldPath> {
        let keys = spec.keys.iter().chain(&spec.histogram);
        let keys = keys.map(|key| FieldPath::new(key));
        keys.chain(self.values.iter().map(|(.., path)| path.clone()))
            .collect()
    }

    /// The cells of a group.
    fn row(&self, group: Group) -> GroupRow {
        let results = self.aggregates.iter().map(|aggregate| {
            let function = aggregate.function;
            match Source::of(aggregate) {
                Source::Events => Some(OwnedValue::Uint(group.totals.events)),
                Source::Durations => of_durations(&group.totals, function),
                Source::Starts => of_starts(&group.totals, function),
                Source::Values => {
                    let mut fields = self.values.iter();
                    let field = aggregate.field.as_ref();
                    let at = fields.position(|(_, _, name)| Some(name) == field)?;
                    group.values.get(at)?.result(function)
                }
            }
        });
        let results: Vec<_> = results.collect();
        group.key.into_iter().chain(results).collect()
    }
}

fn of_durations(totals: &Totals, function: Function) -> Option<OwnedValue> {
    let durations = &totals.durations;
    let whole = |value: i64| OwnedValue::from(Value::Int(value));
    match function {
        Function::Count => Some(OwnedValue::Uint(durations.count)),
        Function::Sum => {
            (durations.count > 0).then(|| whole(i64::try_from(durations.sum).unwrap_or(i64::MAX)))
        }
        Function::Min => durations.range().map(|(min, _)| whole(min)),
        Function::Max => durations.range().map(|(_, max)| whole(max)),
        Function::Avg => durations.mean().map(OwnedValue::Float),
        Function::Quantile(share) => durations.quantile(share).map(OwnedValue::Float),
        Function::Distinct => None,
    }
}

fn of_starts(totals: &Totals, function: Function) -> Option<OwnedValue> {
    let whole = |value: i64| OwnedValue::from(Value::Int(value));
    match function {
        Function::Count => Some(OwnedValue::Uint(totals.timed)),
        Function::Min => totals.times.map(|times| whole(times.first)),
        Function::Max => totals.times.map(|times| whole(times.last)),
        _ => None,
    }
}

/// The power of two below a number; zero for all numbers below one.
fn power_below(value: Value<'_>) -> Option<Value<'static>> {
    let number = value.as_number()?;
    let whole = match number {
        query_language::Number::Int(value) => value,
        query_language::Number::Float(value) if value.is_nan() => return None,
        #[expect(clippy::cast_possible_truncation, reason = "the conversion saturates")]
        query_language::Number::Float(value) => value.trunc() as i128,
    };
    let whole = u64::try_from(whole.clamp(0, u64::MAX.into())).unwrap_or(u64::MAX);
    Some(Value::Uint(whole.checked_ilog2().map_or(0, |bit| 1 << bit)))
}

struct Grouping<'g> {
    fields: &'g GroupFields,
    requested: &'g Requested,
    budget: &'g Budget,
    map: GroupMap,
    /// Scratch space: the key of a value.
    key: Vec<u8>,
    is_full: bool,
}

impl Grouping<'_> {
    fn add_event(&mut self, event: &dyn Event) -> Result<(), Full> {
        let fields = self.fields;
        let start = event.field(fields.ts);
        let length = fields.dur.and_then(|dur| event.field(dur));
        let interval = fields.every.map(|every| {
            let start = start.and_then(Value::whole);
            start.map(|start| Value::Int(interval_of(start, every)))
        });
        let keys = fields.keys.iter().map(|key| event.field(*key));
        let histogram = fields.histogram;
        let power = histogram.map(|field| event.field(field).and_then(power_below));
        let key = interval.into_iter().chain(keys).chain(power);
        let (group, mut taken) = self.map.group(key, fields.values.len())?;
        let before = group.totals.durations.sketch.memory();
        add(&mut group.totals, start, length);
        taken += group.totals.durations.sketch.memory() - before;
        for ((field, needs, _), values) in fields.values.iter().zip(&mut group.values) {
            if let Some(value) = event.field(*field) {
                taken += values.add(value, *needs, &mut self.key);
            }
        }
        self.budget.take(taken)
    }
}

impl Worker for Grouping<'_> {
    fn begin(&mut self, _: TaskRef<'_>) {}

    fn event(&mut self, event: &dyn Event) -> ControlFlow<()> {
        self.requested.note(event);
        match self.add_event(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(Full) => {
                self.is_full = true;
                ControlFlow::Break(())
            }
        }
    }

    fn end(&mut self, _: TaskRef<'_>) -> ControlFlow<()> {
        if self.is_full {
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
