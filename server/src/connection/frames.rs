//! Inspects the raw bytes of an HTTP/2 connection for frames that cost the server work and carry
//! nothing.
//!
//! h2 bounds the memory of a connection, but answers every PING and SETTINGS, and opens and ends a
//! stream for every HEADERS with a RST_STREAM behind it (CVE-2023-44487), as fast as a client sends
//! them. Each connection has an allowance of such frames that refills with time, and of some with
//! the bytes that the server sends. The inspection follows the lengths of frames only; h2 checks
//! everything else.

use std::time::Instant;

use super::frame_heads::{FrameHead, FrameHeads, flag, kind};
use super::responses::Responses;

/// What an HTTP/2 client sends first (RFC 9113 section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Ended requests at once, and a second: clients that cancel send a few.
const RESETS: Allowance = Allowance::of(200, 20);
/// Frames without content at once, and a second: clients measure a connection with a few.
const CONTROLS: Allowance = Allowance::of(1000, 100);
/// Bytes sent for which a client may send another frame without content: it tells how much it has
/// taken.
const BYTES_A_CONTROL: u64 = 1024;

/// A client sent too many frames of a sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flood(pub(super) &'static str);

/// A number of frames that refills with time.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    /// In thousandths of a frame.
    left: u64,
    max: u64,
    per_millisecond: u64,
}

impl Allowance {
    const fn of(frames: u64, frames_per_second: u64) -> Self {
        Self {
            left: frames * 1000,
            max: frames * 1000,
            per_millisecond: frames_per_second,
        }
    }

    fn refill(&mut self, milliseconds: u64) {
        self.earn(milliseconds.saturating_mul(self.per_millisecond));
    }

    fn earn(&mut self, thousandths: u64) {
        self.left = self.left.saturating_add(thousandths).min(self.max);
    }

    fn take(&mut self, what: &'static str) -> Result<(), Flood> {
        match self.left.checked_sub(1000) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Flood(what)),
        }
    }
}

/// The inspection of one connection.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes of the preface that have yet to arrive.
    preface_left: usize,
    heads: FrameHeads,
    responses: Responses,
    /// The frame that arrives is not DATA.
    is_control: bool,
    /// Header fields have begun and not ended.
    is_within_fields: bool,
    /// There were too many frames of a sort: what follows is not waited for.
    is_flooded: bool,
    /// Requests whose bodies have not ended, as far as is known.
    unfinished: u64,
    last_stream: u32,
    resets: Allowance,
    controls: Allowance,
    refilled: Instant,
}

