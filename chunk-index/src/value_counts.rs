//! The distinct values of one dimension of one chunk, with their counts.
//!
//! The hash table uses open addressing. With `hashbrown::HashTable`, counting takes 5.7 % more
//! instructions and adding an event at least 8 % more time (`examples/builder_cost.rs`).

use query_language::Value;

use crate::OwnedValue;

/// Distinct values with their counts, found within a few nanoseconds.
///
/// A value is identified by two words and a tag: text of up to 16 bytes by its first and last eight
/// bytes and its length, which cover all of it; longer text also by its bytes in the arena. The
/// most recent value is compared first, because traces repeat themselves.
#[derive(Debug)]
pub(crate) struct ValueCounts {
    entries: Vec<Entry>,
    /// Open addressing: index of an entry plus one, or zero.
    slots: Vec<u32>,
    arena: Vec<u8>,
    last: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    words: [u64; 2],
    count: u64,
    tag: u32,
    /// Offset of text in the arena.
    offset: u32,
}

/// Tags of values that are not text; for text the tag is its length.
const TAG_INT: u32 = u32::MAX;
const TAG_UINT: u32 = u32::MAX - 1;
const TAG_FLOAT: u32 = u32::MAX - 2;
const TAG_BOOL: u32 = u32::MAX - 3;
const TAG_TEXT_MAX: u32 = u32::MAX - 4;
/// Text bytes of one dimension of one chunk.
const ARENA_BYTES_MAX: usize = 8 << 20;
const SLOTS_MIN: usize = 64;
/// Text up to this length is identified by its words alone.
const WORDS_BYTES: u32 = 16;

impl ValueCounts {
    pub(crate) fn new() -> ValueCounts {
        ValueCounts {
            entries: Vec::new(),
            slots: vec![0; SLOTS_MIN],
            arena: Vec::new(),
            last: 0,
        }
    }

    /// Removes all values and retains the memory.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.slots.fill(0);
        self.arena.clear();
        self.last = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Counts a value and returns its number in the chunk. `None`, without any change, if there is
    /// no space for it.
    #[inline]
    pub(crate) fn count(&mut self, value: Value<'_>, entries_max: usize) -> Option<u32> {
        let (tag, words, text) = key(value)?;
        if let Some(entry) = self.entries.get_mut(self.last as usize)
            && entry.words == words
            && entry.tag == tag
            && (!is_long(tag) || text_of(&self.arena, entry) == text)
        {
            entry.count += 1;
            return Some(self.last);
        }
        let mut at = slot(hash(tag, words, text));
        loop {
            at &= self.slots.len() - 1;
            let Some(id) = self.slots[at].checked_sub(1) else {
                return self.insert(at, tag, words, text, entries_max);
            };
            let entry = &mut self.entries[id as usize];
            if entry.words == words
                && entry.tag == tag
                && (!is_long(tag) || text_of(&self.arena, entry) == text)
            {
                entry.count += 1;
                self.last = id;
                return Some(id);
            }
            at += 1;
        }
    }

    /// Counts a value again, `times` times, by the number that [`ValueCounts::count`] returned.
    pub(crate) fn count_again(&mut self, id: u32, times: u64) {
        self.entries[id as usize].count += times;
    }

    #[cold]
    fn insert(
        &mut self,
        slot: usize,
        tag: u32,
        words: [u64; 2],
        text: &[u8],
        entries_max: usize,
    ) -> Option<u32> {
        if self.entries.len() >= entries_max || self.arena.len() + text.len() > ARENA_BYTES_MAX {
            return None;
        }
        let id = u32::try_from(self.entries.len()).ok()?;
        self.entries.push(Entry {
            words,
            count: 1,
            tag,
            offset: u32::try_from(self.arena.len()).ok()?,
        });
        self.arena.extend_from_slice(text);
        self.slots[slot] = id + 1;
        self.last = id;
        // At most half full, so that probe sequences stay short.
        if self.entries.len() * 2 > self.slots.len() {
            self.grow();
        }
        Some(id)
    }

    fn grow(&mut self) {
        let size = self.slots.len() * 4;
        self.slots.clear();
        self.slots.resize(size, 0);
        for (id, entry) in (1..).zip(&self.entries) {
            let mut at = slot(hash(entry.tag, entry.words, text_of(&self.arena, entry)));
            at &= size - 1;
            while self.slots[at] != 0 {
                at = (at + 1) & (size - 1);
            }
            self.slots[at] = id;
        }
    }

    /// All values with their counts, in the order of their first occurrence.
    pub(crate) fn values(&self) -> impl ExactSizeIterator<Item = (Value<'_>, u64)> {
        self.entries.iter().map(|entry| {
            let word = entry.words[0];
            let value = match entry.tag {
                TAG_INT => Value::Int(word.cast_signed()),
                TAG_UINT => Value::Uint(word),
                TAG_FLOAT => Value::Float(f64::from_bits(word)),
                TAG_BOOL => Value::Bool(word != 0),
                _ => Value::Str(text_of(&self.arena, entry)),
            };
            (value, entry.count)
        })
    }

    /// The value of a number that [`ValueCounts::count`] returned.
    pub(crate) fn value(&self, id: u32) -> Option<OwnedValue> {
        let (value, _) = self.values().nth(id as usize)?;
        Some(value.into())
    }
}

