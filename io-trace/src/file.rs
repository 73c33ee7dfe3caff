//! A file as a trace names it.

use std::{fmt, sync::Arc};

use crate::{Access, FileClass, Operation, Started, Tracer};

/// The name, class and storage of a file, and the tracer that its operations are told to. Made
/// once when a file is opened; clones share it.
#[derive(Clone)]
pub struct FileTag(Arc<Inner>);

struct Inner {
    tracer: Arc<Tracer>,
    path: Box<str>,
    class: FileClass,
    storage: Option<[u8; 16]>,
    leaf: u64,
    hash: u64,
}

impl FileTag {
    /// The file with this `path` below the data folder.
    #[must_use]
    pub fn new(
        tracer: &Arc<Tracer>,
        path: impl Into<Box<str>>,
        class: FileClass,
        storage: Option<[u8; 16]>,
    ) -> Self {
        let path = path.into();
        let leaf = leaf_of(&path);
        let hash = hash(path.as_bytes());
        Self(Arc::new(Inner {
            tracer: Arc::clone(tracer),
            path,
            class,
            storage,
            leaf,
            hash,
        }))
    }

    /// Its path below the data folder.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// What it is.
    #[must_use]
    pub fn class(&self) -> FileClass {
        self.0.class
    }

    /// The id of the storage that it belongs to.
    #[must_use]
    pub fn storage(&self) -> Option<[u8; 16]> {
        self.0.storage
    }

    /// The leaf that its name tells: 0 for a file of no leaf.
    #[must_use]
    pub fn leaf(&self) -> u64 {
        self.0.leaf
    }

    /// Whether both share what [`FileTag::new`] made.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A hash of its path, the same in every run.
    pub(crate) fn hash(&self) -> u64 {
        self.0.hash
    }

    /// To be called before an operation.
    #[inline]
    #[must_use]
    pub fn begin(&self) -> Started {
        self.0.tracer.begin()
    }

    /// To be called after an operation; `access` is only called while the tracer is on.
    #[inline]
    pub fn end(&self, started: Started, operation: Operation, access: impl FnOnce() -> Access) {
        if let Some(started) = started.0 {
            self.0.tracer.push(self, started, operation, access());
        }
    }
}

impl fmt::Debug for FileTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileTag").field(&self.path()).finish()
    }
}

/// Files of a leaf are named by its number, 16 hexadecimal digits; so are index parts, by a number
/// that is no leaf's.
fn leaf_of(path: &str) -> u64 {
    const OF_A_LEAF: [&str; 3] = ["itdata", "idx", "pidx"];
    let name = path.rsplit('/').next().unwrap_or_default();
    match name.split_once('.') {
        Some((number, ending)) if number.len() == 16 && OF_A_LEAF.contains(&ending) => {
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
