//! The histogram that RocksDB prints: bucket limits grow by half, rounded to two digits.

use crate::numbers::{floor_to_u64, to_usize};
use std::fmt::Write as _;
use std::sync::LazyLock;

/// Upper limits of the buckets: a bucket is `(previous, limit]`.
static LIMITS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let mut limits = vec![1u64, 2];
    let mut exact = 2.0f64;
    loop {
        exact *= 1.5;
        if exact > u64::MAX as f64 {
            return limits;
        }
        let mut limit = floor_to_u64(exact);
        let mut power = 1;
        while limit / 10 > 10 {
            limit /= 10;
            power *= 10;
        }
        limits.push(limit * power);
    }
});

/// Counts by value, with mean, deviation and percentiles.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    sum_of_squares: f64,
    least: u64,
    greatest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; LIMITS.len()],
            count: 0,
            sum: 0,
            sum_of_squares: 0.0,
            least: u64::MAX,
            greatest: 0,
        }
    }
}

impl Histogram {
    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        let index = LIMITS
            .partition_point(|&limit| limit < value)
            .min(LIMITS.len() - 1);
        self.counts[index] += 1;
        self.count += 1;
        self.sum = self.sum.wrapping_add(value);
        self.sum_of_squares += value as f64 * value as f64;
        self.least = self.least.min(value);
        self.greatest = self.greatest.max(value);
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean; 0 without values.
    pub fn mean(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum as f64 / self.count as f64
        }
    }

    /// The standard deviation; 0 without values.
    pub fn deviation(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let (count, sum) = (self.count as f64, self.sum as f64);
        let variance = (self.sum_of_squares * count - sum * sum) / (count * count);
        variance.max(0.0).sqrt()
    }

    /// The least value; 0 without values.
    pub fn least(&self) -> u64 {
        if self.count == 0 { 0 } else { self.least }
    }

    /// The greatest value.
    pub fn greatest(&self) -> u64 {
        self.greatest
    }

    /// The value below which `percent` of the values are, with linear interpolation in a bucket.
    pub fn percentile(&self, percent: f64) -> f64 {
        let threshold = self.count as f64 * (percent / 100.0);
        let mut below = 0u64;
        for (index, &count) in self.counts.iter().enumerate() {
            if (below + count) as f64 >= threshold {
                let left = if index == 0 { 0 } else { LIMITS[index - 1] };
                let share = if count == 0 {
                    0.0
                } else {
                    (threshold - below as f64) / count as f64
                };
                let value = left as f64 + (LIMITS[index] - left) as f64 * share;
                let least = if self.count == 0 {
                    *last_limit()
                } else {
                    self.least
                };
                return value.max(least as f64).min(self.greatest as f64);
            }
            below += count;
        }
        self.greatest as f64
    }

    /// The text that RocksDB prints.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "Count: {} Average: {:.4}  StdDev: {:.2}\nMin: {}  Median: {:.4}  Max: {}\n\
             Percentiles: P50: {:.2} P75: {:.2} P99: {:.2} P99.9: {:.2} P99.99: {:.2}\n\
             ------------------------------------------------------\n",
            self.count,
            self.mean(),
            self.deviation(),
            self.least(),
            self.percentile(50.0),
            self.greatest,
            self.percentile(50.0),
            self.percentile(75.0),
            self.percentile(99.0),
            self.percentile(99.9),
            self.percentile(99.99),
        );
        let share = 100.0 / self.count as f64;
        let mut below = 0;
        for (index, &count) in self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            below += count;
            let (bracket, left) = if index == 0 {
                ('[', 0)
            } else {
                ('(', LIMITS[index - 1])
            };
            let marks = to_usize(floor_to_u64(share * count as f64 / 5.0 + 0.5));
            writeln!(
                text,
                "{bracket} {left:>7}, {:>7} ] {count:>8} {:>7.3}% {:>7.3}% {}",
                LIMITS[index],
                share * count as f64,
                share * below as f64,
                "#".repeat(marks),
            )
            .expect("writing to a string cannot fail");
        }
        text
    }
}

fn last_limit() -> &'static u64 {
    LIMITS.last().expect("the limits are never empty")
}
