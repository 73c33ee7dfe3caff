//! One pass over a block cache trace.

use std::collections::BTreeMap;

use trace_kinds::rocksdb::{BlockRecord, Caller};

use super::access_counts::{count_files, skew_files};
use super::blocks::Blocks;
use super::correlation::Correlation;
use super::reuse_distance::ReuseDistance;
use super::reuse_interval::{ReuseInterval, lifetime_files};
use super::reuse_window::ReuseWindow;
use super::spatial_locality::SpatialLocality;
use super::summary::AccessCounts;
use super::timeline::AccessTimeline;
use crate::AnalysisError;
use crate::buckets::Buckets;
use crate::cache::labels::LabelSet;
use crate::cache::simulate::{CacheConfig, MissTimeline, Simulator, miss_timeline_files};
use crate::result_file::ResultFile;

/// Labels with bucket limits.
#[derive(Debug, Clone)]
pub struct BucketQuestion {
    /// What to group by; each set is one table.
    pub labels: Vec<LabelSet>,
    /// The limits of the buckets.
    pub buckets: Buckets,
}

/// Labels, and the maximum number of values stored for each.
#[derive(Debug, Clone)]
pub struct CorrelationQuestion {
    /// What to group by.
    pub labels: Vec<LabelSet>,
    /// Maximum number of values per label.
    pub values_max: usize,
}

/// Analyses in addition to the summary. Those that are not requested cost nothing.
#[derive(Debug, Clone, Default)]
pub struct CacheQuestions {
    /// Caches to simulate.
    pub caches: Vec<CacheConfig>,
    /// Seconds to skip before misses of simulated caches are counted.
    pub warmup_seconds: u64,
    /// The trace is a sample of one in so many blocks; 0 means 1.
    pub downsample: u64,
    /// Only simulate caches.
    pub curves_only: bool,
    /// Accesses over time.
    pub timelines: Vec<LabelSet>,
    /// Callers whose accesses are shown by level and block type.
    pub callers: Vec<Caller>,
    /// Number of blocks by number of accesses.
    pub access_counts: Option<Buckets>,
    /// Bytes of distinct blocks accessed between two accesses to a block.
    pub reuse_distance: Option<BucketQuestion>,
    /// Seconds between two accesses to a block.
    pub reuse_interval: Option<BucketQuestion>,
    /// Seconds from the first to the last access to a block.
    pub reuse_lifetime: Option<BucketQuestion>,
    /// Length in seconds of the windows in which reuse is counted.
    pub reuse_window: Option<u64>,
    /// The share of a data block that is accessed.
    pub spatial_locality: Option<BucketQuestion>,
    /// The share of accesses to the most accessed blocks.
    pub skew: Option<BucketQuestion>,
    /// Correlation of the next access to a block with past ones.
    pub correlation: Option<CorrelationQuestion>,
    /// Histograms of block sizes.
    pub block_sizes: bool,
    /// Histograms of accesses per block.
    pub access_histograms: bool,
}

/// One pass over a block cache trace.
#[derive(Debug)]
pub struct CacheAnalysis {
    pub(super) questions: CacheQuestions,
    pub(super) blocks: Blocks,
    pub(super) counts: AccessCounts,
    pub(super) accesses: u64,
    pub(super) misses: u64,
    pub(super) user_accesses: u64,
    pub(super) user_misses: u64,
    pub(super) first_second: Option<u64>,
    pub(super) last_second: u64,
    by_second: BTreeMap<u64, u64>,
    latest_second: (u64, u64),
    trace_misses: MissTimeline,
    pub(super) simulator: Option<Simulator>,
    timeline: Option<AccessTimeline>,
    pub(super) distance: Option<ReuseDistance>,
    interval: Option<ReuseInterval>,
    window: Option<ReuseWindow>,
    locality: Option<SpatialLocality>,
    pub(super) correlation: Option<Correlation>,
}

impl CacheAnalysis {
    /// A pass with these options.
    pub fn new(questions: CacheQuestions) -> Self {
        let of = |question: &Option<BucketQuestion>| {
            question
                .clone()
                .map(|question| (question.labels, question.buckets))
        };
        let simulator = (!questions.caches.is_empty()).then(|| {
            let caches = questions.caches.clone();
            Simulator::new(caches, questions.warmup_seconds, questions.downsample)
        });
        let timeline = (!questions.timelines.is_empty())
            .then(|| AccessTimeline::new(questions.timelines.clone()));
        let correlation = questions.correlation.clone();
        Self {
            blocks: Blocks::default(),
            counts: AccessCounts::default(),
            accesses: 0,
            misses: 0,
            user_accesses: 0,
            user_misses: 0,
            first_second: None,
            last_second: 0,
            by_second: BTreeMap::new(),
            latest_second: (0, 0),
            trace_misses: MissTimeline::default(),
            simulator,
            timeline,
            distance: of(&questions.reuse_distance).map(|(l, b)| ReuseDistance::new(l, b)),
            interval: of(&questions.reuse_interval).map(|(l, b)| ReuseInterval::new(l, b)),
            window: questions.reuse_window.map(ReuseWindow::new),
            locality: of(&questions.spatial_locality).map(|(l, b)| SpatialLocality::new(l, b)),
            correlation: correlation.map(|of| Correlation::new(of.labels, of.values_max)),
            questions,
        }
    }

