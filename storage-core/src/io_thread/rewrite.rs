//! Writes packets of a damaged log again, as the first batches of the data file that continues it.
//!
//! The file is written by a thread that blocks, under a temporary name; nobody else writes the log
//! meanwhile.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use storage_format::{
    DataFileId, LeafId, StorageId,
    index_part::LogPosition,
    log::{FILE_HEADER_BYTES, LogFileHeader},
};
use tokio::sync::oneshot;

use super::{
    Frame, LeafSpec, LogEnd,
    assembly::{Batch, BatchPlace, PieceBytes, assemble},
    request::Append,
    tail::LoggedLeaf,
};
use crate::{
    StorageError,
    clock::{now_ns, random_u64},
    io::{BLOCK_BYTES, StagedFile},
};

/// Bytes of frames in a batch.
const BATCH_BYTES: u64 = 4 << 20;
/// Frames in a batch.
const BATCH_FRAME_COUNT_MAX: usize = 4096;

/// A data file that continues a log with packets of it.
pub(crate) struct LogRewrite {
    staged: StagedFile,
    place: BatchPlace,
    leaves: HashMap<LeafId, LoggedLeaf>,
    waiting: Vec<Append>,
    waiting_bytes: u64,
}

impl LogRewrite {
    /// Creates the file `file` at `path`; the log was cut at `end`.
    pub(crate) fn create(
        path: PathBuf,
        storage: StorageId,
        file: DataFileId,
        end: &LogEnd,
    ) -> Result<Self, StorageError> {
        let salt = random_u64();
        let header = LogFileHeader {
            storage,
            file,
            is_arranged: false,
            replaces: None,
            salt,
            created: now_ns(),
            first_batch: end.batch,
            previous: end.previous,
            chain: end.chain,
        };
        let mut staged = StagedFile::create(path)?;
        staged.write(&header.encode())?;
        let position = LogPosition {
            file,
            offset: FILE_HEADER_BYTES as u64,
            batch: end.batch,
            chain: end.chain,
        };
        Ok(Self {
            staged,
            place: BatchPlace {
                storage,
                position,
                salt,
                durable_mark: 0,
            },
            leaves: HashMap::new(),
            waiting: Vec::new(),
            waiting_bytes: 0,
        })
    }

    /// Appends a packet to a leaf; `leaf` says where the leaf ended when the log was cut.
    pub(crate) fn append(&mut self, leaf: Arc<LeafSpec>, frame: Frame) -> Result<(), StorageError> {
        self.waiting_bytes = self
            .waiting_bytes
            .saturating_add(frame.header.frame_bytes());
        // Nobody waits for a receipt.
        let (reply, _) = oneshot::channel();
        self.waiting.push(Append {
            leaf,
            frames: vec![frame],
            request: None,
            reply,
        });
        if self.waiting_bytes >= BATCH_BYTES || self.waiting.len() >= BATCH_FRAME_COUNT_MAX {
            self.write_batch()?;
        }
        Ok(())
    }

    fn write_batch(&mut self) -> Result<(), StorageError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        // The file gets its name when all of it is durable.
        self.place.durable_mark = self.place.position.batch;
        let batch = assemble(&self.waiting, self.place, |leaf| {
            self.leaves.get(&leaf).copied()
        });
        let end = batch.end(&self.place);
        write(&mut self.staged, &batch)?;
        self.leaves.extend(batch.leaves);
        self.place.position = end;
        self.waiting.clear();
        self.waiting_bytes = 0;
        Ok(())
    }

    /// Makes the file durable.
    pub(crate) fn finish(mut self) -> Result<(), StorageError> {
        self.write_batch()?;
        let (length, _) = self.staged.finish()?;
        assert_eq!(
            length, self.place.position.offset,
            "the file ends with its last batch"
        );
        Ok(())
    }
}

fn write(staged: &mut StagedFile, batch: &Batch<'_>) -> Result<(), StorageError> {
    staged.write(&batch.head)?;
    for piece in &batch.pieces {
        match &piece.bytes {
            PieceBytes::Headers(range) => {
                staged.write(batch.headers.get(range.clone()).unwrap_or_default())?;
            }
            PieceBytes::Payload(payload, _) => staged.write(payload)?,
        }
    }
    let padding = batch
        .header
        .padded_length()
        .saturating_sub(batch.header.length);
    let padding = usize::try_from(padding).unwrap_or(0).min(BLOCK_BYTES);
    staged.write(&[0; BLOCK_BYTES][..padding])
}
