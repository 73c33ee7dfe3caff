//! What is indexed of every chunk.

use query_language::FieldPath;

use crate::value::mix;

/// Which dimensions are summarized, and how large the summaries may become.
///
/// `name` and `cat` are always dimensions, and `ts` and `dur` never: the statistics of the groups
/// have their ranges.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexConfig {
    /// The fields besides `name` and `cat`, in the order in which they were asked for.
    dimensions: Vec<FieldPath>,
    /// Distinct values expected of a dimension in a chunk. A filter has the size that the values
    /// that came need, up to [`ENTRIES_FACTOR`] times this; beyond, a filter would cost more than
    /// it can spare, and the chunk keeps only the limits of the dimension.
    pub expected_entries: u32,
    /// Part of strangers that a Bloom filter may take for members.
    pub false_positive_rate: f64,
    /// Bytes that the compressed dictionary of a dimension in a chunk may take.
    pub dictionary_bytes_max: u32,
}

/// How many times the expected entries a filter may hold.
pub const ENTRIES_FACTOR: u32 = 8;
/// Dimensions that may be asked for.
pub const DIMENSIONS_MAX: usize = 256;
/// The form of the summaries. A change here makes every older sidecar be rebuilt.
const SUMMARY_VERSION: u64 = 1;

impl IndexConfig {
    /// `name`, `cat` and `fields`, with the default sizes.
    pub fn new<'a>(fields: impl IntoIterator<Item = &'a str>) -> IndexConfig {
        let mut config = IndexConfig {
            dimensions: vec![FieldPath::new("name"), FieldPath::new("cat")],
            expected_entries: 1_024,
            false_positive_rate: 0.01,
            dictionary_bytes_max: 4_096,
        };
        for field in fields {
            config.add(FieldPath::new(field));
        }
        config
    }

    /// Also indexes `field`. Fields that are indexed anyway, and those beyond
    /// [`DIMENSIONS_MAX`], change nothing.
    pub fn add(&mut self, field: FieldPath) {
        let covered = field.is_time() || field.is_duration() || self.dimensions.contains(&field);
        if !covered && self.dimensions.len() < DIMENSIONS_MAX {
            self.dimensions.push(field);
        }
    }

    /// The dimensions; the first two are `name` and `cat`.
    pub fn dimensions(&self) -> &[FieldPath] {
        &self.dimensions
    }

    /// Distinct values up to which a dimension of a chunk is known value by value.
    pub(crate) fn entries_max(&self) -> usize {
        self.expected_entries.saturating_mul(ENTRIES_FACTOR).max(1) as usize
    }

    /// A number that differs when summaries made with the two configurations differ in anything
    /// but their set of dimensions. Where it is the same, only the dimensions that are missing need
    /// to be added.
    pub fn hash(&self) -> u64 {
        [
            u64::from(self.expected_entries),
            self.false_positive_rate.to_bits(),
            u64::from(self.dictionary_bytes_max),
        ]
        .into_iter()
        .fold(SUMMARY_VERSION, |hash, part| mix(hash ^ mix(part)))
    }

    /// What is still to be done for a file that was indexed with the configuration of `hash` and
    /// has these `dimensions`.
    pub fn work(&self, hash: u64, dimensions: &[FieldPath]) -> Work {
        if hash != self.hash() {
            return Work::Everything;
        }
        let missing: Vec<FieldPath> = self
            .dimensions
            .iter()
            .filter(|field| !dimensions.contains(field))
            .cloned()
            .collect();
        if missing.is_empty() {
            Work::Nothing
        } else {
            Work::Dimensions(missing)
        }
    }
}

/// What is missing of an index.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// It has all that is asked for.
    Nothing,
    /// Only these dimensions are missing.
    Dimensions(Vec<FieldPath>),
    /// It was made in another way and is made anew.
    Everything,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_asked_for() {
        let old = IndexConfig::new(["pid"]);
        let new = IndexConfig::new(["pid", "epoch", "ts", "args.epoch"]);
        assert_eq!(new.work(new.hash(), new.dimensions()), Work::Nothing);
        assert_eq!(
            new.work(old.hash(), old.dimensions()),
            Work::Dimensions(vec![FieldPath::new("epoch")])
        );
        assert_eq!(old.work(new.hash(), new.dimensions()), Work::Nothing);
        let mut finer = new.clone();
        finer.false_positive_rate = 0.001;
        assert_eq!(finer.work(new.hash(), new.dimensions()), Work::Everything);
    }
}
