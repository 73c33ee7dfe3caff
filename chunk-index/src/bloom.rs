//! Split-block Bloom filters.
//!
//! A filter is a row of 256-bit blocks. The upper half of a value's hash selects the block; the
//! lower half sets one bit in each of its eight 32-bit words, by eight odd multipliers. One look-up
//! reads one cache line. (Putze, Sanders, Singler 2007; layout and multipliers are those of
//! Parquet's filters.)

/// Words of a block.
const BLOCK_WORDS: usize = 8;
const WORDS_EXPONENT: i32 = 8;
const _: () = assert!(BLOCK_WORDS == 8);
/// Bytes of a block.
pub(crate) const BLOCK_BYTES: usize = BLOCK_WORDS * 4;
/// Blocks that a filter may have: 256 KiB.
pub(crate) const BLOCKS_MAX: usize = (1 << 18) / BLOCK_BYTES;

const SALT: [u32; BLOCK_WORDS] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// A set of hashes without false negatives and with few false positives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BloomFilter {
    blocks: Box<[[u32; BLOCK_WORDS]]>,
}

impl BloomFilter {
    /// An empty filter for `entries` hashes, with a rate of false positives of at most about
    /// `false_positive_rate`.
    pub fn new(entries: u64, false_positive_rate: f64) -> BloomFilter {
        BloomFilter {
            blocks: vec![[0; BLOCK_WORDS]; blocks_for(entries, false_positive_rate)].into(),
        }
    }

    /// Adds a hash.
    #[inline]
    pub fn insert(&mut self, hash: u64) {
        let block = block_of(hash, self.blocks.len());
        for (word, salt) in self.blocks[block].iter_mut().zip(SALT) {
            *word |= bit_of(hash, salt);
        }
    }

    /// Whether the hash may have been inserted; `false` is certain.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let block = block_of(hash, self.blocks.len());
        self.blocks[block]
            .iter()
            .zip(SALT)
            .all(|(word, salt)| word & bit_of(hash, salt) != 0)
    }

    /// Bytes that the filter takes, in memory and in a sidecar.
    pub fn byte_len(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// Appends the blocks, words little-endian.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(
            self.blocks
                .iter()
                .flatten()
                .flat_map(|word| word.to_le_bytes()),
        );
    }

    /// Reads blocks that [`BloomFilter::encode`] wrote; `None` for an invalid length.
    pub(crate) fn decode(bytes: &[u8]) -> Option<BloomFilter> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        if blocks.is_empty() || !rest.is_empty() || blocks.len() > BLOCKS_MAX {
            return None;
        }
        let blocks = blocks
            .iter()
            .map(|block| {
                let (words, _) = block.as_chunks::<4>();
                std::array::from_fn(|word| u32::from_le_bytes(words[word]))
            })
            .collect();
        Some(BloomFilter { blocks })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is positive and clamped"
)]
fn blocks_for(entries: u64, false_positive_rate: f64) -> usize {
    let load = load_for(false_positive_rate.clamp(1e-6, 0.5));
    let blocks = (entries.max(1) as f64 / load).ceil();
    (blocks as usize).clamp(1, BLOCKS_MAX)
}

/// Hashes that a block may have on average at a given rate. Found by bisection, because the rate
/// grows with the load.
fn load_for(rate: f64) -> f64 {
    let (mut low, mut high) = (0.1, 100.0);
    for _ in 0..30 {
        let middle = (low + high) / 2.0;
        if rate_at(middle) < rate {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The rate of false positives at an average load. The load of the blocks varies by chance (Poisson
/// distribution), and the full ones cause most of the errors: a block with `n` hashes contains a
/// false positive when all its eight bits are set, each with probability `1 - (31/32)^n`.
fn rate_at(load: f64) -> f64 {
    let (mut rate, mut chance, mut clear) = (0.0, (-load).exp(), 1.0);
    for members in 1..300_u32 {
        chance *= load / f64::from(members);
        clear *= 31.0 / 32.0;
        rate += chance * f64::powi(1.0 - clear, WORDS_EXPONENT);
    }
    rate
}

/// Maps the upper half of the hash evenly to the blocks without a division (Lemire 2016).
#[inline]
fn block_of(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the lower half of the hash"
)]
fn bit_of(hash: u64, salt: u32) -> u32 {
    1 << ((hash as u32).wrapping_mul(salt) >> 27)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::hash_number;
    use query_language::Number;

    fn hash(value: u64) -> u64 {
        hash_number(Number::Int(i128::from(value)))
    }

    #[test]
    fn false_negatives_never_occur_and_false_positives_are_rare() {
        for (entries, rate) in [
            (1, 0.01),
            (20, 0.01),
            (1_024, 0.01),
            (8_192, 0.01),
            (4_000, 0.001),
        ] {
            let mut filter = BloomFilter::new(entries, rate);
            (0..entries).for_each(|value| filter.insert(hash(value)));
            assert!((0..entries).all(|value| filter.may_contain(hash(value))));
            let strangers = 200_000;
            let taken = (0..strangers)
                .filter(|value| filter.may_contain(hash(value + 1_000_000)))
                .count();
            let measured = taken as f64 / strangers as f64;
            assert!(
                measured <= rate * 1.1,
                "{entries} entries at {rate}: {measured}"
            );
            // The filter is not just too large.
            let bits = filter.byte_len() as f64 * 8.0 / entries as f64;
            assert!(
                entries < 1_000 || rate < 0.01 || bits < 11.0,
                "{bits} bits an entry"
            );
        }
    }

    #[test]
    fn bytes_survive_a_round_trip() {
        let mut filter = BloomFilter::new(100, 0.01);
        (0..100).for_each(|value| filter.insert(hash(value)));
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        assert_eq!(BloomFilter::decode(&bytes), Some(filter));
        assert_eq!(BloomFilter::decode(&bytes[1..]), None);
        assert_eq!(BloomFilter::decode(&[]), None);
    }
}
