//! Durations of events whose begin and end are in different packets of a file.
//!
//! Every packet leaves begins and ends without a partner. Those of all packets of a file, in the
//! order of their times, are paired as within a packet. As long as each thread writes its records
//! in the order of their times, the result does not depend on the packets.

use std::cmp::Ordering;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;

use hashbrown::HashTable;

use super::packet_text;
use super::pairs::{Mark, left_over, pair};
use super::side::Side;

/// Marks that are remembered: beyond these, begins have no duration.
pub const MARKS_MAX: usize = 1 << 20;
/// Memory for different names, categories, processes, threads and ids.
const TEXT_BYTES_MAX: usize = 32 << 20;
/// Memory of a text besides its bytes.
const TEXT_OVERHEAD: usize = 48;
/// The number of the empty text: to pair marks, it is that of no text.
const EMPTY: u32 = 0;

const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// What a mark is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkKind {
    /// The first packet of a file: nothing before it is paired with anything behind.
    FileStart,
    /// The begin of a slice of a thread.
    Begin,
    /// Its end.
    End,
    /// The begin of a slice with an id.
    AsyncBegin,
    /// Its end.
    AsyncEnd,
}

impl MarkKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::FileStart,
        Self::Begin,
        Self::End,
        Self::AsyncBegin,
        Self::AsyncEnd,
    ];
}

/// A begin or an end without a partner in its packet. Texts are numbers in [`Unpaired::texts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpairedMark {
    /// Where its packet is in its part of the stream.
    pub position: u64,
    /// Nanoseconds.
    pub ts: i64,
    /// Where the record is in its packet.
    pub offset: u32,
    /// What it is.
    pub kind: MarkKind,
    /// The part of the stream.
    pub part: u32,
    /// Process, thread or id, name and category.
    pub texts: [u32; 4],
}

/// The begins and ends of a stream that have no partner in their packet.
#[derive(Debug)]
pub struct Unpaired {
    texts: Vec<Box<[u8]>>,
    /// Of all texts, by their hash.
    numbers: HashTable<u32>,
    hasher: RandomState,
    text_bytes: usize,
    marks: Vec<UnpairedMark>,
    is_cut: bool,
}

impl Default for Unpaired {
    fn default() -> Self {
        let mut unpaired = Self::from_parts(Vec::new(), Vec::new(), false);
        let empty = unpaired.number(b"");
        debug_assert_eq!(empty, Some(EMPTY), "the first text has the first number");
        unpaired
    }
}

impl Unpaired {
    /// Adds what a packet leaves. Packets are added in their order.
    pub fn add_packet(&mut self, part: u32, position: u64, packet: &[u8]) {
        if self.is_cut {
            return;
        }
        // A damaged packet is reported where it is decoded.
        let Ok(text) = packet_text(packet) else {
            return;
        };
        let packet = &*text;
        if starts_file(packet) {
            self.push(UnpairedMark {
                position,
                ts: 0,
                offset: 0,
                kind: MarkKind::FileStart,
                part,
                texts: [0; 4],
            });
        }
        for mark in left_over(packet) {
            self.add_mark(part, position, &mark);
        }
    }

    fn add_mark(&mut self, part: u32, position: u64, mark: &Mark<'_>) {
        let Ok(offset) = u32::try_from(mark.offset) else {
            self.is_cut = true;
            return;
        };
        let [own, _] = mark.track.rest;
        let [Some(pid), Some(own), Some(name), Some(cat)] =
            [mark.track.pid, own, mark.name, mark.cat].map(|text| self.number(text))
        else {
            self.is_cut = true;
            return;
        };
        self.push(UnpairedMark {
            position,
            ts: mark.ts,
            offset,
            kind: match (mark.track.is_async, mark.is_begin) {
                (false, true) => MarkKind::Begin,
                (false, false) => MarkKind::End,
                (true, true) => MarkKind::AsyncBegin,
                (true, false) => MarkKind::AsyncEnd,
            },
            part,
            texts: [pid, own, name, cat],
        });
    }

    /// Adds what another part of the stream, which follows, leaves.
    pub fn append(&mut self, part: u32, other: &Self) {
        for mark in &other.marks {
            let texts = mark.texts.map(|text| {
                let text = other.texts.get(usize::try_from(text).ok()?);
                self.number(text.map(|text| &**text).unwrap_or_default())
            });
            let [Some(pid), Some(own), Some(name), Some(cat)] = texts else {
                self.is_cut = true;
                return;
            };
            let texts = [pid, own, name, cat];
            self.push(UnpairedMark {
                part,
                texts,
                ..*mark
            });
        }
        self.is_cut |= other.is_cut;
    }

