//! Extents: where the bytes of a leaf are.
//!
//! The block of a leaf ends with its extents, in the order of the leaf:
//!
//! ```text
//! offset size field of an extent
//!      0    8 offset of the bytes in the leaf
//!      8    8 id of the data file
//!     16    8 offset of the bytes in the data file
//!     24    8 number of bytes
//! ```
//!
//! A part of format version 1 has none: the bytes of a leaf are the data file with its id.

use std::ops::Range;

use crate::{
    DataFileId, FormatError, FormatErrorKind,
    integer::u64_of,
    layout::{get_u64, put},
};

/// Size of an encoded extent.
pub const EXTENT_BYTES: usize = 32;
const WHAT: &str = "index extent";

/// Consecutive bytes of a leaf that are consecutive in a data file, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the bytes in the leaf.
    pub leaf_offset: u64,
    /// The data file.
    pub file: DataFileId,
    /// Offset of the bytes in the data file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl Extent {
    /// Offset in the leaf of the byte after the last one.
    #[must_use]
    pub fn leaf_end(&self) -> u64 {
        self.leaf_offset.saturating_add(self.length)
    }

    /// The part of the extent with the bytes `range` of the leaf; `None` if it has none of them.
    #[must_use]
    pub fn intersection(&self, range: &Range<u64>) -> Option<Extent> {
        let start = self.leaf_offset.max(range.start);
        let end = self.leaf_end().min(range.end);
        (start < end).then(|| Extent {
            leaf_offset: start,
            file: self.file,
            offset: self
                .offset
                .saturating_add(start.saturating_sub(self.leaf_offset)),
            length: end.saturating_sub(start),
        })
    }

    /// Appends `next` if it continues this extent in the leaf and in the file; whether it did.
    pub fn append(&mut self, next: &Extent) -> bool {
        let continues = self.file == next.file
            && self.leaf_end() == next.leaf_offset
            && self.offset.saturating_add(self.length) == next.offset;
        if continues {
            self.length = self.length.saturating_add(next.length);
        }
        continues
    }

    pub(super) fn encode(&self) -> [u8; EXTENT_BYTES] {
        assert!(
            self.length > 0
                && self.leaf_offset.checked_add(self.length).is_some()
                && self.offset.checked_add(self.length).is_some(),
            "an extent has bytes, and its ends are below 2^64"
        );
        let mut bytes = [0; EXTENT_BYTES];
        put(&mut bytes, 0, self.leaf_offset.to_le_bytes());
        put(&mut bytes, 8, self.file.0.to_le_bytes());
        put(&mut bytes, 16, self.offset.to_le_bytes());
        put(&mut bytes, 24, self.length.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            leaf_offset: get_u64(bytes, 0),
            file: DataFileId(get_u64(bytes, 8)),
            offset: get_u64(bytes, 16),
            length: get_u64(bytes, 24),
        }
    }
}

/// The extents in `bytes`, which must cover the bytes `covered` of their leaf without a gap.
pub(super) fn decode_extents(
    bytes: &[u8],
    covered: &Range<u64>,
) -> Result<Vec<Extent>, FormatError> {
    let mut extents = Vec::with_capacity(bytes.len() / EXTENT_BYTES);
    let mut next = covered.start;
    for (at, record) in bytes.chunks_exact(EXTENT_BYTES).enumerate() {
        let extent = Extent::decode(record);
        let end = extent.leaf_offset.checked_add(extent.length);
        let in_file = extent.offset.checked_add(extent.length);
        let is_valid = extent.leaf_offset == next && extent.length > 0 && in_file.is_some();
        match end {
            Some(end) if is_valid && end <= covered.end => next = end,
            _ => {
                let offset = u64_of(at.saturating_mul(EXTENT_BYTES));
                let kind = FormatErrorKind::Field { name: "extent" };
                return Err(FormatError::new(WHAT, offset, kind));
            }
        }
        extents.push(extent);
    }
    if next == covered.end {
        return Ok(extents);
    }
    let kind = FormatErrorKind::Field { name: "extents" };
    Err(FormatError::new(WHAT, u64_of(bytes.len()), kind))
}

/// The extent among the encoded ones that contains the byte `offset` of the leaf.
pub(super) fn find_extent(bytes: &[u8], offset: u64) -> Option<Extent> {
    let at = |index: usize| {
        let start = index.saturating_mul(EXTENT_BYTES);
        let record = bytes.get(start..start.saturating_add(EXTENT_BYTES))?;
        Some(Extent::decode(record))
    };
    let (mut low, mut high) = (0, bytes.len() / EXTENT_BYTES);
    while low < high {
        let middle = usize::midpoint(low, high);
        if at(middle)?.leaf_offset <= offset {
            low = middle.saturating_add(1);
        } else {
            high = middle;
        }
    }
    let found = at(low.checked_sub(1)?)?;
    (found.leaf_offset..found.leaf_end())
        .contains(&offset)
        .then_some(found)
}
