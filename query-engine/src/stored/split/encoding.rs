//! A split as bytes, which a client keeps and sends back.
//!
//! ```text
//! "TS" 1                       magic and version
//! question                     u32
//! first                        u8, 0 or 1
//! storages                     varint, then for each:
//!   id                         16 bytes
//!   cuts                       varint
//!   finalized                  u8, 0 or 1
//!   leaves                     varint, then for each:
//!     id                       u64
//!     begin, length            varints
//!     state                    u32
//! CRC32C of all before         u32
//! ```
//!
//! Integers are little-endian; a varint has 7 bits in a byte, the lowest first.

use storage_format::checksum::crc32c;
use storage_format::{LeafId, StorageId};

use super::{LEAVES_MAX, Split, SplitLeaf, SplitStorage};

const MAGIC: &[u8; 3] = b"TS\x01";
/// The fewest bytes of a leaf.
const LEAF_BYTES_MIN: usize = 8 + 2 + 4;
/// The fewest bytes of a storage.
const STORAGE_BYTES_MIN: usize = 16 + 3;

/// Bytes that are no split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SplitError(&'static str);

const CUT: SplitError = SplitError("it ends too early");

impl Split {
    /// The split as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(self.question.to_le_bytes());
        out.push(u8::from(self.is_first));
        put_varint(&mut out, self.storages.len() as u64);
        for part in &self.storages {
            out.extend(part.storage.as_bytes());
            put_varint(&mut out, u64::from(part.cuts));
            out.push(u8::from(part.is_finalized));
            put_varint(&mut out, part.leaves.len() as u64);
            for leaf in &part.leaves {
                out.extend(leaf.leaf.0.to_le_bytes());
                put_varint(&mut out, leaf.range.start);
                put_varint(&mut out, leaf.range.end - leaf.range.start);
                out.extend(leaf.state.to_le_bytes());
            }
        }
        let checksum = crc32c(&out);
        out.extend(checksum.to_le_bytes());
        out
    }

    /// The split in `bytes`.
    ///
    /// # Errors
    ///
    /// When [`Split::encode`] did not make them.
    pub fn decode(bytes: &[u8]) -> Result<Split, SplitError> {
        let (rest, checksum) = bytes.split_last_chunk().ok_or(CUT)?;
        if crc32c(rest) != u32::from_le_bytes(*checksum) {
            return Err(SplitError("its checksum does not match"));
        }
        let mut rest = Rest(rest);
        if rest.take::<3>()? != *MAGIC {
            return Err(SplitError("another version made it"));
        }
        let mut split = Split {
            question: u32::from_le_bytes(rest.take()?),
            is_first: rest.flag()?,
            storages: Vec::new(),
        };
        let mut leaves = 0;
        for _ in 0..rest.count(STORAGE_BYTES_MIN)? {
            let part = rest.storage()?;
            leaves += part.leaves.len();
            split.storages.push(part);
        }
        let is_ascending = |pair: &[SplitStorage]| pair[0].storage < pair[1].storage;
        if !rest.0.is_empty() || leaves > LEAVES_MAX || !split.storages.windows(2).all(is_ascending)
        {
            return Err(SplitError("it is none that the server makes"));
        }
        Ok(split)
    }
}

/// The bytes that are not decoded yet.
struct Rest<'b>(&'b [u8]);

impl Rest<'_> {
    fn take<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], SplitError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(CUT)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn flag(&mut self) -> Result<bool, SplitError> {
        match self.take()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(SplitError("a flag is neither 0 nor 1")),
        }
    }

    fn varint(&mut self) -> Result<u64, SplitError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(SplitError("a number is too large"))
    }

    /// How many items of at least `item_bytes` follow.
    fn count(&mut self, item_bytes: usize) -> Result<usize, SplitError> {
        let count = self.varint()?;
        let count = usize::try_from(count).ok();
        let fits = |count: &usize| *count <= self.0.len() / item_bytes;
        count.filter(fits).ok_or(CUT)
    }

    fn storage(&mut self) -> Result<SplitStorage, SplitError> {
        let storage = StorageId::from_bytes(self.take()?);
        let cuts = u32::try_from(self.varint()?);
        let mut part = SplitStorage {
            storage,
            cuts: cuts.map_err(|_| SplitError("a number is too large"))?,
            is_finalized: self.flag()?,
            leaves: Vec::new(),
        };
        for _ in 0..self.count(LEAF_BYTES_MIN)? {
            part.leaves.push(self.leaf()?);
        }
        Ok(part)
    }

    fn leaf(&mut self) -> Result<SplitLeaf, SplitError> {
        let leaf = LeafId(u64::from_le_bytes(self.take()?));
        let (start, length) = (self.varint()?, self.varint()?);
        let end = start.checked_add(length);
        Ok(SplitLeaf {
            leaf,
            range: start..end.ok_or(SplitError("a number is too large"))?,
            state: u32::from_le_bytes(self.take()?),
        })
    }
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn leaf() -> impl Strategy<Value = SplitLeaf> {
        (any::<u64>(), any::<(u64, u64)>(), any::<u32>()).prop_map(|(leaf, (a, b), state)| {
            SplitLeaf {
                leaf: LeafId(leaf),
                range: a.min(b)..a.max(b),
                state,
            }
        })
    }

    fn storage() -> impl Strategy<Value = SplitStorage> {
        let leaves = prop::collection::vec(leaf(), 0..6);
        let all = (any::<[u8; 16]>(), any::<u32>(), any::<bool>(), leaves);
        all.prop_map(|(id, cuts, is_finalized, leaves)| SplitStorage {
            storage: StorageId::from_bytes(id),
            cuts,
            is_finalized,
            leaves,
        })
    }

    fn split() -> impl Strategy<Value = Split> {
        let storages = prop::collection::vec(storage(), 0..4);
        (any::<u32>(), any::<bool>(), storages).prop_map(|(question, is_first, mut storages)| {
            storages.sort_by_key(|part| part.storage);
            storages.dedup_by_key(|part| part.storage);
            Split {
                question,
                is_first,
                storages,
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(split in split()) {
            prop_assert_eq!(Split::decode(&split.encode()), Ok(split));
        }

        #[test]
        fn changed_bytes_are_refused(
            split in split(), at: prop::sample::Index, flip in 1..=u8::MAX,
        ) {
            let mut bytes = split.encode();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(Split::decode(&bytes).is_err());
        }

        /// Also with a checksum that matches, no bytes are a reason to panic or to allocate.
        #[test]
        fn any_bytes_are_a_split_or_refused(mut bytes: Vec<u8>, is_split in any::<bool>()) {
            if is_split {
                bytes.splice(0..0, MAGIC.iter().copied());
            }
            let checksum = crc32c(&bytes);
            bytes.extend(checksum.to_le_bytes());
            if let Ok(split) = Split::decode(&bytes) {
                prop_assert_eq!(Split::decode(&split.encode()), Ok(split));
            }
        }
    }
}
