//! The bodies of the blocks of a sidecar.
//!
//! Numbers and text are written as `wire` says; each list is its length and its items.
//!
//! ```text
//! statistics  names: list of text, each name and category of the block once
//!             for each chunk: list of (cat + 1, name + 1: indexes in names, 0 for none; totals),
//!                             totals of other events
//! totals      events, events - timed, odd; if timed: first - the previous one
//!             (signed), last - first, end - last; events - count of durations; if count: sum
//!             (wide, folded), squares (wide), min, max (signed)
//! sketches    for each chunk, for each group and then for other events: low, number of bins;
//!             then in the same order all of: bin - bin before; then all counts of these bins
//! limits      for each chunk: present, distinct, exact (byte), types (byte),
//!             numbers: 0, or 1 and two numbers; texts: 0, or 1, min, max (optional text);
//!             dictionary: 0, or 1 and its entries
//! number      0 and a wide integer (folded), or 1 and eight bytes of a float
//! filters     for each chunk: 0 for no filter, or 1 + twice the number of 32-byte blocks of a
//!             Bloom filter, or 2 + twice the bytes of an entry set; then all these blocks and
//!             entry sets, which are written as `entry_set` says
//! ```

use std::collections::HashMap;

use query_language::Number;

use crate::bloom::{BLOCK_BYTES, BLOCKS_MAX};
use crate::dictionary::Dictionary;
use crate::entry_set::EntrySet;
use crate::filter::ChunkFilter;
use crate::sketch::BINS;
use crate::statistics::{ChunkStatistics, Durations, GROUPS_MAX, Group, TimeRange, Totals};
use crate::wire::{Damage, Reader, put_optional_text, put_signed, put_text, put_varint, put_wide};
use crate::zone::{TextRange, Zone};
use crate::{BloomFilter, Sketch, ValueTypes};

pub(crate) fn encode_statistics(chunks: &[ChunkStatistics]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    let mut numbers: HashMap<&[u8], u64> = HashMap::new();
    let (mut rows, mut before) = (Vec::new(), 0);
    for chunk in chunks {
        assert!(
            chunk.groups.len() <= GROUPS_MAX,
            "a reader refuses a chunk with more groups"
        );
        put_varint(&mut rows, chunk.groups.len() as u64);
        for group in &chunk.groups {
            for label in [&group.cat, &group.name] {
                let number = label.as_deref().map_or(0, |text| {
                    *numbers.entry(text).or_insert_with(|| {
                        names.push(text);
                        names.len() as u64
                    })
                });
                put_varint(&mut rows, number);
            }
            put_totals(&mut rows, &group.totals, &mut before);
        }
        put_totals(&mut rows, &chunk.other, &mut before);
    }
    let mut out = Vec::new();
    put_varint(&mut out, names.len() as u64);
    names.iter().for_each(|name| put_text(&mut out, name));
    out.extend(rows);
    out
}

pub(crate) fn decode_statistics(
    body: &[u8],
    chunks: usize,
) -> Result<Vec<ChunkStatistics>, Damage> {
    let mut reader = Reader::new(body);
    let names: Vec<&[u8]> = (0..reader.length(1)?)
        .map(|_| reader.text())
        .collect::<Result<_, _>>()?;
    let label = |number: u64| match number.checked_sub(1) {
        None => Ok(None),
        Some(number) => usize::try_from(number)
            .ok()
            .and_then(|number| names.get(number))
            .map(|text| Some(Box::from(*text)))
            .ok_or(Damage("group with an unknown name")),
    };
    let (mut all, mut before) = (Vec::with_capacity(chunks), 0);
    for _ in 0..chunks {
        let mut statistics = ChunkStatistics::default();
        let groups = reader.length(6)?;
        if groups > GROUPS_MAX {
            return Err(Damage("chunk with too many groups"));
        }
        for _ in 0..groups {
            statistics.groups.push(Group {
                cat: label(reader.varint()?)?,
                name: label(reader.varint()?)?,
                totals: take_totals(&mut reader, &mut before)?,
            });
        }
        statistics.other = take_totals(&mut reader, &mut before)?;
        all.push(statistics);
    }
    reader.end()?;
    Ok(all)
}

/// Numbers that are nearly always equal are stored as their difference, and a time as its distance
/// from the one `before`.
fn put_totals(out: &mut Vec<u8>, totals: &Totals, before: &mut i64) {
    let durations = &totals.durations;
    assert!(
        totals.timed.max(totals.odd).max(durations.count) <= totals.events,
        "each count is of some of the events"
    );
    assert_eq!(
        totals.times.is_some(),
        totals.timed > 0,
        "a reader expects times if an event has one"
    );
    put_varint(out, totals.events);
    put_varint(out, totals.events - totals.timed);
    put_varint(out, totals.odd);
    if let Some(times) = totals.times {
        put_signed(out, times.first.wrapping_sub(*before));
        put_lengths(out, times);
        *before = times.first;
    }
    put_varint(out, totals.events - durations.count);
    if durations.count > 0 {
        put_wide(out, fold(durations.sum));
        put_wide(out, durations.sum_squares);
        put_signed(out, durations.min);
        put_signed(out, durations.max);
    }
}

