//! Which chunks may contain an event that matches a filter, and which of them need not be read.
//!
//! The filter is evaluated with two questions about a chunk at once: *may* an event of it match,
//! and do *all* of them? `and` and `or` combine both answers; `not` swaps them: if not all events
//! match, one may fail; if none may match, all fail. An answer errs only on the safe side: unknown
//! means "may match, not all do".
//!
//! The filter is evaluated for each group of events with the same category and name, whose names,
//! times and durations are known together: `name == "read" and dur > 5s` rules out a chunk in which
//! only writes took that long.
//!
//! There are three tiers of evidence, each used only for the remaining chunks, so that a remote
//! reader fetches little: the statistics of the groups, the limits and dictionaries of the
//! dimensions, and the Bloom filters.

mod evidence;
mod limits;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use query_language::{FieldPath, Filter, Program};

use crate::filter_tree::FilterTree;
use crate::index::{BLOCK_CHUNKS, Index};
use crate::sidecar::{Block, BlockKind, Sidecar};
use crate::slowest::SlowRecord;
use crate::statistics::ChunkStatistics;

use evidence::{Leaf, Subject};
use limits::Verdict;

/// A kind of evidence, from the cheapest to the most expensive to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Times, durations, categories and names.
    Statistics,
    /// Limits and dictionaries of dimensions.
    Dictionaries,
    /// Bloom filters.
    Filters,
}

impl Tier {
    /// All tiers in their order.
    pub const ALL: [Tier; 3] = [Tier::Statistics, Tier::Dictionaries, Tier::Filters];
}

/// The remaining chunks, and how many each tier ruled out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pruning {
    /// Chunks that may contain a match, ascending.
    pub candidates: Vec<usize>,
    /// Number of all chunks.
    pub total: usize,
    /// Chunks ruled out by each tier, in the order of [`Tier::ALL`].
    pub ruled_out: [usize; 3],
}

impl Pruning {
    /// The initial state: all chunks of `index` are candidates.
    pub fn begin(index: &Index) -> Pruning {
        let total = index.chunks().len();
        Pruning {
            candidates: (0..total).collect(),
            total,
            ruled_out: [0; 3],
        }
    }
}

/// A filter prepared for pruning indexes.
#[derive(Debug)]
pub struct Pruner {
    root: FilterTree,
    leaves: Vec<Leaf>,
    /// The only field of the filter, and the filter as a program over it.
    single: Option<(FieldPath, Program)>,
}

impl Pruner {
    /// Prepares `filter`.
    pub fn new(filter: &Filter) -> Pruner {
        let mut leaves = Vec::new();
        let root = FilterTree::new(filter, Leaf::new, &mut leaves);
        Pruner {
            root,
            single: single_field(filter),
            leaves,
        }
    }

    /// Rules out chunks by all evidence that is loaded, tier by tier.
    pub fn run(&self, index: &Index) -> Pruning {
        let mut pruning = Pruning::begin(index);
        for tier in Tier::ALL {
            self.apply(index, tier, &mut pruning);
        }
        pruning
    }

    /// Rules out candidates by the evidence of `tier` and of those before it, as far as it is
    /// loaded.
    pub fn apply(&self, index: &Index, tier: Tier, pruning: &mut Pruning) {
        let before = pruning.candidates.len();
        pruning
            .candidates
            .retain(|chunk| self.verdict(index, *chunk, tier).may);
        pruning.ruled_out[tier as usize] += before - pruning.candidates.len();
    }

    /// The blocks that are not loaded and that [`Pruner::apply`] could use for `tier`.
    pub fn wanted(&self, sidecar: &Sidecar, tier: Tier, pruning: &Pruning) -> Vec<Block> {
        let numbers = block_numbers(pruning);
        let kinds = match tier {
            Tier::Statistics => [BlockKind::Statistics; 2],
            Tier::Dictionaries => [BlockKind::Limits; 2],
            Tier::Filters => [BlockKind::Filters, BlockKind::FileDictionary],
        };
        // One file dictionary covers all chunks.
        let numbered = |block: &Block| match block.kind {
            BlockKind::FileDictionary => !numbers.is_empty(),
            _ => numbers.contains(&(block.number as usize)),
        };
        let index = sidecar.index();
        let is_needed = |block: &Block| match tier {
            Tier::Statistics => self.leaves.iter().any(Leaf::needs_statistics),
            _ => {
                let dimension = index.dimensions.get(block.dimension as usize);
                dimension.is_some_and(|dimension| {
                    self.leaves
                        .iter()
                        .any(|leaf| leaf.needs(&dimension.path, tier))
                })
            }
        };
        sidecar
            .blocks()
            .iter()
            .filter(|block| {
                kinds.contains(&block.kind)
                    && numbered(block)
                    && !sidecar.is_loaded(block)
                    && is_needed(block)
            })
            .copied()
            .collect()
    }

