//! Options for block cache traces.

use std::path::PathBuf;

use clap::Args;
use io_analysis::{
    AnalysisError, BucketQuestion, Buckets, CacheConfig, CacheQuestions, CorrelationQuestion,
    LabelSet, parse_size,
};
use trace_kinds::rocksdb::Caller;

use crate::command::CommandError;

/// Analyses of a block cache trace in addition to the summary.
///
/// LABELS are all, block, bt (block type), caller, cf (column family), level, sst, or several
/// joined by `_`; a comma separates tables. BUCKETS are increasing limits such as 1,10,1K.
#[derive(Debug, Args)]
#[command(next_help_heading = "Block cache traces")]
pub(super) struct CacheOptions {
    /// Simulate the caches in this file, one per line: name,shard_bits,ghost_capacity,capacity,…
    #[arg(long, value_name = "FILE")]
    caches: Option<PathBuf>,
    /// Simulate LRU caches of these sizes, such as 64K,1M
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size)]
    cache_sizes: Vec<u64>,
    /// Ignore the first SECONDS of the trace when counting misses of simulated caches
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    warmup: u64,
    /// The trace is a sample of one in N blocks; divide the sizes of simulated caches by N
    #[arg(long, value_name = "N", default_value_t = 1)]
    downsample: u64,
    /// Only simulate caches; skip all other analyses
    #[arg(long)]
    curves_only: bool,
    /// Accesses per minute and per hour
    #[arg(long, value_name = "LABELS")]
    timelines: Option<String>,
    /// Accesses by these callers, by level and block type
    #[arg(long, value_name = "CALLER,…", value_delimiter = ',', value_parser = caller)]
    callers: Vec<Caller>,
    /// Number of blocks by number of accesses
    #[arg(long, value_name = "BUCKETS")]
    access_counts: Option<String>,
    /// Bytes of distinct blocks accessed between two accesses to a block
    #[arg(long, value_name = "LABELS")]
    reuse_distance: Option<String>,
    /// Buckets for --reuse-distance
    #[arg(
        long,
        value_name = "BUCKETS",
        default_value = "64K,256K,1M,4M,16M,64M,256M,1G,4G,16G"
    )]
    reuse_distance_buckets: String,
    /// Seconds between two accesses to a block
    #[arg(long, value_name = "LABELS")]
    reuse_interval: Option<String>,
    /// Buckets for --reuse-interval
    #[arg(long, value_name = "BUCKETS", default_value = "1,10,60,600,3600,86400")]
    reuse_interval_buckets: String,
    /// Seconds from the first to the last access to a block
    #[arg(long, value_name = "LABELS")]
    reuse_lifetime: Option<String>,
    /// Buckets for --reuse-lifetime
    #[arg(long, value_name = "BUCKETS", default_value = "1,10,60,600,3600,86400")]
    reuse_lifetime_buckets: String,
    /// Share of blocks that are accessed again in later windows of SECONDS
    #[arg(long, value_name = "SECONDS")]
    reuse_window: Option<u64>,
    /// Share of the keys and bytes of data blocks that Gets access
    #[arg(long, value_name = "LABELS")]
    spatial_locality: Option<String>,
    /// Buckets for --spatial-locality, in percent
    #[arg(
        long,
        value_name = "BUCKETS",
        default_value = "10,20,30,40,50,60,70,80,90,100"
    )]
    spatial_locality_buckets: String,
    /// Share of accesses that go to the most accessed blocks
    #[arg(long, value_name = "LABELS")]
    skew: Option<String>,
    /// Buckets for --skew, in percent
    #[arg(long, value_name = "BUCKETS", default_value = "1,5,10,20,50,75,90,100")]
    skew_buckets: String,
    /// Correlation of the time to the next access with past accesses
    #[arg(long, value_name = "LABELS")]
    correlation: Option<String>,
    /// Maximum number of values stored per label of --correlation
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    correlation_values: usize,
    /// Histograms of block sizes
    #[arg(long)]
    block_sizes: bool,
    /// Histograms of accesses per block
    #[arg(long)]
    access_histograms: bool,
    /// Run all analyses, with default labels and buckets
    #[arg(long)]
    all: bool,
}

