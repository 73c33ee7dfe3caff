//! All simulated caches of an analysis, in one pass over the trace.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use trace_kinds::rocksdb::{BlockRecord, Fingerprints};

use super::config::{CacheConfig, Policy};
use super::policy::{SimAccess, SimCache, is_numbered_get};
use crate::AnalysisError;
use crate::cache::blocks::{Access, US_PER_SECOND};
use crate::cache::timeline::step_range;
use crate::result_file::{ResultFile, percent};

/// Misses and accesses by second, of the trace or of one simulated cache.
#[derive(Debug, Clone, Default)]
pub struct MissTimeline {
    /// Misses by second; 0 for a second with accesses and no miss.
    misses: BTreeMap<u64, u64>,
    latest: Option<(u64, u64)>,
}

impl MissTimeline {
    #[inline]
    pub(crate) fn add(&mut self, second: u64, missed: bool) {
        match &mut self.latest {
            Some((latest, misses)) if *latest == second => *misses += u64::from(missed),
            latest => {
                if let Some((second, misses)) = latest.replace((second, u64::from(missed))) {
                    *self.misses.entry(second).or_default() += misses;
                }
            }
        }
    }

    /// Misses by step of `unit` seconds.
    pub(crate) fn by_step(&self, unit: u64) -> BTreeMap<u64, u64> {
        let mut steps = BTreeMap::new();
        let latest = self.latest.iter().map(|(second, misses)| (second, misses));
        for (second, misses) in self.misses.iter().chain(latest) {
            *steps.entry(second / unit).or_default() += misses;
        }
        steps
    }
}

/// One point of a miss ratio curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Name of the cache.
    pub cache: String,
    /// The cache has 2^`shard_bits` shards.
    pub shard_bits: u32,
    /// Capacity of the ghost cache in bytes.
    pub ghost_capacity: u64,
    /// Capacity in bytes.
    pub capacity: u64,
    /// Misses in percent of accesses; -1 without accesses.
    pub miss_ratio: f64,
    /// The same for accesses by users.
    pub user_miss_ratio: f64,
    /// Accesses after the warm-up.
    pub accesses: u64,
}

/// Counts of one cache after the warm-up.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    misses: u64,
    user_misses: u64,
}

#[derive(Debug)]
struct Running {
    config: usize,
    capacity: u64,
    cache: SimCache,
    counts: Counts,
    timeline: MissTimeline,
}

/// All simulated caches of an analysis.
#[derive(Debug)]
pub(crate) struct Simulator {
    configs: Vec<CacheConfig>,
    running: Vec<Running>,
    warmup_us: u64,
    start_us: Option<u64>,
    warm: bool,
    accesses: u64,
    user_accesses: u64,
    rows: Option<Rows>,
}

/// Numbers of the key-value entries of hybrid caches. Blocks have even and keys have odd entry
/// numbers.
#[derive(Debug, Default)]
struct Rows {
    keys: Fingerprints,
    scratch: Vec<u8>,
}

impl Rows {
    /// The entry number of a Get's key in a file, and the length of RocksDB's cache key: number of
    /// the file, `_`, user key.
    fn entry(&mut self, record: &BlockRecord<'_>) -> (u32, usize) {
        let key = record.user_key();
        self.scratch.clear();
        self.scratch
            .extend_from_slice(&record.sst_number.to_le_bytes());
        self.scratch.extend_from_slice(key);
        let number = self.keys.number(&self.scratch);
        let digits = record.sst_number.checked_ilog10().unwrap_or(0) as usize + 1;
        (
            number.saturating_mul(2).saturating_add(1),
            digits + 1 + key.len(),
        )
    }
}

impl Simulator {
    /// Caches for every capacity of every configuration. Capacities are divided by `downsample`;
    /// misses are counted after `warmup_seconds`.
    pub(crate) fn new(configs: Vec<CacheConfig>, warmup_seconds: u64, downsample: u64) -> Self {
        let mut running = Vec::new();
        for (number, config) in configs.iter().enumerate() {
            for &capacity in &config.capacities {
                running.push(Running {
                    config: number,
                    capacity,
                    cache: SimCache::new(config, capacity / downsample.max(1)),
                    counts: Counts::default(),
                    timeline: MissTimeline::default(),
                });
            }
        }
        let hybrid = configs.iter().any(|config| {
            matches!(
                config.policy,
                Policy::LruHybrid | Policy::LruHybridNoInsertOnRowMiss
            )
        });
        Self {
            rows: hybrid.then(Rows::default),
            configs,
            running,
            warmup_us: warmup_seconds.saturating_mul(US_PER_SECOND),
            start_us: None,
            warm: false,
            accesses: 0,
            user_accesses: 0,
        }
    }

