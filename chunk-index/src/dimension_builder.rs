//! Builds the summary of one dimension of a chunk from its events.

use std::cmp::Ordering;

use query_language::Value;

use crate::OwnedValue;
use crate::config::IndexConfig;
use crate::dictionary::Dictionary;
use crate::dimension_summary::DimensionSummary;
use crate::distinct_values::DistinctValues;
use crate::filter::ChunkFilter;
use crate::value_counts::{ValueCounts, transient_hash};
use crate::zone::Zone;

/// Collects the values of one dimension over the events of a chunk.
#[derive(Debug)]
pub(crate) struct DimensionBuilder {
    counts: ValueCounts,
    /// Set when the chunk has more values than are counted one by one; from then on only limits are
    /// updated.
    overflow: Option<Box<Overflow>>,
}

impl DimensionBuilder {
    pub(crate) fn new() -> DimensionBuilder {
        DimensionBuilder {
            counts: ValueCounts::new(),
            overflow: None,
        }
    }

    /// Counts a value; returns its number in the chunk unless there are too many values.
    #[inline]
    pub(crate) fn count(&mut self, value: Value<'_>, entries_max: usize) -> Option<u32> {
        if self.overflow.is_none() {
            let id = self.counts.count(value, entries_max);
            if id.is_some() {
                return id;
            }
        }
        self.count_overflow(value)
    }

    /// The distinct values, in the order of their numbers.
    pub(crate) fn values(&self) -> impl ExactSizeIterator<Item = Value<'_>> {
        self.counts.values().map(|(value, _)| value)
    }

    /// Counts a value again, `times` times, by the number that [`DimensionBuilder::count`]
    /// returned.
    pub(crate) fn count_again(&mut self, id: u32, times: u64) {
        if let Some(overflow) = &mut self.overflow
            && let Some(value) = self.counts.value(id)
        {
            overflow.add(value.as_value(), times);
        }
        self.counts.count_again(id, times);
    }

    #[cold]
    #[inline(never)]
    fn begin_overflow(&self) -> Box<Overflow> {
        let mut overflow = Box::new(Overflow::new());
        for (value, count) in self.counts.values() {
            overflow.add(value, count);
        }
        overflow
    }

    fn count_overflow(&mut self, value: Value<'_>) -> Option<u32> {
        if self.overflow.is_none() {
            self.overflow = Some(self.begin_overflow());
        }
        if let Some(overflow) = &mut self.overflow {
            overflow.add(value, 1);
        }
        None
    }

    /// The value of a number that [`DimensionBuilder::count`] returned.
    pub(crate) fn value(&self, id: u32) -> Option<OwnedValue> {
        self.counts.value(id)
    }

    /// The summary of the events since the last call. Values that are too many for a dictionary are
    /// numbered by `distinct`, if it has space for them.
    pub(crate) fn finish(
        &mut self,
        config: &IndexConfig,
        distinct: Option<&mut DistinctValues>,
    ) -> DimensionSummary {
        let summary = match self.overflow.take() {
            Some(overflow) => DimensionSummary {
                zone: overflow.into_zone(),
                ..DimensionSummary::default()
            },
            None => self.summarize(config, distinct),
        };
        self.counts.clear();
        summary
    }

    fn summarize(
        &self,
        config: &IndexConfig,
        distinct: Option<&mut DistinctValues>,
    ) -> DimensionSummary {
        let mut zone = Zone {
            distinct: self.counts.len() as u64,
            distinct_exact: true,
            ..Zone::default()
        };
        for (value, count) in self.counts.values() {
            zone.present += count;
            zone.widen(value);
        }
        let room = config.dictionary_bytes_max as usize;
        let dictionary = Dictionary::within(self.counts.values(), room);
        let mut summary = DimensionSummary {
            zone,
            dictionary,
            ..DimensionSummary::default()
        };
        if summary.dictionary.is_none() && summary.zone.distinct > 0 {
            summary.numbers = distinct.and_then(|distinct| distinct.numbers_of(self.values()));
            if summary.numbers.is_none() {
                let values: Vec<Value<'_>> = self.values().collect();
                summary.filter = Some(ChunkFilter::of_values(&values, config));
            }
        }
        summary
    }
}

/// Registers of the distinct count: 1,024 are right to about 3 %.
const REGISTERS: usize = 1 << REGISTER_BITS;
const REGISTER_BITS: u32 = 10;

