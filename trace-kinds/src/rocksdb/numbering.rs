//! Dense numbers for byte strings, and for blocks.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::BlockRecord;

/// Gives each distinct byte string a number: 0, 1, 2, … in the order of first occurrence.
///
/// The strings are stored in one allocation and the table takes 4.6 to 10 bytes a string, so a
/// string of 29 bytes costs about 45. The hash is seeded for each table: keys come from untrusted
/// files, which cannot direct them all to one slot.
#[derive(Debug)]
pub struct NumberedStrings {
    seed: u64,
    numbers: HashTable<u32>,
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl Default for NumberedStrings {
    fn default() -> Self {
        Self {
            seed: RandomState::new().hash_one(0u8),
            numbers: HashTable::new(),
            ends: Vec::new(),
            bytes: Vec::new(),
        }
    }
}

impl NumberedStrings {
    /// How many distinct strings there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string with this number.
    pub fn get(&self, number: u32) -> Option<&[u8]> {
        string(&self.ends, &self.bytes, number)
    }

    /// The number of `key`; a new key gets the next one.
    #[inline]
    pub fn intern(&mut self, key: &[u8]) -> u32 {
        match self.find(key) {
            Some(number) => number,
            None => self.add(key),
        }
    }

    /// The number of `key`, if it has one.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<u32> {
        let is_key = |number: &u32| self.get(*number) == Some(key);
        self.numbers.find(hash(self.seed, key), is_key).copied()
    }

    #[cold]
    fn add(&mut self, key: &[u8]) -> u32 {
        let number = next_number(self.ends.len());
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
        let (ends, bytes) = (&self.ends, &self.bytes);
        let rehash = |number: &u32| {
            let key = string(ends, bytes, *number);
            hash(self.seed, key.expect("a number that was given"))
        };
        let hash = hash(self.seed, key);
        self.numbers.insert_unique(hash, number, rehash);
        number
    }
}

fn string<'s>(ends: &[usize], bytes: &'s [u8], number: u32) -> Option<&'s [u8]> {
    let index = usize::try_from(number).ok()?;
    let start = match index.checked_sub(1) {
        None => 0,
        Some(before) => *ends.get(before)?,
    };
    bytes.get(start..*ends.get(index)?)
}

fn next_number(len: usize) -> u32 {
    let number = u32::try_from(len).ok().filter(|number| *number < u32::MAX);
    number.expect("four billion keys need more memory than there is")
}

/// Gives each distinct byte string a number as [`NumberedStrings`] does, but stores 96 bits of a
/// seeded hash instead of the string.
///
/// A lookup touches one cache line instead of three, and a string costs 24 to 48 bytes whatever its
/// length. That is why this is not a `hashbrown::HashTable`, whose lookups touch two: with five
/// million keys they took half as long again. Two of ten million strings get one number with a
/// probability of about 10^-15, and the seed is random for each table, so nobody can choose them.
#[derive(Debug)]
pub struct Fingerprints {
    seeds: [u64; 2],
    /// Hash, more hash, number + 1; the number is 0 in an empty slot.
    slots: Vec<(u64, u32, u32)>,
    len: u32,
}

const SLOTS_MIN: usize = 64;

impl Default for Fingerprints {
    fn default() -> Self {
        let random = RandomState::new();
        let seeds = [random.hash_one(0u8), random.hash_one(1u8)];
        Self {
            seeds,
            slots: vec![(0, 0, 0); SLOTS_MIN],
            len: 0,
        }
    }
}

impl Fingerprints {
    /// How many distinct strings there are.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of `key`; a new key gets the next one.
    #[inline]
    pub fn number(&mut self, key: &[u8]) -> u32 {
        let first = hash(self.seeds[0], key);
        let (second, _) = halves(hash(self.seeds[1], key));
        let mask = self.slots.len() - 1;
        let mut slot = first_slot(first, mask);
        loop {
            let (known, more, number) = self.slots[slot];
            if number == 0 {
                return self.add(first, second, slot);
            }
            if known == first && more == second {
                return number - 1;
            }
            slot = (slot + 1) & mask;
        }
    }