fn take_totals(reader: &mut Reader<'_>, before: &mut i64) -> Result<Totals, Damage> {
    let beyond = Damage("more times than events");
    let events = reader.varint()?;
    let timed = events.checked_sub(reader.varint()?).ok_or(beyond)?;
    let odd = reader.varint()?;
    let times = match timed {
        0 => None,
        _ => {
            *before = before.wrapping_add(reader.signed()?);
            Some(take_lengths(reader, *before)?)
        }
    };
    let mut durations = Durations {
        count: events.checked_sub(reader.varint()?).ok_or(beyond)?,
        ..Durations::default()
    };
    if durations.count > 0 {
        durations.sum = unfold(reader.wide()?);
        durations.sum_squares = reader.wide()?;
        durations.min = reader.signed()?;
        durations.max = reader.signed()?;
    }
    if odd > events {
        return Err(beyond);
    }
    Ok(Totals {
        events,
        timed,
        odd,
        times,
        durations,
    })
}

/// Times of events; nothing if there are none.
pub(crate) fn put_times(out: &mut Vec<u8>, times: Option<TimeRange>) {
    if let Some(times) = times {
        put_signed(out, times.first);
        put_lengths(out, times);
    }
}

fn put_lengths(out: &mut Vec<u8>, times: TimeRange) {
    assert!(
        times.first <= times.last && times.last <= times.end,
        "no event ends before it starts"
    );
    put_varint(out, times.last.abs_diff(times.first));
    put_varint(out, times.end.abs_diff(times.last));
}

pub(crate) fn take_times(reader: &mut Reader<'_>, timed: u64) -> Result<Option<TimeRange>, Damage> {
    if timed == 0 {
        return Ok(None);
    }
    let first = reader.signed()?;
    take_lengths(reader, first).map(Some)
}

fn take_lengths(reader: &mut Reader<'_>, first: i64) -> Result<TimeRange, Damage> {
    let beyond = Damage("time out of range");
    let last = first.checked_add_unsigned(reader.varint()?).ok_or(beyond)?;
    // The latest end is never before the latest start, because no event ends before it starts.
    let end = last.checked_add_unsigned(reader.varint()?).ok_or(beyond)?;
    Ok(TimeRange { first, last, end })
}

fn fold(value: i128) -> u128 {
    (value << 1 ^ value >> 127).cast_unsigned()
}

fn unfold(value: u128) -> i128 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

