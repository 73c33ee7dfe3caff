//! What a reader in order wants next: pieces that are fetched into memory before it asks for them.
//! They pass by the file, and leave its cached bytes to those who come back.
//!
//! A reader that has to wait is given more pieces at once, up to a limit; one that is slower than
//! the store comes down to two. All pieces of all readers share a limit of memory: beyond it, a
//! reader that has nothing gets its next piece through the file.

use std::{
    collections::VecDeque,
    io,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::{FutureExt, future::Shared};
use storage_format::tier_file::GRANULE_BYTES;
use tokio::{sync::OwnedSemaphorePermit, task::JoinHandle};

use crate::unfetched::Unfetched;

/// Bytes of the first piece, and of the longest, which is one request.
pub(super) const FIRST_BYTES: u64 = 256 << 10;
const LONGEST_BYTES: u64 = 8 << 20;
/// Pieces that are fetched at once for a reader: at first, and at most.
const WIDTH_FIRST: usize = 2;
const WIDTH_MAX: usize = 8;
/// After so many pieces that a reader did not wait for, it gets one less at once.
const CALM_MAX: u32 = 4;

/// The next bytes of a reader in order.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    /// They can be read from the file.
    InFile(Range<u64>),
    /// They are here, and match their checksums.
    InMemory(Range<u64>, Arc<Held>),
}

impl Piece {
    pub(super) fn range(&self) -> Range<u64> {
        match self {
            Self::InFile(range) | Self::InMemory(range, _) => range.clone(),
        }
    }
}

/// A piece that arrives later. Whoever wants the same piece meanwhile waits for the same request,
/// which ends when nobody does any more.
pub(super) type Arriving = Shared<Work>;
pub(super) type Work = Pin<Box<dyn Future<Output = Arrived> + Send>>;
/// The piece, or why there is none.
pub(super) type Arrived = Result<Piece, Arc<io::Error>>;

/// A piece that a reader has asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) range: Range<u64>,
    pub(super) arriving: Arriving,
    /// Whether another reader asked for it first. It may have done so while the store was down, and
    /// its failure is none of this reader.
    pub(super) is_of_another: bool,
}

impl Asked {
    pub(super) fn own(range: Range<u64>, arriving: Arriving) -> Self {
        Self {
            range,
            arriving,
            is_of_another: false,
        }
    }
}

/// A task that ends with whoever waits for it.
struct Waited(JoinHandle<Arrived>);

impl Drop for Waited {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Lets work go on in a task of its own for as long as somebody waits for it.
pub(super) fn arriving(
    handle: &tokio::runtime::Handle,
    work: impl Future<Output = Arrived> + Send + 'static,
) -> Arriving {
    let mut task = Waited(handle.spawn(work));
    let arrived = async move {
        let ended = (&mut task.0).await;
        ended.unwrap_or_else(|error| Err(Arc::new(io::Error::other(error))))
    };
    arrived.boxed().shared()
}

/// Bytes in memory, one slice behind the other, with their part of the limit.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) slices: Vec<Bytes>,
    pub(super) _memory: OwnedSemaphorePermit,
}

/// How a piece is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// If there is memory for it: the reader has others before.
    Ahead,
    /// In any case: the reader waits for it.
    Awaited,
    /// As that, and not from whoever asked for it before.
    Anew,
}

/// Asks for a piece of the file.
pub(super) type Ask<'a> = &'a dyn Fn(Range<u64>, Want) -> Option<Asked>;

/// The pieces that a reader in order gets next.
#[derive(Debug)]
pub(super) struct Window {
    /// Where the reader began.
    begin: u64,
    /// Where it is.
    position: u64,
    /// Where the next piece begins that was not asked for.
    next: u64,
    /// Where it ends, if that is known; otherwise nothing is asked for beyond twice what it read.
    end: Option<u64>,
    /// Length of the file.
    length: u64,
    pieces: VecDeque<Asked>,
    /// The piece that has arrived and was not taken.
    front: Option<Arrived>,
    width: usize,
    has_waited: bool,
    /// Pieces since the last one that was waited for.
    calm: u32,
}

impl Window {
    /// For a reader of a file of `length` bytes that began at `begin`, is at `position` and reads
    /// up to `end`.
    pub(super) fn new((begin, position): (u64, u64), end: Option<u64>, length: u64) -> Self {
        Self {
            length,
            begin,
            position,
            next: (position / GRANULE_BYTES).saturating_mul(GRANULE_BYTES),
            end,
            pieces: VecDeque::new(),
            front: None,
            width: WIDTH_FIRST,
            has_waited: false,
            calm: 0,
        }
    }

    /// Where pieces end at this moment.
    fn limit(&self) -> u64 {
        let limit = self.end.unwrap_or_else(|| {
            let read = self.position.saturating_sub(self.begin);
            let ahead = read.max(FIRST_BYTES);
            self.position.saturating_add(ahead)
        });
        let granules = limit.div_ceil(GRANULE_BYTES);
        granules.saturating_mul(GRANULE_BYTES).min(self.length)
    }

