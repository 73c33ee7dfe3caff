//! Ranges of bytes.

use std::ops::Range;

/// Ranges, with adjacent ones joined.
pub(super) fn joined(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

/// The parts of a range that are not among these ranges, which are ascending.
pub(super) fn outside(
    range: &Range<u64>,
    others: &[Range<u64>],
) -> impl Iterator<Item = Range<u64>> {
    let first = others.partition_point(|other| other.end <= range.start);
    let others = others.get(first..).unwrap_or_default();
    let Range { start, end } = *range;
    let others = others.iter().take_while(move |other| other.start < end);
    let starts = std::iter::once(start).chain(others.clone().map(|other| other.end));
    let ends = others.map(|other| other.start).chain(std::iter::once(end));
    let parts = starts.zip(ends).map(|(start, end)| start..end);
    parts.filter(|part| part.start < part.end)
}

/// The part of a range that is inside of another one; `None` if there is none.
pub(super) fn inside(range: &Range<u64>, other: &Range<u64>) -> Option<Range<u64>> {
    let part = range.start.max(other.start)..range.end.min(other.end);
    (part.start < part.end).then_some(part)
}
