//! What the summaries say about one predicate.

use std::sync::{Arc, Mutex, PoisonError};

use query_language::{Condition, FieldPath, Matcher, Number, Predicate, Scalar, Value};

use super::Tier;
use super::limits::{NumberRange, Verdict};
use crate::chunk::Chunk;
use crate::index::Index;
use crate::statistics::{Group, Totals};
use crate::value::{ValueTypes, hash_bool, hash_number, hash_text};
use crate::zone::Zone;
use crate::{ChunkFilter, Dictionary, FileDictionary};

/// Hashes of a list that are looked up in a filter; a longer list rules out nothing.
const HASHES_MAX: usize = 1 << 16;

/// A predicate, prepared.
#[derive(Debug)]
pub(crate) struct Leaf {
    field: FieldPath,
    role: Role,
    condition: Condition<Scalar>,
    matcher: Matcher,
    /// The hashes of the values of which one must occur.
    hashes: Option<Vec<u64>>,
    /// The entries of these values in the file dictionary of the last index.
    entries: Mutex<Option<MatchingEntries>>,
}

/// Entries, and the file dictionary that they refer to.
type MatchingEntries = (Arc<FileDictionary>, Arc<[u32]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Time,
    Duration,
    Name,
    Cat,
    Other,
}

/// Events whose names, times and durations are known together.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) events: u64,
    odd: u64,
    times: Range,
    durations: Range,
    name: Label<'a>,
    cat: Label<'a>,
}

/// The category or the name that the events share.
#[derive(Debug, Clone, Copy)]
enum Label<'a> {
    Known(&'a [u8]),
    /// They have none.
    Missing,
    /// They may have any.
    Unknown,
}

impl<'a> Label<'a> {
    fn of(label: &'a Option<Box<[u8]>>) -> Label<'a> {
        label.as_deref().map_or(Label::Missing, Label::Known)
    }
}

/// Limits of a time of events.
#[derive(Debug, Clone, Copy)]
enum Range {
    /// The number of events that have it, between these limits.
    Known(u64, Option<(i64, i64)>),
    Unknown,
}

impl<'a> Subject<'a> {
    pub(crate) fn group(group: &'a Group) -> Subject<'a> {
        Subject {
            name: Label::of(&group.name),
            cat: Label::of(&group.cat),
            ..Subject::other(&group.totals)
        }
    }

    /// Events with unknown name and category.
    pub(crate) fn other(totals: &Totals) -> Subject<'a> {
        let times = totals.times.map(|times| (times.first, times.last));
        let durations = &totals.durations;
        Subject {
            events: totals.events,
            odd: totals.odd,
            times: Range::Known(totals.timed, times),
            durations: Range::Known(durations.count, durations.range()),
            name: Label::Unknown,
            cat: Label::Unknown,
        }
    }

    /// The events without those that are slower than `floor`, and without all that have a duration
    /// if it is `None`; `None` if no event is left.
    pub(crate) fn without_slower(self, floor: Option<i64>) -> Option<Subject<'a>> {
        let Range::Known(count, limits) = self.durations else {
            return Some(self);
        };
        let left = limits
            .zip(floor)
            .map(|((min, max), floor)| (min, max.min(floor)))
            .filter(|(min, max)| min <= max);
        // Whether all of these events have a duration does not change.
        (left.is_some() || count < self.events).then_some(Subject {
            durations: Range::Known(count, left),
            ..self
        })
    }

    /// A chunk whose statistics are not loaded.
    pub(crate) fn chunk(chunk: &Chunk) -> Subject<'a> {
        Subject {
            events: chunk.events,
            odd: chunk.odd,
            times: Range::Known(
                chunk.timed,
                chunk.times.map(|times| (times.first, times.last)),
            ),
            durations: Range::Unknown,
            name: Label::Unknown,
            cat: Label::Unknown,
        }
    }
}

