//! What the blocks of a file are compared with.

use std::path::Path;

use storage_format::{
    checksum_file::PIECE_BYTES,
    paths::{FileName, FileRole},
    storage_file::StorageFile,
};

use crate::checksums::read_checksums;

/// What a file is according to the storage file; of a derived file, according to its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) length: u64,
    /// CRC32C of the whole file.
    pub(crate) checksum: u32,
}

/// The checksums of the blocks of a file.
#[derive(Debug)]
pub(super) enum Sums {
    /// The file is one block.
    Whole(u32),
    /// Of each piece of a data file.
    Pieces(Vec<u32>),
}

impl Expected {
    /// The checksums of a file of a storage; blocks the thread. A data file whose pieces are not
    /// known, or a checksum file that is damaged itself, makes the whole file one block.
    pub(super) fn sums(self, folder: &Path, own: &StorageFile, name: &str) -> Sums {
        let whole = Sums::Whole(self.checksum);
        let Ok(FileName::Data(data)) = name.parse() else {
            return whole;
        };
        let known = match read_checksums(folder, own) {
            None => return whole,
            Some(Ok(known)) => known,
            Some(Err(error)) => {
                tracing::error!(
                    %error, storage = %own.id,
                    "the checksums of pieces cannot be read, so data files are compared as a \
                     whole, which is slow; verify the storage"
                );
                return whole;
            }
        };
        let known = known.of(data).filter(|known| known.length == self.length);
        known.map_or(whole, |known| Sums::Pieces(known.pieces.clone()))
    }
}

impl Sums {
    /// Whether these are the checksums of pieces, or no others can be known.
    pub(super) fn are_final(&self, own: &StorageFile) -> bool {
        matches!(self, Self::Pieces(_)) || !own.lists(FileRole::Checksums)
    }

    /// Bytes of a block; the last one ends with the file.
    pub(super) fn block_bytes(&self) -> u64 {
        match self {
            Self::Whole(_) => u64::MAX,
            Self::Pieces(_) => PIECE_BYTES,
        }
    }

    /// Number of blocks.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Whole(_) => 1,
            Self::Pieces(pieces) => pieces.len(),
        }
    }

    /// The checksum of a block.
    pub(super) fn of(&self, block: usize) -> Option<u32> {
        match self {
            Self::Whole(checksum) => (block == 0).then_some(*checksum),
            Self::Pieces(pieces) => pieces.get(block).copied(),
        }
    }
}
