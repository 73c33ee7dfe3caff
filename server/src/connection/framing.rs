//! Inspects the raw bytes of a connection for request heads with both `Content-Length` and
//! `Transfer-Encoding`.
//!
//! hyper follows RFC 9112 section 6.1: it uses `Transfer-Encoding` and removes the other field
//! before a service sees the request, so a service cannot detect this case. A proxy in front that
//! uses the other field splits the byte stream differently (request smuggling), so such a request
//! must be refused and its connection closed. The inspection follows message boundaries only as far
//! as this requires. Where it cannot, because of a length that hyper may read otherwise, it stops,
//! and refuses what follows on the connection.

use std::sync::atomic::{AtomicU64, Ordering};

/// No head on the connection was ambiguous.
const NONE: u64 = u64::MAX;

/// Longer lines are not read to their end: no client pads a length that far.
const LINE_BYTES_MAX: usize = 128;
/// Bytes of a line that are retained: with its carriage return, and one that shows that it is
/// longer.
const RETAINED_BYTES_MAX: usize = LINE_BYTES_MAX + 2;

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
    /// gave two lengths, or one that is unclear.
    pub(super) fn is_ambiguous(&self, index: u64) -> bool {
        index >= self.first_ambiguous.load(Ordering::Acquire)
    }

    fn refuse_from(&self, index: u64) {
        self.first_ambiguous.fetch_min(index, Ordering::AcqRel);
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
    /// It is not known where the message ends; the rest of the connection is refused.
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
    /// `Content-Length` of the head, and `Err` if it is none that everybody reads alike.
    content_length: Option<Result<u64, Unclear>>,
    transfer_encoding: bool,
}

/// A length that another reader may take for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unclear;

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
        let space = RETAINED_BYTES_MAX.saturating_sub(self.line.len());
        self.line
            .extend_from_slice(&piece[..piece.len().min(space)]);
    }

    fn complete_line(&mut self, line: &[u8], flag: &AmbiguityFlag) {
        match self.state {
            State::Head if line.is_empty() && self.at_request_line => {}
            State::Head if line.is_empty() => self.head_ends(flag),
            State::Head if self.at_request_line => self.at_request_line = false,
            State::Head => self.field(line),
            State::ChunkSize => match chunk_size(line) {
                Ok(0) => self.state = State::Trailer,
                Ok(size) => self.state = State::ChunkData(size),
                Err(Unclear) => self.stop(flag),
            },
            State::ChunkEnd if line.is_empty() => self.state = State::ChunkSize,
            State::ChunkEnd => self.stop(flag),
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
            let length = number(value[1..].trim_ascii(), 10);
            self.content_length = Some(match self.content_length {
                _ if line.len() > LINE_BYTES_MAX => Err(Unclear),
                Some(before) if before != length => Err(Unclear),
                _ => length,
            });
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.transfer_encoding = true;
        }
    }

    fn head_ends(&mut self, flag: &AmbiguityFlag) {
        let body = match (self.transfer_encoding, self.content_length) {
            // hyper does not even read the length.
            (true, Some(_)) => {
                flag.refuse_from(self.heads);
                State::ChunkSize
            }
            (true, None) => State::ChunkSize,
            (false, Some(Err(Unclear))) => return self.stop(flag),
            (false, Some(Ok(length))) if length > 0 => State::Body(length),
            (false, _) => State::Head,
        };
        self.heads += 1;
        self.next_head();
        self.state = body;
    }

    /// Refuses the request whose head has not ended, and those that follow.
    fn stop(&mut self, flag: &AmbiguityFlag) {
        self.state = State::Stopped;
        flag.refuse_from(self.heads);
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

fn chunk_size(line: &[u8]) -> Result<u64, Unclear> {
    let mut parts = line.split(|&byte| byte == b';' || byte == b' ');
    let digits = parts.next().unwrap_or_default();
    if digits.len() > LINE_BYTES_MAX {
        return Err(Unclear);
    }
    number(digits, 16)
}

fn number(digits: &[u8], radix: u32) -> Result<u64, Unclear> {
    let text = std::str::from_utf8(digits).map_err(|_| Unclear)?;
    if text.starts_with('+') {
        return Err(Unclear);
    }
    u64::from_str_radix(text, radix).map_err(|_| Unclear)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{AmbiguityFlag, Framing};

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
    fn what_follows_an_unclear_length_is_refused() {
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let length = |value: &str| format!("POST / HTTP/1.1\r\nContent-Length:{value}\r\n\r\nabc");
        let padded = format!("{}3", " ".repeat(120));
        let zeros = "0".repeat(200);
        for (stream, first) in [
            (length("+3"), 0),
            (length(""), 0),
            (length("3, 3"), 0),
            (length("3\r\nContent-Length: 4"), 0),
            (length(&padded), 0),
            (format!("{PLAIN}{}", length(&zeros)), 1),
            (format!("{chunked}0x3\r\nabc\r\n"), 1),
            (format!("{chunked}3\r\nabcd\r\n"), 1),
            (format!("{chunked}{zeros}3\r\nabc\r\n0\r\n\r\n"), 1),
        ] {
            let wanted = [0, 1, 2, 3].map(|index| index >= first);
            check(&format!("{stream}{PLAIN}"), wanted, true);
        }
        let short = format!("{}3", " ".repeat(100));
        check(&length(&short), [false; 4], false);
        let extension = format!("{chunked}3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(200));
        check(&extension, [false; 4], false);
    }

    #[test]
    fn any_length_beside_chunks_is_ambiguous() {
        let zeros = "0".repeat(200);
        for value in ["3", "+3", "", "3, 3", "x", &zeros] {
            let length = format!("Content-Length:{value}\r\n");
            let encoding = "Transfer-Encoding: chunked\r\n";
            for fields in [format!("{length}{encoding}"), format!("{encoding}{length}")] {
                let head = format!("POST / HTTP/1.1\r\n{fields}\r\n0\r\n\r\n");
                check(&head, [true; 4], false);
            }
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
                prop_assert!(framing.line.len() <= super::RETAINED_BYTES_MAX);
            }
        }
    }
}