    /// Texts, marks, and whether there are more marks than are remembered.
    pub fn as_parts(&self) -> (&[Box<[u8]>], &[UnpairedMark], bool) {
        (&self.texts, &self.marks, self.is_cut)
    }

    /// What [`Unpaired::as_parts`] gave, to be appended to others.
    pub fn from_parts(texts: Vec<Box<[u8]>>, marks: Vec<UnpairedMark>, is_cut: bool) -> Self {
        Self {
            texts,
            numbers: HashTable::new(),
            hasher: RandomState::new(),
            text_bytes: 0,
            marks,
            is_cut,
        }
    }

    /// Whether a slice begins in one packet and may end in another.
    pub fn has_begins(&self) -> bool {
        self.is_cut || self.marks.iter().any(UnpairedMark::is_begin)
    }

    /// The durations of the begins of each part.
    pub fn durations(&self, parts: usize) -> Vec<Durations> {
        let files = || self.marks.split(|mark| mark.kind == MarkKind::FileStart);
        let empty = Durations {
            is_cut: self.is_cut,
            is_disordered: files().any(is_disordered),
            ..Durations::default()
        };
        let mut of_parts = vec![empty; parts];
        let part_of = |mark: &UnpairedMark| usize::try_from(mark.part).unwrap_or(usize::MAX);
        for file in files() {
            let is_paired = pair(file, |begin, duration| {
                if let Some(durations) = of_parts.get_mut(part_of(begin)) {
                    let found = (begin.position, begin.offset, duration);
                    durations.found.push(found);
                }
            });
            for (mark, is_paired) in file.iter().zip(is_paired) {
                if mark.is_begin()
                    && !is_paired
                    && let Some(durations) = of_parts.get_mut(part_of(mark))
                {
                    durations.open.push(mark.position);
                }
            }
        }
        for (part, durations) in of_parts.iter_mut().enumerate() {
            durations.cut_from = self.cut_from(part);
            durations.found.sort_unstable();
            durations.found.shrink_to_fit();
            durations.open.sort_unstable();
            durations.open.shrink_to_fit();
        }
        of_parts
    }

    /// The first packet of a part whose begins and ends may not be remembered.
    fn cut_from(&self, part: usize) -> Option<u64> {
        if !self.is_cut {
            return None;
        }
        let last = self.marks.last();
        let last = last.map_or((0, 0), |mark| {
            let part = usize::try_from(mark.part).unwrap_or(usize::MAX);
            (part, mark.position)
        });
        match part.cmp(&last.0) {
            Ordering::Less => None,
            Ordering::Equal => Some(last.1),
            Ordering::Greater => Some(0),
        }
    }

    /// Says that begins and ends are missing.
    pub fn cut(&mut self) {
        self.is_cut = true;
    }

    fn push(&mut self, mark: UnpairedMark) {
        self.is_cut |= self.marks.len() >= MARKS_MAX;
        if !self.is_cut {
            self.marks.push(mark);
        }
    }

    /// The number of a text; `None` if there are too many.
    fn number(&mut self, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        let texts = &mut self.texts;
        let text_of = |number: u32| usize::try_from(number).ok().and_then(|at| texts.get(at));
        let is_same = |number: &u32| text_of(*number).is_some_and(|known| **known == *text);
        if let Some(known) = self.numbers.find(hash, is_same) {
            return Some(*known);
        }
        self.text_bytes += text.len() + TEXT_OVERHEAD;
        let number = u32::try_from(texts.len()).ok()?;
        if self.text_bytes > TEXT_BYTES_MAX {
            return None;
        }
        texts.push(text.into());
        let rehash = |number: &u32| {
            let text = usize::try_from(*number).ok().and_then(|at| texts.get(at));
            self.hasher
                .hash_one(text.map(|text| &**text).unwrap_or_default())
        };
        self.numbers.insert_unique(hash, number, rehash);
        Some(number)
    }
}

