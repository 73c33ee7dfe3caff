//! The decoded bytes of a request body, in pieces and within limits.

use axum::body::Body;
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use storage_core::Holder;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Duration, Instant, timeout_at};

use super::admission::Reservation;
use super::encoding::{ContentEncoding, Decoder, DecoderMemory};
use super::error::IngestError;
use crate::problem::Problem;
use crate::request_body::BodyError;

/// Minimum growth of the buffer for a packet of unknown length, in bytes.
const GROWTH_BYTES_MIN: usize = 64 << 10;
/// Bytes that are reserved because a length was declared: who declares much and sends nothing must
/// not keep others out.
const DECLARED_BYTES_MAX: u64 = 16 << 10;
/// From this many bytes on a packet must keep arriving at [`HELD_BYTES_PER_SECOND_MIN`]: it takes
/// memory that others wait for.
const HELD_BYTES: usize = 1 << 20;
/// Minimum rate of a packet that takes more than [`HELD_BYTES`], after [`HELD_GRACE`].
const HELD_BYTES_PER_SECOND_MIN: usize = 512 << 10;
/// From this many bytes on, what is held is to be complete within [`DOUBLING_SECONDS`] if it were
/// to double: the minimum rate rises with what is held.
const RISING_BYTES: usize = 16 << 20;
const DOUBLING_SECONDS: usize = RISING_BYTES / HELD_BYTES_PER_SECOND_MIN;
/// Time in which no rate is required.
const HELD_GRACE: Duration = Duration::from_secs(10);

/// The longest that `held` bytes of a packet may take to arrive.
fn longest_for(held: usize) -> Duration {
    let at_first = held.min(RISING_BYTES) / HELD_BYTES_PER_SECOND_MIN;
    // Each step of RISING_BYTES at the rate of what is held when it begins.
    let steps = held.saturating_sub(RISING_BYTES) / RISING_BYTES;
    let rising: f64 = (1..=steps)
        .map(|step| DOUBLING_SECONDS as f64 / step as f64)
        .sum();
    let rest = held.saturating_sub(RISING_BYTES) % RISING_BYTES;
    let rest = rest as f64 / RISING_BYTES as f64 * DOUBLING_SECONDS as f64 / (steps + 1) as f64;
    HELD_GRACE + Duration::from_secs(at_first as u64) + Duration::from_secs_f64(rising + rest)
}

/// Reads and decodes a request body.
pub(super) struct BodyReader {
    body: Body,
    decoder: Option<Decoder>,
    memory: DecoderMemory,
    /// What the decoder has of it.
    held: Option<OwnedSemaphorePermit>,
    /// Encoded bytes not decoded yet.
    encoded: Bytes,
    /// The decoder may hold decoded bytes that did not fit into the last piece.
    has_more_output: bool,
    decoded_bytes: u64,
    decoded_bytes_max: u64,
    /// What the body contains, for the error about its size.
    what: &'static str,
}

impl BodyReader {
    pub(super) fn new(
        body: Body,
        encoding: ContentEncoding,
        (window_bytes_max, memory): (u64, &DecoderMemory),
        what: &'static str,
        decoded_bytes_max: u64,
    ) -> Result<Self, IngestError> {
        let decoder = encoding.decoder(window_bytes_max)?;
        let too_large = IngestError::TooLarge {
            what,
            max: decoded_bytes_max,
        };
        // A declared length above the limit is refused at once, so that the body is not sent in
        // vain.
        if decoder.is_none() && body_length(&body).is_some_and(|l| l > decoded_bytes_max) {
            return Err(too_large);
        }
        Ok(Self {
            body,
            decoder,
            memory: memory.clone(),
            held: None,
            encoded: Bytes::new(),
            has_more_output: false,
            decoded_bytes: 0,
            decoded_bytes_max,
            what,
        })
    }

    /// Bytes so far.
    #[cfg(test)]
    pub(super) fn decoded_bytes(&self) -> u64 {
        self.decoded_bytes
    }

    /// Length of the decoded body, if it is declared.
    pub(super) fn known_length(&self) -> Option<u64> {
        self.decoder
            .is_none()
            .then(|| body_length(&self.body))
            .flatten()
    }

    /// Bytes to reserve before anything is read: the length of the decoded body if it is known,
    /// otherwise that of the encoded body, each up to a limit. The reservation grows with the body.
    pub(super) fn reserved_bytes(&self) -> u64 {
        let sent = || body_length(&self.body).unwrap_or(0);
        self.known_length()
            .map(|length| length.min(DECLARED_BYTES_MAX))
            .unwrap_or_else(|| sent().clamp(1, GROWTH_BYTES_MIN as u64))
    }