    #[cold]
    fn add(&mut self, first: u64, second: u32, slot: usize) -> u32 {
        let number = next_number(self.len());
        self.len = number + 1;
        self.slots[slot] = (first, second, self.len);
        if self.len() * 3 > self.slots.len() * 2 {
            let mask = self.slots.len() * 2 - 1;
            let old = std::mem::replace(&mut self.slots, vec![(0, 0, 0); mask + 1]);
            for entry in old.into_iter().filter(|entry| entry.2 != 0) {
                let mut slot = first_slot(entry.0, mask);
                while self.slots[slot].2 != 0 {
                    slot = (slot + 1) & mask;
                }
                self.slots[slot] = entry;
            }
        }
        number
    }
}

/// The slot at which the search for a hash starts, in a table of a power of two.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the mask keeps low bits only"
)]
fn first_slot(hash: u64, mask: usize) -> usize {
    hash as usize & mask
}

/// The lower and the upper half.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves of the word")]
fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// The lower and the upper word.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the halves of the product")]
fn words(product: u128) -> [u64; 2] {
    [product as u64, (product >> 64) as u64]
}

/// Multiplies and folds eight bytes at a time; each step mixes both halves of the product.
#[inline]
fn hash(seed: u64, key: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        let [low, high] = words(product);
        low ^ high
    };
    // The length needs a separate step: the padding of the last word hides it.
    let mut state = fold(seed ^ FACTOR, key.len() as u64 ^ 0xa076_1d64_78bd_642f);
    let mut chunks = key.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
        state = fold(state ^ word, FACTOR ^ seed.rotate_left(17) | 1);
    }
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    let state = fold(state ^ u64::from_le_bytes(last), FACTOR);
    fold(state ^ seed, 0xd6e8_feb8_6659_fd93)
}

/// Numbers blocks as RocksDB does: by column family name, file, block type and block key.
#[derive(Debug, Default)]
pub struct BlockNumbers {
    families: NumberedStrings,
    blocks: Fingerprints,
    last_family: (Vec<u8>, u32),
    scratch: Vec<u8>,
}

impl BlockNumbers {
    /// The number of the record's column family and of its block, both from 0.
    #[inline]
    pub fn number(&mut self, record: &BlockRecord<'_>) -> (u32, u32) {
        // Adjacent records are mostly of one column family.
        if self.last_family.0 != record.cf_name || self.families.is_empty() {
            self.last_family = (
                record.cf_name.to_vec(),
                self.families.intern(record.cf_name),
            );
        }
        let family = self.last_family.1;
        self.scratch.clear();
        self.scratch.extend_from_slice(&family.to_le_bytes());
        self.scratch
            .extend_from_slice(&record.sst_number.to_le_bytes());
        self.scratch.push(record.block_type.0);
        self.scratch.extend_from_slice(record.block_key);
        (family, self.blocks.number(&self.scratch))
    }

    /// The names of the column families, by number.
    pub fn families(&self) -> &NumberedStrings {
        &self.families
    }

    /// How many distinct blocks there are.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether no block was seen.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_stay() {
        let mut strings = NumberedStrings::default();
        let mut fingerprints = Fingerprints::default();
        let key = |n: u32| [n.to_string().into_bytes(), vec![0; (n % 11) as usize]].concat();
        for n in 0..10_000 {
            assert_eq!(strings.intern(&key(n)), n);
            assert_eq!(fingerprints.number(&key(n)), n);
        }
        for n in (0..10_000).rev() {
            assert_eq!(fingerprints.number(&key(n)), n);
            assert_eq!(strings.intern(&key(n)), n);
            assert_eq!(strings.find(&key(n)), Some(n));
            assert_eq!(strings.get(n), Some(&key(n)[..]));
        }
        assert_eq!((strings.find(b"other"), strings.get(10_000)), (None, None));
        assert_eq!(strings.intern(b""), 10_000);
    }

    #[test]
    fn keys_that_differ_in_few_bits_have_other_fingerprints() {
        let mut fingerprints = Fingerprints::default();
        let mut next = 0;
        let mut check = |key: &[u8]| {
            assert_eq!(fingerprints.number(key), next, "{key:?}");
            next += 1;
        };
        for length in 0..40 {
            check(&vec![0; length]);
            for bit in 0..8 * length {
                let mut key = vec![0; length];
                key[bit / 8] |= 1 << (bit % 8);
                check(&key);
                for other in 0..bit {
                    let mut key = key.clone();
                    key[other / 8] |= 1 << (other % 8);
                    check(&key);
                }
            }
        }
    }
}
