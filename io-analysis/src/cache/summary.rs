//! Counts of accesses by caller, level, file, block type and column family.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;
use trace_kinds::rocksdb::{BlockType, Caller};

use super::blocks::{Access, Blocks, CALLERS, caller_index};
use crate::numbers::to_u32;
use crate::result_file::{ResultFile, percent};

/// Counts of accesses by segment and caller. All tables are sums of these.
#[derive(Debug, Default)]
pub(crate) struct AccessCounts {
    counts: Vec<[u64; CALLERS]>,
}

impl AccessCounts {
    #[inline]
    pub(crate) fn observe(&mut self, access: &Access<'_>) {
        let segment = access.segment as usize;
        if segment >= self.counts.len() {
            self.counts.resize(segment + 1, [0; CALLERS]);
        }
        self.counts[segment][caller_index(access.record.caller)] += 1;
    }

    /// All segments and callers with accesses.
    fn iter(&self) -> impl Iterator<Item = (u32, Caller, u64)> {
        self.counts
            .iter()
            .zip(0u32..)
            .flat_map(|(counts, segment)| {
                counts
                    .iter()
                    .zip(0u8..)
                    .filter(|(count, _)| **count > 0)
                    .map(move |(&count, caller)| (segment, Caller(caller), count))
            })
    }

    /// The summary of a column family, or of all if `family` is `None`. `sizes` contains the number
    /// of blocks of each segment.
    fn summary(&self, blocks: &Blocks, sizes: &[u64], family: Option<u32>) -> Summary {
        let in_scope = |segment: u32| family.is_none_or(|f| blocks.segment(segment).family == f);
        let mut summary = Summary::default();
        let mut files = BTreeSet::new();
        for (segment, &count) in (0u32..)
            .zip(sizes)
            .filter(|(segment, _)| in_scope(*segment))
        {
            let segment_info = blocks.segment(segment);
            *summary
                .blocks_by_type
                .entry(segment_info.block_type)
                .or_default() += count;
            summary.blocks += count;
            files.insert(segment_info.file);
        }
        summary.files = files.len() as u64;
        for (segment, caller, count) in self.iter().filter(|(segment, ..)| in_scope(*segment)) {
            let segment_info = blocks.segment(segment);
            let file = blocks.file(segment_info.file);
            let by_caller = summary.callers.entry(caller).or_default();
            by_caller.accesses += count;
            *by_caller.by_level.entry(file.level).or_default() += count;
            *by_caller.by_file.entry(file.number).or_default() += count;
            *by_caller
                .by_type
                .entry(segment_info.block_type)
                .or_default() += count;
            summary.accesses += count;
        }
        summary
    }

    /// The summaries of all column families by name, and of the complete trace.
    pub(crate) fn summaries(&self, blocks: &Blocks) -> (BTreeMap<String, Summary>, Summary) {
        let mut sizes = vec![0; blocks.segments().len()];
        for state in blocks.states() {
            sizes[state.segment as usize] += 1;
        }
        let families = (0..to_u32(blocks.families().len()))
            .map(|family| {
                let summary = self.summary(blocks, &sizes, Some(family));
                (blocks.family_name(family), summary)
            })
            .collect();
        (families, self.summary(blocks, &sizes, None))
    }

    /// `percentage_of_accesses_summary`, and the shares by level and type for each of `callers`.
    pub(crate) fn files(&self, blocks: &Blocks, callers: &[Caller]) -> Vec<ResultFile> {
        let name = "percentage_of_accesses_summary";
        let mut files =
            vec![
                self.share_file(blocks, name.to_owned(), "caller", None, |_, caller| {
                    (u64::from(caller.0), caller.name().to_owned())
                }),
            ];
        for &caller in callers {
            let level = |segment: u32, _| {
                let level = blocks.file(blocks.segment(segment).file).level;
                (u64::from(level), level.to_string())
            };
            let file = format!("{}_level_{name}", caller.name());
            files.push(self.share_file(blocks, file, "level", Some(caller), level));
            let block_type = |segment: u32, _| {
                let block_type = blocks.segment(segment).block_type;
                (u64::from(block_type.0), block_type.name().to_owned())
            };
            let file = format!("{}_bt_{name}", caller.name());
            files.push(self.share_file(blocks, file, "bt", Some(caller), block_type));
        }
        files
    }

    /// A table with rows by `row` (order and name) and columns by column family, in percent.
    fn share_file(
        &self,
        blocks: &Blocks,
        name: String,
        heading: &str,
        only: Option<Caller>,
        row: impl Fn(u32, Caller) -> (u64, String),
    ) -> ResultFile {
        let mut rows: BTreeMap<(u64, String), BTreeMap<String, u64>> = BTreeMap::new();
        let mut total = 0;
        for (segment, caller, count) in self.iter() {
            if only.is_none_or(|only| only == caller) {
                let family = blocks.family_name(blocks.segment(segment).family);
                let row = rows.entry(row(segment, caller)).or_default();
                *row.entry(family).or_default() += count;
                total += count;
            }
        }
        let families = blocks.family_names();
        let mut text = heading.to_owned();
        for family in &families {
            text.push(',');
            text.push_str(family);
        }
        text.push('\n');
        for ((_, label), counts) in rows {
            text.push_str(&label);
            for family in &families {
                match counts.get(family) {
                    Some(&count) => write!(text, ",{:.6}", percent(count, total))
                        .expect("writing to a string cannot fail"),
                    None => text.push_str(",0"),
                }
            }
            text.push('\n');
        }
        ResultFile { name, text }
    }
}

