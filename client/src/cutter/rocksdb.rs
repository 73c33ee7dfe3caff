use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use trace_kinds::rocksdb::{self, Packet, RocksdbError};

use super::{Cut, Cutter, End};
use crate::ClientError;

const READ_BYTES: usize = 256 << 10;

/// Cuts a RocksDB trace between records; each packet but the first gets a header of its own.
#[derive(Debug)]
pub struct RocksdbCutter {
    path: PathBuf,
    file: File,
    cutter: rocksdb::Cutter,
    buffer: Vec<u8>,
    /// Bytes given to the cutter so far.
    fed: u64,
}

impl RocksdbCutter {
    /// Opens a trace to be cut from `offset` on, which is where a packet ended before.
    pub fn open(path: &Path, offset: u64, target: usize) -> Result<Self, ClientError> {
        let file = File::open(path).map_err(|error| ClientError::file(path, error))?;
        let mut cutter = Self {
            path: path.to_owned(),
            file,
            cutter: rocksdb::Cutter::new(target),
            buffer: vec![0; READ_BYTES],
            fed: 0,
        };
        // The records before the offset are needed: the first of them anchors the clock.
        while cutter.fed < offset && cutter.feed(offset - cutter.fed)? {
            while cutter.cutter.next_packet().is_some() {}
        }
        while cutter.cutter.flush().is_some() {}
        Ok(cutter)
    }

    /// Bytes fed of a record that is not whole yet.
    fn unfinished(&self) -> u64 {
        match self.cutter.tail() {
            Some(RocksdbError::Torn { left, .. }) => left,
            _ => 0,
        }
    }

    /// Feeds at most `max` bytes; false at the end of the file.
    fn feed(&mut self, max: u64) -> Result<bool, ClientError> {
        let length = usize::try_from(max).unwrap_or(usize::MAX).min(READ_BYTES);
        let read = self.file.read(&mut self.buffer[..length]);
        let read = read.map_err(|error| ClientError::file(&self.path, error))?;
        self.fed += read as u64;
        let pushed = self.cutter.push(&self.buffer[..read]);
        pushed.map_err(|error| {
            ClientError::damaged(self.path.display().to_string(), error.to_string())
        })?;
        Ok(read > 0)
    }
}

impl Cutter for RocksdbCutter {
    fn next(&mut self, end: End) -> Result<Option<Cut>, ClientError> {
        let packet = loop {
            if let Some(packet) = self.cutter.next_packet() {
                break packet;
            }
            if self.feed(u64::MAX)? {
                continue;
            }
            match end {
                End::Growing => return Ok(None),
                End::Final | End::Pause => match self.cutter.flush() {
                    Some(packet) => break packet,
                    None => return Ok(None),
                },
            }
        };
        let Packet { bytes, .. } = packet;
        Ok(Some(Cut {
            bytes: Bytes::from(bytes),
            position: self.fed - self.unfinished(),
            text: None,
        }))
    }

    fn remark(&self) -> Option<String> {
        let torn = self.cutter.tail()?;
        Some(format!(
            "{}: {torn}; that record was left out",
            self.path.display()
        ))
    }
}
