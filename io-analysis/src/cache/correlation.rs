//! Correlation of the time to the next access to a block with past accesses.
//!
//! The values for each access that is followed by another to the same block are: accesses and µs
//! since the previous access, the number of previous accesses, and accesses and µs until the next
//! access. A label stores a uniform sample of bounded size (Vitter's algorithm R, with a fixed
//! seed, so that runs are repeatable).

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use serde::Serialize;
use trace_kinds::rocksdb::{Caller, Fingerprints};

use super::blocks::{Access, Blocks};
use crate::cache::labels::LabelSet;
use crate::result_file::{ResultFile, file_name};

/// The values for one access, in the order of the columns.
type Row = [u64; 5];

const COLUMNS: [&str; 5] = [
    "num_accesses_since_last_access",
    "elapsed_time_since_last_access",
    "num_past_accesses",
    "num_accesses_till_next_access",
    "elapsed_time_till_next_access",
];

/// The latest access to a block or key.
#[derive(Debug, Clone, Copy)]
struct Latest {
    sequence: u64,
    time_us: u64,
    since: u64,
    elapsed: u64,
    past: u64,
}

impl Latest {
    fn first(sequence: u64, time_us: u64) -> Self {
        Self {
            sequence,
            time_us,
            since: 0,
            elapsed: 0,
            past: 0,
        }
    }

    /// Advances to the next access. Returns the row of the previous one.
    fn advance(&mut self, sequence: u64, time_us: u64) -> Row {
        let since = sequence - self.sequence;
        // With several threads, times may go backwards. RocksDB's subtraction then wraps.
        let elapsed = time_us.saturating_sub(self.time_us);
        let row = [self.since, self.elapsed, self.past, since, elapsed];
        *self = Self {
            sequence,
            time_us,
            since,
            elapsed,
            past: self.past + 1,
        };
        row
    }
}

/// A uniform sample of rows.
#[derive(Debug, Clone)]
struct Sample {
    rows: Vec<Row>,
    seen: u64,
    random: u64,
}

impl Sample {
    fn new() -> Self {
        Self {
            rows: Vec::new(),
            seen: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    #[inline]
    fn add(&mut self, row: Row, limit: usize) {
        self.seen += 1;
        if self.rows.len() < limit {
            self.rows.push(row);
            return;
        }
        // xorshift64: repeatability matters here, not quality.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let at = (u128::from(self.random) * u128::from(self.seen)) >> 64;
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if let Some(slot) = self.rows.get_mut(at) {
            *slot = row;
        }
    }

    fn file(&self, name: &str) -> ResultFile {
        let mut text = COLUMNS.join(",");
        text.push('\n');
        for [since, elapsed, past, till, till_time] in &self.rows {
            writeln!(text, "{since},{elapsed},{past},{till},{till_time}")
                .expect("writing to a string cannot fail");
        }
        ResultFile {
            name: file_name(name),
            text,
        }
    }
}

/// Pearson coefficients of the three past columns with each of the future columns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Coefficients {
    /// With the number of accesses until the next.
    pub accesses_till_next: [f64; 3],
    /// With the time until the next.
    pub time_till_next: [f64; 3],
}

fn coefficient(rows: &[Row], a: usize, b: usize) -> f64 {
    let count = rows.len() as f64;
    let mean = |column: usize| rows.iter().map(|row| row[column] as f64).sum::<f64>() / count;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for row in rows {
        let (da, db) = (row[a] as f64 - mean_a, row[b] as f64 - mean_b);
        ab += da * db;
        aa += da * da;
        bb += db * db;
    }
    if aa * bb > 0.0 {
        ab / (aa * bb).sqrt()
    } else {
        0.0
    }
}

/// The samples of one label set.
#[derive(Debug)]
struct LabelSamples {
    labels: LabelSet,
    samples: BTreeMap<String, Sample>,
    /// The label of each segment, if it does not change.
    cached: Vec<Option<String>>,
}

/// Samples by label, and of the keys of Gets.
#[derive(Debug)]
pub(crate) struct Correlation {
    limit: usize,
    sets: Vec<LabelSamples>,
    by_block: Vec<Latest>,
    by_caller: Option<HashMap<(u32, u8), Latest>>,
    keys: Fingerprints,
    by_key: Vec<Latest>,
    key_sample: Sample,
}

impl Correlation {
    pub(crate) fn new(labels: Vec<LabelSet>, limit: usize) -> Self {
        let by_caller = labels.iter().any(LabelSet::by_caller).then(HashMap::new);
        let set = |labels| LabelSamples {
            labels,
            samples: BTreeMap::new(),
            cached: Vec::new(),
        };
        Self {
            limit,
            sets: labels.into_iter().map(set).collect(),
            by_block: Vec::new(),
            by_caller,
            keys: Fingerprints::default(),
            by_key: Vec::new(),
            key_sample: Sample::new(),
        }
    }

