//! Inflating bytes as they come.

use zlib_rs::{Inflate, InflateFlush, Status};

use super::text::TextBuffer;

/// Window bits that tell zlib to expect a gzip header and to check the trailer.
const GZIP_WINDOW_BITS: u8 = 16 + 15;
const RAW_WINDOW_BITS: u8 = 15;
/// Room that is made at once, so that a promised length costs nothing before it is there.
const APPEND_BYTES: usize = 1 << 20;

/// What one step of a stream did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes of input taken.
    pub(super) taken: usize,
    /// Bytes of text given.
    pub(super) given: usize,
    pub(super) state: StepState,
}

/// Where a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepState {
    /// Input or room is used up, or a block ended.
    Paused,
    /// The member is whole; a gzip trailer was checked.
    Ended,
    /// The bytes are no deflate stream, or their trailer does not fit their text.
    Damaged,
}

/// A deflate stream, in a gzip member or from a block inside one.
pub(super) struct Stream {
    inflate: Inflate,
}

impl Stream {
    /// A stream that begins with a member header.
    pub(super) fn at_member() -> Stream {
        Stream {
            inflate: Inflate::new(true, GZIP_WINDOW_BITS),
        }
    }

    /// A raw deflate stream whose first bit is the lowest of its first byte, with the text in
    /// front of it. `None` for a window that zlib refuses.
    pub(super) fn at_block(window: &[u8]) -> Option<Stream> {
        let mut inflate = Inflate::new(false, RAW_WINDOW_BITS);
        inflate.set_dictionary(window).ok()?;
        Some(Stream { inflate })
    }

    /// Inflates from `input` into `room`, to the end of a block at most with `to_block`.
    pub(super) fn step(&mut self, input: &[u8], room: &mut [u8], to_block: bool) -> Step {
        let flush = if to_block {
            InflateFlush::Block
        } else {
            InflateFlush::NoFlush
        };
        let before = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(input, room, flush);
        // Both differences are at most the lengths of the slices.
        let taken = (self.inflate.total_in() - before.0) as usize;
        let given = (self.inflate.total_out() - before.1) as usize;
        let state = match status {
            Ok(Status::StreamEnd) => StepState::Ended,
            Ok(Status::Ok | Status::BufError) => StepState::Paused,
            Err(_) => StepState::Damaged,
        };
        Step {
            taken,
            given,
            state,
        }
    }

    /// Inflates at most `text_max` bytes of one member onto the end of `text`; gives the bytes
    /// that it takes, `None` for none. What a damaged or cut member gives before its fault counts.
    pub(super) fn append(
        &mut self,
        bytes: &[u8],
        text_max: usize,
        text: &mut TextBuffer,
    ) -> Option<usize> {
        let (mut taken, mut given) = (0, 0);
        loop {
            let room = text.room((text_max - given).min(APPEND_BYTES));
            let step = self.step(&bytes[taken..], room, false);
            text.advance(step.given);
            taken += step.taken;
            given += step.given;
            let stuck = step.taken == 0 && step.given == 0;
            if step.state != StepState::Paused || stuck {
                break;
            }
        }
        // An empty member is no progress of text, but it is one of bytes.
        (given > 0 || taken > 0).then_some(taken)
    }
}
