//! A cached result of a query over a finalized storage, `cache/*.cached`.
//!
//! ```text
//! magic "THCACHE\x02", bytes of the key u32, CRC32C of all other bytes u32, key, result
//! ```
//!
//! Little-endian. The file is derived: a damaged one is ignored.

use std::ops::Range;

use crate::checksum::{crc32c, crc32c_append};

/// Bytes before the key.
pub const HEAD_BYTES: usize = 16;
const MAGIC: [u8; 8] = *b"THCACHE\x02";
const CHECKSUM: usize = HEAD_BYTES - 4;

/// The ranges of key and result in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedFile {
    /// The query that was run.
    pub key: Range<usize>,
    /// Its result.
    pub result: Range<usize>,
}

/// The bytes of the file.
pub fn encode(key: &str, result: &[u8]) -> Vec<u8> {
    let length = u32::try_from(key.len()).expect("the length of a query is limited");
    let mut file = Vec::new();
    file.extend(MAGIC);
    file.extend(length.to_le_bytes());
    file.extend([0; 4]);
    file.extend(key.as_bytes());
    file.extend(result);
    let checksum = checksum(&file);
    file[CHECKSUM..HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
    file
}

fn checksum(file: &[u8]) -> u32 {
    let (front, body) = file.split_at(HEAD_BYTES);
    crc32c_append(crc32c(&front[..CHECKSUM]), body)
}

/// Whether a file that begins with these bytes is a cached result.
pub fn is_cached_file(head: &[u8]) -> bool {
    head.starts_with(&MAGIC)
}

/// The ranges of key and result; `None` when the file is damaged or something else.
pub fn decode(file: &[u8]) -> Option<CachedFile> {
    let word = |at: usize| {
        let bytes = file.get(at..)?.get(..4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let (length, stored) = (word(8)?, word(12)?);
    let key = HEAD_BYTES..HEAD_BYTES.checked_add(usize::try_from(length).ok()?)?;
    let is_intact = is_cached_file(file) && checksum(file) == stored && key.end <= file.len();
    is_intact.then_some(CachedFile {
        result: key.end..file.len(),
        key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_comes_back_with_its_key_and_damage_is_detected() {
        let file = encode("count", b"{\"count\":7}\n");
        let found = decode(&file).unwrap();
        assert_eq!(&file[found.key], b"count");
        assert_eq!(&file[found.result], b"{\"count\":7}\n");
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None, "byte {at}");
            assert_eq!(decode(&file[..at]), None, "cut at {at}");
        }
    }
}
