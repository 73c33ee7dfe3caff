//! The name of a file in a trace.

use std::{fmt, sync::Arc};

use crate::FileClass;

/// The path, class and storage of a file. Created once when a file is opened; clones share it.
#[derive(Clone)]
pub struct FileName(Arc<Inner>);

struct Inner {
    path: Box<str>,
    class: FileClass,
    storage: Option<[u8; 16]>,
    leaf: u64,
    hash: u64,
}

impl FileName {
    pub(crate) fn new(path: Box<str>, class: FileClass, storage: Option<[u8; 16]>) -> Self {
        let leaf = leaf_of(&path);
        let hash = hash(path.as_bytes());
        Self(Arc::new(Inner {
            path,
            class,
            storage,
            leaf,
            hash,
        }))
    }

    /// The path below the data folder.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// The class of the file.
    #[must_use]
    pub fn class(&self) -> FileClass {
        self.0.class
    }

    /// The id of the storage that contains the file.
    #[must_use]
    pub fn storage(&self) -> Option<[u8; 16]> {
        self.0.storage
    }

    /// The leaf in the name of the file; 0 for a file of no leaf.
    #[must_use]
    pub fn leaf(&self) -> u64 {
        self.0.leaf
    }

    /// Whether both are clones of one name.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A hash of the path, the same in every run.
    pub(crate) fn hash(&self) -> u64 {
        self.0.hash
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileName").field(&self.path()).finish()
    }
}

/// The files of a leaf have its number as their name, 16 hexadecimal digits. Index parts have such
/// names, too, but their numbers are not those of leaves.
fn leaf_of(path: &str) -> u64 {
    const LEAF_FILES: [&str; 3] = ["itdata", "idx", "pidx"];
    let name = path.rsplit('/').next().unwrap_or_default();
    match name.split_once('.') {
        Some((number, ending)) if number.len() == 16 && LEAF_FILES.contains(&ending) => {
            u64::from_str_radix(number, 16).unwrap_or(0)
        }
        _ => 0,
    }
}

/// FNV-1a, finished so that every bit depends on all bytes.
fn hash(bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    let sum = bytes.iter().fold(start, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(sum)
}

/// A bijection that spreads every bit over all (splitmix64's finisher).
pub(crate) fn mix(value: u64) -> u64 {
    let mut value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
