use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use trace_kinds::Container;
use trace_kinds::chrome::{Found, Packet, PacketReader, ReadError, Scanner, cut_note};
use trace_kinds::gzip::{PIECE_TEXT_BYTES_MAX, PiecePacket};

use super::damage::{DamageFound, Damaged, Stretches, file_bytes};
use super::pieces::{Boundaries, MemberDamage, PieceCutter};
use super::text::FileText;
use super::{Cut, Cutter, End, TextLength};
use crate::ClientError;

/// Cuts a Chrome trace between events. The packets of a gzip file are [pieces](PieceCutter) of it,
/// those of a zstd file are its text.
///
/// Behind damage, no events can be told apart: the rest of the file is cut as it is into packets
/// that cannot be decoded. Events before it are cut as far as the text can be read.
pub struct ChromeCutter {
    path: PathBuf,
    target: usize,
    source: Source,
    lines: LineCounter,
    /// Whether all events were cut.
    has_ended: bool,
    /// What follows the last event that can be read.
    rest: Option<Damaged>,
    stretches: Stretches,
    /// What was damaged.
    damage: DamageFound,
}

enum Source {
    /// The text of a file, which is stored.
    Text(TextEvents),
    /// A gzip file.
    Pieces(PieceCutter),
    /// The text of a gzip file between its last piece, which ends at `from`, and damage.
    BehindPieces { events: TextEvents, from: u64 },
}

/// The events of a text, up to damage.
struct TextEvents {
    file: FileText,
    reader: Box<PacketReader<Box<dyn Read + Send>>>,
    /// Offset in the text after the last packet.
    end: u64,
    has_ended: bool,
    damage: Option<String>,
    /// Whether the rest of the text cannot be read.
    lacks_end: bool,
}

impl TextEvents {
    fn open(path: &Path, container: Container, target: usize) -> Result<Self, ClientError> {
        let (file, text) = FileText::open(path, container)?;
        Ok(Self {
            file,
            reader: Box::new(PacketReader::new(text, target)),
            end: 0,
            has_ended: false,
            damage: None,
            lacks_end: false,
        })
    }

    /// The next packet, without what is damaged.
    fn next(&mut self) -> Result<Option<Packet>, ClientError> {
        while !self.has_ended {
            let mut packet = match self.reader.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(error) => {
                    let packet = self.reader.rest();
                    let read = packet.offset + packet.bytes.len() as u64;
                    self.lacks_end = matches!(error, ReadError::Io(_));
                    self.damage = Some(match error {
                        ReadError::Io(error) => self.file.failed(error, read)?,
                        ReadError::TooLong { .. } => error.to_string(),
                    });
                    self.has_ended = true;
                    packet
                }
            };
            if let Some(damage) = self.reader.damage() {
                let intact = damage.offset.saturating_sub(packet.offset);
                (packet.bytes).truncate(usize::try_from(intact).unwrap_or(usize::MAX));
            }
            if !packet.bytes.is_empty() {
                self.end = packet.offset + packet.bytes.len() as u64;
                return Ok(Some(packet));
            }
        }
        self.has_ended = true;
        let damage = self.reader.damage();
        self.damage = self.damage.take().or(damage.map(|it| it.to_string()));
        Ok(None)
    }

    /// Why the text is not complete although nothing of it is damaged.
    fn cut_off(&self) -> Option<String> {
        self.file.torn().or_else(|| self.reader.cut_end())
    }

    /// A note about the text for the user.
    fn remark(&self) -> Option<String> {
        if let Some(torn) = self.file.remark() {
            return Some(torn);
        }
        let leniences = self.reader.leniences();
        let lenient = leniences
            .first
            .map(|(offset, what)| lenient_note(offset, what, leniences.count));
        let remark = self.reader.cut_end().or(lenient)?;
        Some(format!("{}: {remark}", self.file.path().display()))
    }
}

/// Counts the lines that begin in packets.
#[derive(Debug, Default)]
struct LineCounter {
    /// Whether the next packet continues a line.
    continues_line: bool,
}

impl LineCounter {
    fn length(&mut self, packet: &[u8]) -> TextLength {
        let Some((last, before)) = packet.split_last() else {
            return TextLength { bytes: 0, lines: 0 };
        };
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

    fn is_cut_off(&self) -> bool {
        self.scanner.is_cut()
    }
}

fn lenient_note(offset: u64, what: &str, count: u64) -> String {
    format!("{what} at byte {offset} ({count} such places); viewers accept that")
}

impl ChromeCutter {
    /// Opens a trace, to cut it from its beginning.
    pub fn open(path: &Path, container: Container, target: usize) -> Result<Self, ClientError> {
        let (source, stretches) = if container == Container::Gzip {
            let boundaries = (Events::default(), false);
            let pieces = PieceCutter::open(path, 0, target, boundaries)?;
            (Source::Pieces(pieces), Stretches::of_file(path))
        } else {
            let events = TextEvents::open(path, container, target)?;
            (Source::Text(events), Stretches::of_text(path, container))
        };
        Ok(Self {
            path: path.to_owned(),
            target,
            source,
            lines: LineCounter::default(),
            has_ended: false,
            rest: None,
            stretches,
            damage: DamageFound::default(),
        })
    }

