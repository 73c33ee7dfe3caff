//! What is indexed.

use query_language::FieldPath;

use crate::value::mix;

/// Which dimensions are summarized, and the sizes of the summaries.
///
/// `name` and `cat` are always dimensions; `ts` and `dur` never are: the statistics of the groups
/// contain their ranges.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexConfig {
    /// The fields other than `name` and `cat`, in the order in which they were added.
    dimensions: Vec<FieldPath>,
    /// Expected distinct values of a dimension in a chunk. A filter has the size that the actual
    /// values need, up to [`ENTRIES_FACTOR`] times this. Beyond, a filter would cost more than it
    /// saves, and the chunk has only the limits of the dimension.
    pub expected_entries: u32,
    /// Rate of false positives of a Bloom filter.
    pub false_positive_rate: f64,
    /// Bytes that the compressed dictionary of a dimension in a chunk may take.
    pub dictionary_bytes_max: u32,
}

/// Ratio of the most entries of a filter to the expected ones.
pub const ENTRIES_FACTOR: u32 = 8;
/// Most dimensions of a configuration.
pub const DIMENSIONS_MAX: usize = 256;
/// The version of the summaries. Changing it makes every older sidecar be rebuilt.
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

    /// Adds `field`. Fields that are dimensions already, and those beyond [`DIMENSIONS_MAX`],
    /// change nothing.
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

    /// Distinct values up to which each value of a dimension of a chunk is counted.
    pub(crate) fn entries_max(&self) -> usize {
        self.expected_entries.saturating_mul(ENTRIES_FACTOR).max(1) as usize
    }

    /// A hash that differs if summaries made with two configurations differ in anything but their
    /// dimensions. If it is equal, only missing dimensions need to be added.
    pub fn hash(&self) -> u64 {
        [
            u64::from(self.expected_entries),
            self.false_positive_rate.to_bits(),
            u64::from(self.dictionary_bytes_max),
        ]
        .into_iter()
        .fold(SUMMARY_VERSION, |hash, part| mix(hash ^ mix(part)))
    }

    /// What to do for a file that was indexed with the configuration of `hash` and has these
    /// `dimensions`.
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
        } else if dimensions.len() + missing.len() > DIMENSIONS_MAX {
            Work::Everything
        } else {
            Work::Dimensions(missing)
        }
    }
}

/// What an index lacks.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Nothing: it has all dimensions of the configuration.
    Nothing,
    /// Only these dimensions.
    Dimensions(Vec<FieldPath>),
    /// Everything: it was made with another configuration, or would have too many dimensions, and
    /// is rebuilt.
    Everything,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_dimensions_are_added() {
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

    fn check(indexed: usize, added: usize, expected: fn(&Work) -> bool) {
        let names = |from: usize, count| (from..from + count).map(|at| format!("f{at}"));
        let old: Vec<FieldPath> = names(0, indexed)
            .map(|name| FieldPath::new(&name))
            .collect();
        let added: Vec<String> = names(indexed, added).collect();
        let config = IndexConfig::new(added.iter().map(String::as_str));
        let work = config.work(config.hash(), &[&config.dimensions()[..2], &old].concat());
        assert!(expected(&work), "{indexed} and {}: {work:?}", added.len());
    }

    #[test]
    fn an_index_never_gets_more_dimensions_than_can_be_read() {
        check(10, 0, |work| *work == Work::Nothing);
        check(
            10,
            3,
            |work| matches!(work, Work::Dimensions(added) if added.len() == 3),
        );
        check(DIMENSIONS_MAX - 5, 3, |work| {
            matches!(work, Work::Dimensions(_))
        });
        check(DIMENSIONS_MAX - 5, 4, |work| *work == Work::Everything);
    }
}
