//! BLAKE3 of a file, group by group, so that a range can be proven without the rest.
//!
//! BLAKE3 is a binary tree over pieces of 1 KiB. A group is an aligned part of a file of a power of
//! two bytes, so it is one subtree, and its *chaining value* is what the hash of the whole file
//! depends on. The hash is that of the ordinary BLAKE3: `b3sum` prints the same.

use std::fmt;

use blake3::{
    Hasher,
    hazmat::{ChainingValue, HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root},
};

use crate::integer::{u64_of, usize_of_u64};

/// Fewest bytes of a group.
pub const GROUP_BYTES_MIN: u64 = 64 << 10;
/// Most bytes of a group.
pub const GROUP_BYTES_MAX: u64 = 1 << 40;
/// Groups of all files of a storage; beyond, its groups are longer.
const GROUP_COUNT_MAX: u64 = 1 << 20;

/// A BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The hash of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The bytes of a group in a storage whose files have these lengths: as few as keep the seal small.
#[must_use]
pub fn group_bytes(lengths: &[u64]) -> u64 {
    let mut group = GROUP_BYTES_MIN;
    let count = |group| {
        let counts = lengths.iter().map(|&length| group_count(length, group));
        counts.fold(0, u64::saturating_add)
    };
    while count(group) > GROUP_COUNT_MAX && group < GROUP_BYTES_MAX {
        group = group.saturating_mul(2);
    }
    group
}

/// Chaining values that a seal has of a file of this length: none if the file is one group.
pub(super) fn group_count(length: u64, group: u64) -> u64 {
    if length <= group {
        return 0;
    }
    length.div_ceil(group)
}

/// Hashes a file whose bytes come one after another.
#[derive(Debug, Clone)]
pub struct FileHasher {
    group_bytes: u64,
    length: u64,
    groups: Vec<Digest>,
    /// The group that is not complete, or that may be the only one.
    last: Hasher,
    in_last: u64,
}

/// The hashes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHashes {
    /// Its length in bytes.
    pub length: u64,
    /// BLAKE3 of the whole file.
    pub hash: Digest,
    /// The chaining value of each group; none if the file is one group.
    pub groups: Vec<Digest>,
}

impl FileHasher {
    /// A hasher of groups of this many bytes.
    ///
    /// # Panics
    /// When they are no power of two, or too few.
    #[must_use]
    pub fn new(group_bytes: u64) -> Self {
        assert!(
            group_bytes.is_power_of_two() && group_bytes >= GROUP_BYTES_MIN,
            "a group is a subtree of BLAKE3"
        );
        Self {
            group_bytes,
            length: 0,
            groups: Vec::new(),
            last: Hasher::new(),
            in_last: 0,
        }
    }

    /// Adds the next bytes.
    pub fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.in_last == self.group_bytes {
                self.groups.push(Digest(self.last.finalize_non_root()));
                self.last = Hasher::new();
                self.last.set_input_offset(self.length);
                self.in_last = 0;
            }
            let room = usize_of_u64(self.group_bytes.saturating_sub(self.in_last));
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.last.update(now);
            self.in_last = self.in_last.saturating_add(u64_of(now.len()));
            self.length = self.length.saturating_add(u64_of(now.len()));
            bytes = later;
        }
    }

    /// The hashes of the file.
    #[must_use]
    pub fn finish(mut self) -> FileHashes {
        let hash = if self.groups.is_empty() {
            Digest(*self.last.finalize().as_bytes())
        } else {
            self.groups.push(Digest(self.last.finalize_non_root()));
            root_of(&self.groups)
        };
        FileHashes {
            length: self.length,
            hash,
            groups: self.groups,
        }
    }
}

/// The hash of a file of more than one group.
pub(super) fn root_of(groups: &[Digest]) -> Digest {
    let (left, right) = groups.split_at(left_of(groups));
    let root = merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash);
    Digest(*root.as_bytes())
}

/// The chaining value of these groups.
fn subtree(groups: &[Digest]) -> ChainingValue {
    match groups {
        [one] => one.0,
        more => {
            let (left, right) = more.split_at(left_of(more));
            merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

/// The groups in the left subtree: the largest power of two that leaves one for the right.
fn left_of(groups: &[Digest]) -> usize {
    assert!(groups.len() > 1, "one group has no subtrees");
    groups.len().div_ceil(2).next_power_of_two()
}

/// What [`FileHashes::groups`] or [`FileHashes::hash`] says of a group that begins at `offset`.
pub(super) fn group_hash(offset: u64, bytes: &[u8], is_only: bool) -> Digest {
    let mut hasher = Hasher::new();
    if is_only {
        return Digest(*hasher.update(bytes).finalize().as_bytes());
    }
    hasher.set_input_offset(offset).update(bytes);
    Digest(hasher.finalize_non_root())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn the_hash_of_groups_is_that_of_the_file(
            length in 0..2_000_000_usize,
            part in 1..300_000_usize,
            doubled in 0..3_u32,
        ) {
            let byte = |at: usize| (at.wrapping_mul(31) >> 7).to_le_bytes()[0];
            let bytes: Vec<u8> = (0..length).map(byte).collect();
            let group = GROUP_BYTES_MIN << doubled;
            let mut hasher = FileHasher::new(group);
            bytes.chunks(part).for_each(|part| hasher.extend(part));
            let found = hasher.finish();
            prop_assert_eq!((found.length, found.hash), (u64_of(length), Digest::of(&bytes)));
            prop_assert_eq!(u64_of(found.groups.len()), group_count(found.length, group));
            let mut offset = 0_u64;
            for (chunk, expected) in bytes.chunks(usize_of_u64(group)).zip(&found.groups) {
                prop_assert_eq!(group_hash(offset, chunk, false), *expected);
                offset = offset.saturating_add(u64_of(chunk.len()));
            }
        }
    }

    #[test]
    fn groups_grow_with_the_storage() {
        assert_eq!(group_bytes(&[]), GROUP_BYTES_MIN);
        assert_eq!(group_bytes(&[64 << 30]), GROUP_BYTES_MIN);
        assert_eq!(group_bytes(&[1 << 40]), 1 << 20);
        assert_eq!(group_bytes(&[1 << 39, 1 << 39]), 1 << 20);
        assert_eq!(group_bytes(&[u64::MAX; 4]), GROUP_BYTES_MAX);
    }
}
