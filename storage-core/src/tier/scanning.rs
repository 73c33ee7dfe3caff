//! Readers in order of a file that may have holes: what they are given, and from where.

use std::{
    future::poll_fn,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::sync::OwnedSemaphorePermit;

use super::{
    ahead::{Reading, Step},
    granules::granules_of,
    resident::Resident,
    window::{Arrived, Asked, Held, Piece, Want, Window, arriving, own_error},
};

impl Resident {
    /// Fills `buffer` from `offset`. A scan passes by the file. Blocks the thread.
    pub(crate) fn fill(self: &Arc<Self>, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let range = offset..offset.saturating_add(buffer.len() as u64);
        if range.end <= self.length() && !self.has(&range) {
            let step = self.scans.lock().step(&range, self.length());
            if let Step::Ahead(mut reading) = step {
                self.fill_ahead(&mut reading, buffer, offset)?;
                self.scans.lock().keep(range.end, reading);
                return Ok(());
            }
            self.ensure_blocking(&range)?;
        }
        self.file().read_exact_at(buffer, offset)
    }

    /// Fills `buffer` from `offset`, where the last read of the scan has ended.
    fn fill_ahead(
        self: &Arc<Self>,
        reading: &mut Reading,
        mut buffer: &mut [u8],
        mut offset: u64,
    ) -> io::Result<()> {
        while !buffer.is_empty() {
            let end = reading.piece.as_ref().map_or(0, |piece| piece.range().end);
            let Some(piece) = reading.piece.as_ref().filter(|_| offset < end) else {
                let ask = |range: Range<u64>, want| self.piece(range, want);
                let window = &mut reading.window;
                let arrived = self.block_on(poll_fn(|cx| window.poll_next(&ask, cx)));
                let arrived = arrived.ok_or(io::ErrorKind::UnexpectedEof)?;
                reading.piece = Some(arrived.map_err(|error| own_error(&error))?);
                continue;
            };
            let left = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
            let count = left.min(buffer.len());
            let (part, rest) = buffer.split_at_mut(count);
            match piece {
                Piece::InFile(_) => self.file().read_exact_at(part, offset)?,
                Piece::InMemory(range, held) => {
                    copy(&held.slices, offset.saturating_sub(range.start), part)?;
                }
            }
            offset = offset.saturating_add(count as u64);
            buffer = rest;
        }
        Ok(())
    }

    /// A piece of at most 8 MiB for a reader in order: one that somebody waits for already, or one
    /// that is begun. `None` if memory is short and the reader can go on without it; a reader that
    /// cannot gets it through the file.
    fn piece(self: &Arc<Self>, range: Range<u64>, want: Want) -> Option<Asked> {
        if self.has(&range) {
            let here = Ok(Piece::InFile(range.clone()));
            return Some(Asked::own(range, std::future::ready(here).boxed().shared()));
        }
        let known = self.pieces.join(&range).filter(|_| want != Want::Anew);
        if known.is_some() {
            return known;
        }
        let is_found = granules_of(&range).any(|granule| self.found.has(granule));
        let memory = if is_found { None } else { self.memory(&range) };
        let (this, handle) = (Arc::clone(self), &self.facts.cache.handle);
        let arriving = match memory {
            Some(memory) => arriving(handle, this.in_memory(range.clone(), memory)),
            None if is_found || want != Want::Ahead => {
                arriving(handle, this.in_file(range.clone()))
            }
            None => return None,
        };
        self.pieces.add(&range, &arriving);
        Some(Asked::own(range, arriving))
    }

    /// Room in memory for a piece, if there is some.
    fn memory(&self, range: &Range<u64>) -> Option<OwnedSemaphorePermit> {
        let supply = self.facts.cache.supply.read();
        let memory = Arc::clone(&supply.as_ref()?.memory);
        let granules = granules_of(range);
        let count = granules.end.saturating_sub(granules.start);
        memory
            .try_acquire_many_owned(u32::try_from(count).ok()?)
            .ok()
    }

    async fn in_memory(
        self: Arc<Self>,
        range: Range<u64>,
        memory: OwnedSemaphorePermit,
    ) -> Arrived {
        let granules = granules_of(&range);
        let count = granules.end.saturating_sub(granules.start);
        self.facts.note_use();
        self.facts.cache.misses.fetch_add(count, Ordering::Relaxed);
        let slices = self.slices(&range).await.map_err(Arc::new)?;
        let held = Held {
            slices,
            _memory: memory,
        };
        Ok(Piece::InMemory(range, Arc::new(held)))
    }

    async fn in_file(self: Arc<Self>, range: Range<u64>) -> Arrived {
        let ensured = self.ensure(std::slice::from_ref(&range)).await;
        ensured.map_err(Arc::new)?;
        Ok(Piece::InFile(range))
    }
}

/// Copies what begins at `from` of the slices.
fn copy(slices: &[Bytes], from: u64, mut to: &mut [u8]) -> io::Result<()> {
    let mut skipped = usize::try_from(from).unwrap_or(usize::MAX);
    for slice in slices {
        let known = slice.get(skipped..).unwrap_or_default();
        skipped = skipped.saturating_sub(slice.len());
        let (part, rest) = to.split_at_mut(known.len().min(to.len()));
        part.copy_from_slice(&known[..part.len()]);
        to = rest;
    }
    if to.is_empty() {
        return Ok(());
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// The next bytes of a scan.
#[derive(Debug, PartialEq, Eq)]
pub enum Scanned {
    /// They can be read from the file.
    InFile(Range<u64>),
    /// They are these.
    InMemory(Bytes),
}

/// A range of a file that is read in order and once, such as the body of a response.
#[derive(Debug)]
pub struct RangeScan {
    resident: Arc<Resident>,
    window: Window,
    range: Range<u64>,
    /// What of the piece that arrived last is left, with what keeps its part of the limit.
    left: std::vec::IntoIter<Bytes>,
    held: Option<Arc<Held>>,
}

impl RangeScan {
    pub(crate) fn new(resident: Arc<Resident>, range: Range<u64>) -> Self {
        Self {
            window: Window::new(
                (range.start, range.start),
                Some(range.end),
                resident.length(),
            ),
            resident,
            range,
            left: Vec::new().into_iter(),
            held: None,
        }
    }

    /// Ready when the first bytes have arrived, or cannot.
    ///
    /// # Errors
    /// When they cannot; the scan is of no use then.
    pub async fn first(&mut self) -> io::Result<()> {
        let Self {
            resident, window, ..
        } = self;
        let ask = |range: Range<u64>, want| resident.piece(range, want);
        poll_fn(|cx| window.poll_front(&ask, cx)).await;
        window.front_error().map_or(Ok(()), Err)
    }

    /// The next bytes of the range; they follow those before.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Scanned>>> {
        if let Some(slice) = self.left.next() {
            return Poll::Ready(Some(Ok(Scanned::InMemory(slice))));
        }
        self.held = None;
        let ask = |range: Range<u64>, want| self.resident.piece(range, want);
        let arrived = ready!(self.window.poll_next(&ask, cx));
        let next = match arrived {
            None => return Poll::Ready(None),
            Some(Err(error)) => Err(own_error(&error)),
            Some(Ok(Piece::InFile(piece))) => Ok(Scanned::InFile(within(&piece, &self.range))),
            Some(Ok(Piece::InMemory(piece, held))) => {
                let mut left = cut(&held.slices, &piece, &self.range).into_iter();
                self.held = Some(held);
                let first = left.next().unwrap_or_default();
                self.left = left;
                Ok(Scanned::InMemory(first))
            }
        };
        Poll::Ready(Some(next))
    }
}

/// What of a piece is in a range.
fn within(piece: &Range<u64>, range: &Range<u64>) -> Range<u64> {
    let start = piece.start.max(range.start);
    start..piece.end.min(range.end).max(start)
}

/// The slices of a piece as far as they are in a range.
fn cut(slices: &[Bytes], piece: &Range<u64>, range: &Range<u64>) -> Vec<Bytes> {
    let wanted = within(piece, range);
    let (mut cut, mut at) = (Vec::with_capacity(slices.len()), piece.start);
    for slice in slices {
        let end = at.saturating_add(slice.len() as u64);
        let part = within(&(at..end), &wanted);
        let place = |offset: u64| usize::try_from(offset.saturating_sub(at)).unwrap_or(0);
        if part.start < part.end && part.end <= end {
            cut.push(slice.slice(place(part.start)..place(part.end)));
        }
        at = end;
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_cut_to_their_range_and_copied_across() {
        let slices = ["0123", "45", "6789"].map(|text| Bytes::from_static(text.as_bytes()));
        for (range, expected) in [(0..100, "0123456789"), (12..15, "234"), (19..30, "9")] {
            let found = cut(&slices, &(10..20), &range).concat();
            assert_eq!(found, expected.as_bytes(), "{range:?}");
        }
        assert!(cut(&slices, &(10..20), &(30..40)).is_empty());
        let mut bytes = [0; 5];
        copy(&slices, 2, &mut bytes).unwrap();
        assert_eq!(&bytes, b"23456");
        assert!(copy(&slices, 6, &mut bytes).is_err(), "it ends before");
    }
}