pub(crate) fn encode_sketches(chunks: &[ChunkStatistics]) -> Vec<u8> {
    // Steps are nearly all alike and counts are not: grouped, they compress better.
    let (mut out, mut steps, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for totals in chunks.iter().flat_map(totals_of) {
        let sketch = &totals.durations.sketch;
        assert_eq!(
            sketch.count(),
            totals.durations.count,
            "a sketch has all durations"
        );
        put_varint(&mut out, sketch.low());
        put_varint(&mut out, sketch.bins().count() as u64);
        let mut before = 0;
        for (bin, count) in sketch.bins() {
            put_varint(&mut steps, u64::from(bin - before));
            put_varint(&mut counts, count);
            before = bin;
        }
    }
    out.extend(steps);
    out.extend(counts);
    out
}

/// Decodes the sketches into the statistics that they belong to.
pub(crate) fn decode_sketches(body: &[u8], chunks: &mut [ChunkStatistics]) -> Result<(), Damage> {
    let mut reader = Reader::new(body);
    let mut lengths = Vec::new();
    for totals in chunks.iter_mut().flat_map(totals_of_mut) {
        totals.durations.sketch = Sketch::default();
        totals.durations.sketch.set_low(reader.varint()?);
        lengths.push(reader.length(2)?);
    }
    let mut bins = Vec::new();
    for length in &lengths {
        let mut bin = 0_u32;
        for _ in 0..*length {
            let step = u32::try_from(reader.varint()?).ok();
            bin = step
                .and_then(|step| bin.checked_add(step))
                .filter(|bin| *bin < BINS)
                .ok_or(Damage("sketch with an unknown bin"))?;
            bins.push(bin);
        }
    }
    let mut bins = bins.into_iter();
    for (totals, length) in chunks.iter_mut().flat_map(totals_of_mut).zip(lengths) {
        let sketch = &mut totals.durations.sketch;
        for bin in bins.by_ref().take(length) {
            sketch.add_bin(bin, reader.varint()?);
        }
        if sketch.count() != totals.durations.count {
            return Err(Damage("sketch of another number of events"));
        }
    }
    reader.end()
}

fn totals_of_mut(chunk: &mut ChunkStatistics) -> impl Iterator<Item = &mut Totals> {
    let groups = chunk.groups.iter_mut().map(|group| &mut group.totals);
    groups.chain([&mut chunk.other])
}

fn totals_of(chunk: &ChunkStatistics) -> impl Iterator<Item = &Totals> {
    let groups = chunk.groups.iter().map(|group| &group.totals);
    groups.chain([&chunk.other])
}

pub(crate) fn encode_limits(chunks: &[(Zone, Option<Dictionary>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (zone, dictionary) in chunks {
        put_varint(&mut out, zone.present);
        put_varint(&mut out, zone.distinct);
        out.push(u8::from(zone.distinct_exact));
        out.push(zone.types.0);
        out.push(u8::from(zone.numbers.is_some()));
        if let Some((min, max)) = zone.numbers {
            put_number(&mut out, min);
            put_number(&mut out, max);
        }
        out.push(u8::from(zone.texts.is_some()));
        if let Some(texts) = &zone.texts {
            put_text(&mut out, &texts.min);
            put_optional_text(&mut out, texts.max.as_deref());
        }
        out.push(u8::from(dictionary.is_some()));
        if let Some(dictionary) = dictionary {
            dictionary.encode(&mut out);
        }
    }
    out
}

pub(crate) fn decode_limits(
    body: &[u8],
    chunks: usize,
) -> Result<Vec<(Zone, Option<Dictionary>)>, Damage> {
    let mut reader = Reader::new(body);
    let mut all = Vec::with_capacity(chunks);
    for _ in 0..chunks {
        let mut zone = Zone {
            present: reader.varint()?,
            distinct: reader.varint()?,
            distinct_exact: reader.byte()? != 0,
            types: ValueTypes(reader.byte()?),
            ..Zone::default()
        };
        if reader.byte()? != 0 {
            zone.numbers = Some((take_number(&mut reader)?, take_number(&mut reader)?));
        }
        if reader.byte()? != 0 {
            zone.texts = Some(TextRange {
                min: reader.text()?.into(),
                max: reader.optional_text()?.map(Box::from),
            });
        }
        let dictionary = match reader.byte()? {
            0 => None,
            _ => Some(Dictionary::decode(&mut reader)?),
        };
        all.push((zone, dictionary));
    }
    reader.end()?;
    Ok(all)
}

fn put_number(out: &mut Vec<u8>, number: Number) {
    match number {
        Number::Int(value) => {
            out.push(0);
            put_wide(out, fold(value));
        }
        Number::Float(value) => {
            out.push(1);
            out.extend(value.to_bits().to_le_bytes());
        }
    }
}

fn take_number(reader: &mut Reader<'_>) -> Result<Number, Damage> {
    match reader.byte()? {
        0 => Ok(Number::Int(unfold(reader.wide()?))),
        1 => Ok(Number::Float(f64::from_bits(reader.word()?))),
        _ => Err(Damage("unknown type of number")),
    }
}

pub(crate) fn encode_filters(chunks: &[Option<ChunkFilter>]) -> Vec<u8> {
    let mut out = Vec::new();
    for filter in chunks {
        let head = match filter {
            None => 0,
            Some(ChunkFilter::Bloom(filter)) => {
                let blocks = filter.byte_len() / BLOCK_BYTES;
                assert!(
                    (1..=BLOCKS_MAX).contains(&blocks),
                    "a reader refuses an empty and a larger filter"
                );
                1 + 2 * blocks
            }
            Some(ChunkFilter::Entries(numbers)) => 2 + 2 * numbers.bytes().len(),
        };
        put_varint(&mut out, head as u64);
    }
    for filter in chunks.iter().flatten() {
        match filter {
            ChunkFilter::Bloom(filter) => filter.encode(&mut out),
            ChunkFilter::Entries(entries) => out.extend(entries.bytes()),
        }
    }
    out
}

pub(crate) fn decode_filters(
    body: &[u8],
    chunks: usize,
) -> Result<Vec<Option<ChunkFilter>>, Damage> {
    let mut reader = Reader::new(body);
    let heads: Vec<u64> = (0..chunks)
        .map(|_| reader.varint())
        .collect::<Result<_, _>>()?;
    let filter = |head: u64| {
        let Some(head) = head.checked_sub(1) else {
            return Ok(None);
        };
        let length = usize::try_from(head / 2).map_err(|_| Damage("filter too large"))?;
        Ok(Some(match head % 2 {
            0 if length > BLOCKS_MAX => return Err(Damage("filter too large")),
            0 => {
                let bytes = reader.bytes(length * BLOCK_BYTES)?;
                let filter = BloomFilter::decode(bytes).ok_or(Damage("empty filter"))?;
                ChunkFilter::Bloom(filter)
            }
            _ => ChunkFilter::Entries(EntrySet::decode(reader.bytes(length)?)?),
        }))
    };
    let filters = heads
        .into_iter()
        .map(filter)
        .collect::<Result<_, Damage>>()?;
    reader.end()?;
    Ok(filters)
}
