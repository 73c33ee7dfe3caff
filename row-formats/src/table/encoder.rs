//! A table that is filled and encoded on a thread of its own, beside the one that puts rows in
//! order: each of them takes about as long as the other.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::open_table::OpenTable;

/// Blocks of rows that wait.
const BLOCKS_MAX: usize = 2;

/// Rows in order, each after its length.
#[derive(Debug)]
pub(super) struct RowBlock(Vec<u8>);

impl RowBlock {
    /// An empty block with space for so many bytes.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(super) fn push(&mut self, row: &[u8]) -> io::Result<()> {
        let length = u32::try_from(row.len()).map_err(io::Error::other)?;
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(row);
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Adds the rows to a table.
    pub(super) fn add_to(&self, table: &mut OpenTable) -> io::Result<()> {
        let mut left = &self.0[..];
        while let Some((length, rest)) = left.split_first_chunk() {
            let (row, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
            table.row(row)?;
            left = rest;
        }
        Ok(())
    }
}

/// The thread. It ends with its encoder, also when that is dropped.
pub(super) struct Encoder {
    blocks: SyncSender<RowBlock>,
    encoded: Receiver<Vec<u8>>,
    thread: JoinHandle<io::Result<OpenTable>>,
}

impl Encoder {
    /// Goes on with a table.
    pub(super) fn start(table: OpenTable) -> io::Result<Encoder> {
        let (blocks, arriving) = sync_channel(BLOCKS_MAX);
        // Never full: a block gives at most one piece of bytes, and `add` takes all that are there.
        let (done, encoded) = sync_channel(BLOCKS_MAX + 2);
        let thread = thread::Builder::new().name("encode table".to_owned());
        let thread = thread.spawn(move || encode(table, &arriving, &done))?;
        Ok(Encoder {
            blocks,
            encoded,
            thread,
        })
    }

    /// Passes rows on; waits while others wait. Returns what was encoded meanwhile.
    pub(super) fn add(&self, block: RowBlock) -> impl Iterator<Item = Vec<u8>> {
        // It fails if the thread has failed, which `finish` returns.
        let _ = self.blocks.send(block);
        self.encoded.try_iter()
    }

    /// Whether the thread has failed.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until all rows are encoded. Returns the table, and what was encoded.
    pub(super) fn finish(self) -> io::Result<(OpenTable, Vec<Vec<u8>>)> {
        drop(self.blocks);
        let encoded = self.encoded.iter().collect();
        // A panic of the thread is a bug and is propagated.
        let table = self.thread.join();
        let table = table.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((table, encoded))
    }
}

fn encode(
    mut table: OpenTable,
    arriving: &Receiver<RowBlock>,
    done: &SyncSender<Vec<u8>>,
) -> io::Result<OpenTable> {
    for block in arriving {
        block.add_to(&mut table)?;
        let bytes = table.take();
        if !bytes.is_empty() && done.send(bytes).is_err() {
            // Nobody wants the table any more.
            break;
        }
    }
    Ok(table)
}