    /// The next packet with events; what follows the last one is known then.
    fn next_events(&mut self) -> Result<Option<Cut>, ClientError> {
        match &mut self.source {
            Source::Text(events) => {
                if let Some(packet) = events.next()? {
                    return Ok(Some(Cut {
                        position: events.file.position(events.end),
                        text: Some(self.lines.length(&packet.bytes)),
                        bytes: Bytes::from(packet.bytes),
                    }));
                }
                let end = if events.file.is_plain() {
                    file_bytes(&self.path)?
                } else {
                    // As far as there is text.
                    u64::MAX
                };
                self.rest = match (events.damage.take(), events.cut_off()) {
                    (Some(damage), _) => {
                        self.damage.add(|| damage.clone());
                        let rest = Damaged::new(events.end..end, damage);
                        Some(rest.without_end(events.lacks_end))
                    }
                    (None, Some(cut_off)) => Some(Damaged::end(events.end, cut_off)),
                    (None, None) => None,
                };
                Ok(None)
            }
            Source::Pieces(pieces) => {
                let cut = pieces.next()?;
                if cut.is_none() {
                    if let Some(damage) = pieces.take_damage() {
                        return self.pass_damage(damage);
                    }
                    let cut_off = pieces.take_cut_off();
                    self.rest = cut_off.map(|cut_off| Damaged::end(cut_off.end, cut_off.what));
                }
                Ok(cut)
            }
            Source::BehindPieces { .. } => self.next_behind_pieces(),
        }
    }

    /// Goes on with the text in no piece, as far as it can be read: who reads the file reads it,
    /// too. The bytes of the file that are in no piece follow.
    fn pass_damage(&mut self, damage: MemberDamage) -> Result<Option<Cut>, ClientError> {
        let end = file_bytes(&self.path)?.max(damage.begin);
        let reason = damage.reason(end);
        self.damage.add(|| reason.clone());
        self.rest = Some(Damaged::new(damage.begin..end, reason));
        self.source = Source::BehindPieces {
            events: TextEvents::open(&self.path, Container::Gzip, self.target)?,
            from: damage.text,
        };
        self.next_behind_pieces()
    }

    fn next_behind_pieces(&mut self) -> Result<Option<Cut>, ClientError> {
        let Source::BehindPieces { events, from } = &mut self.source else {
            return Ok(None);
        };
        while let Some(Packet { offset, mut bytes }) = events.next()? {
            let known = from.saturating_sub(offset);
            let known = usize::try_from(known).unwrap_or(usize::MAX);
            bytes.drain(..known.min(bytes.len()));
            if bytes.is_empty() || bytes.len() > PIECE_TEXT_BYTES_MAX {
                continue;
            }
            return Ok(Some(Cut {
                position: self.rest.as_ref().map_or(0, Damaged::at),
                text: Some(self.lines.length(&bytes)),
                bytes: Bytes::from(PiecePacket::of_text(&bytes).encode()),
            }));
        }
        Ok(None)
    }

    /// The next packet of the rest.
    fn next_of_rest(&mut self) -> Result<Option<Cut>, ClientError> {
        let Some(rest) = &mut self.rest else {
            return Ok(None);
        };
        let Some(packet) = rest.next(&mut self.stretches)? else {
            return Ok(None);
        };
        let (position, text) = match &self.source {
            Source::Text(events) => {
                let text = self.lines.length(&packet.bytes);
                (events.file.position(rest.at()), text)
            }
            _ => (rest.at(), TextLength { bytes: 0, lines: 0 }),
        };
        Ok(Some(Cut {
            bytes: packet.packet,
            position,
            text: Some(text),
        }))
    }
}

impl Cutter for ChromeCutter {
    fn next(&mut self, _: End) -> Result<Option<Cut>, ClientError> {
        if !self.has_ended {
            if let Some(cut) = self.next_events()? {
                return Ok(Some(cut));
            }
            self.has_ended = true;
        }
        self.next_of_rest()
    }

    fn damage(&self) -> Option<String> {
        self.damage.summary(&self.path)
    }

    fn remark(&self) -> Option<String> {
        match &self.source {
            Source::Text(events) => events.remark(),
            Source::Pieces(pieces) => pieces.remark(),
            Source::BehindPieces { .. } => None,
        }
    }
}