/// Whether a thread wrote a record before one of an earlier packet, according to what the packets
/// of a file leave.
fn is_disordered(file: &[UnpairedMark]) -> bool {
    let packet_of = |mark: &UnpairedMark| (mark.part, mark.position);
    let mut of_tracks: Vec<&UnpairedMark> = file.iter().collect();
    of_tracks.sort_by_key(|mark| mark.track());
    of_tracks
        .chunk_by(|a, b| a.track() == b.track())
        .any(|track| {
            let mut latest = i64::MIN;
            let mut packets = track.chunk_by(|a, b| packet_of(a) == packet_of(b));
            packets.any(|packet| {
                let before = latest;
                latest = packet
                    .iter()
                    .fold(latest, |latest, mark| latest.max(mark.ts));
                packet.iter().any(|mark| mark.ts < before)
            })
        })
}

/// Whether a packet is the first of its file: all others start with a comma.
fn starts_file(packet: &[u8]) -> bool {
    let text = packet.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(packet);
    matches!(text.trim_ascii_start().first(), Some(b'{' | b'['))
}

impl UnpairedMark {
    fn is_async(&self) -> bool {
        matches!(self.kind, MarkKind::AsyncBegin | MarkKind::AsyncEnd)
    }
}

impl Side for UnpairedMark {
    type Track = (bool, [u32; 3]);
    type Text = u32;

    fn ts(&self) -> i64 {
        self.ts
    }

    fn is_begin(&self) -> bool {
        matches!(self.kind, MarkKind::Begin | MarkKind::AsyncBegin)
    }

    fn track(&self) -> Self::Track {
        let [pid, own, _, cat] = self.texts;
        let is_async = self.is_async();
        (is_async, [pid, own, if is_async { cat } else { 0 }])
    }

    fn name(&self) -> u32 {
        let [.., name, _] = self.texts;
        name
    }

    fn cat(&self) -> u32 {
        let [.., cat] = self.texts;
        cat
    }
}

/// The durations of begins whose ends are in other packets, of a part of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durations {
    /// Position of the packet, offset in it and duration.
    found: Vec<(u64, u32, i64)>,
    /// Positions of the packets of begins whose end is not known.
    open: Vec<u64>,
    is_cut: bool,
    /// From this packet on there may be more begins and ends than are remembered.
    cut_from: Option<u64>,
    is_disordered: bool,
}

impl Durations {
    /// The duration of the begin at `offset` in the packet at `position`.
    pub fn get(&self, position: u64, offset: u64) -> Option<i64> {
        let key = (position, u32::try_from(offset).ok()?);
        let found = self
            .found
            .binary_search_by_key(&key, |found| (found.0, found.1));
        Some(self.found.get(found.ok()?)?.2)
    }

    /// The number of begins without a known end in the packets at these positions; at least one if
    /// there may be some that are not remembered.
    pub fn unpaired(&self, positions: &Range<u64>) -> u64 {
        let before = |end: u64| self.open.partition_point(|position| *position < end);
        let (start, end) = (before(positions.start), before(positions.end));
        let is_cut = self.cut_from.is_some_and(|from| from < positions.end);
        u64::from(is_cut).max(end.saturating_sub(start) as u64)
    }

    /// Bytes of memory that they take besides themselves.
    pub fn memory(&self) -> usize {
        self.found.capacity() * size_of::<(u64, u32, i64)>()
            + self.open.capacity() * size_of::<u64>()
    }

    /// Position of the packet, offset in it and duration, in this order, of all begins.
    pub fn all(&self) -> &[(u64, u32, i64)] {
        &self.found
    }
}

/// Durations of begins that end in other packets, which may have to be read for that.
pub trait OutsideDurations: std::fmt::Debug + Send + Sync {
    /// The duration of the begin at `offset` in the packet at `position`; `None` if no end is
    /// known.
    fn get(&self, position: u64, offset: u64) -> Option<i64>;

    /// The number of begins without a known end in the packets at these positions; at least one if
    /// there may be some that are not remembered.
    fn unpaired(&self, positions: &Range<u64>) -> u64;

    /// Whether there are more begins and ends than are remembered.
    fn is_cut(&self) -> bool;

    /// Whether threads did not write their records in the order of their times, by what is known so
    /// far. Begins may then have other ends than if all packets were one.
    fn is_disordered(&self) -> bool;

    /// What could not be read of what the durations are found in, if they were asked for.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }
}

impl OutsideDurations for Durations {
    fn get(&self, position: u64, offset: u64) -> Option<i64> {
        Self::get(self, position, offset)
    }

    fn unpaired(&self, positions: &Range<u64>) -> u64 {
        Self::unpaired(self, positions)
    }

    fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn is_disordered(&self) -> bool {
        self.is_disordered
    }
}
