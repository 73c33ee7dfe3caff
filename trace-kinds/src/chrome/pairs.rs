//! Durations of events whose begin and end are two records of a packet.
//!
//! `B` ends with the `E` of its thread, `b` and `S` with the `e` or `F` of the same category and
//! id. An end closes the innermost open begin whose name and category it does not contradict.
//! Records are paired in the order of their times, first within a packet; what is left is paired
//! with other packets ([`Unpaired`](super::Unpaired)).

use std::collections::HashMap;
use std::ops::ControlFlow;

use super::found::Found;
use super::open_begins::{OpenBegins, SIDES_MAX};
use super::record::{Timed, plain};
use super::scanner::Scanner;
use super::side::Side;

/// What an end must have in common with its begin: thread, or category and id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Track<'a> {
    pub(super) is_async: bool,
    pub(super) pid: &'a [u8],
    /// Thread, or id and category.
    pub(super) rest: [&'a [u8]; 2],
}

/// A begin or an end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark<'a> {
    pub(super) ts: i64,
    /// Where the record is in its packet.
    pub(super) offset: u64,
    pub(super) is_begin: bool,
    pub(super) track: Track<'a>,
    pub(super) name: &'a [u8],
    pub(super) cat: &'a [u8],
}

/// Pairs begins with their ends, in the order of their times, and calls `each` for every pair.
/// Returns of each side whether it has a partner. Sides beyond [`SIDES_MAX`] have none.
pub(super) fn pair<S: Side>(sides: &[S], mut each: impl FnMut(&S, i64)) -> Vec<bool> {
    let are_both = sides.iter().any(S::is_begin) && !sides.iter().all(S::is_begin);
    if !are_both {
        return vec![false; sides.len()];
    }
    let mut order: Vec<u32> = (0..).take(sides.len().min(SIDES_MAX)).collect();
    order.sort_by_key(|place| sides[*place as usize].ts());
    let mut open = OpenBegins::new(sides, &order);
    for at in (0..).take(order.len()) {
        let side = open.side(at);
        if side.is_begin() {
            open.push(at);
        } else if let Some(begin) = open.take(at) {
            let begin = open.side(begin);
            each(begin, side.ts().saturating_sub(begin.ts()));
        }
    }
    open.into_paired()
}

/// The durations of the begins of a packet.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    durations: HashMap<u64, i64>,
    unpaired: u64,
}

impl Pairs {
    /// Pairs the records of a packet. `outside` has the durations of begins, by their offset, whose
    /// ends are in other packets.
    pub(super) fn of(packet: &[u8], outside: impl Fn(u64) -> Option<i64>) -> Self {
        let mut pairs = Self::default();
        if !has_phase(packet, &BEGINS) {
            return pairs;
        }
        let durations = &mut pairs.durations;
        let marks = marks(packet);
        let is_paired = pair(&marks, |begin, duration| {
            durations.insert(begin.offset, duration);
        });
        let left = marks.iter().zip(is_paired);
        for (begin, _) in left.filter(|(mark, is_paired)| mark.is_begin && !is_paired) {
            match outside(begin.offset) {
                Some(duration) => _ = pairs.durations.insert(begin.offset, duration),
                None => pairs.unpaired += 1,
            }
        }
        pairs
    }

    /// Number of begins whose end is not known.
    pub(super) fn unpaired(&self) -> u64 {
        self.unpaired
    }

    /// The duration of the begin at this offset.
    pub(super) fn duration(&self, offset: u64) -> Option<i64> {
        self.durations.get(&offset).copied()
    }
}

const BEGINS: [&[u8]; 3] = [b"\"B\"", b"\"b\"", b"\"S\""];
const ENDS: [&[u8]; 3] = [b"\"E\"", b"\"e\"", b"\"F\""];

/// Whether one of `phases` may be in a packet.
fn has_phase(packet: &[u8], phases: &[&[u8]]) -> bool {
    let is_in = |phase: &&[u8]| memchr::memmem::find(packet, phase).is_some();
    phases.iter().any(is_in)
}

/// The begins and ends of a packet that have no partner in it, in the order of their bytes.
pub(super) fn left_over(packet: &[u8]) -> Vec<Mark<'_>> {
    if has_phase(packet, &BEGINS) || has_phase(packet, &ENDS) {
        let mut marks = marks(packet);
        let mut is_paired = pair(&marks, |_, _| {}).into_iter();
        marks.retain(|_| is_paired.next() == Some(false));
        marks
    } else {
        Vec::new()
    }
}

impl<'a> Side for Mark<'a> {
    type Track = Track<'a>;
    type Text = &'a [u8];

    fn ts(&self) -> i64 {
        self.ts
    }

    fn is_begin(&self) -> bool {
        self.is_begin
    }

    fn track(&self) -> Track<'a> {
        self.track
    }

    fn name(&self) -> &'a [u8] {
        self.name
    }

    fn cat(&self) -> &'a [u8] {
        self.cat
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

#[cfg(test)]
mod tests;
