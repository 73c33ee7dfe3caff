//! The tier file (`.tier`): where the files of a finalized storage are in an object store, and
//! whether their bytes may be absent here.
//!
//! It is local: another server that reads the same storage from the store has its own. The CRC32C
//! of each granule of each file is in a second file (`.tier-sums`), little-endian, one file after
//! the other, so that a start does not read them. The file is an envelope with the magic `THTIER`.

use serde::{Deserialize, Serialize};

use crate::{
    FormatError, FormatErrorKind, StorageId,
    checksum::crc32c,
    envelope,
    integer::{u64_of, usize_of_u64},
};

const MAGIC: [u8; 8] = *b"THTIER\0\0";
const WHAT: &str = "tier file";

/// Bytes of a granule: the smallest part of a file that is fetched, and that has a checksum. The
/// last granule of a file ends with the file.
pub const GRANULE_BYTES: u64 = 64 << 10;
/// Bytes of the checksum of a granule.
const SUM_BYTES: u64 = 4;

/// The content of a tier file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierFile {
    /// The storage.
    pub storage: StorageId,
    /// The store, as its URL without credentials.
    pub store: String,
    /// The nonce of the seal in the store.
    pub seal: String,
    /// When the storage was sealed there, ns since the epoch.
    pub sealed: i64,
    /// Whether it was uploaded from here; otherwise it came from the store.
    pub is_own: bool,
    /// Whether bytes of `files` may be absent here.
    pub is_evicted: bool,
    /// Number of the last change of labels that is known here; 0 for none.
    pub label_number: u64,
    /// CRC32C of name, description and labels as they were then: others are to be noted there.
    pub labels_checksum: u32,
    /// The files that are objects of their own.
    pub files: Vec<TieredFile>,
}

/// A file that is an object of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TieredFile {
    /// Its name in the folder of the storage.
    pub name: String,
    /// The key of the object.
    pub key: String,
    /// Length in bytes.
    pub length: u64,
    /// CRC32C of the complete file.
    pub checksum: u32,
    /// Where the checksums of its granules begin in the second file, bytes.
    pub sums_at: u64,
    /// CRC32C of these checksums.
    pub sums_checksum: u32,
}

impl TieredFile {
    /// Number of its granules.
    #[must_use]
    pub fn granules(&self) -> u64 {
        self.length.div_ceil(GRANULE_BYTES)
    }

    /// Length of the checksums of its granules, bytes.
    #[must_use]
    pub fn sums_length(&self) -> u64 {
        self.granules().saturating_mul(SUM_BYTES)
    }

    /// Checks the checksums of its granules, which were read from the second file.
    ///
    /// # Errors
    /// When they are damaged.
    pub fn check_sums(&self, bytes: &[u8]) -> Result<(), FormatError> {
        let (needed, available) = (self.sums_length(), u64_of(bytes.len()));
        let kind = if needed != available {
            FormatErrorKind::Truncated { needed, available }
        } else if self.sums_checksum != crc32c(bytes) {
            FormatErrorKind::Checksum {
                stored: self.sums_checksum,
                computed: crc32c(bytes),
            }
        } else {
            return Ok(());
        };
        Err(FormatError::new(
            "checksums of granules",
            self.sums_at,
            kind,
        ))
    }
}

/// The checksum of a granule, from the checksums of all granules of its file.
#[must_use]
pub fn granule_checksum(sums: &[u8], granule: u64) -> Option<u32> {
    let at = usize_of_u64(granule.checked_mul(SUM_BYTES)?);
    let bytes = sums.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// Computes the checksums of the granules of a file that arrives in pieces.
#[derive(Debug, Default)]
pub struct GranuleSums {
    sums: Vec<u8>,
    current: u32,
    filled: u64,
}

impl GranuleSums {
    /// The next bytes of the file.
    pub fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize_of_u64(GRANULE_BYTES.saturating_sub(self.filled));
            let (part, rest) = bytes.split_at(room.min(bytes.len()));
            self.current = crate::checksum::crc32c_append(self.current, part);
            self.filled = self.filled.saturating_add(u64_of(part.len()));
            if self.filled == GRANULE_BYTES {
                self.end_granule();
            }
            bytes = rest;
        }
    }

    fn end_granule(&mut self) {
        self.sums.extend(self.current.to_le_bytes());
        (self.current, self.filled) = (0, 0);
    }

    /// The checksums, little-endian, once the file has ended.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        if self.filled > 0 {
            self.end_granule();
        }
        self.sums
    }
}