impl Leaf {
    pub(crate) fn new(predicate: &Predicate<Scalar>) -> Leaf {
        let Predicate {
            field, condition, ..
        } = predicate;
        Leaf {
            role: match field.as_str() {
                "ts" => Role::Time,
                "dur" => Role::Duration,
                "name" => Role::Name,
                "cat" => Role::Cat,
                _ => Role::Other,
            },
            matcher: Matcher::new(condition),
            hashes: hashes(condition),
            entries: Mutex::new(None),
            field: field.clone(),
            condition: condition.clone(),
        }
    }

    /// Whether the statistics of groups can say more than the table of chunks, which has the times.
    pub(crate) fn needs_statistics(&self) -> bool {
        matches!(self.role, Role::Duration | Role::Name | Role::Cat)
    }

    /// Whether the predicate is about the duration.
    pub(crate) fn needs_duration(&self) -> bool {
        self.role == Role::Duration
    }

    /// Whether a later tier of evidence can say more about `field` than the statistics.
    pub(crate) fn needs(&self, field: &FieldPath, tier: Tier) -> bool {
        self.role == Role::Other
            && self.field == *field
            && (tier != Tier::Filters || self.hashes.is_some())
    }

    /// The verdict of names, times and durations.
    pub(crate) fn ask(&self, subject: &Subject<'_>) -> Verdict {
        match self.role {
            Role::Time => self.ask_range(subject.times, subject),
            Role::Duration => self.ask_range(subject.durations, subject),
            Role::Name => self.ask_label(subject.name),
            Role::Cat => self.ask_label(subject.cat),
            Role::Other => Verdict::UNKNOWN,
        }
    }

    fn ask_range(&self, range: Range, subject: &Subject<'_>) -> Verdict {
        let Range::Known(count, limits) = range else {
            return Verdict::UNKNOWN;
        };
        let verdict = match limits {
            Some((min, max)) => NumberRange {
                min: Number::Int(i128::from(min)),
                max: Number::Int(i128::from(max)),
            }
            .verdict(&self.condition),
            None => Verdict::NONE,
        };
        Verdict {
            may: verdict.may || subject.odd > 0,
            all: verdict.all && count == subject.events,
        }
    }

    fn ask_label(&self, label: Label<'_>) -> Verdict {
        match label {
            Label::Known(text) if self.matcher.passes(Value::Str(text)) => Verdict::ALL,
            Label::Known(_) | Label::Missing => Verdict::NONE,
            Label::Unknown => Verdict::UNKNOWN,
        }
    }

    /// The verdict of the field's dimension on the whole chunk; `None` if the groups of a chunk
    /// decide instead.
    pub(crate) fn ask_dimension(&self, index: &Index, chunk: usize, tier: Tier) -> Option<Verdict> {
        let grouped = match self.role {
            Role::Time | Role::Duration => true,
            // Without statistics the dimension decides.
            Role::Name | Role::Cat => index.statistics(chunk).is_some_and(|s| s.other.events == 0),
            Role::Other => false,
        };
        if grouped {
            return None;
        }
        if tier < Tier::Dictionaries {
            return (self.role == Role::Other).then_some(Verdict::UNKNOWN);
        }
        let events = index.chunks()[chunk].events;
        let mut verdict = match index.limits(&self.field, chunk) {
            Some((zone, dictionary)) => self.ask_limits(zone, dictionary, events),
            None => Verdict::UNKNOWN,
        };
        if tier == Tier::Filters
            && let Some(filter) = index.filter(&self.field, chunk)
        {
            verdict.may &= self.ask_filter(filter, index.file_dictionary(&self.field));
        }
        Some(verdict)
    }

