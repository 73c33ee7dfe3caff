//! Where decoding can begin in a file, and the bytes that chunks need from there.

use chunk_index::{Checkpoint, Chunk, Window};
use trace_kinds::gzip::Entry;

/// A place in a file where a chunk begins, and decoding can begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Begin {
    /// Offset in the file.
    pub(super) offset: u64,
    /// Offset in its text.
    pub(super) raw_offset: u64,
    /// Its line.
    pub(super) line: u64,
    /// Chunks before it.
    pub(super) chunks: u64,
}

pub(super) fn checkpoint(entry: Entry) -> Checkpoint {
    let offset = entry.bit_offset.div_ceil(8);
    Checkpoint {
        raw_offset: entry.text_offset,
        offset,
        // At most seven.
        bits: u8::try_from(offset * 8 - entry.bit_offset).unwrap_or(0),
        window: match entry.window {
            None => Window::Member,
            Some(window) => Window::Loaded(window.into_vec()),
        },
    }
}

/// The bytes of the file between the checkpoint before the chunk and the one after it.
pub(super) fn compressed_range(
    checkpoints: &[Checkpoint],
    chunk: &Chunk,
    file_len: u64,
) -> (u64, u64) {
    let end = chunk.raw_offset + chunk.raw_length;
    let first = checkpoints.partition_point(|c| c.raw_offset <= chunk.raw_offset);
    let start = match first.checked_sub(1).and_then(|at| checkpoints.get(at)) {
        Some(checkpoint) => checkpoint.offset - u64::from(checkpoint.bits > 0),
        None => 0,
    };
    let next = checkpoints
        .iter()
        .find(|checkpoint| checkpoint.raw_offset >= end);
    (
        start,
        next.map_or(file_len, |checkpoint| checkpoint.offset) - start,
    )
}
