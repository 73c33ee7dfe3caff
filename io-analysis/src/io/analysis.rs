//! One pass over an I/O trace.

use std::collections::HashMap;

use trace_kinds::rocksdb::NumberedStrings;

use super::access::IoAccess;
use super::amplification::Volumes;
use super::grid::Grid;
use super::latency::Latency;
use super::sequential::Sequential;
use super::slowest::Slowest;
use super::steps::{Steps, ThroughputStep};
use super::working_set::WorkingSet;

/// Options of the analysis.
#[derive(Debug, Clone)]
pub struct IoQuestions {
    /// Number of slowest operations to report.
    pub slowest: usize,
    /// The file class that receives user writes first.
    pub user_class: String,
}

impl Default for IoQuestions {
    fn default() -> Self {
        Self {
            slowest: 20,
            user_class: "wal".to_owned(),
        }
    }
}

/// Maximum number of throughput steps.
const THROUGHPUT_STEPS_MAX: usize = 2048;

/// Operation, class and cause, as numbers of interned names.
pub(super) type LatencyKey = (u32, u32, u32);

/// One pass over an I/O trace.
#[derive(Debug)]
pub struct IoAnalysis {
    pub(super) questions: IoQuestions,
    pub(super) operations: NumberedStrings,
    pub(super) classes: NumberedStrings,
    pub(super) causes: NumberedStrings,
    pub(super) files: NumberedStrings,
    pub(super) accesses: u64,
    pub(super) failed: u64,
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
    pub(super) latencies: HashMap<LatencyKey, Latency>,
    pub(super) throughput: Steps<ThroughputStep>,
    pub(super) sequential: Sequential,
    pub(super) grids: HashMap<u32, Grid>,
    pub(super) slowest: Slowest,
    pub(super) volumes: Volumes,
    pub(super) working_set: WorkingSet,
}

impl IoAnalysis {
    /// A pass with these options.
    pub fn new(questions: IoQuestions) -> Self {
        Self {
            slowest: Slowest::new(questions.slowest),
            questions,
            operations: NumberedStrings::default(),
            classes: NumberedStrings::default(),
            causes: NumberedStrings::default(),
            files: NumberedStrings::default(),
            accesses: 0,
            failed: 0,
            first_ns: i64::MAX,
            last_ns: i64::MIN,
            latencies: HashMap::new(),
            // The initial width of a step is 2^26 ns, 67 ms.
            throughput: Steps::new(26, THROUGHPUT_STEPS_MAX),
            sequential: Sequential::default(),
            grids: HashMap::new(),
            volumes: Volumes::default(),
            working_set: WorkingSet::new(),
        }
    }

    /// Observes the next operation.
    pub fn observe(&mut self, access: &IoAccess<'_>) {
        let operation = self.operations.intern(access.operation);
        let class = self.classes.intern(access.class.as_bytes());
        let cause = self.causes.intern(access.cause);
        let file = self.files.intern(access.file);
        self.accesses += 1;
        self.failed += u64::from(access.failed);
        self.first_ns = self.first_ns.min(access.start_ns);
        let end_ns = access.start_ns.saturating_add_unsigned(access.latency_ns);
        self.last_ns = self.last_ns.max(end_ns);
        self.latencies
            .entry((operation, class, cause))
            .or_default()
            .add(access);
        self.throughput.at(access.start_ns).add(access);
        self.sequential.add(access, file, class);
        self.grids
            .entry(class)
            .or_insert_with(Grid::new)
            .add(access);
        self.slowest.add(access);
        self.volumes.add(access, class);
        self.working_set.add(access, file);
    }
}