    /// Asks for pieces until there are as many as the reader deserves.
    fn ask(&mut self, ask: Ask<'_>) {
        let limit = self.limit();
        while self.pieces.len() < self.width && self.next < limit {
            let read = self.next.saturating_sub(self.begin);
            // Depends on nothing but the place, so that readers of the same bytes share pieces. Who
            // says where it ends wants all of it.
            let growth = if self.end.is_some() { 2 } else { 1 };
            let longest = read.next_power_of_two().saturating_mul(growth);
            let longest = longest.clamp(FIRST_BYTES, LONGEST_BYTES);
            let end = self.next.saturating_add(longest).min(limit);
            let has_none = self.pieces.is_empty() && self.front.is_none();
            let want = if has_none { Want::Awaited } else { Want::Ahead };
            let Some(piece) = ask(self.next..end, want) else {
                return;
            };
            self.pieces.push_back(piece);
            self.next = end;
        }
    }

    /// The next piece; `None` behind the last one.
    pub(super) fn poll_next(
        &mut self,
        ask: Ask<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Arrived>> {
        ready!(self.poll_front(ask, cx));
        let arrived = self.front.take();
        self.adapt();
        if let Some(Ok(piece)) = &arrived {
            self.position = piece.range().end;
            // Before the reader is done with this one.
            self.ask(ask);
        }
        Poll::Ready(arrived)
    }

    /// As many pieces at once as the reader needs, by whether it waited for this one.
    fn adapt(&mut self) {
        if std::mem::take(&mut self.has_waited) {
            self.width = self.width.saturating_mul(2).min(WIDTH_MAX);
            self.calm = 0;
            return;
        }
        self.calm = self.calm.saturating_add(1);
        if self.calm >= CALM_MAX {
            self.width = self.width.saturating_sub(1).max(WIDTH_FIRST);
            self.calm = 0;
        }
    }

    /// Ready when the next piece has arrived, or none is left.
    pub(super) fn poll_front(&mut self, ask: Ask<'_>, cx: &mut Context<'_>) -> Poll<()> {
        if self.front.is_some() {
            return Poll::Ready(());
        }
        self.ask(ask);
        while let Some(next) = self.pieces.front_mut() {
            let Poll::Ready(arrived) = next.arriving.poll_unpin(cx) else {
                self.has_waited = true;
                return Poll::Pending;
            };
            let asked = self.pieces.pop_front();
            let anew = asked.filter(|asked| arrived.is_err() && asked.is_of_another);
            match anew.and_then(|asked| ask(asked.range, Want::Anew)) {
                Some(anew) => self.pieces.push_front(anew),
                None => {
                    self.front = Some(arrived);
                    return Poll::Ready(());
                }
            }
        }
        Poll::Ready(())
    }

    /// Why the piece that has arrived cannot be used.
    pub(super) fn front_error(&self) -> Option<io::Error> {
        match &self.front {
            Some(Err(error)) => Some(own_error(error)),
            _ => None,
        }
    }
}

/// An error of several readers, for one of them. That of a disk stays one.
pub(super) fn own_error(error: &Arc<io::Error>) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => Unfetched::again(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A window, and what was asked for.
    fn run(window: &mut Window, waits: impl Fn(usize) -> bool, pieces: usize) -> Vec<Range<u64>> {
        let asked = std::cell::RefCell::new(Vec::new());
        let ask = |range: Range<u64>, _| {
            asked.borrow_mut().push(range.clone());
            let here = Ok(Piece::InFile(range.clone()));
            let arriving = std::future::ready(here).boxed().shared();
            Some(Asked::own(range, arriving))
        };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for number in 0..pieces {
            window.has_waited |= waits(number);
            if matches!(window.poll_next(&ask, &mut cx), Poll::Ready(None)) {
                break;
            }
        }
        asked.into_inner()
    }

    #[test]
    fn pieces_grow_and_follow_each_other() {
        let length = 100 * MIB + 5;
        let mut window = Window::new((0, 0), Some(length), length);
        let asked = run(&mut window, |_| true, 100);
        let lengths: Vec<u64> = asked.iter().map(|range| range.end - range.start).collect();
        assert_eq!(lengths[..3], [MIB / 4, MIB / 2, 2 * MIB]);
        assert!(lengths.iter().all(|length| *length <= LONGEST_BYTES));
        let ends = asked.iter().map(|range| range.end);
        let begins: Vec<u64> = asked.iter().map(|range| range.start).collect();
        let follows: Vec<u64> = std::iter::once(0).chain(ends).collect();
        assert_eq!(begins, follows[..begins.len()]);
        assert_eq!(follows.last(), Some(&length));
        assert!(begins.iter().all(|begin| begin % GRANULE_BYTES == 0));
    }

    #[test]
    fn a_reader_that_waits_gets_more_at_once_and_one_that_does_not_less() {
        let mut window = Window::new((0, 0), Some(1 << 40), 1 << 40);
        run(&mut window, |number| number < 2, 3);
        assert_eq!(window.pieces.len(), WIDTH_MAX);
        run(&mut window, |_| false, 100);
        assert_eq!(window.pieces.len(), WIDTH_FIRST);
    }

    #[test]
    fn whose_end_is_not_known_gets_at_most_what_it_has_read() {
        let mut window = Window::new((0, 512 << 10), None, 1 << 40);
        for _ in 0..40 {
            run(&mut window, |_| true, 1);
            let read = window.position;
            assert!(window.next <= 2 * read, "{} behind {read}", window.next);
        }
        assert!(window.pieces.len() > 2, "{}", window.pieces.len());
    }
}
