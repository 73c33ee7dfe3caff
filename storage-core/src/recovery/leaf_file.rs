//! Recovery of a data file of format version 1: the file of one leaf.

use std::{path::PathBuf, sync::Arc};

use storage_format::{
    FormatError, FormatErrorKind, LeafId, StorageId,
    checksum::crc32c,
    data_file::{DataFileHeader, HEADER_BYTES},
    index_part::PacketEntry,
};

use crate::{
    Progress, StorageError,
    io_thread::Tail,
    scan::{FrameScanner, ScanError},
    tree::PacketOrder,
};

/// A data file to scan from the end of the index parts.
#[derive(Debug)]
pub(super) struct LeafScan {
    pub(super) storage: StorageId,
    pub(super) leaf: LeafId,
    pub(super) path: PathBuf,
    pub(super) covered: Tail,
    /// The order that the frames must follow.
    pub(super) order: PacketOrder,
    pub(super) torn_bytes_max: u64,
    pub(super) progress: Arc<Progress>,
}

/// The content of a data file after the bytes that index parts cover.
#[derive(Debug, Default)]
pub(super) struct LeafFound {
    /// The header, if no part contains the leaf.
    pub(super) header: Option<DataFileHeader>,
    pub(super) entries: Vec<PacketEntry>,
    pub(super) tail: Tail,
    pub(super) damage: Option<StorageError>,
}

impl LeafScan {
    pub(super) fn run(&self) -> Result<LeafFound, StorageError> {
        let mut found = LeafFound {
            tail: self.covered,
            ..LeafFound::default()
        };
        if self.covered == Tail::default() && !self.read_header(&mut found)? {
            return Ok(found);
        }
        let mut scanner = self.scanner(found.tail)?;
        if let Some(error) = self.missing_bytes(&scanner) {
            found.damage = Some(error);
            return Ok(found);
        }
        let mut order = self.order;
        loop {
            found.tail = scanner.tail();
            match scanner.next(true) {
                Ok(Some(scanned)) => {
                    let entry = scanned.entry();
                    if let Err(name) = order.accept(&entry) {
                        found.damage = Some(self.out_of_order(found.tail, name));
                        break;
                    }
                    found.entries.push(entry);
                }
                Ok(None) => break,
                Err(ScanError::Io(error)) => {
                    return Err(StorageError::io("read", &self.path)(error));
                }
                Err(ScanError::Frame(error)) => {
                    found.damage = self.check_tail(&mut scanner, error)?;
                    break;
                }
            }
        }
        Ok(found)
    }

    /// The error for an intact frame at `tail` that cannot follow the frames before it, such as one
    /// that remains of an earlier write.
    fn out_of_order(&self, tail: Tail, name: &'static str) -> StorageError {
        StorageError::damaged(&self.path)(FormatError {
            what: "frame",
            offset: tail.length,
            kind: FormatErrorKind::Order { name },
        })
    }

    /// The error for a data file that ends before the bytes that index parts cover, which were
    /// durable.
    fn missing_bytes(&self, scanner: &FrameScanner) -> Option<StorageError> {
        let (needed, available) = (self.covered.length, scanner.end());
        let kind = FormatErrorKind::Truncated { needed, available };
        (available < needed).then(|| {
            StorageError::damaged(&self.path)(FormatError {
                what: "data file",
                offset: available,
                kind,
            })
        })
    }

    fn scanner(&self, from: Tail) -> Result<FrameScanner, StorageError> {
        FrameScanner::open(&self.path, self.storage, self.leaf, from, u64::MAX)
            .map(|scanner| scanner.watched(&self.progress))
            .map_err(StorageError::io("open", &self.path))
    }

    /// Reads the header of a leaf that no part contains; `false` when there are no frames to scan.
    fn read_header(&self, found: &mut LeafFound) -> Result<bool, StorageError> {
        let path = &self.path;
        let length = std::fs::metadata(path)
            .map_err(StorageError::io("get the length of", path))?
            .len();
        let wanted = usize::try_from(length)
            .unwrap_or(usize::MAX)
            .min(HEADER_BYTES);
        let bytes =
            crate::read::read_at(path, 0, wanted).map_err(StorageError::io("read", path))?;
        let after_header = Tail {
            length: HEADER_BYTES as u64,
            checksum: crc32c(&bytes),
        };
        let fault = match DataFileHeader::decode(&bytes) {
            Ok(header) if header.storage == self.storage && header.leaf == self.leaf => {
                found.header = Some(header);
                found.tail = after_header;
                return Ok(true);
            }
            Ok(_) => FormatError {
                what: "data file header",
                offset: 16,
                kind: FormatErrorKind::Foreign,
            },
            Err(error) => error,
        };
        // Without a header, intact frames can only be damage.
        let frame = self.scanner(after_header)?.find_frame(HEADER_BYTES as u64);
        if frame.map_err(StorageError::io("read", path))?.is_some() {
            found.damage = Some(StorageError::damaged(path)(fault));
        }
        Ok(false)
    }

    /// Distinguishes a torn tail from damage in the middle of acknowledged frames.
    fn check_tail(
        &self,
        scanner: &mut FrameScanner,
        error: FormatError,
    ) -> Result<Option<StorageError>, StorageError> {
        let torn_end = scanner.tail().length.saturating_add(self.torn_bytes_max);
        let frame = scanner
            .find_frame(torn_end)
            .map_err(StorageError::io("read", &self.path))?;
        Ok(frame.map(|_| StorageError::damaged(&self.path)(error)))
    }
}
