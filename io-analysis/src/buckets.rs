//! Bucket limits, and numbers with units.

use crate::AnalysisError;

/// Parses a number such as `4096`, `16K` or `1G`. Units are powers of 1024, as in RocksDB.
///
/// # Errors
///
/// [`AnalysisError::NotANumber`].
pub fn parse_size(text: &str) -> Result<u64, AnalysisError> {
    let refuse = || AnalysisError::NotANumber {
        given: text.to_owned(),
    };
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return Err(refuse()),
    };
    let number: u64 = digits.parse().map_err(|_| refuse())?;
    number.checked_mul(1 << shift).ok_or_else(refuse)
}

/// Increasing limits. A value belongs to the first bucket whose limit is greater than the value.
/// The last limit is always `u64::MAX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets {
    limits: Vec<u64>,
}

impl Buckets {
    /// Parses a list such as `1,10,1K`.
    ///
    /// # Errors
    ///
    /// [`AnalysisError::NotANumber`] or [`AnalysisError::BucketsDoNotRise`].
    pub fn parse(text: &str) -> Result<Self, AnalysisError> {
        let limits = text
            .split(',')
            .map(parse_size)
            .collect::<Result<Vec<_>, _>>()?;
        if limits.is_sorted_by(|a, b| a < b) && limits.last() != Some(&u64::MAX) {
            return Ok(Self::new(limits));
        }
        Err(AnalysisError::BucketsDoNotRise {
            given: text.to_owned(),
        })
    }

    /// Buckets with increasing `limits`, and one more for greater values.
    pub(crate) fn new(mut limits: Vec<u64>) -> Self {
        limits.push(u64::MAX);
        Self { limits }
    }

    /// The limits.
    pub fn limits(&self) -> &[u64] {
        &self.limits
    }

    /// The number of buckets.
    pub(crate) fn len(&self) -> usize {
        self.limits.len()
    }

    /// The index of the bucket of `value`.
    pub(crate) fn index(&self, value: u64) -> usize {
        self.limits
            .partition_point(|&limit| limit <= value)
            .min(self.limits.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_limits() {
        for (text, expected) in [("0", 0), ("16K", 16384), ("1G", 1 << 30), (" 7 ", 7)] {
            assert_eq!(parse_size(text).unwrap(), expected);
        }
        for wrong in [
            "",
            "K",
            "1KB",
            "-1",
            "99999999999999999999",
            "99999999999999999G",
        ] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        let buckets = Buckets::parse("1,10,1K").unwrap();
        let indexes = [0, 1, 9, 10, 1023, 1024, u64::MAX].map(|value| buckets.index(value));
        assert_eq!(indexes, [0, 1, 1, 2, 2, 3, 3]);
        for wrong in ["1,1", "5,3", ""] {
            assert!(Buckets::parse(wrong).is_err(), "{wrong}");
        }
    }
}
