use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use trace_kinds::Container;
use trace_kinds::chrome::{PacketReader, ReadError, text_of};

use super::{Cut, Cutter, End, TextLength};
use crate::ClientError;

/// Cuts a Chrome trace between events. The packets of a compressed trace are its text.
pub struct ChromeCutter {
    path: PathBuf,
    reader: PacketReader<Box<dyn Read + Send>>,
    /// Bytes of the file that were read, for a compressed trace.
    read: Option<Arc<AtomicU64>>,
    /// Whether the next packet begins a line.
    begins_line: bool,
}

impl ChromeCutter {
    /// Opens a trace, to cut it from its beginning.
    pub fn open(path: &Path, container: Container, target: usize) -> Result<Self, ClientError> {
        let failed = |error| ClientError::file(path, error);
        let read = Arc::new(AtomicU64::new(0));
        let counted = Counted {
            file: File::open(path).map_err(failed)?,
            read: Arc::clone(&read),
        };
        Ok(Self {
            path: path.to_owned(),
            reader: PacketReader::new(text_of(container, counted).map_err(failed)?, target),
            read: (container != Container::Plain).then_some(read),
            begins_line: true,
        })
    }

    fn damaged(&self, what: &str) -> ClientError {
        ClientError::damaged(
            self.path.display().to_string(),
            format!("{what}; push it with --kind raw to store it as it is"),
        )
    }
}

/// A file that counts the bytes read.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Cutter for ChromeCutter {
    fn next(&mut self, _: End) -> Result<Option<Cut>, ClientError> {
        let packet = match self.reader.next_packet() {
            Ok(packet) => packet,
            Err(ReadError::Io(error)) if self.read.is_none() => {
                return Err(ClientError::file(&self.path, error));
            }
            Err(error) => return Err(self.damaged(&error.to_string())),
        };
        let Some(packet) = packet else {
            return match self.reader.damage() {
                Some(damage) => Err(self.damaged(&damage.to_string())),
                None => Ok(None),
            };
        };
        let end = packet.offset + packet.bytes.len() as u64;
        let read = self.read.as_ref().map(|read| read.load(Ordering::Relaxed));
        let (last, before) = packet.bytes.split_last().unwrap_or((&b'\n', &[]));
        let text = TextLength {
            bytes: packet.bytes.len() as u64,
            lines: u64::from(self.begins_line) + memchr::memchr_iter(b'\n', before).count() as u64,
        };
        self.begins_line = *last == b'\n';
        Ok(Some(Cut {
            position: read.unwrap_or(end),
            text: Some(text),
            bytes: Bytes::from(packet.bytes),
        }))
    }

    fn remark(&self) -> Option<String> {
        let leniences = self.reader.leniences();
        let lenient = leniences.first.map(|(offset, what)| {
            let count = leniences.count;
            format!("{what} at byte {offset} ({count} such places); viewers accept that")
        });
        let remark = self.reader.cut_end().or(lenient)?;
        Some(format!("{}: {remark}", self.path.display()))
    }
}