/// The hash of a value in sketches of distinct counts; never stored.
#[inline]
pub(crate) fn transient_hash(value: Value<'_>) -> u64 {
    match key(value) {
        Some((tag, words, text)) => hash(tag, words, text),
        None => 0,
    }
}

fn is_long(tag: u32) -> bool {
    tag > WORDS_BYTES && tag <= TAG_TEXT_MAX
}

fn text_of<'a>(arena: &'a [u8], entry: &Entry) -> &'a [u8] {
    if entry.tag > TAG_TEXT_MAX {
        return &[];
    }
    let begin = entry.offset as usize;
    &arena[begin..begin + entry.tag as usize]
}

#[inline]
fn key(value: Value<'_>) -> Option<(u32, [u64; 2], &[u8])> {
    Some(match value {
        Value::Str(text) => {
            let tag = u32::try_from(text.len())
                .ok()
                .filter(|tag| *tag <= TAG_TEXT_MAX)?;
            (tag, words(text), text)
        }
        Value::Uint(value) => (TAG_UINT, [value, 0], &[][..]),
        Value::Int(value) => {
            let tag = if value < 0 { TAG_INT } else { TAG_UINT };
            (tag, [value.cast_unsigned(), 0], &[][..])
        }
        Value::Float(value) => (TAG_FLOAT, [value.to_bits(), 0], &[][..]),
        Value::Bool(value) => (TAG_BOOL, [u64::from(value), 0], &[][..]),
    })
}

/// The first and the last eight bytes; they overlap in text shorter than sixteen.
#[inline]
fn words(text: &[u8]) -> [u64; 2] {
    if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        return [u64::from_le_bytes(*first), u64::from_le_bytes(*last)];
    }
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        let low = u64::from(u32::from_le_bytes(*first));
        return [low | u64::from(u32::from_le_bytes(*last)) << 32, 0];
    }
    let short = text
        .iter()
        .fold(0, |word, byte| word << 8 | u64::from(*byte));
    [short, 0]
}

/// Multiplies and folds, as wyhash does: enough mixing with two multiplications.
#[inline]
fn hash(tag: u32, words: [u64; 2], text: &[u8]) -> u64 {
    let mut seed = fold(
        words[0] ^ 0xa076_1d64_78bd_642f,
        words[1] ^ 0xe703_7ed1_a0b4_28db,
    );
    if is_long(tag) {
        let (chunks, _) = text.as_chunks::<8>();
        for chunk in &chunks[1..] {
            seed = fold(seed ^ u64::from_le_bytes(*chunk), 0x8ebc_6af0_9c88_c6e3);
        }
    }
    fold(seed ^ u64::from(tag), 0x5899_65cc_7537_4cc3)
}

/// The slot of a hash, to be reduced by the number of slots.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a slot needs only the lower bits"
)]
fn slot(hash: u64) -> usize {
    hash as usize
}

#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "both halves of the product are folded"
)]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn texts_of_every_length_are_distinct() {
        let mut counts = ValueCounts::new();
        let texts: Vec<Vec<u8>> = (0..40)
            .flat_map(|length| {
                (0..=length).map(move |at| {
                    let mut text = vec![b'a'; length];
                    if let Some(byte) = text.get_mut(at) {
                        *byte = b'b';
                    }
                    text
                })
            })
            .collect();
        for _ in 0..2 {
            for (id, text) in (0..).zip(&texts) {
                assert_eq!(counts.count(Value::Str(text), 10_000), Some(id), "{text:?}");
            }
        }
        for (text, (value, count)) in texts.iter().zip(counts.values()) {
            assert_eq!((value, count), (Value::Str(text), 2));
        }
    }

    #[test]
    fn types_are_distinct_and_entries_are_bounded() {
        let mut counts = ValueCounts::new();
        let values = [
            Value::Str(b"1"),
            Value::Uint(1),
            Value::Int(-1),
            Value::Float(1.0),
            Value::Bool(true),
            Value::Str(b""),
        ];
        for (id, value) in (0..).zip(values) {
            assert_eq!(counts.count(value, 6), Some(id));
        }
        assert_eq!(counts.count(Value::Int(1), 6), Some(1));
        assert_eq!(counts.count(Value::Int(2), 6), None);
        assert_eq!(counts.len(), 6);
        counts.clear();
        assert_eq!(counts.count(Value::Int(2), 6), Some(0));
    }

    proptest! {
        #[test]
        fn counts_are_those_of_a_map(texts in proptest::collection::vec("[ab]{0,20}", 0..400)) {
            let mut counts = ValueCounts::new();
            let mut model: BTreeMap<&[u8], u64> = BTreeMap::new();
            for text in &texts {
                counts.count(Value::Str(text.as_bytes()), usize::MAX);
                *model.entry(text.as_bytes()).or_default() += 1;
            }
            let counted: BTreeMap<&[u8], u64> = counts
                .values()
                .map(|(value, count)| match value {
                    Value::Str(text) => (text, count),
                    other => panic!("{other:?}"),
                })
                .collect();
            prop_assert_eq!(counted, model);
        }
    }
}
