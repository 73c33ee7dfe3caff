//! Accesses over time, by label.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use trace_kinds::rocksdb::Caller;

use super::blocks::{Access, Blocks};
use super::group_counts::{caller_group, segment_and_caller};
use crate::AnalysisError;
use crate::cache::labels::LabelSet;
use crate::result_file::{ResultFile, file_name};

/// Maximum number of columns of a timeline: more than two days of seconds.
pub(crate) const STEPS_MAX: u64 = 200_000;

/// Seconds per step. RocksDB writes each timeline by minute and by hour.
const MINUTE: u64 = 60;
const HOUR: u64 = 3600;

/// Counts of accesses by minute.
#[derive(Debug)]
pub(crate) struct AccessTimeline {
    labels: Vec<LabelSet>,
    /// By [`caller_group`], then minute.
    by_group: HashMap<usize, BTreeMap<u64, u64>>,
    /// Accesses to a block per minute: all, and by users.
    by_block: Option<HashMap<(u32, u64), (u32, u32)>>,
}

impl AccessTimeline {
    pub(crate) fn new(labels: Vec<LabelSet>) -> Self {
        let by_block = labels.iter().any(LabelSet::by_block).then(HashMap::new);
        Self {
            labels,
            by_group: HashMap::new(),
            by_block,
        }
    }

    #[inline]
    pub(crate) fn observe(&mut self, access: &Access<'_>) {
        let minute = access.second / MINUTE;
        let group = caller_group(access.segment, access.record.caller);
        *self
            .by_group
            .entry(group)
            .or_default()
            .entry(minute)
            .or_default() += 1;
        if let Some(by_block) = &mut self.by_block {
            let counts = by_block.entry((access.block, minute)).or_default();
            counts.0 += 1;
            counts.1 += u32::from(access.record.caller.is_user());
        }
    }

    /// Two files per label set, by minute and by hour. With `block` there are four: each of these
    /// for all accesses and for those by users.
    ///
    /// # Errors
    ///
    /// [`AnalysisError::TimelineTooLong`].
    pub(crate) fn files(&self, blocks: &Blocks) -> Result<Vec<ResultFile>, AnalysisError> {
        let mut files = Vec::new();
        for labels in &self.labels {
            for unit in [MINUTE, HOUR] {
                if let Some(by_block) = self.by_block.as_ref().filter(|_| labels.by_block()) {
                    for user_only in [true, false] {
                        files.push(block_file(blocks, by_block, labels, unit, user_only)?);
                    }
                } else {
                    files.push(self.group_file(blocks, labels, unit)?);
                }
            }
        }
        Ok(files)
    }

    fn group_file(
        &self,
        blocks: &Blocks,
        labels: &LabelSet,
        unit: u64,
    ) -> Result<ResultFile, AnalysisError> {
        let mut rows: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
        for (&group, minutes) in &self.by_group {
            let (segment, caller) = segment_and_caller(group);
            let row = rows
                .entry(labels.label(blocks, segment, caller, None))
                .or_default();
            for (&minute, &count) in minutes {
                *row.entry(minute * MINUTE / unit).or_default() += count;
            }
        }
        let name = format!("all_access_{}_{unit}_access_timeline", labels.text());
        timeline_file(&name, rows.into_iter().collect(), unit)
    }
}

/// Blocks in descending order of accesses, then in ascending order of their numbers.
fn block_file(
    blocks: &Blocks,
    by_block: &HashMap<(u32, u64), (u32, u32)>,
    labels: &LabelSet,
    unit: u64,
    user_only: bool,
) -> Result<ResultFile, AnalysisError> {
    let mut rows: HashMap<u32, (u64, BTreeMap<u64, u64>)> = HashMap::new();
    for (&(block, minute), &(all, user)) in by_block {
        let count = u64::from(if user_only { user } else { all });
        if count > 0 {
            let row = rows.entry(block).or_default();
            row.0 += count;
            *row.1.entry(minute * MINUTE / unit).or_default() += count;
        }
    }
    let mut order: Vec<_> = rows.into_iter().collect();
    order.sort_unstable_by_key(|(block, (count, _))| (std::cmp::Reverse(*count), *block));
    let label = |block: u32| {
        let segment = blocks.states()[block as usize].segment;
        labels.label(blocks, segment, Caller::NONE, Some(block))
    };
    let rows = order
        .into_iter()
        .map(|(block, (_, steps))| (label(block), steps))
        .collect();
    let prefix = if user_only {
        "user_access_only"
    } else {
        "all_access"
    };
    let name = format!("{prefix}_{}_{unit}_access_timeline", labels.text());
    timeline_file(&name, rows, unit)
}

/// The range of steps in the rows; `None` if they are empty.
pub(crate) fn step_range<'a>(
    rows: impl Iterator<Item = &'a BTreeMap<u64, u64>>,
    unit: u64,
) -> Result<Option<std::ops::RangeInclusive<u64>>, AnalysisError> {
    let (mut first, mut last) = (u64::MAX, 0);
    for row in rows {
        if let (Some((&least, _)), Some((&greatest, _))) =
            (row.first_key_value(), row.last_key_value())
        {
            (first, last) = (first.min(least), last.max(greatest));
        }
    }
    if first > last {
        return Ok(None);
    }
    if last - first >= STEPS_MAX {
        let seconds = (last - first).saturating_mul(unit);
        return Err(AnalysisError::TimelineTooLong {
            seconds,
            unit,
            limit: STEPS_MAX,
        });
    }
    Ok(Some(first..=last))
}

fn timeline_file(
    name: &str,
    rows: Vec<(String, BTreeMap<u64, u64>)>,
    unit: u64,
) -> Result<ResultFile, AnalysisError> {
    let steps = step_range(rows.iter().map(|(_, row)| row), unit)?;
    let steps: Vec<u64> = steps.into_iter().flatten().collect();
    let mut text = String::from("time");
    for step in &steps {
        write!(text, ",{step}").expect("writing to a string cannot fail");
    }
    text.push('\n');
    for (label, row) in rows {
        text.push_str(&label);
        for step in &steps {
            let count = row.get(step).copied().unwrap_or(0);
            write!(text, ",{count}").expect("writing to a string cannot fail");
        }
        text.push('\n');
    }
    Ok(ResultFile {
        name: file_name(name),
        text,
    })
}
