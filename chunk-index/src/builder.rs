//! Builds chunk summaries from events, in one pass.

use std::collections::HashMap;

use query_language::{FieldId, FieldPath, FieldSource, FieldTable, Value};

use crate::OwnedValue;
use crate::chunk_summary::ChunkSummary;
use crate::columns::{ChunkColumns, ColumnsBuilder, MISSING, row_number};
use crate::config::IndexConfig;
use crate::dimension_builder::DimensionBuilder;
use crate::distinct_values::DistinctValues;
use crate::slowest::SlowestBuilder;
use crate::statistics::{ChunkStatistics, GROUPS_MAX, Group, TimeRange, Totals};

/// Summarizes the events of a chunk, then of the next.
///
/// An event costs a few nanoseconds per dimension: a value is compared with the previous one, else
/// found by a hash of two words. Memory is allocated only for values that are new in the chunk;
/// filters, dictionaries and limits are built from the distinct values at the end.
#[derive(Debug)]
pub struct ChunkBuilder {
    config: IndexConfig,
    entries_max: usize,
    ids: Vec<FieldId>,
    ts: FieldId,
    dur: FieldId,
    dimensions: Vec<DimensionBuilder>,
    groups: GroupBuilder,
    slowest: SlowestBuilder,
    /// Dimensions whose value is the same for all events of a shape, and the indexes of all others.
    shaped: Vec<bool>,
    unshaped: Vec<usize>,
    shapes: Vec<Option<Shape>>,
    /// The columns of the current chunk, if requested.
    columns: Option<Box<ColumnsBuilder>>,
    /// The values of one dimension over all chunks, if requested.
    distinct: Option<DistinctValues>,
}

/// What the events of one shape have in common in the current chunk.
#[derive(Debug, Clone)]
struct Shape {
    /// By dimension: the number of its value, if it is shared and present.
    ids: Box<[Option<u32>]>,
    /// Events that are not counted for these values yet.
    uncounted: u64,
    group: GroupIndex,
}

/// Shapes per chunk.
const SHAPES_MAX: usize = 1 << 16;

/// Indexes of `name` and `cat` among the dimensions.
const NAME: usize = 0;
const CAT: usize = 1;

impl ChunkBuilder {
    /// A builder for chunks of events that are decoded with the fields of `table`. Adds the
    /// dimensions, `ts` and `dur` to `table`.
    pub fn new(config: IndexConfig, table: &mut FieldTable) -> ChunkBuilder {
        let ids: Vec<FieldId> = config
            .dimensions()
            .iter()
            .map(|path| table.insert(path))
            .collect();
        ChunkBuilder {
            entries_max: config.entries_max(),
            ts: table.insert(&FieldPath::new("ts")),
            dur: table.insert(&FieldPath::new("dur")),
            dimensions: ids.iter().map(|_| DimensionBuilder::new()).collect(),
            groups: GroupBuilder::default(),
            slowest: SlowestBuilder::default(),
            shaped: vec![false; ids.len()],
            unshaped: (0..ids.len()).collect(),
            shapes: Vec::new(),
            columns: None,
            distinct: None,
            ids,
            config,
        }
    }

    /// Declares that events of the same shape have the same values of `fields`. These values are
    /// then looked up once per chunk instead of once per event.
    pub fn share_by_shape(&mut self, fields: &[&str]) {
        for (shaped, path) in self.shaped.iter_mut().zip(self.config.dimensions()) {
            *shaped = fields.contains(&path.as_str());
        }
        self.unshaped = (0..self.ids.len()).filter(|at| !self.shaped[*at]).collect();
    }

    /// The configuration.
    pub fn config(&self) -> &IndexConfig {
        &self.config
    }

    /// Collects the columns of all chunks from now on: see [`ChunkBuilder::finish_columns`].
    pub fn keep_columns(&mut self) {
        self.columns = Some(Box::new(ColumnsBuilder::new(self.ids.len())));
    }

    /// Collects the distinct values of `field` over all chunks from now on, so that filters of
    /// chunks can be sets of entries of a file dictionary: see [`ChunkBuilder::take_distinct`].
    /// Chunks with many values have no filter until [`DistinctValues::build_filters`].
    pub fn collect_distinct(&mut self, field: &FieldPath) {
        let dimension = self
            .config
            .dimensions()
            .iter()
            .position(|path| path == field);
        self.distinct = dimension.map(DistinctValues::new);
    }

    /// The distinct values of all chunks so far.
    pub fn take_distinct(&mut self) -> Option<DistinctValues> {
        self.distinct.take()
    }

