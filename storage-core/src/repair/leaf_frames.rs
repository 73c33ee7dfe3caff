//! Reads frames of leaves where an index says that they are.

use std::collections::HashMap;

use bytes::Bytes;
use storage_format::{
    DataFileId, LeafId, StorageId,
    frame::{FrameHeader, FrameLocation, HEADER_BYTES},
    index_part::Extent,
};

use crate::{StorageError, errno::is_transient, leaf_bytes::LeafMap, read::ReadFile};

/// Data files that are open at once.
const OPEN_FILE_COUNT_MAX: usize = 16;

/// A frame that an index, or the frame before it, promises.
pub(super) enum ReadFrame {
    Whole(FrameHeader, Bytes),
    /// Its header is intact, its payload is not.
    Damaged(FrameHeader),
    Unknown,
}

/// Data files that are open, and reads of leaves from them that bad blocks do not end.
pub(super) struct OpenFiles {
    storage: StorageId,
    open: parking_lot::Mutex<HashMap<DataFileId, ReadFile>>,
}

impl OpenFiles {
    pub(super) fn new(storage: StorageId) -> Self {
        let open = parking_lot::Mutex::default();
        Self { storage, open }
    }

    pub(super) fn storage(&self) -> StorageId {
        self.storage
    }

    fn open(&self, map: &LeafMap, id: DataFileId) -> Result<Option<ReadFile>, StorageError> {
        let mut open = self.open.lock();
        if let Some(file) = open.get(&id) {
            return Ok(Some(file.clone()));
        }
        let path = map.path(id);
        match ReadFile::open(&path) {
            Ok(file) => {
                if open.len() >= OPEN_FILE_COUNT_MAX {
                    open.clear();
                }
                open.insert(id, file.clone());
                Ok(Some(file))
            }
            Err(error) if is_transient(&error) => Err(StorageError::io("open", path)(error)),
            Err(_) => Ok(None),
        }
    }

    /// Bytes of an extent; `None` if they are not there or the disk refuses them.
    pub(super) fn extent(
        &self,
        map: &LeafMap,
        extent: &Extent,
    ) -> Result<Option<Vec<u8>>, StorageError> {
        let Some(file) = self.open(map, extent.file)? else {
            return Ok(None);
        };
        let mut bytes = vec![0; usize::try_from(extent.length).unwrap_or(usize::MAX)];
        match file.fill(&mut bytes, extent.offset) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) if is_transient(&error) => {
                Err(StorageError::io("read", map.path(extent.file))(error))
            }
            Err(_) => Ok(None),
        }
    }

    /// `length` bytes of a leaf; `None` if some of them are not there.
    pub(super) fn read(
        &self,
        map: &LeafMap,
        offset: u64,
        length: usize,
    ) -> Result<Option<Vec<u8>>, StorageError> {
        let mut bytes = Vec::with_capacity(length);
        for extent in map.extents(&(offset..offset.saturating_add(length as u64)))? {
            match self.extent(map, &extent)? {
                Some(mut found) => bytes.append(&mut found),
                None => return Ok(None),
            }
        }
        Ok((bytes.len() == length).then_some(bytes))
    }

    /// The frame at an offset of a leaf.
    pub(super) fn frame(
        &self,
        map: &LeafMap,
        leaf: LeafId,
        offset: u64,
    ) -> Result<ReadFrame, StorageError> {
        let location = FrameLocation {
            storage: self.storage,
            leaf,
            offset,
        };
        let header = self.read(map, offset, HEADER_BYTES)?;
        let header = header.and_then(|bytes| FrameHeader::decode(&bytes, location).ok());
        let Some(header) = header else {
            return Ok(ReadFrame::Unknown);
        };
        let start = offset.saturating_add(HEADER_BYTES as u64);
        let padded = header.frame_bytes().saturating_sub(HEADER_BYTES as u64);
        let length = usize::try_from(padded).unwrap_or(usize::MAX);
        let Some(mut payload) = self.read(map, start, length)? else {
            return Ok(ReadFrame::Damaged(header));
        };
        // What comes after the payload is not of the packet, and is written anew.
        payload.truncate(usize::try_from(header.stored_size).unwrap_or(usize::MAX));
        if header.check_payload(&payload, start).is_err() {
            return Ok(ReadFrame::Damaged(header));
        }
        Ok(ReadFrame::Whole(header, Bytes::from(payload)))
    }
}
