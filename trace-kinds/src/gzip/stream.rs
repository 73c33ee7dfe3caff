//! The inflater of streams.

use zlib_rs::{Inflate, InflateFlush, Status};

use super::text::TextBuffer;

/// Window bits with which zlib expects a gzip header and verifies the trailer.
const GZIP_WINDOW_BITS: u8 = 16 + 15;
const RAW_WINDOW_BITS: u8 = 15;
/// Space that is allocated at a time, so that a claimed length allocates nothing in advance.
const APPEND_BYTES: usize = 1 << 20;

/// The result of one step of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes of input consumed.
    pub(super) consumed: usize,
    /// Bytes of text produced.
    pub(super) produced: usize,
    pub(super) state: StepState,
}

/// Where a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepState {
    /// Input or space is used up, or a block ended.
    Paused,
    /// The member is complete; a gzip trailer was verified.
    Ended,
    /// The bytes are not a deflate stream, or the trailer does not match the text.
    Damaged,
}

/// What a stream appended to a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Appended {
    /// Bytes of input consumed.
    pub(super) consumed: usize,
    /// Whether the stream is damaged after the text.
    pub(super) is_damaged: bool,
}

/// A deflate stream, of a gzip member or from a block inside one.
pub(super) struct Stream {
    inflate: Inflate,
}

impl Stream {
    /// A stream that starts with a member header.
    pub(super) fn at_member() -> Stream {
        Stream {
            inflate: Inflate::new(true, GZIP_WINDOW_BITS),
        }
    }

    /// A raw deflate stream whose first bit is the lowest of its first byte, with the text before
    /// it. `None` for a window that zlib refuses.
    pub(super) fn at_block(window: &[u8]) -> Option<Stream> {
        let mut inflate = Inflate::new(false, RAW_WINDOW_BITS);
        inflate.set_dictionary(window).ok()?;
        Some(Stream { inflate })
    }

    /// Inflates `input` into `space`; with `to_block`, to the end of a block at most.
    pub(super) fn step(&mut self, input: &[u8], space: &mut [u8], to_block: bool) -> Step {
        let flush = if to_block {
            InflateFlush::Block
        } else {
            InflateFlush::NoFlush
        };
        let before = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(input, space, flush);
        let after = (self.inflate.total_in(), self.inflate.total_out());
        let consumed = usize::try_from(after.0 - before.0).expect("at most the input");
        let produced = usize::try_from(after.1 - before.1).expect("at most the space");
        let state = match status {
            Ok(Status::StreamEnd) => StepState::Ended,
            Ok(Status::Ok | Status::BufError) => StepState::Paused,
            Err(_) => StepState::Damaged,
        };
        Step {
            consumed,
            produced,
            state,
        }
    }

    /// Inflates at most `text_max` bytes of one member and appends them to `text`; returns the
    /// bytes consumed, `None` for none. The text before damage or a torn end counts.
    pub(super) fn append(
        &mut self,
        bytes: &[u8],
        text_max: usize,
        text: &mut TextBuffer,
    ) -> Option<Appended> {
        let (mut consumed, mut produced, mut is_damaged) = (0, 0, false);
        loop {
            let space = text.space((text_max - produced).min(APPEND_BYTES));
            let step = self.step(&bytes[consumed..], space, false);
            text.advance(step.produced);
            consumed += step.consumed;
            produced += step.produced;
            is_damaged |= step.state == StepState::Damaged;
            let stuck = step.consumed == 0 && step.produced == 0;
            if step.state != StepState::Paused || stuck {
                break;
            }
        }
        // An empty member produces no text but consumes bytes.
        (produced > 0 || consumed > 0).then_some(Appended {
            consumed,
            is_damaged,
        })
    }
}