    pub(crate) fn observe(&mut self, access: &Access<'_>, blocks: &Blocks) {
        let record = access.record;
        let first = Latest::first(access.sequence, record.time);
        let of_block = match self.by_block.get_mut(access.block as usize) {
            Some(latest) => Some(latest.advance(access.sequence, record.time)),
            None => {
                self.by_block.push(first);
                None
            }
        };
        let of_caller = self.by_caller.as_mut().and_then(|by_caller| {
            match by_caller.entry((access.block, record.caller.0)) {
                std::collections::hash_map::Entry::Vacant(entry) => {
                    entry.insert(first);
                    None
                }
                std::collections::hash_map::Entry::Occupied(mut entry) => {
                    Some(entry.get_mut().advance(access.sequence, record.time))
                }
            }
        });
        for set in &mut self.sets {
            let row = if set.labels.by_caller() {
                of_caller
            } else {
                of_block
            };
            if let Some(row) = row {
                set.add(row, access, blocks, self.limit);
            }
        }
        if record.caller == Caller::GET && record.get_id != 0 {
            let key = self.keys.number(record.user_key());
            match self.by_key.get_mut(key as usize) {
                Some(latest) => {
                    let row = latest.advance(access.sequence, record.time);
                    self.key_sample.add(row, self.limit);
                }
                None => self.by_key.push(first),
            }
        }
    }

    /// One file per label: `LABELS_LABEL_correlation_input`.
    pub(crate) fn files(&self) -> Vec<ResultFile> {
        let mut files = Vec::new();
        for set in &self.sets {
            for (label, sample) in &set.samples {
                let name = format!("{}_{label}_correlation_input", set.labels.text());
                files.push(sample.file(&name));
            }
        }
        if !self.key_sample.rows.is_empty() {
            files.push(
                self.key_sample
                    .file("GetKeyInfo_GetKeyInfo_correlation_input"),
            );
        }
        files
    }

    /// The coefficients of every label.
    pub(crate) fn coefficients(&self) -> BTreeMap<String, Coefficients> {
        let of = |sample: &Sample| Coefficients {
            accesses_till_next: [0, 1, 2].map(|past| coefficient(&sample.rows, past, 3)),
            time_till_next: [0, 1, 2].map(|past| coefficient(&sample.rows, past, 4)),
        };
        let mut coefficients = BTreeMap::new();
        for set in &self.sets {
            for (label, sample) in &set.samples {
                coefficients.insert(format!("{}_{label}", set.labels.text()), of(sample));
            }
        }
        if !self.key_sample.rows.is_empty() {
            coefficients.insert("GetKeyInfo".to_owned(), of(&self.key_sample));
        }
        coefficients
    }
}

impl LabelSamples {
    fn add(&mut self, row: Row, access: &Access<'_>, blocks: &Blocks, limit: usize) {
        let caller = access.record.caller;
        let changes = self.labels.by_caller() || self.labels.by_level() || self.labels.by_block();
        let label = || {
            let block = self.labels.by_block().then_some(access.block);
            self.labels.label(blocks, access.segment, caller, block)
        };
        let segment = access.segment as usize;
        if changes {
            let label = label();
            self.samples
                .entry(label)
                .or_insert_with(Sample::new)
                .add(row, limit);
            return;
        }
        if segment >= self.cached.len() {
            self.cached.resize(segment + 1, None);
        }
        if self.cached[segment].is_none() {
            self.cached[segment] = Some(label());
        }
        let label = self.cached[segment].as_deref().unwrap_or_default();
        match self.samples.get_mut(label) {
            Some(sample) => sample.add(row, limit),
            None => {
                let mut sample = Sample::new();
                sample.add(row, limit);
                self.samples.insert(label.to_owned(), sample);
            }
        }
    }
}
