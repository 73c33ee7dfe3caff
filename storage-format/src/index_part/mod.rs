//! An index part (`.index`): one saved piece of the index tree of a storage.
//!
//! ```text
//! header | block of leaf | block of leaf | … | time bases | footer | trailer
//! ```
//!
//! A reader reads the last [`TRAILER_BYTES`] bytes, then the footer that they point at, and then
//! only the blocks of the leaves it needs. The footer contains the checksums of the blocks, the
//! trailer that of the footer. A leaf may occur in several parts of a storage: each part continues
//! where the part before it ends, and `covered` gives its range in bytes of the leaf.
//!
//! Parts are never changed. A merged part has the contents of several parts with consecutive
//! ordinals and takes their place: its header gives their ordinals, so a reader that finds it and
//! them knows that they are the same packets. It may describe a leaf with several records, one
//! after another.

mod bases;
mod block;
mod builder;
mod extent;
mod footer;
mod restore;

pub use bases::TimeBases;
pub use block::{ArrayBlock, ENTRY_BYTES, PacketEntry};
pub use builder::{IndexPartBuilder, NewLeaf, StoredBlock};
pub use extent::{EXTENT_BYTES, Extent};
pub use footer::{
    DataFileEntry, Footer, LeafEntry, LeafNumbers, LogPosition, TRAILER_BYTES, Trailer,
};

use crate::{
    FormatError, FormatErrorKind, StorageId,
    checksum::crc32c,
    layout::{check_checksum, check_version, get, get_i64, get_u32, get_u64, put},
};

/// Size of the header.
///
/// ```text
/// offset size field
///      0    8 magic "THINDEX\0"
///      8    2 format version
///     10    6 zero
///     16   16 storage id
///     32    8 ordinal of the part within the storage, from 0
///     40    8 time of creation, ns since the epoch (i64)
///     48    8 number of ordinals before that whose parts it replaces; 0: it is not merged
///     56    4 zero
///     60    4 CRC32C of bytes 0 to 59
/// ```
pub const HEADER_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"THINDEX\0";
/// Format version of the index parts that are written; version 1 is read, too.
const VERSION: u16 = 2;
const WHAT: &str = "index part header";

/// The header of an index part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexPartHeader {
    /// The storage.
    pub storage: StorageId,
    /// Ordinal of the part within the storage; parts are read in this order. Of a merged part, the
    /// last of those that it replaces.
    pub ordinal: u64,
    /// The first ordinal that it replaces; its own, unless it is merged.
    pub first_ordinal: u64,
    /// Time of creation, ns since the epoch.
    pub created: i64,
}

impl IndexPartHeader {
    /// The bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, VERSION.to_le_bytes());
        put(&mut bytes, 16, *self.storage.as_bytes());
        put(&mut bytes, 32, self.ordinal.to_le_bytes());
        put(&mut bytes, 40, self.created.to_le_bytes());
        let before = self.ordinal.checked_sub(self.first_ordinal);
        let before = before.expect("a merged part replaces ordinals before its own");
        put(&mut bytes, 48, before.to_le_bytes());
        let checksum = crc32c(&bytes[..60]);
        put(&mut bytes, 60, checksum.to_le_bytes());
        bytes
    }

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// When the bytes are too few, damaged or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        check_version(WHAT, bytes, MAGIC, HEADER_BYTES, 1..=VERSION)?;
        check_checksum(WHAT, 60, get_u32(bytes, 60), crc32c(&bytes[..60]))?;
        let storage = StorageId::from_bytes(get(bytes, 16));
        Self::unchecked(&get(bytes, 0), storage).ok_or_else(|| {
            let name = "replaced ordinals";
            FormatError::new(WHAT, 48, FormatErrorKind::Field { name })
        })
    }

    /// What the header of a part of `storage` says, although it may be damaged; `None` if that is
    /// impossible.
    #[must_use]
    pub fn unchecked(bytes: &[u8; HEADER_BYTES], storage: StorageId) -> Option<Self> {
        let ordinal = get_u64(bytes, 32);
        Some(Self {
            storage,
            ordinal,
            first_ordinal: ordinal.checked_sub(get_u64(bytes, 48))?,
            created: get_i64(bytes, 40),
        })
    }
}
