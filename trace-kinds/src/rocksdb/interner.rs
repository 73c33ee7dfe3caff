//! Dense numbers for byte strings, and for blocks.

use std::hash::{BuildHasher, RandomState};

use super::BlockRecord;

/// Gives each distinct byte string a number: 0, 1, 2, … in the order of first sight.
///
/// The strings lie one behind another in one allocation and the table holds eight bytes a slot,
/// so a string of 29 bytes costs about 55. The hash is seeded afresh for each table: keys come
/// from foreign files, and nobody can lay them all into one slot.
#[derive(Debug)]
pub struct Interner {
    seed: u64,
    /// 0 = empty, else the upper half of the hash and the number + 1 in the lower half.
    slots: Vec<u64>,
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl Default for Interner {
    fn default() -> Self {
        let seed = RandomState::new().hash_one(0u8);
        Self {
            seed,
            slots: vec![0; 64],
            ends: Vec::new(),
            bytes: Vec::new(),
        }
    }
}

impl Interner {
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
        let index = number as usize;
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.bytes[start..end])
    }

    /// The number of `key`, which is given the next one when it is new.
    #[inline]
    pub fn intern(&mut self, key: &[u8]) -> u32 {
        let hash = hash(self.seed, key);
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let content = self.slots[slot];
            if content == 0 {
                return self.add(key, hash, slot);
            }
            if content >> 32 == hash >> 32 {
                let number = (content as u32).wrapping_sub(1);
                if self.get(number) == Some(key) {
                    return number;
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    /// The number of `key`, if it has one.
    pub fn find(&self, key: &[u8]) -> Option<u32> {
        let hash = hash(self.seed, key);
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while self.slots[slot] != 0 {
            let number = (self.slots[slot] as u32).wrapping_sub(1);
            if self.get(number) == Some(key) {
                return Some(number);
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    #[cold]
    fn add(&mut self, key: &[u8], hash: u64, slot: usize) -> u32 {
        let number = u32::try_from(self.ends.len())
            .ok()
            .filter(|&number| number < u32::MAX)
            .expect("four billion keys need more memory than there is");
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
        self.slots[slot] = (hash >> 32 << 32) | u64::from(number + 1);
        if self.ends.len() * 3 > self.slots.len() * 2 {
            self.grow();
        }
        number
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let mut slots = vec![0u64; mask + 1];
        for number in 0..self.ends.len() as u32 {
            let hash = hash(self.seed, self.get(number).expect("the number was given"));
            let mut slot = hash as usize & mask;
            while slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            slots[slot] = (hash >> 32 << 32) | u64::from(number + 1);
        }
        self.slots = slots;
    }
}

/// Gives each distinct byte string a number as [`Interner`] does, but keeps 96 bits of a seeded
/// hash instead of the string.
///
/// A lookup touches one place in memory instead of three, and a string costs 24 to 48 bytes
/// whatever its length. Two of ten million strings are taken for one with a probability of about
/// 10^-15, and the seed is drawn afresh for each table, so nobody can choose them.
#[derive(Debug)]
pub struct Fingerprints {
    seeds: [u64; 2],
    /// Hash, more hash, number + 1; the number is 0 in an empty slot.
    slots: Vec<(u64, u32, u32)>,
    len: u32,
}

impl Default for Fingerprints {
    fn default() -> Self {
        let random = RandomState::new();
        let seeds = [random.hash_one(0u8), random.hash_one(1u8)];
        Self {
            seeds,
            slots: vec![(0, 0, 0); 64],
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

    /// The number of `key`, which is given the next one when it is new.
    #[inline]
    pub fn number(&mut self, key: &[u8]) -> u32 {
        let first = hash(self.seeds[0], key);
        let second = hash(self.seeds[1], key) as u32;
        let mask = self.slots.len() - 1;
        let mut slot = first as usize & mask;
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
        let number = self.len;
        self.len = number
            .checked_add(1)
            .expect("four billion keys need more memory than there is");
        self.slots[slot] = (first, second, self.len);
        if self.len() * 3 > self.slots.len() * 2 {
            let mask = self.slots.len() * 2 - 1;
            let old = std::mem::replace(&mut self.slots, vec![(0, 0, 0); mask + 1]);
            for entry in old.into_iter().filter(|entry| entry.2 != 0) {
                let mut slot = entry.0 as usize & mask;
                while self.slots[slot].2 != 0 {
                    slot = (slot + 1) & mask;
                }
                self.slots[slot] = entry;
            }
        }
        number
    }
}

/// Multiply-and-fold over eight bytes at a time; each step mixes both halves of the product.
#[inline]
fn hash(seed: u64, key: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        (product as u64) ^ ((product >> 64) as u64)
    };
    // The length goes through a step of its own: the padding of the last word hides it.
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
    families: Interner,
    blocks: Fingerprints,
    last_family: (Vec<u8>, u32),
    scratch: Vec<u8>,
}

impl BlockNumbers {
    /// The number of the record's column family and of its block, both from 0.
    #[inline]
    pub fn number(&mut self, record: &BlockRecord<'_>) -> (u32, u32) {
        // Neighbouring records are mostly of one column family.
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
    pub fn families(&self) -> &Interner {
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
        let mut interner = Interner::default();
        let mut fingerprints = Fingerprints::default();
        let key = |n: u32| [n.to_string().into_bytes(), vec![0; (n % 11) as usize]].concat();
        for n in 0..10_000 {
            assert_eq!(interner.intern(&key(n)), n);
            assert_eq!(fingerprints.number(&key(n)), n);
        }
        for n in (0..10_000).rev() {
            assert_eq!(fingerprints.number(&key(n)), n);
            assert_eq!(interner.intern(&key(n)), n);
            assert_eq!(interner.find(&key(n)), Some(n));
            assert_eq!(interner.get(n), Some(&key(n)[..]));
        }
        assert_eq!(
            (interner.find(b"other"), interner.get(10_000)),
            (None, None)
        );
        assert_eq!(interner.intern(b""), 10_000);
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
