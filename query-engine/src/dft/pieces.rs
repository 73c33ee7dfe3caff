//! Decompressing a gzip file from its checkpoints, and no more of it than a task needs.

use std::ops::Range;

use chunk_index::{Checkpoint, Window};
use trace_kinds::gzip::{Entry, Piece, PieceEnd};

use super::events::Events;
use super::file::DftFile;
use crate::ReadError;
use crate::open_sidecar::OpenSidecar;
use crate::source::Scratch;

impl DftFile {
    /// The pieces of a compressed file.
    fn pieces<'s>(&self, sidecar: &'s OpenSidecar) -> Vec<PieceAt<'s>> {
        let checkpoints = sidecar.index().checkpoints();
        let text_len = sidecar
            .index()
            .chunks()
            .last()
            .map_or(0, |c| c.raw_offset + c.raw_length);
        let piece = |(at, checkpoint): (usize, &'s Checkpoint)| {
            let next = checkpoints.get(at + 1);
            let end = match next {
                Some(next) if next.window != Window::Member => PieceEnd::Block {
                    bit_offset: bit_offset(next),
                },
                Some(next) => PieceEnd::Member {
                    byte_offset: next.offset,
                },
                None => PieceEnd::Member {
                    byte_offset: self.len,
                },
            };
            let raw_end = next.map_or(text_len, |next| next.raw_offset);
            PieceAt {
                checkpoint,
                end,
                raw: checkpoint.raw_offset..raw_end.max(checkpoint.raw_offset),
            }
        };
        checkpoints.iter().enumerate().map(piece).collect()
    }

    /// Reads chunks of a compressed file that start in one piece.
    pub(super) fn read_pieces(
        &self,
        sidecar: &OpenSidecar,
        chunks: &[usize],
        scratch: &mut Scratch,
        events: &mut Events<'_, '_>,
    ) -> Result<(), ReadError> {
        let all = sidecar.index().chunks();
        let ranges: Vec<Range<u64>> = chunks
            .iter()
            .filter_map(|number| all.get(*number))
            .map(|chunk| chunk.raw_offset..chunk.raw_offset + chunk.raw_length)
            .collect();
        let Some((first, last)) = ranges.first().zip(ranges.last()) else {
            return Ok(());
        };
        let pieces = self.pieces(sidecar);
        let at = pieces.partition_point(|piece| piece.raw.start <= first.start);
        let Some((piece, following)) = at.checked_sub(1).and_then(|at| pieces[at..].split_first())
        else {
            return Err(ReadError::Shrunk {
                place: self.fetch.place(),
            });
        };
        if piece.raw.end - piece.raw.start > PIECE_BYTES_MAX {
            return super::scan::read_ranges(self.text(), &ranges, &mut scratch.scanner, events);
        }
        match self.inflate_lines(sidecar, (piece, following), last.end, scratch, events) {
            // Without its window a piece cannot be decompressed, so decompress from the start.
            Err(error) if error.is_of_index() => {
                events.counters.damaged.push(error.line());
                return super::scan::read_ranges(
                    self.text(),
                    &ranges,
                    &mut scratch.scanner,
                    events,
                );
            }
            done => done?,
        }
        events.counters.decoded_bytes += ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum::<u64>();
        for range in ranges {
            let index = |at: u64| usize::try_from(at - piece.raw.start).unwrap_or(usize::MAX);
            let text = scratch
                .text
                .text()
                .get(index(range.start)..index(range.end));
            let text = text.ok_or_else(|| ReadError::Shrunk {
                place: self.fetch.place(),
            })?;
            if events.walk(text).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Decompresses a piece into the scratch text, and of the following ones as much as the text up
    /// to `text_end` needs.
    fn inflate_lines(
        &self,
        sidecar: &OpenSidecar,
        (piece, following): (&PieceAt<'_>, &[PieceAt<'_>]),
        text_end: u64,
        scratch: &mut Scratch,
        events: &mut Events<'_, '_>,
    ) -> Result<(), ReadError> {
        self.inflate(sidecar, piece, scratch, events)?;
        let mut end = piece.raw.end;
        for next in following {
            if end >= text_end {
                break;
            }
            let wanted = text_end.min(next.raw.end) - next.raw.start;
            self.inflate_start(sidecar, next, wanted, scratch, events)?;
            end = next.raw.start + wanted;
        }
        Ok(())
    }

    /// Decompresses a piece into the scratch text.
    fn inflate(
        &self,
        sidecar: &OpenSidecar,
        at: &PieceAt<'_>,
        scratch: &mut Scratch,
        events: &mut Events<'_, '_>,
    ) -> Result<(), ReadError> {
        let entry = self.entry(sidecar, at.checkpoint, events)?;
        let piece = at.piece(&entry);
        let bytes = self.fetch(entry.byte_offset()..piece.end.byte_offset())?;
        events.counters.fetched_bytes += bytes.len() as u64;
        scratch
            .inflater
            .piece(&piece, &bytes, &mut scratch.text)
            .map_err(|source| ReadError::Gzip {
                place: self.fetch.place(),
                source,
            })
    }

    /// Appends the first `wanted` bytes of a piece to the scratch text: the rest of a line that
    /// starts in the previous piece.
    fn inflate_start(
        &self,
        sidecar: &OpenSidecar,
        at: &PieceAt<'_>,
        wanted: u64,
        scratch: &mut Scratch,
        events: &mut Events<'_, '_>,
    ) -> Result<(), ReadError> {
        let entry = self.entry(sidecar, at.checkpoint, events)?;
        let piece = at.piece(&entry);
        let start = scratch.text.text().len();
        let too_long = |_| ReadError::Shrunk {
            place: self.fetch.place(),
        };
        let wanted = usize::try_from(wanted).map_err(too_long)?;
        let available = piece.end.byte_offset() - entry.byte_offset();
        let mut len = START_BYTES;
        loop {
            let bytes =
                self.fetch(entry.byte_offset()..entry.byte_offset() + len.min(available))?;
            events.counters.fetched_bytes += bytes.len() as u64;
            scratch.text.truncate(start);
            scratch
                .inflater
                .prefix(&piece, &bytes, wanted, &mut scratch.text);
            if scratch.text.text().len() - start == wanted {
                return Ok(());
            }
            if len >= available {
                return Err(ReadError::Shrunk {
                    place: self.fetch.place(),
                });
            }
            len *= 8;
        }
    }

    /// The entry of a checkpoint, with its window.
    fn entry(
        &self,
        sidecar: &OpenSidecar,
        checkpoint: &Checkpoint,
        events: &mut Events<'_, '_>,
    ) -> Result<Entry, ReadError> {
        let window = match &checkpoint.window {
            Window::Member => None,
            Window::Loaded(window) => Some(window.as_slice().into()),
            Window::Stored(stored) => {
                let place = sidecar.fetch.place();
                let range = stored.offset..stored.offset + u64::from(stored.length);
                let bytes = sidecar
                    .fetch
                    .fetch_one(range)
                    .map_err(|error| ReadError::fetch(&*place, error))?;
                events.counters.fetched_bytes += bytes.len() as u64;
                let window = stored
                    .load(&bytes)
                    .map_err(|source| ReadError::Window { place, source })?;
                Some(window.into())
            }
        };
        let text_offset = checkpoint.raw_offset;
        Ok(Entry {
            bit_offset: bit_offset(checkpoint),
            text_offset,
            window,
        })
    }
}

/// Longer pieces are streamed instead of decompressed into memory.
const PIECE_BYTES_MAX: u64 = 64 << 20;
/// Compressed bytes that are searched first for the rest of a line.
const START_BYTES: u64 = 64 << 10;

fn bit_offset(checkpoint: &Checkpoint) -> u64 {
    (checkpoint.offset * 8).saturating_sub(u64::from(checkpoint.bits))
}

/// A piece whose window is not loaded.
struct PieceAt<'s> {
    checkpoint: &'s Checkpoint,
    end: PieceEnd,
    raw: Range<u64>,
}

impl PieceAt<'_> {
    fn piece<'e>(&self, entry: &'e Entry) -> Piece<'e> {
        Piece {
            entry,
            end: self.end,
            text_len: self.raw.end - self.raw.start,
        }
    }
}
