//! The checksum file (`.checksums`): CRC32C of each piece of each data file of a finalized storage.
//!
//! The checksum of a whole file proves that it is damaged; these say where, and let a reader check
//! a range without the rest.
//!
//! ```text
//! offset size field
//!      0    8 magic "THSUMS\0\0"
//!      8    2 format version
//!     10    2 zero
//!     12    4 number of data files
//!     16   16 storage id
//!     32    8 length of a piece, bytes: 4 MiB
//!     40    8 number of pieces of all files
//!     48   12 zero
//!     60    4 CRC32C of bytes 0 to 59
//!     64      for each data file, by id: 8 id, 8 length in bytes
//!             for each data file, in the same order: 4 CRC32C of each piece
//!      n    4 CRC32C of bytes 64 to n
//! ```
//!
//! The last piece of a file ends with the file. A file without bytes has no piece.

use crate::{
    DataFileId, FORMAT_VERSION, FormatError, FormatErrorKind, StorageId,
    checksum::{crc32c, crc32c_append, crc32c_combine},
    integer::{u64_of, usize_of, usize_of_u64},
    layout::{Cursor, check_checksum, check_version, get, get_u32, get_u64, put},
    limits::DATA_FILE_COUNT_MAX,
};

/// Bytes of a piece.
pub const PIECE_BYTES: u64 = 4 << 20;
const PIECE_LENGTH: u32 = 4 << 20;
const HEADER_BYTES: usize = 64;
const FILE_BYTES: usize = 16;
const MAGIC: [u8; 8] = *b"THSUMS\0\0";
const WHAT: &str = "checksum file";

/// The content of a checksum file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecksumFile {
    /// The storage.
    pub storage: StorageId,
    /// The data files, by id.
    pub files: Vec<FileChecksums>,
}

/// The checksums of a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChecksums {
    /// The data file.
    pub file: DataFileId,
    /// Its length in bytes.
    pub length: u64,
    /// CRC32C of each piece.
    pub pieces: Vec<u32>,
}

impl ChecksumFile {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let pieces = self.files.iter().map(|file| file.pieces.len());
        let pieces = pieces.fold(0, usize::saturating_add);
        let mut bytes = vec![0; HEADER_BYTES];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, FORMAT_VERSION.to_le_bytes());
        let count = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        assert!(
            count <= DATA_FILE_COUNT_MAX,
            "a storage has a bounded number of data files"
        );
        put(&mut bytes, 12, count.to_le_bytes());
        put(&mut bytes, 16, *self.storage.as_bytes());
        put(&mut bytes, 32, PIECE_BYTES.to_le_bytes());
        put(&mut bytes, 40, u64_of(pieces).to_le_bytes());
        let checksum = crc32c(&bytes[..60]);
        put(&mut bytes, 60, checksum.to_le_bytes());
        for file in &self.files {
            assert_eq!(
                u64_of(file.pieces.len()),
                file.length.div_ceil(PIECE_BYTES),
                "a file has a checksum for each of its pieces"
            );
            bytes.extend(file.file.0.to_le_bytes());
            bytes.extend(file.length.to_le_bytes());
        }
        for file in &self.files {
            bytes.extend(file.pieces.iter().flat_map(|piece| piece.to_le_bytes()));
        }
        let checksum = crc32c(&bytes[HEADER_BYTES..]);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// Checks that the file belongs to the storage `id`, in whose folder it is.
    ///
    /// # Errors
    /// When it belongs to another storage.
    pub fn check_id(&self, id: StorageId) -> Result<(), FormatError> {
        if self.storage == id {
            return Ok(());
        }
        Err(FormatError::new(WHAT, 16, FormatErrorKind::Foreign))
    }

    /// Decodes a checksum file.
    ///
    /// # Errors
    /// When the bytes are damaged, of another version or something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        check_version(
            WHAT,
            bytes,
            MAGIC,
            HEADER_BYTES,
            FORMAT_VERSION..=FORMAT_VERSION,
        )?;
        check_checksum(WHAT, 60, get_u32(bytes, 60), crc32c(&bytes[..60]))?;
        let fault = |offset, name| FormatError::new(WHAT, offset, FormatErrorKind::Field { name });
        if get_u64(bytes, 32) != PIECE_BYTES {
            return Err(fault(32, "length of a piece"));
        }
        let storage = StorageId::from_bytes(get(bytes, 16));
        let (count, pieces) = (get_u32(bytes, 12), get_u64(bytes, 40));
        let of_files = usize_of(count).saturating_mul(FILE_BYTES);
        let of_pieces = usize_of_u64(pieces).saturating_mul(4);
        // Nothing is allocated for files and pieces of which the bytes are not there.
        let end = HEADER_BYTES.saturating_add(of_files);
        let end = end.saturating_add(of_pieces);
        let needed = end.saturating_add(4);
        if bytes.len() < needed {
            return Err(FormatError::truncated(WHAT, needed, bytes.len()));
        }
        if bytes.len() > needed {
            return Err(fault(u64_of(needed), "bytes after the checksums"));
        }
        let computed = crc32c(&bytes[HEADER_BYTES..end]);
        check_checksum(WHAT, u64_of(end), get_u32(bytes, end), computed)?;
        let mut cursor = Cursor::new(WHAT, &bytes[HEADER_BYTES..end]);
        let mut files = Vec::with_capacity(usize_of(count));
        for _ in 0..count {
            files.push(FileChecksums {
                file: DataFileId(cursor.u64()?),
                length: cursor.u64()?,
                pieces: Vec::new(),
            });
        }
        if !files.is_sorted_by(|a, b| a.file < b.file) {
            return Err(fault(u64_of(HEADER_BYTES), "order of the data files"));
        }
        for file in &mut files {
            let count = usize_of_u64(file.length.div_ceil(PIECE_BYTES));
            let taken = cursor.take(count.saturating_mul(4))?;
            file.pieces = taken.chunks_exact(4).map(|sum| get_u32(sum, 0)).collect();
        }
        if !cursor.is_at_end() {
            return Err(cursor.fault("number of pieces"));
        }
        Ok(Self { storage, files })
    }

    /// The checksums of a data file.
    #[must_use]
    pub fn of(&self, file: DataFileId) -> Option<&FileChecksums> {
        let at = self.files.binary_search_by_key(&file, |entry| entry.file);
        self.files.get(at.ok()?)
    }
}