    fn verdict(&self, index: &Index, chunk: usize, tier: Tier) -> Verdict {
        let events = index.chunks()[chunk].events;
        if events == 0 {
            return Verdict::NONE;
        }
        let dimensions = self.dimension_verdicts(index, chunk, tier);
        let Some(statistics) = index.statistics(chunk) else {
            return self.ask(&Subject::chunk(&index.chunks()[chunk]), &dimensions);
        };
        self.parts(statistics, &dimensions)
            .map(|(_, verdict)| verdict)
            .fold(None, |sum: Option<Verdict>, verdict| {
                Some(sum.map_or(verdict, |sum| sum.union(verdict)))
            })
            .unwrap_or(Verdict::UNKNOWN)
    }

    /// The verdict on each part of a chunk that has events, with the index of its group; `None` for
    /// the events without a known group.
    fn parts<'a>(
        &'a self,
        statistics: &'a ChunkStatistics,
        dimensions: &'a [Option<Verdict>],
    ) -> impl Iterator<Item = (Option<usize>, Verdict)> + 'a {
        subjects(statistics).map(|(group, subject)| (group, self.ask(&subject, dimensions)))
    }

    fn ask(&self, subject: &Subject<'_>, dimensions: &[Option<Verdict>]) -> Verdict {
        self.root
            .verdict(&|leaf| dimensions[leaf].unwrap_or_else(|| self.leaves[leaf].ask(subject)))
    }

    /// For each leaf, the verdict of its dimension on the whole chunk; `None` for leaves that the
    /// groups decide.
    fn dimension_verdicts(&self, index: &Index, chunk: usize, tier: Tier) -> Vec<Option<Verdict>> {
        self.leaves
            .iter()
            .map(|leaf| leaf.ask_dimension(index, chunk, tier))
            .collect()
    }

    /// The statistics of just the matching events of a chunk, if the summaries determine them
    /// exactly: each group matches as a whole or not at all. They include the sketches of the
    /// durations if these are loaded. `None` if the chunk must be read.
    pub fn matched(&self, index: &Index, chunk: usize) -> Option<ChunkStatistics> {
        let statistics = index.statistics(chunk)?;
        let dimensions = self.dimension_verdicts(index, chunk, Tier::Filters);
        let mut matched = ChunkStatistics::default();
        for (group, verdict) in self.parts(statistics, &dimensions) {
            if !verdict.may {
                continue;
            }
            if !verdict.all {
                return None;
            }
            match group {
                Some(group) => matched.groups.push(statistics.groups[group].clone()),
                None => matched.other = statistics.other.clone(),
            }
        }
        Some(matched)
    }

    /// The number of matching events of a chunk, if the summaries determine it exactly: see
    /// [`Pruner::matched`]; also if the filter is about one field with a dictionary, or matches all
    /// events or none.
    pub fn count(&self, index: &Index, chunk: usize) -> Option<u64> {
        let verdict = self.verdict(index, chunk, Tier::Filters);
        if !verdict.may {
            return Some(0);
        }
        if verdict.all {
            return Some(index.chunks()[chunk].events);
        }
        if let Some(matched) = self.matched(index, chunk) {
            return Some(matched.events());
        }
        let (field, program) = self.single.as_ref()?;
        let (zone, dictionary) = index.limits(field, chunk)?;
        let mut count = 0;
        for (value, events) in dictionary?.entries() {
            if program.matches(&[Some(value.as_value())][..]) {
                count += events;
            }
        }
        if program.matches(&[None][..]) {
            count += index.chunks()[chunk].events.checked_sub(zone.present)?;
        }
        Some(count)
    }

    /// The records of the slowest events of a chunk, if no other event of it can match: then these
    /// are read instead of the chunk, and compared with the filter like any other.
    pub fn slowest<'i>(&self, index: &'i Index, chunk: usize) -> Option<&'i [SlowRecord]> {
        let (statistics, slowest) = (index.statistics(chunk)?, index.slowest(chunk)?);
        if slowest.records.is_empty() {
            return None;
        }
        let dimensions = self.dimension_verdicts(index, chunk, Tier::Filters);
        let other_may_match = subjects(statistics)
            .filter_map(|(_, subject)| subject.without_slower(slowest.floor))
            .any(|subject| self.ask(&subject, &dimensions).may);
        (!other_may_match).then_some(&slowest.records)
    }

    /// The blocks that are not loaded and that [`Pruner::slowest`] could use for the candidates:
    /// none if the filter is not about durations.
    pub fn wanted_slowest(&self, sidecar: &Sidecar, pruning: &Pruning) -> Vec<Block> {
        if !self.leaves.iter().any(Leaf::needs_duration) {
            return Vec::new();
        }
        let numbers = block_numbers(pruning);
        sidecar
            .blocks()
            .iter()
            .filter(|block| {
                block.kind == BlockKind::Slowest
                    && numbers.contains(&(block.number as usize))
                    && !sidecar.is_loaded(block)
            })
            .copied()
            .collect()
    }

    /// To which of several filters each complete chunk belongs: the index of the first filter that
    /// matches all its events, if no other one matches any. `None` for chunks that must be split.
    pub fn route(pruners: &[Pruner], index: &Index, chunk: usize) -> Option<usize> {
        let verdicts: Vec<Verdict> = pruners
            .iter()
            .map(|pruner| pruner.verdict(index, chunk, Tier::Filters))
            .collect();
        let whole = verdicts.iter().position(|verdict| verdict.all)?;
        let others = verdicts
            .iter()
            .enumerate()
            .filter(|(pruner, _)| *pruner != whole);
        others
            .map(|(_, verdict)| verdict)
            .all(|verdict| !verdict.may)
            .then_some(whole)
    }
}

