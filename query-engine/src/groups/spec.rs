//! Which groups are requested, and their columns.

use query_language::{Aggregate, FieldPath, Function, LISTED_FIELDS_MAX};
use row_formats::{GroupColumn, GroupColumnKind};
use trace_kinds::Origin;

use super::field_values::Needs;

/// Groups of events, and what is computed of each.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupSpec {
    /// The fields whose values make a group, as written.
    pub keys: Vec<String>,
    /// Also by the start of events, in intervals of so many nanoseconds since 1970.
    pub every: Option<i64>,
    /// Also by the power of two below the number that this field has.
    pub histogram: Option<String>,
    /// What is computed; the number of events and their durations if empty.
    pub aggregates: Vec<Aggregate>,
    /// Whether numbers of events in intervals may be estimated from chunk summaries, instead of
    /// reading chunks that are in several intervals.
    pub estimate: bool,
}

/// Which parts of a chunk summary are keys of the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SummaryKeys {
    pub(crate) name: bool,
    pub(crate) cat: bool,
    /// Agent, stream, storage or kind, which all events of a source share.
    pub(crate) origin: bool,
}

/// Why groups cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupSpecError {
    /// Two columns would have the same name.
    #[error("two columns of the groups are named {0}")]
    SameName(String),
    /// The order names a column that the groups do not have.
    #[error("the groups have no column {name} to order by; their columns are {columns}")]
    NoColumn {
        /// The name.
        name: String,
        /// The columns.
        columns: String,
    },
    /// An interval of time that is not positive.
    #[error("an interval of time is longer than zero")]
    EmptyInterval,
    /// A histogram of the field without a name.
    #[error("a histogram needs the name of a field")]
    UnnamedField,
    /// Too many columns.
    #[error("groups have at most {LISTED_FIELDS_MAX} columns")]
    TooManyColumns,
}

impl GroupSpec {
    /// Groups by the value of one field.
    pub fn by(field: &str) -> GroupSpec {
        GroupSpec {
            keys: vec![field.to_owned()],
            ..GroupSpec::default()
        }
    }

    /// Whether anything is grouped or computed.
    pub fn is_empty(&self) -> bool {
        self.is_total() && self.aggregates.is_empty()
    }

    /// Whether all events are one group.
    pub(crate) fn is_total(&self) -> bool {
        self.keys.is_empty() && self.every.is_none() && self.histogram.is_none()
    }

    /// The fields of the keys and aggregates.
    pub fn fields(&self) -> Vec<FieldPath> {
        let aggregates = self.aggregates.iter();
        let fields = self.keys.iter().chain(&self.histogram);
        fields
            .map(|field| FieldPath::new(field))
            .chain(aggregates.filter_map(|aggregate| aggregate.field.clone()))
            .collect()
    }

    /// Whether numbers of events are estimated: of intervals, and with no other aggregate.
    pub(crate) fn is_estimated(&self) -> bool {
        let chosen = self.chosen();
        let counts = chosen.iter().all(|one| Source::of(one) == Source::Events);
        self.estimate && self.every.is_some() && counts
    }

    /// Which parts of chunk summaries are keys.
    pub(crate) fn summary_keys(&self) -> SummaryKeys {
        let has = |is_wanted: &dyn Fn(&str) -> bool| {
            let mut keys = self.keys.iter();
            keys.any(|key| is_wanted(FieldPath::new(key).as_str()))
        };
        SummaryKeys {
            name: has(&|key| key == "name"),
            cat: has(&|key| key == "cat"),
            origin: has(&is_origin),
        }
    }

    /// Whether an aggregate is computed from the durations of groups.
    pub(crate) fn needs_durations(&self) -> bool {
        let chosen = self.chosen();
        let mut sources = chosen.iter().map(Source::of);
        sources.any(|source| source == Source::Durations)
    }

    /// Whether one of these needs their distribution.
    pub(crate) fn needs_sketches(&self) -> bool {
        let is_quantile = |one: &Aggregate| {
            matches!(one.function, Function::Quantile(_)) && Source::of(one) == Source::Durations
        };
        self.chosen().iter().any(is_quantile)
    }

    /// The keys as a text for messages.
    pub(crate) fn keys_text(&self) -> String {
        let interval = self.every.map(|_| "ts");
        let keys = self.keys.iter().chain(&self.histogram);
        let keys: Vec<&str> = interval
            .into_iter()
            .chain(keys.map(String::as_str))
            .collect();
        keys.join(", ")
    }