    /// The next piece, which is never empty; `None` at the end. Nothing is lost when the call is
    /// cancelled.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, IngestError> {
        loop {
            let piece = match &mut self.decoder {
                None => match frame(&mut self.body).await? {
                    None => return Ok(None),
                    Some(piece) => piece,
                },
                Some(decoder) => {
                    // Decoding is CPU work: yield to other requests of this thread.
                    tokio::task::consume_budget().await;
                    // Its window is known, and not yet filled, after the first step.
                    self.memory.hold(&mut self.held, decoder.memory()).await?;
                    if self.encoded.is_empty() && !self.has_more_output {
                        match frame(&mut self.body).await? {
                            None => return finish(decoder).map(|()| None),
                            Some(encoded) => self.encoded = encoded,
                        }
                    }
                    let mut input = &self.encoded[..];
                    let piece = decoder.step(&mut input)?;
                    let used = self.encoded.len() - input.len();
                    let is_stuck = used == 0 && piece.is_empty() && !self.encoded.is_empty();
                    self.encoded.advance(used);
                    self.has_more_output = Decoder::may_have_more(&piece);
                    if is_stuck {
                        return Err(IngestError::damaged("the decoder makes no progress"));
                    }
                    piece.into()
                }
            };
            self.decoded_bytes += piece.len() as u64;
            if self.decoded_bytes > self.decoded_bytes_max {
                return Err(IngestError::TooLarge {
                    what: self.what,
                    max: self.decoded_bytes_max,
                });
            }
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
    }

    /// The next piece of a packet of which `held` bytes have arrived, within the time that they
    /// allow.
    pub(super) async fn next_in_time(
        &mut self,
        held: usize,
        started: Instant,
    ) -> Result<Option<Bytes>, IngestError> {
        if held < HELD_BYTES {
            return self.next().await;
        }
        let next = timeout_at(started + longest_for(held), self.next());
        next.await.unwrap_or_else(|_| {
            let received = held as u64;
            Err(IngestError::Body(BodyError::TooSlow { received }))
        })
    }

    /// Reads the complete body of a packet of `holder` into one buffer. The reservation starts at
    /// `reserved_bytes` and grows as the body arrives.
    pub(super) async fn read_all(
        mut self,
        reservation: &mut Reservation,
        holder: Holder<'_>,
    ) -> Result<Bytes, Problem> {
        let known = self.known_length().unwrap_or(0);
        let Some(first) = self.next().await? else {
            return Ok(Bytes::new());
        };
        reservation.ensure(holder, first.len() as u64).await?;
        if first.len() as u64 == known {
            // The body arrived in one piece and needs no copy. Its end has yet to be read.
            return match self.next().await? {
                None => Ok(first),
                Some(_) => Err(IngestError::Broken(
                    "the body is longer than its declared length".to_owned(),
                )
                .into()),
            };
        }
        let started = Instant::now();
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let bytes_max = usize::try_from(self.decoded_bytes_max).unwrap_or(usize::MAX);
        let mut complete =
            BytesMut::with_capacity(usize::try_from(reservation.left()).unwrap_or(0));
        let mut piece = Some(first);
        while let Some(bytes) = piece {
            let lacking = (complete.len() + bytes.len()).saturating_sub(complete.capacity());
            if lacking > 0 {
                let end = if known > 0 { known } else { bytes_max };
                let remaining = end.saturating_sub(complete.capacity());
                let wanted = complete.capacity().max(GROWTH_BYTES_MIN).min(remaining);
                let mut growth = wanted.max(lacking);
                // Where there is no room for a large step, there may be for a smaller one.
                while growth > lacking && reservation.try_grow(growth as u64).is_err() {
                    growth = (growth / 2).max(lacking);
                }
                if growth == lacking {
                    reservation.grow(growth as u64)?;
                }
                complete.reserve(complete.capacity() - complete.len() + growth);
            }
            complete.extend_from_slice(&bytes);
            piece = self.next_in_time(complete.len(), started).await?;
        }
        Ok(complete.freeze())
    }
}

fn body_length(body: &Body) -> Option<u64> {
    http_body::Body::size_hint(body).exact()
}

fn finish(decoder: &Decoder) -> Result<(), IngestError> {
    if decoder.is_complete() {
        Ok(())
    } else {
        Err(IngestError::damaged("it is truncated"))
    }
}

/// The next data frame of a body; trailers are skipped.
async fn frame(body: &mut Body) -> Result<Option<Bytes>, IngestError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(IngestError::of_body)?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_rate_rises_with_what_is_held() {
        const MIB: usize = 1 << 20;
        for (held, seconds) in [
            (0, 10),
            (MIB, 12),
            (8 * MIB, 26),
            (16 * MIB, 42),
            (32 * MIB, 74),
            (48 * MIB, 90),
            (64 * MIB, 100),
        ] {
            assert_eq!(longest_for(held).as_secs(), seconds, "{held}");
        }
    }
}