    fn ask_limits(&self, zone: &Zone, dictionary: Option<&Dictionary>, events: u64) -> Verdict {
        if zone.present == 0 {
            return Verdict::NONE;
        }
        if let Some(dictionary) = dictionary {
            let (mut may, mut all) = (false, zone.present == events);
            for (value, _) in dictionary.entries() {
                let passes = self.matcher.passes(value.as_value());
                may |= passes;
                all &= passes;
            }
            return Verdict { may, all };
        }
        let range = zone.numbers.map(|(min, max)| NumberRange { min, max });
        let numeric = ValueTypes::INT
            .with(ValueTypes::UINT)
            .with(ValueTypes::FLOAT);
        if let Some(range) = range
            && numeric.with(zone.types) == numeric
        {
            let verdict = range.verdict(&self.condition);
            return Verdict {
                may: verdict.may,
                all: verdict.all && zone.present == events,
            };
        }
        Verdict {
            may: self.may_by_limits(zone, range),
            all: matches!(self.condition, Condition::Exists) && zone.present == events,
        }
    }

    /// Whether a value of mixed types can pass.
    fn may_by_limits(&self, zone: &Zone, range: Option<NumberRange>) -> bool {
        let texts = zone.texts.as_ref();
        let compare = |op, scalar: &Scalar| match scalar {
            Scalar::Number(literal) => range.is_some_and(|r| r.compare(op, *literal).may),
            Scalar::Str(literal) => texts.is_some_and(|t| t.may_compare(op, literal)),
            Scalar::Bool(_) => zone.types.has(ValueTypes::BOOL),
        };
        match &self.condition {
            Condition::Exists | Condition::In { negated: true, .. } => true,
            Condition::Compare(op, scalar) => compare(*op, scalar),
            Condition::In { values, .. } => values
                .iter()
                .any(|scalar| compare(query_language::CompareOp::Eq, scalar)),
            Condition::Matches(_) => texts.is_some(),
            // A substring of a text need not be between its limits.
            Condition::Contains(_) => texts.is_some(),
            Condition::StartsWith(prefix) => {
                texts.is_some_and(|texts| texts.may_start_with(prefix.as_bytes()))
            }
        }
    }

    fn ask_filter(
        &self,
        filter: &ChunkFilter,
        file_dictionary: Option<&Arc<FileDictionary>>,
    ) -> bool {
        let Some(hashes) = &self.hashes else {
            return true;
        };
        match (filter, file_dictionary) {
            (ChunkFilter::Bloom(filter), _) => hashes.iter().any(|hash| filter.may_contain(*hash)),
            (ChunkFilter::Entries(entries), Some(file_dictionary)) => {
                entries.contains_any(&self.entries_in(file_dictionary))
            }
            (ChunkFilter::Entries(_), None) => true,
        }
    }

    /// The entries of the values of which one must occur, ascending; searched once per index.
    fn entries_in(&self, file_dictionary: &Arc<FileDictionary>) -> Arc<[u32]> {
        // The entries are replaced as a whole, so they are valid even if a thread panicked.
        let mut cached = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, entries)) = &*cached
            && Arc::ptr_eq(known, file_dictionary)
        {
            return Arc::clone(entries);
        }
        let mut entries = Vec::new();
        match &self.condition {
            Condition::Compare(_, scalar) => file_dictionary.find(scalar, &mut entries),
            Condition::In { values, .. } => file_dictionary.find_all(values, &mut entries),
            _ => {}
        }
        entries.sort_unstable();
        entries.dedup();
        let entries: Arc<[u32]> = entries.into();
        *cached = Some((Arc::clone(file_dictionary), Arc::clone(&entries)));
        entries
    }
}

/// The hashes of which the filter of every matching chunk contains one; `None` if the condition is
/// more than a test for equality.
fn hashes(condition: &Condition<Scalar>) -> Option<Vec<u64>> {
    let hash = |scalar: &Scalar| match scalar {
        Scalar::Str(text) => hash_text(text),
        Scalar::Number(number) => hash_number(*number),
        Scalar::Bool(value) => hash_bool(*value),
    };
    match condition {
        Condition::Compare(query_language::CompareOp::Eq, scalar) => Some(vec![hash(scalar)]),
        Condition::In {
            values,
            negated: false,
        } if values.len() <= HASHES_MAX => Some(values.iter().map(hash).collect()),
        _ => None,
    }
}
