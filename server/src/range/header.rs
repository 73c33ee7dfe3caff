//! The `Range` field (RFC 9110 section 14.2): parsing, and the requested bytes.

/// Maximum length of the field and maximum number of ranges; more is treated as abuse.
const VALUE_BYTES_MAX: usize = 16 << 10;
const SPEC_COUNT_MAX: usize = 1024;

/// Number of overlaps that are tolerated (RFC 9110 section 17.15 mentions more than two).
const OVERLAP_COUNT_MAX: usize = 2;

/// First and last byte, both inclusive, as in `Content-Range`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteRange {
    /// Offset of the first byte.
    pub(crate) first: u64,
    /// Offset of the last byte; at least `first`.
    pub(crate) last: u64,
}

impl ByteRange {
    /// Number of bytes; at least one.
    pub(crate) fn length(self) -> u64 {
        self.last - self.first + 1
    }
}

/// What a `Range` field requests of a resource of known length.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestedRanges {
    /// Not a valid set of byte ranges: the field is ignored.
    Ignored,
    /// Valid, but no range is within the resource.
    Unsatisfiable,
    /// Valid, but expensive: too many ranges, overlaps, or more bytes than the resource has.
    Excessive,
    /// All bytes, by a suffix range of an empty resource.
    Everything,
    /// In the order of the request, without overlaps.
    Ranges(Vec<ByteRange>),
}

/// Parses `value` for a resource of `length` bytes.
pub(super) fn requested(value: &[u8], length: u64) -> RequestedRanges {
    let value = value.trim_ascii();
    let Some(equals) = memchr::memchr(b'=', value) else {
        return RequestedRanges::Ignored;
    };
    let (unit, set) = value.split_at(equals);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return RequestedRanges::Ignored;
    }
    if value.len() > VALUE_BYTES_MAX {
        return RequestedRanges::Excessive;
    }
    let mut seen = 0_usize;
    let mut everything = false;
    let mut ranges = Vec::with_capacity(1 + memchr::memchr_iter(b',', set).count().min(64));
    for spec in set[1..].split(|&byte| byte == b',').map(trim_blank) {
        if spec.is_empty() {
            continue;
        }
        let Some(spec) = Spec::parse(spec) else {
            return RequestedRanges::Ignored;
        };
        seen += 1;
        if seen > SPEC_COUNT_MAX {
            // Continue parsing: a malformed set is ignored, whatever its length.
            continue;
        }
        everything |= length == 0 && matches!(spec, Spec::Suffix(wanted) if wanted > 0);
        ranges.extend(spec.within(length));
    }
    match (seen, ranges.is_empty()) {
        (0, _) => RequestedRanges::Ignored,
        (SPEC_COUNT_MAX.., _) if seen > SPEC_COUNT_MAX => RequestedRanges::Excessive,
        _ if everything => RequestedRanges::Everything,
        (_, true) => RequestedRanges::Unsatisfiable,
        (_, false) => merge(ranges, length),
    }
}

/// Optional white space around list elements is spaces and tabs only.
fn trim_blank(text: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = text
        .iter()
        .position(|byte| !blank(byte))
        .unwrap_or(text.len());
    let end = text
        .iter()
        .rposition(|byte| !blank(byte))
        .map_or(start, |last| last + 1);
    &text[start..end]
}

enum Spec {
    From(u64, Option<u64>),
    Suffix(u64),
}

impl Spec {
    fn parse(text: &[u8]) -> Option<Self> {
        let dash = memchr::memchr(b'-', text)?;
        let (first, last) = (&text[..dash], &text[dash + 1..]);
        match (first.is_empty(), last.is_empty()) {
            (true, true) => None,
            (true, false) => number(last).map(Self::Suffix),
            (false, true) => Some(Self::From(number(first)?, None)),
            (false, false) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From(first, Some(last)))
            }
        }
    }

    fn within(&self, length: u64) -> Option<ByteRange> {
        match *self {
            Self::From(first, last) => {
                let last = last.unwrap_or(u64::MAX).min(length.checked_sub(1)?);
                (first <= last).then_some(ByteRange { first, last })
            }
            Self::Suffix(wanted) => {
                let wanted = wanted.min(length);
                let last = length.checked_sub(1)?;
                (wanted > 0).then_some(ByteRange {
                    first: length - wanted,
                    last,
                })
            }
        }
    }
}

/// Any number of digits. Values above 64 bits are beyond every resource, so the value saturates.
fn number(digits: &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'));
    }
    Some(value)
}

/// Detects abuse and merges overlapping ranges in the order of the request: a merged range takes
/// the position of its first member.
fn merge(mut ranges: Vec<ByteRange>, length: u64) -> RequestedRanges {
    if ranges.len() == 1 {
        return RequestedRanges::Ranges(ranges);
    }
    let sum = ranges
        .iter()
        .fold(0_u64, |sum, range| sum.saturating_add(range.length()));
    if sum > length {
        return RequestedRanges::Excessive;
    }
    // Most readers request ascending, disjoint ranges, which need no sorting.
    if !ranges.windows(2).all(|pair| pair[0].last < pair[1].first) {
        match merged(&ranges) {
            Some(merged) => ranges = merged,
            None => return RequestedRanges::Excessive,
        }
    }
    ranges.dedup_by(|next, before| {
        let touches = before.last.checked_add(1) == Some(next.first);
        if touches {
            before.last = next.last;
        }
        touches
    });
    RequestedRanges::Ranges(ranges)
}

/// Merges overlapping ranges in O(n log n); `None` if there are too many overlaps. Ascending ranges
/// whose ends overlap come from readers that round to blocks, so a range that starts after the
/// start of the previously requested one does not count as an overlap.
fn merged(ranges: &[ByteRange]) -> Option<Vec<ByteRange>> {
    let mut by_start: Vec<usize> = (0..ranges.len()).collect();
    by_start.sort_unstable_by_key(|&at| (ranges[at].first, at));
    let mut overlaps = 0;
    let mut groups: Vec<(usize, ByteRange)> = Vec::with_capacity(ranges.len());
    for at in by_start {
        let range = ranges[at];
        match groups.last_mut() {
            Some((position, group)) if range.first <= group.last => {
                let follows = at > 0 && range.first > ranges[at - 1].first;
                overlaps += usize::from(!follows);
                group.last = group.last.max(range.last);
                *position = (*position).min(at);
            }
            _ => groups.push((at, range)),
        }
    }
    if overlaps > OVERLAP_COUNT_MAX {
        return None;
    }
    groups.sort_unstable_by_key(|(position, _)| *position);
    Some(groups.into_iter().map(|(_, range)| range).collect())
}