    /// The aggregates, with names of their columns.
    pub(crate) fn chosen(&self) -> Vec<Aggregate> {
        if !self.aggregates.is_empty() {
            return self.aggregates.clone();
        }
        let count = Aggregate::named("count", Function::Count, None);
        if self.histogram.is_some() {
            return vec![count];
        }
        let of_duration = [
            ("dur_count", Function::Count),
            ("dur_sum", Function::Sum),
            ("dur_min", Function::Min),
            ("dur_max", Function::Max),
            ("dur_mean", Function::Avg),
            ("dur_p50", Function::Quantile(0.5)),
            ("dur_p90", Function::Quantile(0.9)),
            ("dur_p99", Function::Quantile(0.99)),
        ];
        let of_duration =
            of_duration.map(|(label, function)| Aggregate::named(label, function, Some("dur")));
        std::iter::once(count).chain(of_duration).collect()
    }

    /// The columns of the groups: time, keys, histogram, aggregates.
    ///
    /// # Errors
    ///
    /// When two columns have the same name, there are too many, or a field or interval is empty.
    pub fn columns(&self) -> Result<Vec<GroupColumn>, GroupSpecError> {
        if self.every.is_some_and(|every| every <= 0) {
            return Err(GroupSpecError::EmptyInterval);
        }
        if (self.histogram.as_deref()).is_some_and(|field| field.trim().is_empty()) {
            return Err(GroupSpecError::UnnamedField);
        }
        let column = |label: &str, kind| GroupColumn {
            label: label.to_owned(),
            kind,
        };
        let mut columns = Vec::new();
        let values = |field: &str| GroupColumnKind::Values(FieldPath::new(field));
        columns.extend(self.every.map(|_| column("ts", values("ts"))));
        let keys = self.keys.iter();
        columns.extend(keys.map(|key| column(key, values(key))));
        if let Some(field) = &self.histogram {
            columns.push(column(&format!("{field}_from"), GroupColumnKind::Integers));
        }
        for aggregate in self.chosen() {
            let field = aggregate.field;
            columns.push(GroupColumn {
                kind: match (aggregate.function, field) {
                    (Function::Count | Function::Distinct, _) | (_, None) => {
                        GroupColumnKind::Integers
                    }
                    (Function::Avg | Function::Quantile(_), _) => GroupColumnKind::Fractions,
                    (Function::Sum, Some(field)) => GroupColumnKind::Sums(field),
                    (Function::Min | Function::Max, Some(field)) => GroupColumnKind::Values(field),
                },
                label: aggregate.label,
            });
        }
        if columns.len() > LISTED_FIELDS_MAX {
            return Err(GroupSpecError::TooManyColumns);
        }
        for (at, column) in columns.iter().enumerate() {
            if columns[..at]
                .iter()
                .any(|other| other.label == column.label)
            {
                return Err(GroupSpecError::SameName(column.label.clone()));
            }
        }
        Ok(columns)
    }

    /// Whether chunk summaries can answer: they have counts, starts and durations by name and
    /// category; agent, stream, storage and kind are those of the source, if all sources
    /// `have_origin`.
    pub(crate) fn is_summarized(&self, have_origin: bool) -> bool {
        let is_known = |key: &String| match FieldPath::new(key).as_str() {
            "name" | "cat" => true,
            key => have_origin && is_origin(key),
        };
        self.histogram.is_none()
            && self.keys.iter().all(is_known)
            && self
                .chosen()
                .iter()
                .all(|one| Source::of(one) != Source::Values)
    }
}

/// Whether all events of a stream have the same value of this field.
fn is_origin(field: &str) -> bool {
    Origin::FIELDS.contains(&field)
}

/// From what an aggregate is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The number of events.
    Events,
    /// The durations of a group.
    Durations,
    /// The starts of a group.
    Starts,
    /// The values of its field.
    Values,
}

impl Source {
    pub(crate) fn of(aggregate: &Aggregate) -> Source {
        let field = aggregate.field.as_ref().map(FieldPath::as_str);
        match (field, aggregate.function) {
            (None, _) => Source::Events,
            (Some("dur"), Function::Distinct) => Source::Values,
            (Some("dur"), _) => Source::Durations,
            (Some("ts"), Function::Count | Function::Min | Function::Max) => Source::Starts,
            _ => Source::Values,
        }
    }
}

/// The fields whose values a group retains, each with what is needed of it.
pub(crate) fn needed_values(aggregates: &[Aggregate]) -> Vec<(FieldPath, Needs)> {
    let mut needed: Vec<(FieldPath, Needs)> = Vec::new();
    for aggregate in aggregates {
        let Some(field) = &aggregate.field else {
            continue;
        };
        if Source::of(aggregate) != Source::Values {
            continue;
        }
        let known = needed.iter().position(|(path, _)| path == field);
        let at = known.unwrap_or_else(|| {
            needed.push((field.clone(), Needs::default()));
            needed.len() - 1
        });
        needed[at].1.add(aggregate.function);
    }
    needed
}