    #[inline]
    pub(crate) fn observe(&mut self, access: &Access<'_>) {
        let record = access.record;
        let start = *self.start_us.get_or_insert(record.time);
        if !self.warm && start.saturating_add(self.warmup_us) <= record.time {
            self.warm = true;
            (self.accesses, self.user_accesses) = (0, 0);
            for running in &mut self.running {
                running.counts = Counts::default();
            }
        }
        let is_user = record.caller.is_user();
        self.accesses += 1;
        self.user_accesses += u64::from(is_user);
        let mut sim = SimAccess {
            record,
            block: access.block,
            row: None,
        };
        if let Some(rows) = &mut self.rows {
            sim.block = access.block.saturating_mul(2);
            if is_numbered_get(record) {
                sim.row = Some(rows.entry(record));
            }
        }
        // The nodes of the block in the caches are rarely in the processor's cache. Reading all of
        // them first lets the processor fetch them in parallel.
        let peeked = self
            .running
            .iter()
            .map(|running| running.cache.peek(sim.block));
        std::hint::black_box(peeked.fold(0, |all, charge| all | charge));
        for running in &mut self.running {
            let missed = running.cache.misses(&sim);
            running.counts.misses += u64::from(missed);
            running.counts.user_misses += u64::from(missed && is_user);
            running.timeline.add(access.second, missed);
        }
    }

    /// The miss ratio curves, one point per cache.
    pub(crate) fn curves(&self) -> Vec<CurvePoint> {
        let point = |running: &Running| {
            let config = &self.configs[running.config];
            CurvePoint {
                cache: config.name.clone(),
                shard_bits: config.shard_bits,
                ghost_capacity: config.ghost_capacity,
                capacity: running.capacity,
                miss_ratio: percent(running.counts.misses, self.accesses),
                user_miss_ratio: percent(running.counts.user_misses, self.user_accesses),
                accesses: self.accesses,
            }
        };
        self.running.iter().map(point).collect()
    }

    /// `DURATION_ACCESSES_mrc`.
    pub(crate) fn curve_file(&self, duration: u64, accesses: u64) -> ResultFile {
        let mut text = String::from(
            "cache_name,num_shard_bits,ghost_capacity,capacity,miss_ratio,total_accesses\n",
        );
        for point in self.curves() {
            writeln!(
                text,
                "{},{},{},{},{:.4},{}",
                point.cache,
                point.shard_bits,
                point.ghost_capacity,
                point.capacity,
                point.miss_ratio,
                point.accesses
            )
            .expect("writing to a string cannot fail");
        }
        ResultFile {
            name: format!("{duration}_{accesses}_mrc"),
            text,
        }
    }

    /// Misses by capacity and label, in steps of `unit` seconds.
    pub(crate) fn timelines(
        &self,
        unit: u64,
    ) -> BTreeMap<u64, BTreeMap<String, BTreeMap<u64, u64>>> {
        let mut timelines: BTreeMap<u64, BTreeMap<String, _>> = BTreeMap::new();
        for running in &self.running {
            let label = self.configs[running.config].label();
            timelines
                .entry(running.capacity)
                .or_default()
                .insert(label, running.timeline.by_step(unit));
        }
        timelines
    }
}

/// In file names, the misses of the trace have this capacity.
const TRACE_CAPACITY: u64 = u64::MAX;

/// `CAPACITY_UNIT_miss_timeline` and `…_miss_ratio_timeline` for every capacity, and for the trace.
/// A step has the same number of accesses for all caches.
///
/// # Errors
///
/// [`AnalysisError::TimelineTooLong`].
pub(crate) fn miss_timeline_files(
    simulator: &Simulator,
    trace: &MissTimeline,
    accesses: &BTreeMap<u64, u64>,
    unit: u64,
) -> Result<Vec<ResultFile>, AnalysisError> {
    let mut accesses_by_step: BTreeMap<u64, u64> = BTreeMap::new();
    for (second, count) in accesses {
        *accesses_by_step.entry(second / unit).or_default() += count;
    }
    let steps = step_range(std::iter::once(&accesses_by_step), unit)?;
    let steps: Vec<u64> = steps.into_iter().flatten().collect();
    let mut timelines = simulator.timelines(unit);
    let traced = BTreeMap::from([("trace".to_owned(), trace.by_step(unit))]);
    timelines.insert(TRACE_CAPACITY, traced);
    let mut files = Vec::new();
    for (capacity, rows) in timelines {
        let mut head = String::from("time");
        head.extend(steps.iter().map(|step| format!(",{step}")));
        head.push('\n');
        let (mut counts, mut ratios) = (head.clone(), head);
        for (label, misses) in rows {
            counts.push_str(&label);
            ratios.push_str(&label);
            for step in &steps {
                match misses.get(step) {
                    Some(&missed) => {
                        let of = accesses_by_step.get(step).copied().unwrap_or(0);
                        counts.push_str(&format!(",{missed}"));
                        ratios.push_str(&format!(",{:.6}", percent(missed, of)));
                    }
                    None => {
                        counts.push_str(",0");
                        ratios.push_str(",0");
                    }
                }
            }
            counts.push('\n');
            ratios.push('\n');
        }
        let name = |suffix: &str| format!("{capacity}_{unit}_{suffix}");
        files.push(ResultFile {
            name: name("miss_ratio_timeline"),
            text: ratios,
        });
        files.push(ResultFile {
            name: name("miss_timeline"),
            text: counts,
        });
    }
    Ok(files)
}
