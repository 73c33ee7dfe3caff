//! The inspections of a connection, for fuzz targets.

use std::time::Instant;

use super::frames::Frames;
use super::framing::{AmbiguityFlag, Framing};

/// The first ambiguous request, if there is one, whether a head is awaited, and whether a request
/// has begun.
pub(crate) fn inspect_http1(pieces: &[&[u8]]) -> (Option<u64>, bool, bool) {
    let (mut framing, flag) = (Framing::default(), AmbiguityFlag::default());
    for piece in pieces {
        framing.observe(piece, &flag);
    }
    let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
    let first = (0..=bytes as u64).find(|&index| flag.is_ambiguous(index));
    (first, framing.awaits_head(), framing.is_within_request())
}

/// The same for HTTP/2, and what there was a flood of.
pub(crate) fn inspect_http2(
    pieces: &[&[u8]],
    now: Instant,
) -> Result<(bool, bool, usize), &'static str> {
    let mut frames = Frames::new(now);
    for piece in pieces {
        frames.observe(piece, now).map_err(|flood| flood.0)?;
    }
    Ok((
        frames.awaits_head(),
        frames.is_within_request(),
        frames.unsent_responses(),
    ))
}
