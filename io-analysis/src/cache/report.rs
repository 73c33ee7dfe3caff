//! The report on a block cache trace: as data and text.

use std::collections::BTreeMap;

use serde::Serialize;
use trace_kinds::rocksdb::BlockType;

use super::access_counts::BlockHistograms;
use super::analysis::CacheAnalysis;
use super::correlation::Coefficients;
use super::summary::{Summary, rocksdb_text};
use crate::cache::simulate::CurvePoint;
use crate::histogram::Histogram;
use crate::result_file::percent;
use crate::table::{Layout, TextTable, bytes_text};

/// A summary of a histogram.
#[derive(Debug, Clone, Serialize)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Minimum.
    pub min: u64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: u64,
}

impl From<&Histogram> for Distribution {
    fn from(histogram: &Histogram) -> Self {
        Self {
            count: histogram.count(),
            mean: histogram.mean(),
            deviation: histogram.deviation(),
            min: histogram.least(),
            p50: histogram.percentile(50.0),
            p99: histogram.percentile(99.0),
            max: histogram.greatest(),
        }
    }
}

/// The report on a block cache trace.
#[derive(Debug, Serialize)]
pub struct CacheReport {
    /// Records read.
    pub accesses: u64,
    /// Misses of the traced cache, in percent of accesses.
    pub miss_ratio: f64,
    /// The same for accesses by users.
    pub user_miss_ratio: f64,
    /// Accesses to unidentified blocks (MultiGet before RocksDB 8.2).
    pub unknown_blocks: u64,
    /// Seconds from the first to the last record.
    pub duration_seconds: u64,
    /// Sum of the sizes of all distinct blocks at their last access.
    pub working_set_bytes: u64,
    /// Summary of all accesses.
    pub overall: Summary,
    /// Summaries by column family.
    pub column_families: BTreeMap<String, Summary>,
    /// Simulated caches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<CurvePoint>,
    /// Reuses by distance: limit in bytes, count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse_distance: Option<Vec<(u64, u64)>>,
    /// Block sizes by block type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_sizes: Option<BTreeMap<&'static str, Distribution>>,
    /// Accesses per block by block type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accesses_per_block: Option<BTreeMap<&'static str, Distribution>>,
    /// Correlation by label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation: Option<BTreeMap<String, Coefficients>>,
    /// Second, misses, accesses: for charts.
    #[serde(skip)]
    pub by_second: Vec<(u64, u64, u64)>,
    #[serde(skip)]
    histograms: Vec<(String, Histogram)>,
}

/// Histograms with their titles, in the order of printing.
#[derive(Default)]
struct Histograms {
    titled: Vec<(String, Histogram)>,
}

impl Histograms {
    /// Adds the histograms of a property. Returns their summaries by block type.
    fn add(&mut self, title: &str, of: BlockHistograms) -> BTreeMap<&'static str, Distribution> {
        let named = |(block_type, histogram): (&BlockType, &Histogram)| {
            (block_type.name(), Distribution::from(histogram))
        };
        let by_type = of.by_type.iter().map(named).collect();
        self.titled.push((title.to_owned(), of.all));
        for (block_type, histogram) in of.by_type {
            let title = format!("{title}, {}", block_type.name());
            self.titled.push((title, histogram));
        }
        for ((family, block_type), histogram) in of.by_family {
            let title = format!("{title}, {family}, {}", block_type.name());
            self.titled.push((title, histogram));
        }
        by_type
    }
}

impl CacheAnalysis {
    /// The report on everything observed so far.
    pub fn report(&self) -> CacheReport {
        CacheReport::of(self)
    }
}

impl CacheReport {
    fn of(analysis: &CacheAnalysis) -> Self {
        let blocks = &analysis.blocks;
        let (column_families, overall) = analysis.counts.summaries(blocks);
        let unknown = |summary: &Summary| -> u64 {
            let callers = summary.callers.values();
            callers
                .filter_map(|caller| caller.by_type.get(&BlockType::UNKNOWN))
                .sum()
        };
        let misses = analysis.trace_misses().by_step(1);
        let by_second = analysis
            .accesses_by_second()
            .into_iter()
            .map(|(second, accesses)| (second, misses.get(&second).copied().unwrap_or(0), accesses))
            .collect();
        let mut histograms = Histograms::default();
        let questions = &analysis.questions;
        let block_sizes = questions
            .block_sizes
            .then(|| histograms.add("Block sizes in bytes", BlockHistograms::sizes(blocks)));
        let accesses_per_block = questions.access_histograms.then(|| {
            let users = BlockHistograms::accesses(blocks, true);
            histograms.add("Accesses per block by users", users);
            let all = BlockHistograms::accesses(blocks, false);
            histograms.add("Accesses per block", all)
        });
        Self {
            accesses: analysis.accesses,
            miss_ratio: percent(analysis.misses, analysis.accesses),
            user_miss_ratio: percent(analysis.user_misses, analysis.user_accesses),
            unknown_blocks: unknown(&overall),
            duration_seconds: analysis.duration_seconds(),
            working_set_bytes: blocks
                .states()
                .iter()
                .fold(0, |sum: u64, state| sum.saturating_add(state.size)),
            overall,
            column_families,
            curves: analysis
                .simulator
                .as_ref()
                .map(|s| s.curves())
                .unwrap_or_default(),
            reuse_distance: analysis
                .distance
                .as_ref()
                .map(|distance| distance.overall()),
            block_sizes,
            accesses_per_block,
            correlation: analysis.correlation.as_ref().map(|c| c.coefficients()),
            by_second,
            histograms: histograms.titled,
        }
    }

