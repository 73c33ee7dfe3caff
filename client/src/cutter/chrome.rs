use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;

use bytes::Bytes;
use trace_kinds::Container;
use trace_kinds::chrome::{Found, PacketReader, ReadError, Scanner, cut_note};

use super::pieces::{Boundaries, PieceCutter};
use super::text::FileText;
use super::{Cut, Cutter, End, TextLength};
use crate::ClientError;

/// Cuts a Chrome trace between events. The packets of a gzip file are [pieces](PieceCutter) of it,
/// those of a zstd file are its text.
pub struct ChromeCutter(Source);

enum Source {
    Text {
        file: FileText,
        reader: Box<PacketReader<Box<dyn Read + Send>>>,
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
        if container == Container::Gzip {
            let boundaries = (Events::default(), false);
            let pieces = PieceCutter::open(path, 0, target, boundaries)?;
            return Ok(Self(Source::Gzip(pieces)));
        }
        let (file, text) = FileText::open(path, container)?;
        Ok(Self(Source::Text {
            file,
            reader: Box::new(PacketReader::new(text, target)),
            lines: LineCounter::default(),
        }))
    }
}

impl Cutter for ChromeCutter {
    fn next(&mut self, _: End) -> Result<Option<Cut>, ClientError> {
        let (file, reader, lines) = match &mut self.0 {
            Source::Text {
                file,
                reader,
                lines,
            } => (file, reader, lines),
            Source::Gzip(pieces) => return pieces.next_intact(),
        };
        let packet = match reader.next_packet() {
            Ok(packet) => packet,
            Err(ReadError::Io(error)) => return Err(file.failed(error)),
            Err(error) => return Err(file.damaged(&error.to_string())),
        };
        let Some(packet) = packet else {
            return match reader.damage() {
                Some(damage) => Err(file.damaged(&damage.to_string())),
                None => Ok(None),
            };
        };
        let end = packet.offset + packet.bytes.len() as u64;
        Ok(Some(Cut {
            position: file.position(end),
            text: Some(lines.length(&packet.bytes)),
            bytes: Bytes::from(packet.bytes),
        }))
    }

    fn remark(&self) -> Option<String> {
        let (file, reader) = match &self.0 {
            Source::Text { file, reader, .. } => (file, reader),
            Source::Gzip(pieces) => return pieces.remark(),
        };
        if let Some(torn) = file.remark() {
            return Some(torn);
        }
        let leniences = reader.leniences();
        let lenient = leniences
            .first
            .map(|(offset, what)| lenient_note(offset, what, leniences.count));
        let remark = reader.cut_end().or(lenient)?;
        Some(format!("{}: {remark}", file.path().display()))
    }
}
