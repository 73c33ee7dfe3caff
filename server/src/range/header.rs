//! The `Range` field (RFC 9110 section 14.2): its text, and the bytes it asks for.

/// Longest value looked at, and most ranges of one request: what is beyond is abuse, not reading.
const VALUE_BYTES_MAX: usize = 16 << 10;
const SPEC_COUNT_MAX: usize = 1024;

/// Overlaps a reader may have by clumsiness (RFC 9110 section 17.15 speaks of more than two).
const OVERLAP_COUNT_MAX: usize = 2;

/// First and last byte, both included, as `Content-Range` writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteRange {
    /// Offset of the first byte.
    pub(crate) first: u64,
    /// Offset of the last byte; never before `first`.
    pub(crate) last: u64,
}

impl ByteRange {
    /// Bytes in it; at least one.
    pub(crate) fn length(self) -> u64 {
        self.last - self.first + 1
    }
}

/// What a `Range` field comes to for a resource of a known length.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Not a set of byte ranges: as if the field were not there.
    Nothing,
    /// Sound, but no range lies within the resource.
    Unsatisfiable,
    /// Sound, and made to cost much: too many ranges, overlaps, or more bytes than there are.
    Abuse,
    /// All bytes, by a suffix of an empty resource.
    Everything,
    /// In request order; none overlaps another.
    Ranges(Vec<ByteRange>),
}

/// Reads `value` for a resource of `length` bytes.
pub(super) fn asked(value: &[u8], length: u64) -> Asked {
    let value = value.trim_ascii();
    let Some(equals) = memchr::memchr(b'=', value) else {
        return Asked::Nothing;
    };
    let (unit, set) = value.split_at(equals);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return Asked::Nothing;
    }
    if value.len() > VALUE_BYTES_MAX {
        return Asked::Abuse;
    }
    let mut seen = 0_usize;
    let mut everything = false;
    let mut ranges = Vec::with_capacity(1 + memchr::memchr_iter(b',', set).count().min(64));
    for spec in set[1..].split(|&byte| byte == b',').map(trim_blank) {
        if spec.is_empty() {
            continue;
        }
        let Some(spec) = Spec::parse(spec) else {
            return Asked::Nothing;
        };
        seen += 1;
        if seen > SPEC_COUNT_MAX {
            // Keep reading: a malformed set is ignored however long it is.
            continue;
        }
        everything |= length == 0 && matches!(spec, Spec::Suffix(wanted) if wanted > 0);
        ranges.extend(spec.within(length));
    }
    match (seen, ranges.is_empty()) {
        (0, _) => Asked::Nothing,
        (SPEC_COUNT_MAX.., _) if seen > SPEC_COUNT_MAX => Asked::Abuse,
        _ if everything => Asked::Everything,
        (_, true) => Asked::Unsatisfiable,
        (_, false) => coalesced(ranges, length),
    }
}

/// Optional white space around list elements is blanks and tabs only.
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

/// Any number of digits; what is too large for 64 bits is beyond every resource, so it saturates.
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

/// Refuses abuse and joins what overlaps, keeping request order: a joined range stands where its
/// first member stood.
fn coalesced(mut ranges: Vec<ByteRange>, length: u64) -> Asked {
    if ranges.len() == 1 {
        return Asked::Ranges(ranges);
    }
    let sum = ranges
        .iter()
        .fold(0_u64, |sum, range| sum.saturating_add(range.length()));
    if sum > length {
        return Asked::Abuse;
    }
    // The usual reader asks in ascending order, each range beyond the last: nothing to sort.
    if !ranges.windows(2).all(|pair| pair[0].last < pair[1].first) {
        match joined(&ranges) {
            Some(joined) => ranges = joined,
            None => return Asked::Abuse,
        }
    }
    ranges.dedup_by(|next, before| {
        let touches = before.last.checked_add(1) == Some(next.first);
        if touches {
            before.last = next.last;
        }
        touches
    });
    Asked::Ranges(ranges)
}

/// Joins overlapping ranges, in O(n log n). None when there are too many overlaps; a chain of
/// ascending ranges whose ends overlap is a reader rounding its blocks, so a range that starts
/// beyond the start of the one asked before it does not count.
fn joined(ranges: &[ByteRange]) -> Option<Vec<ByteRange>> {
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
