use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use trace_kinds::rocksdb::{self, Packet};

use super::damage::{Damaged, Stretches, file_bytes};
use super::{Cut, Cutter, End};
use crate::ClientError;

const READ_BYTES: usize = 256 << 10;

/// Cuts a RocksDB trace between records. Each packet except the first gets a continuation header.
/// What is no record, from there to the end of the file, is cut as it is into packets that cannot
/// be decoded.
#[derive(Debug)]
pub struct RocksdbCutter {
    path: PathBuf,
    file: File,
    cutter: rocksdb::Cutter,
    buffer: Vec<u8>,
    /// Bytes passed to the cutter so far.
    fed: u64,
    /// Why the rest of the file is none of records.
    damage: Option<String>,
    /// That rest, or a record that the end of the file cuts off, once the records are cut.
    rest: Option<Damaged>,
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
            damage: None,
            rest: None,
        };
        // The records before the offset must be read: the first one anchors the clock.
        while cutter.fed < offset && cutter.damage.is_none() && cutter.feed(offset - cutter.fed)? {
            while cutter.cutter.next_packet().is_some() {}
        }
        while cutter.cutter.flush().is_some() {}
        Ok(cutter)
    }

    /// Passes at most `max` bytes to the cutter. Returns false at the end of the file.
    fn feed(&mut self, max: u64) -> Result<bool, ClientError> {
        let length = usize::try_from(max).unwrap_or(usize::MAX).min(READ_BYTES);
        let read = self.file.read(&mut self.buffer[..length]);
        let read = read.map_err(|error| ClientError::file(&self.path, error))?;
        self.fed += read as u64;
        if let Err(error) = self.cutter.push(&self.buffer[..read]) {
            let what = error.to_string();
            if self.cutter.header().is_none() {
                return Err(ClientError::damaged(self.path.display().to_string(), what));
            }
            self.damage = Some(what);
        }
        Ok(read > 0)
    }

    /// The next packet of what is behind the last record. The end of a file that grows is not
    /// known.
    fn next_of_rest(&mut self, end: End) -> Result<Option<Cut>, ClientError> {
        if end != End::Final {
            return match self.damage.clone() {
                Some(what) => Err(ClientError::damaged(self.path.display().to_string(), what)),
                None => Ok(None),
            };
        }
        if self.rest.is_none() {
            let begin = self.cutter.complete_bytes();
            let reason = self.damage.clone().or_else(|| self.torn());
            self.rest = match reason {
                Some(reason) => Some(Damaged::new(begin..file_bytes(&self.path)?, reason)),
                None => None,
            };
        }
        let Some(rest) = &mut self.rest else {
            return Ok(None);
        };
        let packet = rest.next(&mut Stretches::of_file(&self.path))?;
        Ok(packet.map(|packet| Cut {
            bytes: packet.packet,
            position: rest.at(),
            text: None,
        }))
    }

    /// What is to be said of a file that ends inside a record.
    fn torn(&self) -> Option<String> {
        self.cutter.torn_end().map(|torn| torn.to_string())
    }
}

impl Cutter for RocksdbCutter {
    fn next(&mut self, end: End) -> Result<Option<Cut>, ClientError> {
        let packet = loop {
            if let Some(packet) = self.cutter.next_packet() {
                break packet;
            }
            if self.damage.is_none() && self.rest.is_none() && self.feed(u64::MAX)? {
                continue;
            }
            match end {
                End::Growing => return self.next_of_rest(end),
                End::Final | End::Pause => match self.cutter.flush() {
                    Some(packet) => break packet,
                    None => return self.next_of_rest(end),
                },
            }
        };
        let Packet {
            bytes, input_range, ..
        } = packet;
        Ok(Some(Cut {
            bytes: Bytes::from(bytes),
            position: input_range.end,
            text: None,
        }))
    }

    fn damage(&self) -> Option<String> {
        let damage = self.damage.as_ref()?;
        Some(format!("{}: {damage}", self.path.display()))
    }

    fn remark(&self) -> Option<String> {
        let torn = self.torn().filter(|_| self.damage.is_none())?;
        Some(format!(
            "{}: {torn}; what there is of the record is stored as it is, and queries say so",
            self.path.display()
        ))
    }
}