/// Limits and an estimated distinct count of values that are not stored.
#[derive(Debug)]
struct Overflow {
    zone: Zone,
    /// HyperLogLog (Flajolet and others 2007): the longest run of zeros seen by each register.
    registers: [u8; REGISTERS],
    /// The limits of numbers, as long as all fit 64-bit integers; makes the common case cheap.
    ints: Option<(i64, i64)>,
}

impl Overflow {
    fn new() -> Overflow {
        Overflow {
            zone: Zone::default(),
            registers: [0; REGISTERS],
            ints: None,
        }
    }

    fn add(&mut self, value: Value<'_>, count: u64) {
        self.zone.present += count;
        let hash = transient_hash(value);
        let register = &mut self.registers[(hash >> (64 - REGISTER_BITS)) as usize];
        #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
        let run = (hash << REGISTER_BITS | 1 << (REGISTER_BITS - 1)).leading_zeros() as u8 + 1;
        *register = (*register).max(run);
        let int = match value {
            Value::Int(value) => Some(value),
            Value::Uint(value) => i64::try_from(value).ok(),
            _ => None,
        };
        match (int, &mut self.ints) {
            (Some(int), Some((min, max))) => {
                *min = (*min).min(int);
                *max = (*max).max(int);
            }
            (Some(int), none) => *none = Some((int, int)),
            (None, _) => self.zone.widen(value),
        }
    }

    fn into_zone(mut self) -> Zone {
        if let Some((min, max)) = self.ints {
            self.zone.widen(Value::Int(min));
            self.zone.widen(Value::Int(max));
        }
        self.zone.distinct = self.estimate().min(self.zone.present);
        self.zone
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate is positive, and the conversion saturates"
    )]
    fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let sum: f64 = self
            .registers
            .iter()
            .map(|run| (-f64::from(*run)).exp2())
            .sum();
        let raw = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
        let empty = self.registers.iter().filter(|run| **run == 0).count();
        let estimate = match raw.partial_cmp(&(2.5 * registers)) {
            Some(Ordering::Less) if empty > 0 => registers * (registers / empty as f64).ln(),
            _ => raw,
        };
        estimate.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use query_language::Number;

    use crate::value::hash_text;

    fn build(values: &[Value<'_>], config: &IndexConfig) -> DimensionSummary {
        let mut builder = DimensionBuilder::new();
        for value in values {
            builder.count(*value, config.entries_max());
        }
        builder.finish(config, None)
    }

    #[test]
    fn few_values_get_a_dictionary_and_many_a_filter() {
        let config = IndexConfig::new([]);
        let few: Vec<Value<'_>> = (0..1_000).map(|value| Value::Int(value % 10)).collect();
        let summary = build(&few, &config);
        assert_eq!((summary.zone.present, summary.zone.distinct), (1_000, 10));
        assert!(summary.dictionary.is_some() && summary.filter.is_none());

        let texts: Vec<String> = (0..3_000_u64)
            .map(|value| format!("{:016x}", crate::value::mix(value)))
            .collect();
        let many: Vec<Value<'_>> = texts
            .iter()
            .map(|text| Value::from(text.as_str()))
            .collect();
        let summary = build(&many, &config);
        assert!(summary.dictionary.is_none() && summary.zone.distinct_exact);
        let Some(ChunkFilter::Bloom(filter)) = summary.filter else {
            panic!("{:?}", summary.filter);
        };
        assert!(
            texts
                .iter()
                .all(|text| filter.may_contain(hash_text(text.as_bytes())))
        );
        assert!(filter.byte_len() < 4_300, "{}", filter.byte_len());
    }

    #[test]
    fn too_many_values_leave_limits_and_an_estimate() {
        let config = IndexConfig::new([]);
        for distinct in [9_000_u64, 100_000] {
            let values: Vec<Value<'_>> = (0..distinct * 2)
                .map(|value| Value::Uint(value % distinct + 7))
                .collect();
            let summary = build(&values, &config);
            assert_eq!((&summary.dictionary, &summary.filter), (&None, &None));
            let zone = summary.zone;
            assert_eq!(zone.present, distinct * 2);
            assert_eq!(
                zone.numbers,
                Some((Number::Int(7), Number::Int(i128::from(distinct) + 6)))
            );
            assert!(!zone.distinct_exact);
            let error = zone.distinct.abs_diff(distinct) as f64 / distinct as f64;
            assert!(error < 0.12, "{} for {distinct}", zone.distinct);
        }
    }
}