    /// Adds an event.
    #[inline]
    pub fn add<S: FieldSource + ?Sized>(&mut self, event: &S) {
        if let Some(length) = self.summarize(event, None) {
            self.slowest.pass(length);
        }
    }

    /// Adds an event with its record: its bytes and their offset in the decoded content. The
    /// records of the slowest events are stored, so they must be decodable on their own. `shape` is
    /// a small number, see [`ChunkBuilder::share_by_shape`].
    #[inline]
    pub fn add_record<S: FieldSource + ?Sized>(
        &mut self,
        event: &S,
        shape: Option<u32>,
        raw_offset: u64,
        record: &[u8],
    ) {
        if let Some(length) = self.summarize(event, shape) {
            self.slowest.add(length, raw_offset, record);
        }
    }

    /// Adds an event except for its record; returns its duration.
    #[inline]
    fn summarize<S: FieldSource + ?Sized>(&mut self, event: &S, shape: Option<u32>) -> Option<i64> {
        let known = match shape {
            Some(number) => self
                .shapes
                .get_mut(number as usize)
                .and_then(Option::as_mut),
            None => None,
        };
        let group = match known {
            Some(shape) => {
                shape.uncounted += 1;
                let group = shape.group;
                if let Some(columns) = &mut self.columns {
                    for (at, shaped) in self.shaped.iter().enumerate() {
                        if *shaped {
                            columns.value(
                                at,
                                shape.ids[at].map_or(MISSING, |id| row_number(Some(id))),
                            );
                        }
                    }
                }
                self.count_unshaped(event);
                group
            }
            None => self.count_all(event, shape),
        };
        let totals = self.groups.at(group);
        totals.events += 1;
        let (start, length) = (event.field(self.ts), event.field(self.dur));
        // A value of another type is not a time and is not part of any statistic. This includes
        // text that spells a number, because a query can compare it as text.
        let given = u8::from(start.is_some()) + u8::from(length.is_some());
        let (start, length) = (start.and_then(Value::whole), length.and_then(Value::whole));
        let odd = given != u8::from(start.is_some()) + u8::from(length.is_some());
        totals.odd += u64::from(odd);
        if let Some(columns) = &mut self.columns {
            columns.end_row(start, length, odd);
        }
        if let Some(length) = length {
            totals.durations.add(length);
        }
        if let Some(start) = start {
            totals.timed += 1;
            let end = start.saturating_add(length.unwrap_or(0).max(0));
            match &mut totals.times {
                Some(times) => {
                    times.first = times.first.min(start);
                    times.last = times.last.max(start);
                    times.end = times.end.max(end);
                }
                none => {
                    *none = Some(TimeRange {
                        first: start,
                        last: start,
                        end,
                    });
                }
            }
        }
        length
    }

    /// Counts the values that events of one shape do not share.
    #[inline]
    fn count_unshaped<S: FieldSource + ?Sized>(&mut self, event: &S) {
        for at in &self.unshaped {
            let (dimension, id) = (&mut self.dimensions[*at], self.ids[*at]);
            let row = event.field(id).map_or(MISSING, |value| {
                row_number(dimension.count(value, self.entries_max))
            });
            if let Some(columns) = &mut self.columns {
                columns.value(*at, row);
            }
        }
    }

    /// Counts all values, and remembers those of a new shape. Returns the group.
    fn count_all<S: FieldSource + ?Sized>(&mut self, event: &S, shape: Option<u32>) -> GroupIndex {
        let mut labels = [Label::MISSING; 2];
        let mut ids = vec![None; if shape.is_some() { self.ids.len() } else { 0 }];
        // A value without a number cannot be counted later.
        let mut all_numbered = true;
        for (at, (dimension, id)) in self.dimensions.iter_mut().zip(&self.ids).enumerate() {
            let value = event.field(*id);
            let number = value.and_then(|value| dimension.count(value, self.entries_max));
            if let Some(columns) = &mut self.columns {
                columns.value(at, value.map_or(MISSING, |_| row_number(number)));
            }
            let Some(value) = value else {
                continue;
            };
            if let Some(label) = labels.get_mut(at) {
                *label = Label::new(value, number);
            }
            if self.shaped[at] {
                all_numbered &= number.is_some();
                if let Some(id) = ids.get_mut(at) {
                    *id = number;
                }
            }
        }
        let group = self.groups.index_of(labels[NAME], labels[CAT]);
        if let Some(number) = shape.map(|number| number as usize)
            && number < SHAPES_MAX
            && all_numbered
        {
            if number >= self.shapes.len() {
                self.shapes.resize(number + 1, None);
            }
            self.shapes[number] = Some(Shape {
                ids: ids.into(),
                uncounted: 0,
                group,
            });
        }
        group
    }