/// The checksums of the bytes of a file that come one after another: of the whole and of each
/// piece. Each byte is read once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PieceSums {
    length: u64,
    /// CRC32C of the complete pieces together.
    before: u32,
    /// CRC32C of each complete piece.
    pieces: Vec<u32>,
    /// CRC32C of the bytes after them.
    last: u32,
}

impl PieceSums {
    /// Adds the next bytes.
    pub fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let in_piece = self.length % PIECE_BYTES;
            let room = usize_of_u64(PIECE_BYTES.saturating_sub(in_piece));
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.last = crc32c_append(self.last, now);
            self.length = self.length.saturating_add(u64_of(now.len()));
            if now.len() == room {
                self.before = crc32c_combine(self.before, self.last, PIECE_LENGTH);
                self.pieces.push(self.last);
                self.last = 0;
            }
            bytes = later;
        }
    }

    /// Number of bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// CRC32C of all bytes.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        let rest = u32::try_from(self.length % PIECE_BYTES);
        let rest = rest.expect("a piece has less than 4 GiB");
        crc32c_combine(self.before, self.last, rest)
    }

    /// The checksums of `file`, which has these bytes.
    #[must_use]
    pub fn finish(mut self, file: DataFileId) -> FileChecksums {
        if !self.length.is_multiple_of(PIECE_BYTES) {
            self.pieces.push(self.last);
        }
        FileChecksums {
            file,
            length: self.length,
            pieces: self.pieces,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn pieces_and_whole_are_the_checksums_of_their_bytes(
            length in 0..9_000_000_usize,
            parts in prop::collection::vec(1..5_000_000_usize, 1..8),
        ) {
            let byte = |at: usize| (at.wrapping_mul(31) >> 7).to_le_bytes()[0];
            let bytes: Vec<u8> = (0..length).map(byte).collect();
            let (mut sums, mut left) = (PieceSums::default(), &bytes[..]);
            for part in parts {
                let (now, later) = left.split_at(part.min(left.len()));
                sums.extend(now);
                left = later;
            }
            sums.extend(left);
            prop_assert_eq!((sums.length(), sums.checksum()), (u64_of(length), crc32c(&bytes)));
            let found = sums.finish(DataFileId(7)).pieces;
            let expected: Vec<_> = bytes.chunks(usize_of_u64(PIECE_BYTES)).map(crc32c).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
