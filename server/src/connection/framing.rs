//! Inspects the raw bytes of a connection for request heads with both `Content-Length` and
//! `Transfer-Encoding`.
//!
//! hyper follows RFC 9112 section 6.1: it uses `Transfer-Encoding` and removes the other field
//! before a service sees the request, so a service cannot detect this case. A proxy in front that
//! uses the other field splits the byte stream differently (request smuggling), so such a request
//! must be refused and its connection closed. The inspection follows message boundaries only as far
//! as this requires. On malformed input it stops inspecting and leaves the decision to hyper.

use std::sync::atomic::{AtomicU64, Ordering};

/// No head on the connection was ambiguous.
const NONE: u64 = u64::MAX;

/// Longer lines are truncated; no relevant field has a name or value this long.
const LINE_BYTES_MAX: usize = 128;

/// The result of the inspection, shared with the request side of the connection.
#[derive(Debug)]
pub(super) struct AmbiguityFlag {
    first_ambiguous: AtomicU64,
}

impl Default for AmbiguityFlag {
    fn default() -> Self {
        Self {
            first_ambiguous: AtomicU64::new(NONE),
        }
    }
}

impl AmbiguityFlag {
    /// Whether request `index` of the connection (from 0) is unsafe: its head or an earlier one
    /// gave two lengths.
    pub(super) fn is_ambiguous(&self, index: u64) -> bool {
        index >= self.first_ambiguous.load(Ordering::Acquire)
    }
}

/// The part of a message that the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The request line or a header field.
    Head,
    /// A body of known length, with the number of remaining bytes.
    Body(u64),
    /// The line with the size of a chunk.
    ChunkSize,
    /// The data of a chunk, with the number of remaining bytes.
    ChunkData(u64),
    /// The line end after a chunk.
    ChunkEnd,
    /// Trailer fields after the last chunk.
    Trailer,
    /// The input was malformed; the rest of the connection is not inspected.
    Stopped,
}

/// The inspection of one connection.
#[derive(Debug)]
pub(super) struct Framing {
    state: State,
    /// The start of a line that arrived in several pieces.
    line: Vec<u8>,
    heads: u64,
    at_request_line: bool,
    content_length: Option<u64>,
    transfer_encoding: bool,
}

impl Default for Framing {
    fn default() -> Self {
        Self {
            state: State::Head,
            line: Vec::new(),
            heads: 0,
            at_request_line: true,
            content_length: None,
            transfer_encoding: false,
        }
    }
}

impl Framing {
    /// Whether the client has yet to send part of a request, as far as is known.
    pub(super) fn is_within_request(&self) -> bool {
        self.state != State::Head || !self.at_request_line || !self.line.is_empty()
    }

    /// Whether the client has begun a head and not finished it, or has not sent its first byte.
    pub(super) fn awaits_head(&self) -> bool {
        self.state == State::Head
            && (self.heads == 0 || !self.at_request_line || !self.line.is_empty())
    }

    /// Inspects the next bytes of the connection.
    pub(super) fn observe(&mut self, mut bytes: &[u8], flag: &AmbiguityFlag) {
        while !bytes.is_empty() {
            match self.state {
                State::Stopped => return,
                State::Body(left) => {
                    let taken = take(&mut bytes, left);
                    self.state = match left - taken {
                        0 => State::Head,
                        left => State::Body(left),
                    };
                }
                State::ChunkData(left) => {
                    let taken = take(&mut bytes, left);
                    self.state = match left - taken {
                        0 => State::ChunkEnd,
                        left => State::ChunkData(left),
                    };
                }
                State::Head | State::ChunkSize | State::ChunkEnd | State::Trailer => {
                    self.read_line(&mut bytes, flag);
                }
            }
        }
    }