/// Accesses by one caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallerSummary {
    /// Number of accesses.
    pub accesses: u64,
    /// By level.
    pub by_level: BTreeMap<u32, u64>,
    /// By SST number.
    pub by_file: BTreeMap<u64, u64>,
    /// By block type.
    pub by_type: BTreeMap<BlockType, u64>,
}

/// Files, blocks and accesses of a column family or of the complete trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of SST files.
    pub files: u64,
    /// Number of distinct blocks.
    pub blocks: u64,
    /// Number of accesses.
    pub accesses: u64,
    /// Distinct blocks by type.
    pub blocks_by_type: BTreeMap<BlockType, u64>,
    /// Accesses by caller.
    pub callers: BTreeMap<Caller, CallerSummary>,
}

const BREAK_LINE: &str = "***************************************************************\n";

/// The statistics in the format of RocksDB's analyzer, line for line.
pub(crate) fn rocksdb_text(families: &BTreeMap<String, Summary>, all: &Summary) -> String {
    let mut text = String::new();
    for (name, summary) in families {
        text.push_str(&BREAK_LINE.repeat(3));
        put(
            &mut text,
            format_args!("Statistics for column family {name}:\n"),
        );
        // RocksDB prints this leading space.
        put_counts(&mut text, " Number of files:", summary);
        put_callers(&mut text, summary, true);
    }
    text.push_str(&BREAK_LINE.repeat(3));
    text.push_str("Overall statistics:\n");
    put_counts(&mut text, "Number of files: ", all);
    put_callers(&mut text, all, false);
    text
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("writing to a string cannot fail");
}

fn put_counts(text: &mut String, files: &str, summary: &Summary) {
    let Summary {
        blocks, accesses, ..
    } = summary;
    let of = summary.files;
    put(
        text,
        format_args!("{files}{of} Number of blocks: {blocks} Number of accesses: {accesses}\n"),
    );
    for (block_type, &count) in &summary.blocks_by_type {
        let (name, share) = (block_type.name(), percent(count, *blocks));
        put(
            text,
            format_args!("Number of {name} blocks: {count} Percent: {share:.2}\n"),
        );
    }
}

fn put_callers(text: &mut String, summary: &Summary, with_files: bool) {
    for (caller, counts) in &summary.callers {
        text.push_str(BREAK_LINE);
        let (name, accesses) = (caller.name(), counts.accesses);
        let share = percent(accesses, summary.accesses);
        let head = format!("Caller {name}: Number of accesses");
        put(
            text,
            format_args!("{head} {accesses} Percent: {share:.2}\n"),
        );
        let mut rows = |by: &str, rows: Vec<(String, u64)>| {
            put(text, format_args!("{head} per {by} break down\n"));
            for (row, count) in rows {
                let share = percent(count, accesses);
                put(
                    text,
                    format_args!("\t {row}: Number of accesses: {count} Percent: {share:.2}\n"),
                );
            }
        };
        rows(
            "level",
            counts
                .by_level
                .iter()
                .map(|(l, &n)| (format!("Level {l}"), n))
                .collect(),
        );
        if with_files {
            rows(
                "file",
                counts
                    .by_file
                    .iter()
                    .map(|(f, &n)| (format!("File {f}"), n))
                    .collect(),
            );
        }
        let types = counts.by_type.iter();
        rows(
            "block type",
            types
                .map(|(t, &n)| (format!("Block Type {}", t.name()), n))
                .collect(),
        );
    }
}

impl Serialize for Summary {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Callers<'a> {
            accesses: u64,
            by_level: &'a BTreeMap<u32, u64>,
            by_file: &'a BTreeMap<u64, u64>,
            by_type: BTreeMap<&'static str, u64>,
        }
        #[derive(Serialize)]
        struct Named<'a> {
            files: u64,
            blocks: u64,
            accesses: u64,
            blocks_by_type: BTreeMap<&'static str, u64>,
            callers: BTreeMap<&'static str, Callers<'a>>,
        }
        let types = |map: &BTreeMap<BlockType, u64>| {
            map.iter()
                .map(|(block_type, &count)| (block_type.name(), count))
                .collect()
        };
        let callers = self.callers.iter().map(|(caller, counts)| {
            let callers = Callers {
                accesses: counts.accesses,
                by_level: &counts.by_level,
                by_file: &counts.by_file,
                by_type: types(&counts.by_type),
            };
            (caller.name(), callers)
        });
        Named {
            files: self.files,
            blocks: self.blocks,
            accesses: self.accesses,
            blocks_by_type: types(&self.blocks_by_type),
            callers: callers.collect(),
        }
        .serialize(serializer)
    }
}
