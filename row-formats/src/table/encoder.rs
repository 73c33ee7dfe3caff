//! A step of a table on a thread of its own. Rows become columns on one thread and columns become
//! bytes on another, beside the one that puts rows in order: each takes about as long.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Blocks that wait for a step.
const WAITING_MAX: usize = 2;

/// Bytes of a result, in order.
pub(super) type Pieces = Vec<Vec<u8>>;

/// What a thread does with the blocks that arrive.
pub(super) trait Step: Send + 'static {
    /// What arrives.
    type Block: Send + 'static;

    /// The name of the thread, of at most 15 bytes.
    const THREAD: &str;

    /// Adds a block.
    fn add(&mut self, block: Self::Block) -> io::Result<()>;

    /// The bytes encoded since the last call.
    fn take(&mut self) -> Pieces;
}

/// A step. Its thread begins with the first block, so that a short table has none, and ends with
/// its encoder, also when that is dropped.
pub(super) struct Encoder<S: Step>(Option<StepThread<S>>);

struct StepThread<S: Step> {
    blocks: SyncSender<S::Block>,
    encoded: Receiver<Pieces>,
    thread: JoinHandle<io::Result<S>>,
}

impl<S: Step> Encoder<S> {
    pub(super) fn new() -> Self {
        Self(None)
    }

    /// Passes a block on; waits while others wait. Returns what was encoded meanwhile. `begin` is
    /// the step before its first block.
    pub(super) fn add(
        &mut self,
        block: S::Block,
        begin: impl FnOnce() -> io::Result<S>,
    ) -> io::Result<impl Iterator<Item = Vec<u8>>> {
        let thread = match self.0.take() {
            Some(thread) if thread.thread.is_finished() => {
                thread.finish()?;
                return Err(io::Error::other("the encoder of the table has ended"));
            }
            Some(thread) => thread,
            None => StepThread::start(begin()?)?,
        };
        let thread = self.0.insert(thread);
        // It fails if the thread has failed, which `finish` returns.
        let _ = thread.blocks.send(block);
        Ok(thread.encoded.try_iter().flatten())
    }

    /// Waits until all blocks are encoded. Returns the step, and what was encoded.
    pub(super) fn finish(
        &mut self,
        begin: impl FnOnce() -> io::Result<S>,
    ) -> io::Result<(S, Pieces)> {
        match self.0.take() {
            Some(thread) => thread.finish(),
            None => Ok((begin()?, Pieces::new())),
        }
    }
}

impl<S: Step> StepThread<S> {
    fn start(step: S) -> io::Result<Self> {
        let (blocks, arriving) = sync_channel(WAITING_MAX);
        // Never full: a block gives pieces at most once, and `add` takes all that are there.
        let (done, encoded) = sync_channel(WAITING_MAX + 2);
        let thread = thread::Builder::new().name(S::THREAD.to_owned());
        let thread = thread.spawn(move || encode(step, &arriving, &done))?;
        Ok(Self {
            blocks,
            encoded,
            thread,
        })
    }

    fn finish(self) -> io::Result<(S, Pieces)> {
        drop(self.blocks);
        let encoded = self.encoded.iter().flatten().collect();
        // A panic of the thread is a bug and is propagated.
        let step = self.thread.join();
        let step = step.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((step, encoded))
    }
}

fn encode<S: Step>(
    mut step: S,
    arriving: &Receiver<S::Block>,
    done: &SyncSender<Pieces>,
) -> io::Result<S> {
    for block in arriving {
        step.add(block)?;
        let pieces = step.take();
        if !pieces.is_empty() && done.send(pieces).is_err() {
            // Nobody wants the table any more.
            break;
        }
    }
    Ok(step)
}