    /// The summary in the format of RocksDB's analyzer.
    pub fn rocksdb_summary(&self) -> String {
        rocksdb_text(&self.column_families, &self.overall)
    }

    /// The report as text tables.
    pub fn to_text(&self, layout: Layout) -> String {
        let mut text = format!(
            "Block cache trace: {} accesses in {} s, {:.2} % missed ({:.2} % of users' accesses)\n\
             {} files, {} blocks, {} at their last access\n",
            self.accesses,
            self.duration_seconds,
            self.miss_ratio,
            self.user_miss_ratio,
            self.overall.files,
            self.overall.blocks,
            bytes_text(self.working_set_bytes),
        );
        if self.unknown_blocks > 0 {
            text.push_str(&format!(
                "{} accesses by MultiGet do not identify their block (RocksDB before 8.2)\n",
                self.unknown_blocks
            ));
        }
        text.push_str(&self.access_table(layout));
        for (title, histogram) in &self.histograms {
            text.push_str(&format!("\n{title}\n{}", histogram.to_text()));
        }
        if !self.curves.is_empty() {
            text.push_str(&self.curve_table(layout));
        }
        if let Some(distances) = &self.reuse_distance {
            text.push_str(&distance_table(distances, layout));
        }
        if let Some(correlation) = &self.correlation {
            text.push_str(&correlation_table(correlation, layout));
        }
        text
    }

    fn access_table(&self, layout: Layout) -> String {
        let mut table = TextTable::new([
            "column family",
            "caller",
            "grouped by",
            "",
            "accesses",
            "% of caller",
        ]);
        let families = self
            .column_families
            .iter()
            .map(|(name, summary)| (name.as_str(), summary));
        for (family, summary) in families.chain([("(all)", &self.overall)]) {
            for (caller, counts) in &summary.callers {
                let mut row = |by: &str, value: String, count: u64| {
                    let share = format!("{:.2}", percent(count, counts.accesses));
                    let cells = [
                        family,
                        caller.name(),
                        by,
                        &value,
                        &count.to_string(),
                        &share,
                    ];
                    table.row(cells.map(str::to_owned));
                };
                row("all", String::new(), counts.accesses);
                for (level, &count) in &counts.by_level {
                    row("level", level.to_string(), count);
                }
                for (block_type, &count) in &counts.by_type {
                    row("type", block_type.name().to_owned(), count);
                }
            }
        }
        format!("\nAccesses\n{}", table.fit(layout))
    }

    fn curve_table(&self, layout: Layout) -> String {
        let mut table = TextTable::new([
            "cache",
            "capacity",
            "miss ratio %",
            "of users %",
            "accesses",
        ]);
        for point in &self.curves {
            table.row([
                point.cache.clone(),
                bytes_text(point.capacity),
                format!("{:.4}", point.miss_ratio),
                format!("{:.4}", point.user_miss_ratio),
                point.accesses.to_string(),
            ]);
        }
        format!("\nSimulated caches\n{}", table.fit(layout))
    }
}

fn distance_table(distances: &[(u64, u64)], layout: Layout) -> String {
    let mut table = TextTable::new(["reuse distance below", "reuses", "%"]);
    let total = distances.iter().map(|(_, count)| count).sum();
    for &(limit, count) in distances {
        let limit = if limit == u64::MAX {
            "any".to_owned()
        } else {
            bytes_text(limit)
        };
        table.row([
            limit,
            count.to_string(),
            format!("{:.2}", percent(count, total)),
        ]);
    }
    format!("\nReuse distance\n{}", table.fit(layout))
}

fn correlation_table(correlation: &BTreeMap<String, Coefficients>, layout: Layout) -> String {
    let mut table = TextTable::new([
        "label",
        "until next",
        "accesses since last",
        "time since last",
        "past accesses",
    ]);
    for (label, coefficients) in correlation {
        for (until, values) in [
            ("accesses", coefficients.accesses_till_next),
            ("time", coefficients.time_till_next),
        ] {
            let [since, elapsed, past] = values.map(|value| format!("{value:.3}"));
            table.row([label.clone(), until.to_owned(), since, elapsed, past]);
        }
    }
    format!("\nCorrelation with the next access\n{}", table.fit(layout))
}
