//! Result files, in the layout of RocksDB's analyzer.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::buckets::Buckets;

/// A result file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultFile {
    /// File name.
    pub name: String,
    /// Content.
    pub text: String,
}

/// The numerator in percent of the denominator; -1 if the denominator is 0, as in RocksDB.
pub(crate) fn percent(numerator: u64, denominator: u64) -> f64 {
    if denominator == 0 {
        -1.0
    } else {
        numerator as f64 * 100.0 / denominator as f64
    }
}

/// Counts per bucket, by label.
pub(crate) type LabelCounts = BTreeMap<String, Vec<u64>>;

/// A table with buckets as rows and labels as columns, in percent of `total`.
pub(crate) fn bucket_file(
    name: String,
    buckets: &Buckets,
    labels: &LabelCounts,
    total: u64,
) -> ResultFile {
    let mut text = String::from("bucket");
    for label in labels.keys() {
        text.push(',');
        text.push_str(label);
    }
    text.push('\n');
    for (index, limit) in buckets.limits().iter().enumerate() {
        write!(text, "{limit}").expect("writing to a string cannot fail");
        for counts in labels.values() {
            write!(text, ",{:.6}", percent(counts[index], total))
                .expect("writing to a string cannot fail");
        }
        text.push('\n');
    }
    ResultFile {
        name: file_name(&name),
        text,
    }
}

/// A safe file name. The names of column families are untrusted text.
pub(crate) fn file_name(name: &str) -> String {
    let safe = |c: char| if c == '/' || c.is_control() { '_' } else { c };
    name.chars().map(safe).take(200).collect()
}

/// A CSV cell, quoted if necessary (RFC 4180).
pub(crate) fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