    /// Observes the next record of the trace.
    #[inline]
    pub fn observe(&mut self, record: &BlockRecord<'_>) {
        let access = self.blocks.observe(record, self.accesses);
        let is_user = record.caller.is_user();
        let missed = !record.is_cache_hit;
        self.accesses += 1;
        self.misses += u64::from(missed);
        self.user_accesses += u64::from(is_user);
        self.user_misses += u64::from(is_user && missed);
        self.first_second.get_or_insert(access.second);
        self.last_second = access.second;
        if self.latest_second.0 == access.second {
            self.latest_second.1 += 1;
        } else {
            self.flush_second();
            self.latest_second = (access.second, 1);
        }
        self.trace_misses.add(access.second, missed);
        if let Some(simulator) = &mut self.simulator {
            simulator.observe(&access);
        }
        if self.questions.curves_only {
            return;
        }
        self.counts.observe(&access);
        if let Some(timeline) = &mut self.timeline {
            timeline.observe(&access);
        }
        if let Some(distance) = &mut self.distance {
            distance.observe(&access);
        }
        if let Some(interval) = &mut self.interval {
            interval.observe(&access);
        }
        if let Some(window) = &mut self.window {
            window.observe(&access);
        }
        if let Some(locality) = &mut self.locality {
            locality.observe(&access);
        }
        if let Some(correlation) = &mut self.correlation {
            correlation.observe(&access, &self.blocks);
        }
    }

    fn flush_second(&mut self) {
        let (second, count) = self.latest_second;
        if count > 0 {
            *self.by_second.entry(second).or_default() += count;
        }
    }

    /// Seconds from the first to the last record.
    pub fn duration_seconds(&self) -> u64 {
        self.last_second
            .saturating_sub(self.first_second.unwrap_or(self.last_second))
    }

    /// Accesses by second.
    pub(super) fn accesses_by_second(&self) -> BTreeMap<u64, u64> {
        let mut accesses = self.by_second.clone();
        let (second, count) = self.latest_second;
        if count > 0 {
            *accesses.entry(second).or_default() += count;
        }
        accesses
    }

    /// The misses recorded in the trace.
    pub(super) fn trace_misses(&self) -> &MissTimeline {
        &self.trace_misses
    }

    /// The result files, with the names and layout of RocksDB's analyzer, and the errors of those
    /// that were skipped: [`AnalysisError::TimelineTooLong`], [`AnalysisError::TooManyWindows`].
    pub fn files(&self) -> (Vec<ResultFile>, Vec<AnalysisError>) {
        let mut files = Vec::new();
        let mut skipped = Vec::new();
        let mut put = |result: Result<Vec<ResultFile>, AnalysisError>| match result {
            Ok(more) => files.extend(more),
            Err(error) => skipped.push(error),
        };
        if let Some(simulator) = &self.simulator {
            put(Ok(vec![
                simulator.curve_file(self.duration_seconds(), self.accesses),
            ]));
            let accesses = self.accesses_by_second();
            for unit in [1, 60, 3600] {
                put(miss_timeline_files(
                    simulator,
                    &self.trace_misses,
                    &accesses,
                    unit,
                ));
            }
        }
        if self.questions.curves_only {
            return (files, skipped);
        }
        if let Some(timeline) = &self.timeline {
            put(timeline.files(&self.blocks));
        }
        if !self.questions.callers.is_empty() {
            put(Ok(self.counts.files(&self.blocks, &self.questions.callers)));
        }
        if let Some(buckets) = &self.questions.access_counts {
            put(Ok(count_files(&self.blocks, buckets)));
        }
        if let Some(distance) = &self.distance {
            put(Ok(distance.files(&self.blocks)));
        }
        if let Some(interval) = &self.interval {
            put(Ok(interval.files(&self.blocks)));
        }
        if let Some(of) = &self.questions.reuse_lifetime {
            put(Ok(lifetime_files(&self.blocks, &of.labels, &of.buckets)));
        }
        if let Some(window) = &self.window {
            put(window.files(&self.blocks));
        }
        if let Some(locality) = &self.locality {
            put(Ok(locality.files(&self.blocks)));
        }
        if let Some(of) = &self.questions.skew {
            put(Ok(skew_files(&self.blocks, &of.labels, &of.buckets)));
        }
        if let Some(correlation) = &self.correlation {
            put(Ok(correlation.files()));
        }
        (files, skipped)
    }
}
