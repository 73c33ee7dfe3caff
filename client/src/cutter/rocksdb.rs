use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use trace_kinds::rocksdb::{self, Packet, RocksdbError};

use super::{Cut, Cutter, End};
use crate::ClientError;

const READ_BYTES: usize = 256 << 10;

/// Cuts a RocksDB trace between records. Each packet except the first gets a continuation header.
#[derive(Debug)]
pub struct RocksdbCutter {
    path: PathBuf,
    file: File,
    cutter: rocksdb::Cutter,
    buffer: Vec<u8>,
    /// Bytes passed to the cutter so far.
    fed: u64,
}

impl RocksdbCutter {
    /// Opens a trace, to cut it from `offset`, which must be the end of a packet.
    pub fn open(path: &Path, offset: u64, target: usize) -> Result<Self, ClientError> {
        let file = File::open(path).map_err(|error| ClientError::file(path, error))?;
        let mut cutter = Self {
            path: path.to_owned(),
            file,
            cutter: rocksdb::Cutter::new(target),
            buffer: vec![0; READ_BYTES],
            fed: 0,
        };
        // The records before the offset must be read: the first one anchors the clock.
        while cutter.fed < offset && cutter.feed(offset - cutter.fed)? {
            while cutter.cutter.next_packet().is_some() {}
        }
        while cutter.cutter.flush().is_some() {}
        Ok(cutter)
    }

    /// Bytes of an incomplete record.
    fn unfinished(&self) -> u64 {
        match self.cutter.torn_end() {
            Some(RocksdbError::Torn { left, .. }) => left,
            _ => 0,
        }
    }

    /// Passes at most `max` bytes to the cutter. Returns false at the end of the file.
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
        let torn = self.cutter.torn_end()?;
        Some(format!(
            "{}: {torn}; the torn record was not pushed",
            self.path.display()
        ))
    }
}