fn size(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(0) => Err("a cache size must not be 0".to_owned()),
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}

fn caller(text: &str) -> Result<Caller, String> {
    let unknown = || {
        AnalysisError::UnknownCaller {
            given: text.to_owned(),
        }
        .to_string()
    };
    Caller::from_name(text).ok_or_else(unknown)
}

/// Labels that `--all` uses unless an option names others.
const ALL_LABELS: &str = "all,bt,cf";

impl CacheOptions {
    /// The caches to simulate.
    fn caches(&self) -> Result<Vec<CacheConfig>, CommandError> {
        let mut caches = match &self.caches {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| CommandError::io(path.display(), error))?;
                CacheConfig::parse(&text).map_err(usage)?
            }
            None => Vec::new(),
        };
        if !self.cache_sizes.is_empty() {
            let lru = CacheConfig::lru(self.cache_sizes.clone());
            let same = |known: &&mut CacheConfig| {
                (&known.name, known.shard_bits, known.ghost_capacity)
                    == (&lru.name, lru.shard_bits, lru.ghost_capacity)
            };
            match caches.iter_mut().find(same) {
                Some(known) => known.capacities.extend(lru.capacities),
                None => caches.push(lru),
            }
        }
        if self.curves_only && caches.is_empty() {
            let what = "--curves-only requires --caches or --cache-sizes";
            return Err(CommandError::usage(what));
        }
        Ok(caches)
    }

    /// The analyses that the options request.
    pub(super) fn questions(&self) -> Result<CacheQuestions, CommandError> {
        let labels = |given: &Option<String>| match (given, self.all) {
            (Some(text), _) => LabelSet::parse_list(text).map(Some),
            (None, true) => LabelSet::parse_list(ALL_LABELS).map(Some),
            (None, false) => Ok(None),
        };
        let by_bucket = |given: &Option<String>, limits: &str| match labels(given) {
            Ok(Some(labels)) => {
                Buckets::parse(limits).map(|buckets| Some(BucketQuestion { labels, buckets }))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let counts = match (&self.access_counts, self.all) {
            (None, true) => Some("1,2,3,4,5,10,50,100,500,1000"),
            (given, _) => given.as_deref(),
        };
        let callers = match (&self.callers[..], self.all) {
            ([], true) => vec![Caller::GET, Caller::MULTI_GET, Caller::ITERATOR],
            (given, _) => given.to_vec(),
        };
        Ok(CacheQuestions {
            caches: self.caches()?,
            warmup_seconds: self.warmup,
            downsample: self.downsample,
            curves_only: self.curves_only,
            timelines: labels(&self.timelines).map_err(usage)?.unwrap_or_default(),
            callers,
            access_counts: counts.map(Buckets::parse).transpose().map_err(usage)?,
            reuse_distance: by_bucket(&self.reuse_distance, &self.reuse_distance_buckets)
                .map_err(usage)?,
            reuse_interval: by_bucket(&self.reuse_interval, &self.reuse_interval_buckets)
                .map_err(usage)?,
            reuse_lifetime: by_bucket(&self.reuse_lifetime, &self.reuse_lifetime_buckets)
                .map_err(usage)?,
            reuse_window: self.reuse_window.or(self.all.then_some(60)),
            spatial_locality: by_bucket(&self.spatial_locality, &self.spatial_locality_buckets)
                .map_err(usage)?,
            skew: by_bucket(&self.skew, &self.skew_buckets).map_err(usage)?,
            correlation: labels(&self.correlation).map_err(usage)?.map(|labels| {
                CorrelationQuestion {
                    labels,
                    values_max: self.correlation_values,
                }
            }),
            block_sizes: self.block_sizes || self.all,
            access_histograms: self.access_histograms || self.all,
        })
    }
}

/// An invalid option.
fn usage(error: AnalysisError) -> CommandError {
    CommandError::usage(error.to_string())
}
