use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{Cut, Cutter, End};
use crate::ClientError;

/// Cuts any file into pieces of the target size.
#[derive(Debug)]
pub struct RawCutter {
    path: PathBuf,
    file: File,
    offset: u64,
    target: usize,
}

impl RawCutter {
    /// Opens a file, to cut it from `offset`.
    pub fn open(path: &Path, offset: u64, target: usize) -> Result<Self, ClientError> {
        let file = File::open(path).map_err(|error| ClientError::file(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            offset,
            target,
        })
    }
}

impl Cutter for RawCutter {
    fn next(&mut self, end: End) -> Result<Option<Cut>, ClientError> {
        let mut bytes = Vec::with_capacity(self.target);
        let read = self.file.seek(SeekFrom::Start(self.offset)).and_then(|_| {
            (&mut self.file)
                .take(self.target as u64)
                .read_to_end(&mut bytes)
        });
        read.map_err(|error| ClientError::file(&self.path, error))?;
        if bytes.is_empty() || (end == End::Growing && bytes.len() < self.target) {
            return Ok(None);
        }
        self.offset += bytes.len() as u64;
        Ok(Some(Cut {
            bytes: Bytes::from(bytes),
            position: self.offset,
            text: None,
        }))
    }

    fn skip(&mut self, count: u64) -> Result<u64, ClientError> {
        let metadata = self.file.metadata();
        let length = metadata
            .map_err(|error| ClientError::file(&self.path, error))?
            .len();
        let there = length
            .saturating_sub(self.offset)
            .div_ceil(self.target as u64);
        let skipped = count.min(there);
        self.offset = (self.offset + skipped * self.target as u64).min(length);
        Ok(skipped)
    }
}
