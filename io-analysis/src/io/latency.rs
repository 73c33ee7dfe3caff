//! Latency by operation, file class and cause.

use crate::numbers::{floor_to_u64, to_usize};
use serde::Serialize;

/// 32 buckets per power of two: the error of quantiles is at most 1/32.
const SUB_BITS: u32 = 5;
const SUB: u64 = 1 << SUB_BITS;

/// A histogram whose bucket sizes grow with the value.
#[derive(Debug, Clone, Default)]
pub(super) struct LogHistogram {
    counts: Vec<u32>,
    count: u64,
    sum: u64,
    least: u64,
    greatest: u64,
}

fn bucket(value: u64) -> usize {
    if value < SUB {
        return to_usize(value);
    }
    let power = value.ilog2() - SUB_BITS;
    to_usize((u64::from(power) + 1) * SUB + ((value >> power) - SUB))
}

/// The greatest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB {
        return bucket;
    }
    let power = bucket / SUB - 1;
    let base = u128::from(SUB + bucket % SUB) << power;
    u64::try_from(base + (1u128 << power) - 1).unwrap_or(u64::MAX)
}

impl LogHistogram {
    #[inline]
    pub(super) fn add(&mut self, value: u64) {
        let bucket = bucket(value);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
        self.least = if self.count == 0 {
            value
        } else {
            self.least.min(value)
        };
        self.greatest = self.greatest.max(value);
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
    }

    pub(super) fn quantile(&self, share: f64) -> u64 {
        let rank = floor_to_u64((self.count as f64 * share).ceil()).max(1);
        let mut below = 0;
        for (index, &count) in self.counts.iter().enumerate() {
            below += u64::from(count);
            if below >= rank {
                return upper(index).clamp(self.least, self.greatest);
            }
        }
        self.greatest
    }
}

/// Counts for one operation, file class and cause.
#[derive(Debug, Default)]
pub(super) struct Latency {
    histogram: LogHistogram,
    bytes: u64,
    failed: u64,
}

impl Latency {
    pub(super) fn add(&mut self, access: &super::IoAccess<'_>) {
        self.histogram.add(access.latency_ns);
        self.bytes = self.bytes.saturating_add(access.len.unwrap_or(0));
        self.failed += u64::from(access.failed);
    }

    pub(super) fn row(&self, operation: String, class: String, cause: String) -> LatencyRow {
        let of = &self.histogram;
        LatencyRow {
            operation,
            class,
            cause,
            count: of.count,
            failed: self.failed,
            bytes: self.bytes,
            total_ns: of.sum,
            mean_ns: of.sum.checked_div(of.count).unwrap_or(0),
            min_ns: of.least,
            p50_ns: of.quantile(0.5),
            p90_ns: of.quantile(0.9),
            p99_ns: of.quantile(0.99),
            p999_ns: of.quantile(0.999),
            max_ns: of.greatest,
        }
    }
}

/// Latency of one operation, file class and cause. The records of a RocksDB MultiRead each have the
/// latency of the complete batch, so `total_ns` counts it several times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LatencyRow {
    /// The operation.
    pub operation: String,
    /// The file class.
    pub class: String,
    /// The cause; empty if the trace does not record it.
    pub cause: String,
    /// Number of operations.
    pub count: u64,
    /// Number of failed operations.
    pub failed: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Sum of the latencies.
    pub total_ns: u64,
    /// Mean latency.
    pub mean_ns: u64,
    /// Minimum latency.
    pub min_ns: u64,
    /// Median latency.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Maximum latency.
    pub max_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close() {
        let mut histogram = LogHistogram::default();
        for value in 1..=100_000 {
            histogram.add(value);
        }
        for (share, exact) in [(0.5, 50_000.0), (0.9, 90_000.0), (0.999, 99_900.0)] {
            let value = histogram.quantile(share) as f64;
            assert!((value / exact - 1.0).abs() < 1.0 / 32.0, "{share}: {value}");
        }
        assert_eq!(
            (histogram.quantile(0.0), histogram.quantile(1.0)),
            (1, 100_000)
        );
        histogram.add(u64::MAX);
        assert_eq!(histogram.quantile(1.0), u64::MAX);
        assert_eq!(LogHistogram::default().quantile(0.5), 0);
    }

    #[test]
    fn buckets_hold_their_values() {
        for value in (0..64)
            .map(|bit| 1u64 << bit)
            .flat_map(|p| [p - 1, p, p + 1, p + p / 3])
        {
            let index = bucket(value);
            assert!(value <= upper(index), "{value}");
            assert!(index == 0 || value > upper(index - 1), "{value}");
        }
    }
}
