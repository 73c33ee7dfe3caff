//! Durations of events whose begin and end are two records.
//!
//! `B` ends with the `E` of its thread, `b` and `S` with the `e` or `F` of the same category and
//! id. An end closes the innermost open begin whose name and category it does not contradict.
//! Records are paired in the order of their times, within one packet: a begin whose end is in
//! another packet has no duration.

use std::collections::HashMap;
use std::ops::ControlFlow;

use super::found::Found;
use super::record::{Timed, plain};
use super::scanner::Scanner;

/// What an end must have in common with its begin: thread, or category and id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Track<'a> {
    is_async: bool,
    pid: &'a [u8],
    rest: [&'a [u8]; 2],
}

/// A begin or an end.
#[derive(Debug, Clone, Copy)]
struct Mark<'a> {
    ts: i64,
    /// Where the record is in its packet.
    offset: u64,
    is_begin: bool,
    track: Track<'a>,
    name: &'a [u8],
    cat: &'a [u8],
}

/// The durations of the begins of a packet.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    durations: HashMap<u64, i64>,
    unpaired: u64,
}

impl Pairs {
    /// Pairs the records of a packet.
    pub(super) fn of(packet: &[u8]) -> Self {
        let begins: [&[u8]; 3] = [b"\"B\"", b"\"b\"", b"\"S\""];
        let mut pairs = Self::default();
        if !begins
            .iter()
            .any(|begin| memchr::memmem::find(packet, begin).is_some())
        {
            return pairs;
        }
        let mut marks = marks(packet);
        marks.sort_by_key(|mark| mark.ts);
        let mut open: HashMap<Track<'_>, Vec<Mark<'_>>> = HashMap::new();
        for mark in marks {
            if mark.is_begin {
                open.entry(mark.track).or_default().push(mark);
                continue;
            }
            let Some(stack) = open.get_mut(&mark.track) else {
                continue;
            };
            if let Some(place) = stack.iter().rposition(|begin| mark.ends(begin)) {
                let begin = stack.remove(place);
                let duration = mark.ts.saturating_sub(begin.ts);
                pairs.durations.insert(begin.offset, duration);
            }
        }
        pairs.unpaired = open.values().map(|stack| stack.len() as u64).sum();
        pairs
    }

    /// Number of begins without an end in the packet.
    pub(super) fn unpaired(&self) -> u64 {
        self.unpaired
    }

    /// The duration of the begin at this offset.
    pub(super) fn duration(&self, offset: u64) -> Option<i64> {
        self.durations.get(&offset).copied()
    }
}

impl<'a> Mark<'a> {
    fn of(bytes: &'a [u8], offset: u64) -> Option<Self> {
        let event = Timed::parse(bytes).ok()??;
        let record = &event.record;
        let (is_begin, is_async) = match record.phase() {
            b"B" => (true, false),
            b"E" => (false, false),
            b"b" | b"S" => (true, true),
            b"e" | b"F" => (false, true),
            _ => return None,
        };
        let cat = plain(record.cat);
        let rest = if is_async {
            [plain(record.id), cat]
        } else {
            [plain(record.tid), b""]
        };
        Some(Self {
            ts: event.ts,
            offset,
            is_begin,
            track: Track {
                is_async,
                pid: plain(record.pid),
                rest,
            },
            name: plain(record.name),
            cat,
        })
    }

    /// Whether this end can be that of `begin`.
    fn ends(&self, begin: &Mark<'_>) -> bool {
        let agree = |end: &[u8], begin: &[u8]| end.is_empty() || begin.is_empty() || end == begin;
        agree(self.name, begin.name) && agree(self.cat, begin.cat)
    }
}

fn marks(packet: &[u8]) -> Vec<Mark<'_>> {
    let mut marks = Vec::new();
    let visited = Scanner::new().scan(packet, &mut |found| {
        if let Found::Record(range) = found
            && let Some(bytes) = slice(packet, &range)
        {
            marks.extend(Mark::of(bytes, range.start));
        }
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue(), "the visitor never breaks");
    marks
}

/// A range of a packet.
pub(super) fn slice<'p>(packet: &'p [u8], range: &std::ops::Range<u64>) -> Option<&'p [u8]> {
    packet.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}