/// The numbers of the blocks with the summaries of the candidates.
fn block_numbers(pruning: &Pruning) -> HashSet<usize> {
    let chunks = pruning.candidates.iter();
    chunks.map(|chunk| chunk / BLOCK_CHUNKS).collect()
}

/// The parts of a chunk that have events, each with the index of its group; `None` for the events
/// without a known group.
fn subjects(statistics: &ChunkStatistics) -> impl Iterator<Item = (Option<usize>, Subject<'_>)> {
    let groups = statistics
        .groups
        .iter()
        .enumerate()
        .map(|(number, group)| (Some(number), Subject::group(group)));
    let other = (None, Subject::other(&statistics.other));
    groups
        .chain([other])
        .filter(|(_, subject)| subject.events > 0)
}

impl FilterTree {
    fn verdict(&self, leaf: &dyn Fn(usize) -> Verdict) -> Verdict {
        match self {
            FilterTree::And(operands) => operands.iter().fold(Verdict::ALL, |sum, operand| {
                let verdict = operand.verdict(leaf);
                Verdict {
                    may: sum.may && verdict.may,
                    all: sum.all && verdict.all,
                }
            }),
            FilterTree::Or(operands) => operands.iter().fold(Verdict::NONE, |sum, operand| {
                let verdict = operand.verdict(leaf);
                Verdict {
                    may: sum.may || verdict.may,
                    all: sum.all || verdict.all,
                }
            }),
            FilterTree::Not(operand) => {
                let verdict = operand.verdict(leaf);
                Verdict {
                    may: !verdict.all,
                    all: !verdict.may,
                }
            }
            FilterTree::Leaf(number) => leaf(*number),
        }
    }
}

fn single_field(filter: &Filter) -> Option<(FieldPath, Program)> {
    let mut table = query_language::FieldTable::new();
    let program = Program::compile(filter, &mut table);
    match table.paths() {
        [field] => Some((field.clone(), program)),
        _ => None,
    }
}
