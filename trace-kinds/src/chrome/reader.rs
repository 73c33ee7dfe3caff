//! A Chrome trace in packets that end between events, read in bounded memory.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::ControlFlow;

use super::EVENT_BYTES_MAX;
use super::found::{Damage, Found};
use super::scanner::Scanner;

const READ_BYTES: usize = 256 << 10;

/// What is said of a trace that ends at byte `end` before the end of its document.
pub fn cut_note(end: u64) -> String {
    format!("the file ends at byte {end} before the end of its document; it was cut")
}

/// Consecutive bytes of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Offset of the first byte.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Why a trace cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The source cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// An event, or what precedes the first one, is too long.
    #[error("what starts at byte {offset} is longer than {EVENT_BYTES_MAX} bytes")]
    TooLong {
        /// Where it starts.
        offset: u64,
    },
}

/// Cuts a trace between events. The same bytes are always cut at the same places, and the packets
/// together are the trace.
#[derive(Debug)]
pub struct PacketReader<R> {
    source: R,
    scanner: Scanner,
    piece: Box<[u8]>,
    /// Bytes that are not cut yet.
    buffer: Vec<u8>,
    /// Offset of the first byte of the buffer.
    start: u64,
    cuts: Cuts,
    /// Where the last complete event ends.
    events_end: u64,
    has_ended: bool,
    damage: Option<Damage>,
    leniences: Leniences,
}

/// What JSON forbids and viewers accept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leniences {
    /// How often something was accepted.
    pub count: u64,
    /// The first: its offset, and what it is.
    pub first: Option<(u64, &'static str)>,
}

impl<R: Read> PacketReader<R> {
    /// Cuts `source` into packets of at most `target` bytes, or of one event.
    pub fn new(source: R, target: usize) -> Self {
        Self {
            source,
            scanner: Scanner::new(),
            piece: vec![0; READ_BYTES].into(),
            buffer: Vec::new(),
            start: 0,
            cuts: Cuts {
                target: target as u64,
                ..Cuts::default()
            },
            events_end: 0,
            has_ended: false,
            damage: None,
            leniences: Leniences::default(),
        }
    }

    /// The next packet.
    ///
    /// # Errors
    ///
    /// When the source cannot be read, or an event is too long.
    pub fn next_packet(&mut self) -> Result<Option<Packet>, ReadError> {
        loop {
            if let Some(cut) = self.cuts.ready.pop_front() {
                let length = usize::try_from(cut - self.start).unwrap_or(usize::MAX);
                let rest = self.buffer.split_off(length.min(self.buffer.len()));
                let packet = Packet {
                    offset: self.start,
                    bytes: std::mem::replace(&mut self.buffer, rest),
                };
                self.start = cut;
                return Ok(Some(packet));
            }
            if self.has_ended {
                return Ok(None);
            }
            self.feed()?;
        }
    }

    /// What was read but not returned, after an error: all bytes until the end of the last event
    /// that is complete. Everybody who reads a trace reads them, so all see the same events.
    pub fn rest(&mut self) -> Packet {
        let mut bytes = std::mem::take(&mut self.buffer);
        let end = self.cuts.last.max(self.events_end);
        let length = end.saturating_sub(self.start);
        bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        Packet {
            offset: self.start,
            bytes,
        }
    }

    /// Damage behind which nothing was read; known after the last packet.
    pub fn damage(&self) -> Option<Damage> {
        self.damage
    }

    /// Why the trace is not complete although every event is; known after the last packet.
    pub fn cut_end(&self) -> Option<String> {
        (self.has_ended && self.scanner.is_cut()).then(|| cut_note(self.start))
    }

    /// What JSON forbids and was accepted.
    pub fn leniences(&self) -> Leniences {
        let mut leniences = self.leniences;
        if self.has_ended && self.scanner.lacks_bracket() {
            leniences.count += 1;
            let first = (self.start, "the list is not closed");
            leniences.first = leniences.first.or(Some(first));
        }
        leniences
    }

    fn feed(&mut self) -> Result<(), ReadError> {
        let read = loop {
            match self.source.read(&mut self.piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        let piece = self.piece.get(..read).unwrap_or_default();
        self.buffer.extend_from_slice(piece);
        let (cuts, damage, leniences) = (&mut self.cuts, &mut self.damage, &mut self.leniences);
        let events_end = &mut self.events_end;
        let mut visit = |found| {
            match found {
                Found::Boundary(at) => cuts.boundary(at),
                Found::Damage(found) if found.is_end => *damage = damage.or(Some(found)),
                Found::Lenient { offset, what } => {
                    leniences.count += 1;
                    leniences.first = leniences.first.or(Some((offset, what)));
                }
                Found::Record(range) => *events_end = range.end,
                Found::Damage(_) => {}
            }
            ControlFlow::Continue(())
        };
        let visited = self.scanner.scan(piece, &mut visit);
        debug_assert!(visited.is_continue(), "the visitor never breaks");
        if read == 0 {
            // The decoder of the last packet reports where it ends.
            let _torn = self.scanner.finish(&mut visit);
        }
        let fed = self.start + self.buffer.len() as u64;
        if read == 0 || self.damage.is_some() {
            let end = self.damage.map_or(fed, |damage| fed.min(damage.offset + 1));
            self.cuts.end(end);
            self.has_ended = true;
        } else if fed - self.cuts.decided > EVENT_BYTES_MAX as u64 {
            let offset = self.cuts.last;
            return Err(ReadError::TooLong { offset });
        }
        Ok(())
    }
}

/// Where packets end.
#[derive(Debug, Default)]
struct Cuts {
    target: u64,
    /// Offset of the first byte that is not in a packet yet.
    decided: u64,
    /// The last place after it where a packet may end.
    last: u64,
    /// Ends of packets.
    ready: VecDeque<u64>,
}

impl Cuts {
    /// Notes a place where a packet may end. If the bytes up to it are more than a packet, the
    /// packet ends at the place before.
    fn boundary(&mut self, at: u64) {
        if at.saturating_sub(self.decided) > self.target && self.last > self.decided {
            self.ready.push_back(self.last);
            self.decided = self.last;
        }
        self.last = at;
    }

    fn end(&mut self, at: u64) {
        self.boundary(at);
        if at > self.decided {
            self.ready.push_back(at);
            self.decided = at;
        }
    }
}