    /// Consumes bytes up to a line end and processes the line once it is complete.
    fn read_line(&mut self, bytes: &mut &[u8], flag: &AmbiguityFlag) {
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            self.buffer(bytes);
            *bytes = &[];
            return;
        };
        let (piece, rest) = bytes.split_at(end);
        *bytes = rest.get(1..).unwrap_or_default();
        if self.line.is_empty() {
            self.complete_line(piece.strip_suffix(b"\r").unwrap_or(piece), flag);
        } else {
            self.buffer(piece);
            let line = std::mem::take(&mut self.line);
            self.complete_line(line.strip_suffix(b"\r").unwrap_or(&line), flag);
            self.line = line;
            self.line.clear();
        }
    }

    fn buffer(&mut self, piece: &[u8]) {
        let space = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.line
            .extend_from_slice(&piece[..piece.len().min(space)]);
    }

    fn complete_line(&mut self, line: &[u8], flag: &AmbiguityFlag) {
        match self.state {
            State::Head if line.is_empty() && self.at_request_line => {}
            State::Head if line.is_empty() => self.head_ends(flag),
            State::Head if self.at_request_line => self.at_request_line = false,
            State::Head => self.field(line),
            State::ChunkSize => {
                let digits = line.split(|&byte| byte == b';' || byte == b' ').next();
                self.state = match digits.and_then(|digits| number(digits, 16)) {
                    Some(0) => State::Trailer,
                    Some(size) => State::ChunkData(size),
                    None => State::Stopped,
                };
            }
            State::ChunkEnd if line.is_empty() => self.state = State::ChunkSize,
            State::ChunkEnd => self.state = State::Stopped,
            State::Trailer if line.is_empty() => self.next_head(),
            State::Trailer | State::Body(_) | State::ChunkData(_) | State::Stopped => {}
        }
    }

    fn field(&mut self, line: &[u8]) {
        let Some(colon) = memchr::memchr(b':', line) else {
            return;
        };
        let (name, value) = line.split_at(colon);
        if name.eq_ignore_ascii_case(b"content-length") {
            self.content_length = number(value[1..].trim_ascii(), 10);
            if self.content_length.is_none() {
                self.state = State::Stopped;
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.transfer_encoding = true;
        }
    }

    fn head_ends(&mut self, flag: &AmbiguityFlag) {
        if self.transfer_encoding && self.content_length.is_some() {
            flag.first_ambiguous.fetch_min(self.heads, Ordering::AcqRel);
        }
        self.heads += 1;
        let body = match (self.transfer_encoding, self.content_length) {
            (true, _) => State::ChunkSize,
            (false, Some(length)) if length > 0 => State::Body(length),
            (false, _) => State::Head,
        };
        self.next_head();
        self.state = body;
    }

    fn next_head(&mut self) {
        self.state = State::Head;
        self.at_request_line = true;
        self.content_length = None;
        self.transfer_encoding = false;
    }
}

/// Removes up to `left` bytes from the start and returns their number.
fn take(bytes: &mut &[u8], left: u64) -> u64 {
    let taken = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
    *bytes = &bytes[taken..];
    taken as u64
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    if text.starts_with('+') {
        return None;
    }
    u64::from_str_radix(text, radix).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{AmbiguityFlag, Framing, State};

    /// Which of the first four requests are refused, for any split of the input.
    fn check(stream: &str, wanted: [bool; 4], within: bool) {
        for piece in [1, 2, 3, 7, 64, 100_000] {
            let (mut framing, flag) = (Framing::default(), AmbiguityFlag::default());
            for bytes in stream.as_bytes().chunks(piece) {
                framing.observe(bytes, &flag);
            }
            let got = [0, 1, 2, 3].map(|index| flag.is_ambiguous(index));
            assert_eq!(got, wanted, "{stream:?} in pieces of {piece}");
            assert_eq!(
                framing.is_within_request(),
                within,
                "{stream:?} in pieces of {piece}"
            );
        }
    }

    const PLAIN: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    const BOTH: &str = "POST / HTTP/1.1\r\ncontent-LENGTH: 6\r\nTransfer-encoding: chunked\r\n\r\n";

    #[test]
    fn a_head_with_both_lengths_is_detected() {
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
                       3;x=y\r\nabc\r\n0\r\nT: u\r\n\r\n";
        let lying = "POST / HTTP/1.1\r\nContent-Length: 27\r\n\r\nContent-Length: 1\r\n\r\nTransf";
        check(PLAIN, [false; 4], false);
        check(BOTH, [true; 4], true);
        check(&format!("\r\n{BOTH}0\r\n\r\n"), [true; 4], false);
        check(
            &format!("{PLAIN}{BOTH}0\r\n\r\n{PLAIN}"),
            [false, true, true, true],
            false,
        );
        check(
            &format!("{chunked}{lying}{BOTH}"),
            [false, false, true, true],
            true,
        );
        check(
            &format!("{}X: {}\r\n\r\n{BOTH}", &PLAIN[..23], "a".repeat(999)),
            [false, true, true, true],
            true,
        );
    }

    #[test]
    fn malformed_input_stops_the_inspection() {
        for stream in [
            "POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        ] {
            let (mut framing, flag) = (Framing::default(), AmbiguityFlag::default());
            framing.observe(stream.as_bytes(), &flag);
            framing.observe(BOTH.as_bytes(), &flag);
            assert_eq!(framing.state, State::Stopped, "{stream:?}");
            assert!(!flag.is_ambiguous(9), "{stream:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_handled(
            pieces in proptest::collection::vec("[a-fTC0-9:;\r\n +-]{0,40}", 0..20),
        ) {
            let (mut framing, flag) = (Framing::default(), AmbiguityFlag::default());
            for piece in &pieces {
                framing.observe(piece.as_bytes(), &flag);
                prop_assert!(framing.line.len() <= super::LINE_BYTES_MAX);
            }
        }
    }
}