impl Frames {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            preface_left: PREFACE.len(),
            heads: FrameHeads::default(),
            responses: Responses::default(),
            is_control: true,
            is_within_fields: false,
            is_flooded: false,
            unfinished: 0,
            last_stream: 0,
            resets: RESETS,
            controls: CONTROLS,
            refilled: now,
        }
    }

    /// Whether the client has yet to send part of a request, as far as is known.
    pub(super) fn is_within_request(&self) -> bool {
        let is_within_frame = self.heads.is_within_head() || self.heads.is_within_payload();
        (self.unfinished > 0 || is_within_frame) && !self.is_flooded
    }

    /// Whether the client has begun a frame other than DATA, or header fields, and not finished
    /// them.
    pub(super) fn awaits_head(&self) -> bool {
        let is_within_control = self.is_control && self.heads.is_within_payload();
        let is_within_frame = self.heads.is_within_head() || is_within_control;
        self.preface_left > 0 || self.is_within_fields || is_within_frame
    }

    /// The number of responses of which the server has yet to send something.
    pub(super) fn unsent_responses(&self) -> usize {
        self.responses.unsent()
    }

    /// The server sent bytes, which the client tells that it has taken.
    pub(super) fn sent(&mut self, bytes: &[u8]) {
        self.responses.sent(bytes);
        let count = bytes.len() as u64;
        self.controls
            .earn(count.saturating_mul(1000) / BYTES_A_CONTROL);
    }

    /// Inspects the next bytes of the connection.
    pub(super) fn observe(&mut self, mut bytes: &[u8], now: Instant) -> Result<(), Flood> {
        let elapsed = now.saturating_duration_since(self.refilled).as_millis();
        if let Some(elapsed) = u64::try_from(elapsed).ok().filter(|elapsed| *elapsed > 0) {
            self.refilled = now;
            self.resets.refill(elapsed);
            self.controls.refill(elapsed);
        }
        let skipped = self.preface_left.min(bytes.len());
        self.preface_left -= skipped;
        bytes = &bytes[skipped..];
        while let Some(frame) = self.heads.next(&mut bytes) {
            self.responses.received(frame);
            self.frame(frame).inspect_err(|_| self.is_flooded = true)?;
        }
        Ok(())
    }

    /// The head of a frame has arrived.
    fn frame(&mut self, frame: FrameHead) -> Result<(), Flood> {
        self.is_control = frame.kind != kind::DATA;
        let is_end = frame.has(flag::END_STREAM);
        match frame.kind {
            kind::DATA if frame.length > 0 || is_end => {}
            kind::HEADERS => self.is_within_fields = !frame.has(flag::END_HEADERS),
            kind::RST_STREAM => self.resets.take("requests ended")?,
            // CONTINUATION has the same flag; the frames of other types are not in between.
            _ => {
                self.is_within_fields &= !frame.has(flag::END_HEADERS);
                self.controls.take("frames without content")?;
            }
        }
        match frame.kind {
            kind::HEADERS if frame.stream > self.last_stream => {
                self.last_stream = frame.stream;
                self.unfinished += u64::from(!is_end);
            }
            kind::DATA | kind::HEADERS if is_end => {
                self.unfinished = self.unfinished.saturating_sub(1);
            }
            kind::RST_STREAM => self.unfinished = self.unfinished.saturating_sub(1),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::connection::frame_heads::frame;

    fn begun() -> (Frames, Instant) {
        let now = Instant::now();
        let mut frames = Frames::new(now);
        assert!(frames.awaits_head());
        frames.observe(PREFACE, now).unwrap();
        assert!(!frames.awaits_head() && !frames.is_within_request());
        (frames, now)
    }

    #[test]
    fn bytes_are_followed_however_they_are_cut() {
        let mut sent = PREFACE.to_vec();
        sent.extend(frame(4, 0, 0, &[0; 6]));
        sent.extend(frame(kind::HEADERS, 0, 1, b"fields"));
        sent.extend(frame(9, flag::END_HEADERS, 1, b"more"));
        sent.extend(frame(kind::DATA, 0, 1, &[7; 300]));
        sent.extend(frame(kind::DATA, flag::END_STREAM, 1, b""));
        for size in 1..40 {
            let now = Instant::now();
            let mut frames = Frames::new(now);
            let mut within = 0;
            for piece in sent.chunks(size) {
                frames.observe(piece, now).unwrap();
                within += usize::from(frames.is_within_request());
            }
            assert!(!frames.awaits_head() && !frames.is_within_request());
            assert!(within > 0, "{size}");
        }
    }

    #[test]
    fn unfinished_fields_are_waited_for_as_a_head_and_data_are_not() {
        let (mut frames, now) = begun();
        frames
            .observe(&frame(kind::HEADERS, 0, 1, b""), now)
            .unwrap();
        assert!(frames.awaits_head());
        frames
            .observe(&frame(9, flag::END_HEADERS, 1, b""), now)
            .unwrap();
        assert!(!frames.awaits_head() && frames.is_within_request());
        frames
            .observe(&frame(kind::DATA, 0, 1, b"abc")[..11], now)
            .unwrap();
        assert!(!frames.awaits_head());
        frames.observe(b"c", now).unwrap();
        frames.observe(&frame(6, 0, 0, &[0; 8])[..10], now).unwrap();
        assert!(frames.awaits_head());
    }

    /// How many of these frames are accepted at once, and how many more after a second; the next
    /// one ends the connection without waiting for the rest.
    fn check(sent: &[u8], at_once: u64, a_second: u64) {
        let (mut frames, now) = begun();
        let later = now + Duration::from_secs(1);
        for (now, count) in [(now, at_once), (later, a_second)] {
            for _ in 0..count {
                frames.observe(sent, now).unwrap();
            }
        }
        assert!(frames.observe(sent, later).is_err());
        assert!(!frames.is_within_request());
        // No more at once than that.
        let (mut frames, now) = begun();
        for _ in 0..at_once {
            frames.observe(sent, now).unwrap();
        }
        assert!(frames.observe(sent, now).is_err());
    }

    #[test]
    fn floods_are_recognized() {
        check(&frame(6, 0, 0, &[0; 8]), 1000, 100);
        check(&frame(4, 0, 0, b""), 1000, 100);
        check(&frame(kind::DATA, 0, 1, b""), 1000, 100);
        check(&frame(9, 0, 1, b"x"), 1000, 100);
        check(&frame(2, 0, 1, &[0; 5]), 1000, 100);
        check(&frame(8, 0, 0, &[0, 0, 0, 1]), 1000, 100);
        check(&frame(99, 0, 0, b""), 1000, 100);
        let mut reset = frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, b"x");
        reset.extend(frame(kind::RST_STREAM, 0, 1, &[0; 4]));
        check(&reset, 200, 20);
        let (mut frames, now) = begun();
        for _ in 0..10_000 {
            frames.observe(&frame(kind::DATA, 0, 1, b"x"), now).unwrap();
        }
    }

    #[test]
    fn a_reader_tells_what_it_has_taken() {
        let (mut frames, now) = begun();
        let update = frame(8, 0, 0, &[0, 0, 0x20, 0]);
        let data = frame(kind::DATA, 0, 1, &[0; 8 << 10]);
        for _ in 0..100_000 {
            frames.sent(&data);
            frames.observe(&update, now).unwrap();
        }
    }
}