    /// Counts the shared values once for each event of their shape.
    fn count_shapes(&mut self) {
        for shape in self.shapes.drain(..).flatten() {
            for (dimension, id) in self.dimensions.iter_mut().zip(&shape.ids) {
                if let Some(id) = id {
                    dimension.count_again(*id, shape.uncounted);
                }
            }
        }
    }

    /// The columns of the events since the last chunk, if requested. Call this before
    /// [`ChunkBuilder::finish`].
    pub fn finish_columns(&mut self) -> Option<ChunkColumns> {
        let dimensions = &self.dimensions;
        let columns = self.columns.as_mut()?;
        Some(columns.finish(|dimension| dimensions[dimension].values()))
    }

    /// The summary of the events since the last call.
    pub fn finish(&mut self) -> ChunkSummary {
        self.count_shapes();
        let label = |dimension: &DimensionBuilder, label: Label| match label.id() {
            None => None,
            Some(id) => match dimension.value(id) {
                Some(OwnedValue::Str(text)) => Some(text),
                _ => None,
            },
        };
        let groups = std::mem::take(&mut self.groups);
        let statistics = ChunkStatistics {
            groups: groups
                .groups
                .into_iter()
                .map(|(name, cat, totals)| Group {
                    name: label(&self.dimensions[NAME], name),
                    cat: label(&self.dimensions[CAT], cat),
                    totals,
                })
                .collect(),
            other: groups.other,
        };
        let (config, distinct) = (&self.config, &mut self.distinct);
        ChunkSummary {
            statistics,
            slowest: self.slowest.finish(),
            dimensions: self
                .dimensions
                .iter_mut()
                .enumerate()
                .map(|(at, dimension)| {
                    let distinct = distinct.as_mut().filter(|values| values.dimension() == at);
                    dimension.finish(config, distinct)
                })
                .collect(),
        }
    }
}

/// The number of a category or a name in its chunk, plus one; or the reason why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Label(u32);

impl Label {
    /// The event lacks the field.
    const MISSING: Label = Label(0);
    /// The field is not text, or its value has no number.
    const UNKNOWN: Label = Label(u32::MAX);

    #[inline]
    fn new(value: Value<'_>, number: Option<u32>) -> Label {
        match (value, number) {
            (Value::Str(_), Some(number)) => Label(number + 1),
            _ => Label::UNKNOWN,
        }
    }

    fn id(self) -> Option<u32> {
        self.0.checked_sub(1)
    }
}

/// The totals of the pairs of name and category in the current chunk.
#[derive(Debug, Default)]
struct GroupBuilder {
    groups: Vec<(Label, Label, Totals)>,
    /// By name: its first category, and the index of that group.
    firsts: Vec<Option<(Label, u32)>>,
    /// All other pairs.
    more: HashMap<(Label, Label), u32>,
    other: Totals,
}

/// The index of a group; `None` for the totals of all other events.
type GroupIndex = Option<u32>;

impl GroupBuilder {
    #[inline]
    fn at(&mut self, group: GroupIndex) -> &mut Totals {
        match group {
            Some(group) => &mut self.groups[group as usize].2,
            None => &mut self.other,
        }
    }

    #[inline]
    fn index_of(&mut self, name: Label, cat: Label) -> GroupIndex {
        if let Some(Some((first, group))) = self.firsts.get(name.0 as usize)
            && *first == cat
        {
            return Some(*group);
        }
        self.find(name, cat)
    }

    #[inline(never)]
    fn find(&mut self, name: Label, cat: Label) -> GroupIndex {
        if name == Label::UNKNOWN || cat == Label::UNKNOWN {
            return None;
        }
        if let Some(group) = self.more.get(&(name, cat)) {
            return Some(*group);
        }
        let group = u32::try_from(self.groups.len()).ok()?;
        if self.groups.len() >= GROUPS_MAX {
            return None;
        }
        self.groups.push((name, cat, Totals::default()));
        let at = name.0 as usize;
        if at >= self.firsts.len() {
            self.firsts.resize(at + 1, None);
        }
        match &mut self.firsts[at] {
            Some(_) => {
                self.more.insert((name, cat), group);
            }
            none => *none = Some((cat, group)),
        }
        Some(group)
    }
}
