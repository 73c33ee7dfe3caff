//! A kept answer of a query over a finalized storage, `cache/*.cached`.
//!
//! ```text
//! magic "THCACHE\x02", bytes of the key u32, CRC32C of all other bytes u32, key, answer
//! ```
//!
//! Little-endian. Derived and disposable: one that is damaged is as good as none.

use std::ops::Range;

use crate::checksum::{crc32c, crc32c_append};

/// Bytes in front of the key.
pub const HEAD_BYTES: usize = 16;
const MAGIC: [u8; 8] = *b"THCACHE\x02";

/// Where key and answer of a whole file lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedFile {
    /// What was asked.
    pub key: Range<usize>,
    /// What was answered.
    pub answer: Range<usize>,
}

/// The bytes of the file.
pub fn encode(key: &str, answer: &[u8]) -> Vec<u8> {
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let mut file = Vec::with_capacity(HEAD_BYTES + key.len() + answer.len());
    file.extend(MAGIC);
    file.extend(length.to_le_bytes());
    file.extend([0; 4]);
    file.extend(key.as_bytes());
    file.extend(answer);
    let checksum = checksum(&file);
    file[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
    file
}

fn checksum(file: &[u8]) -> u32 {
    let (front, body) = file.split_at(HEAD_BYTES);
    crc32c_append(crc32c(&front[..HEAD_BYTES - 4]), body)
}

/// Whether a file that begins like this is one of these.
pub fn is_cached_file(head: &[u8]) -> bool {
    head.starts_with(&MAGIC)
}

/// Finds key and answer; `None` when the file is none of these, or damaged.
pub fn decode(file: &[u8]) -> Option<CachedFile> {
    let word = |at: usize| {
        let bytes = file.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let (length, stored) = (word(8)?, word(12)?);
    let key = HEAD_BYTES..HEAD_BYTES.checked_add(usize::try_from(length).ok()?)?;
    let is_whole = is_cached_file(file) && checksum(file) == stored && key.end <= file.len();
    is_whole.then_some(CachedFile {
        answer: key.end..file.len(),
        key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_with_its_key_and_damage_is_noticed() {
        let file = encode("count", b"{\"count\":7}\n");
        let found = decode(&file).unwrap();
        assert_eq!(&file[found.key], b"count");
        assert_eq!(&file[found.answer], b"{\"count\":7}\n");
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None, "byte {at}");
            assert_eq!(decode(&file[..at]), None, "cut at {at}");
        }
    }
}