impl TierFile {
    /// The bytes of the file.
    ///
    /// # Errors
    /// When the content exceeds the limits of an envelope.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        envelope::encode(WHAT, MAGIC, self)
    }

    /// Decodes a tier file.
    ///
    /// # Errors
    /// When the bytes are damaged, of another version or something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        envelope::decode(WHAT, MAGIC, bytes)
    }

    /// Checks that the file belongs to the storage `id`, in whose folder it is.
    ///
    /// # Errors
    /// When it belongs to another storage.
    pub fn check_id(&self, id: StorageId) -> Result<(), FormatError> {
        if self.storage == id {
            return Ok(());
        }
        Err(FormatError::new(WHAT, 0, FormatErrorKind::Foreign))
    }

    /// Length of all files in the store that are objects of their own.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let lengths = self.files.iter().map(|file| file.length);
        lengths.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_granules_do_not_depend_on_the_pieces() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        let mut whole = GranuleSums::default();
        whole.extend(&bytes);
        let whole = whole.finish();
        assert_eq!(whole.len(), 4 * 4);
        for step in [1_usize, 1000, 65_536, 65_537, 131_072] {
            let mut sums = GranuleSums::default();
            bytes.chunks(step).for_each(|piece| sums.extend(piece));
            assert_eq!(sums.finish(), whole, "pieces of {step} bytes");
        }
        let last = crc32c(&bytes[3 * 65_536..]);
        assert_eq!(granule_checksum(&whole, 3), Some(last));
        assert_eq!(granule_checksum(&whole, 4), None);
        assert!(GranuleSums::default().finish().is_empty());
    }

    fn file(length: u64, sums: &[u8]) -> TieredFile {
        TieredFile {
            name: "0000000000000000.itdata".to_owned(),
            key: "key".to_owned(),
            length,
            checksum: 7,
            sums_at: 40,
            sums_checksum: crc32c(sums),
        }
    }

    fn tier_file(files: Vec<TieredFile>) -> TierFile {
        TierFile {
            storage: StorageId::from_bytes([3; 16]),
            store: "s3://bucket".to_owned(),
            seal: "nonce".to_owned(),
            sealed: -5,
            is_own: true,
            is_evicted: false,
            label_number: 9,
            labels_checksum: 8,
            files,
        }
    }

    #[test]
    fn a_tier_file_is_read_as_it_was_written_and_is_of_its_storage() {
        let value = tier_file(vec![file(65_537, b"12345678"), file(9, b"1234")]);
        let bytes = value.encode().unwrap();
        assert_eq!(TierFile::decode(&bytes), Ok(value.clone()));
        assert_eq!(value.check_id(value.storage), Ok(()));
        let other = value.check_id(StorageId::from_bytes([4; 16]));
        assert_eq!(other.unwrap_err().kind, FormatErrorKind::Foreign);
        for length in 0..bytes.len() {
            assert!(TierFile::decode(&bytes[..length]).is_err(), "{length}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            // Two bytes of the header are a reserve.
            if let Ok(read) = TierFile::decode(&damaged) {
                assert_eq!(read, value, "byte {at}");
            }
        }
    }

    #[test]
    fn lengths_of_tiered_files_add_up() {
        for (lengths, expected) in [(&[][..], 0), (&[5, 7, 0], 12), (&[u64::MAX, 1], u64::MAX)] {
            let files = lengths.iter().map(|&length| file(length, b"")).collect();
            assert_eq!(tier_file(files).bytes(), expected);
        }
    }

    #[test]
    fn checksums_of_granules_are_complete_and_intact() {
        for (length, granules) in [(0, 0), (1, 1), (65_536, 1), (65_537, 2), (131_073, 3)] {
            let bytes: Vec<u8> = (0..length).map(|at: u64| at.to_le_bytes()[0]).collect();
            let mut sums = GranuleSums::default();
            sums.extend(&bytes);
            let sums = sums.finish();
            let file = file(length, &sums);
            assert_eq!(file.granules(), granules);
            assert_eq!(file.sums_length(), 4 * granules);
            assert_eq!(file.check_sums(&sums), Ok(()));
            let longer = [&sums[..], &[0; 4]].concat();
            let error = file.check_sums(&longer).unwrap_err();
            assert!(matches!(error.kind, FormatErrorKind::Truncated { .. }));
            for at in 0..sums.len() {
                let mut damaged = sums.clone();
                damaged[at] ^= 1;
                let error = file.check_sums(&damaged).unwrap_err();
                assert!(matches!(error.kind, FormatErrorKind::Checksum { .. }));
                assert_eq!(error.offset, 40, "where the checksums begin");
                assert!(file.check_sums(&sums[..at]).is_err());
            }
        }
    }
}
