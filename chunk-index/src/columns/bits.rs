//! A bit for each row of a chunk.

use crate::wire::{Damage, Reader};

/// One bit per row, 64 in a word; bits after the last row are zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bits {
    words: Vec<u64>,
    rows: usize,
}

impl Bits {
    /// All bits equal.
    pub(crate) fn all(rows: usize, bit: bool) -> Bits {
        let mut bits = Bits {
            words: vec![if bit { u64::MAX } else { 0 }; rows.div_ceil(64)],
            rows,
        };
        bits.trim();
        bits
    }

    /// The bits that `bit` returns for each value.
    #[inline]
    pub(crate) fn of<T: Copy>(values: &[T], bit: impl Fn(T) -> bool) -> Bits {
        let word = |values: &[T]| {
            let bits = values.iter().enumerate();
            bits.fold(0, |word, (bit_number, value)| {
                word | u64::from(bit(*value)) << bit_number
            })
        };
        Bits {
            words: values.chunks(64).map(word).collect(),
            rows: values.len(),
        }
    }

    fn trim(&mut self) {
        if let Some(last) = self.words.last_mut()
            && !self.rows.is_multiple_of(64)
        {
            *last &= u64::MAX >> (64 - self.rows % 64);
        }
    }

    /// Clears some bits.
    pub(crate) fn clear(&mut self, rows: impl Iterator<Item = usize>) {
        for row in rows {
            self.words[row / 64] &= !(1 << (row % 64));
        }
    }

    pub(crate) fn and(&mut self, other: &Bits) {
        let words = self.words.iter_mut().zip(&other.words);
        words.for_each(|(word, other)| *word &= other);
    }

    pub(crate) fn or(&mut self, other: &Bits) {
        let words = self.words.iter_mut().zip(&other.words);
        words.for_each(|(word, other)| *word |= other);
    }

    pub(crate) fn not(&mut self) {
        self.words.iter_mut().for_each(|word| *word = !*word);
        self.trim();
    }

    /// Number of bits that are set.
    pub(crate) fn count(&self) -> u64 {
        let ones = self.words.iter().map(|word| u64::from(word.count_ones()));
        ones.sum()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let bytes = self.words.iter().flat_map(|word| word.to_le_bytes());
        out.extend(bytes.take(self.rows.div_ceil(8)));
    }

    pub(crate) fn decode(reader: &mut Reader<'_>, rows: usize) -> Result<Bits, Damage> {
        let bytes = reader.bytes(rows.div_ceil(8))?;
        let word = |bytes: &[u8]| {
            let bytes = bytes.iter().rev();
            bytes.fold(0, |word, byte| word << 8 | u64::from(*byte))
        };
        let mut bits = Bits {
            words: bytes.chunks(8).map(word).collect(),
            rows,
        };
        bits.trim();
        Ok(bits)
    }
}
