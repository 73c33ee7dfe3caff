use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use trace_kinds::Container;
use trace_kinds::chrome::{Found, PacketReader, ReadError, Scanner, cut_note, text_of};

use super::pieces::{Boundaries, PieceCutter};
use super::{Cut, Cutter, End, TextLength};
use crate::ClientError;

/// Cuts a Chrome trace between events. The packets of a gzip file are [pieces](PieceCutter) of it,
/// those of a zstd file are its text.
pub struct ChromeCutter {
    path: PathBuf,
    source: Source,
}

enum Source {
    Text {
        reader: Box<PacketReader<Box<dyn Read + Send>>>,
        /// Bytes of the file that were read, for a compressed trace.
        read: Option<Arc<AtomicU64>>,
        lines: LineCounter,
    },
    Gzip(PieceCutter),
}

/// Counts the lines that begin in packets.
#[derive(Debug, Default)]
struct LineCounter {
    /// Whether the next packet continues a line.
    continues_line: bool,
}

impl LineCounter {
    fn length(&mut self, packet: &[u8]) -> TextLength {
        let (last, before) = packet.split_last().unwrap_or((&b'\n', &[]));
        let begins = u64::from(!self.continues_line);
        self.continues_line = *last != b'\n';
        TextLength {
            bytes: packet.len() as u64,
            lines: begins + memchr::memchr_iter(b'\n', before).count() as u64,
        }
    }
}

/// Events, of which each may end a packet.
#[derive(Debug, Default)]
struct Events {
    scanner: Scanner,
    last: u64,
    fed: u64,
    /// What JSON forbids and viewers accept: the first, and how often.
    lenient: Option<(u64, &'static str, u64)>,
    lines: LineCounter,
}

impl Boundaries for Events {
    fn feed(&mut self, text: &[u8]) -> Result<(), String> {
        let (last, lenient, mut damaged) = (&mut self.last, &mut self.lenient, None);
        let _flow = self.scanner.scan(text, &mut |found| {
            match found {
                Found::Boundary(at) => *last = at,
                Found::Damage(damage) if damage.is_end => damaged = Some(damage.to_string()),
                Found::Lenient { offset, what } => {
                    lenient.get_or_insert((offset, what, 0)).2 += 1;
                }
                Found::Record(_) | Found::Damage(_) => {}
            }
            ControlFlow::Continue(())
        });
        self.fed += text.len() as u64;
        damaged.map_or(Ok(()), Err)
    }

    fn last(&self) -> u64 {
        self.last
    }

    fn length(&mut self, text: &[u8]) -> TextLength {
        self.lines.length(text)
    }

    fn finish(&mut self) -> Option<String> {
        if self.scanner.is_cut() {
            return Some(cut_note(self.fed));
        }
        if self.scanner.lacks_bracket() {
            let first = (self.fed, "the list is not closed", 0);
            self.lenient.get_or_insert(first).2 += 1;
        }
        let (offset, what, count) = self.lenient?;
        Some(lenient_note(offset, what, count))
    }
}

fn lenient_note(offset: u64, what: &str, count: u64) -> String {
    format!("{what} at byte {offset} ({count} such places); viewers accept that")
}

impl ChromeCutter {
    /// Opens a trace, to cut it from its beginning.
    pub fn open(path: &Path, container: Container, target: usize) -> Result<Self, ClientError> {
        let failed = |error| ClientError::file(path, error);
        let source = if container == Container::Gzip {
            let boundaries = (Events::default(), false);
            Source::Gzip(PieceCutter::open(path, 0, target, boundaries)?)
        } else {
            let read = Arc::new(AtomicU64::new(0));
            let counted = Counted::new(File::open(path).map_err(failed)?, &read);
            let text = text_of(container, counted).map_err(failed)?;
            Source::Text {
                reader: Box::new(PacketReader::new(text, target)),
                read: (container != Container::Plain).then_some(read),
                lines: LineCounter::default(),
            }
        };
        Ok(Self {
            path: path.to_owned(),
            source,
        })
    }

    fn damaged(path: &Path, what: &str) -> ClientError {
        ClientError::damaged(
            path.display().to_string(),
            format!("{what}; push it with --kind raw to store it as it is"),
        )
    }
}

/// A file that counts the bytes read.
pub(super) struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Counted {
    pub(super) fn new(file: File, read: &Arc<AtomicU64>) -> Self {
        Self {
            file,
            read: Arc::clone(read),
        }
    }
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
        let (reader, read, lines) = match &mut self.source {
            Source::Text {
                reader,
                read,
                lines,
            } => (reader, read, lines),
            Source::Gzip(pieces) => return pieces.next(),
        };
        let packet = match reader.next_packet() {
            Ok(packet) => packet,
            Err(ReadError::Io(error)) if read.is_none() => {
                return Err(ClientError::file(&self.path, error));
            }
            Err(error) => return Err(Self::damaged(&self.path, &error.to_string())),
        };
        let Some(packet) = packet else {
            return match reader.damage() {
                Some(damage) => Err(Self::damaged(&self.path, &damage.to_string())),
                None => Ok(None),
            };
        };
        let end = packet.offset + packet.bytes.len() as u64;
        let read = read.as_ref().map(|read| read.load(Ordering::Relaxed));
        Ok(Some(Cut {
            position: read.unwrap_or(end),
            text: Some(lines.length(&packet.bytes)),
            bytes: Bytes::from(packet.bytes),
        }))
    }

    fn remark(&self) -> Option<String> {
        let reader = match &self.source {
            Source::Text { reader, .. } => reader,
            Source::Gzip(pieces) => return pieces.remark(),
        };
        let leniences = reader.leniences();
        let lenient = leniences
            .first
            .map(|(offset, what)| lenient_note(offset, what, leniences.count));
        let remark = reader.cut_end().or(lenient)?;
        Some(format!("{}: {remark}", self.path.display()))
    }
}
