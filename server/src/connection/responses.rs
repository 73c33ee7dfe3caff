//! Which responses of an HTTP/2 connection the client has not been sent completely.
//!
//! hyper is done with a response when it has handed the last bytes to h2, where they may wait for
//! the client to have room. Only the frames on the connection show when they have left.

use std::collections::HashSet;

use super::frame_heads::{FrameHead, FrameHeads, flag, kind};

/// Requests that are remembered: h2 refuses more than `http.streams_max` at once.
const REQUESTS_MAX: usize = 4096;

/// The requests of a connection without a complete response.
#[derive(Debug, Default)]
pub(super) struct Responses {
    open: HashSet<u32>,
    last_stream: u32,
    sent: FrameHeads,
    /// The stream that ends with the frame that is being sent.
    ending: Option<u32>,
}

impl Responses {
    /// The number of responses that are not sent completely.
    pub(super) fn unsent(&self) -> usize {
        self.open.len()
    }

    /// A frame of the client begins.
    pub(super) fn received(&mut self, frame: FrameHead) {
        match frame.kind {
            kind::HEADERS if frame.stream > self.last_stream => {
                self.last_stream = frame.stream;
                if self.open.len() < REQUESTS_MAX {
                    self.open.insert(frame.stream);
                }
            }
            kind::RST_STREAM => {
                self.open.remove(&frame.stream);
            }
            _ => {}
        }
    }

    /// The server sent these bytes.
    pub(super) fn sent(&mut self, mut bytes: &[u8]) {
        loop {
            let frame = self.sent.next(&mut bytes);
            if let Some(frame) = frame {
                self.end();
                let is_last =
                    matches!(frame.kind, kind::DATA | kind::HEADERS) && frame.has(flag::END_STREAM);
                if is_last || frame.kind == kind::RST_STREAM {
                    self.ending = Some(frame.stream);
                }
            }
            if !self.sent.is_within_payload() && !self.sent.is_within_head() {
                self.end();
            }
            if frame.is_none() {
                return;
            }
        }
    }

    fn end(&mut self) {
        if let Some(stream) = self.ending.take() {
            self.open.remove(&stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::frame_heads::frame;

    fn begun(streams: &[u32]) -> Responses {
        let mut responses = Responses::default();
        for &stream in streams {
            responses.received(FrameHead {
                length: 5,
                kind: kind::HEADERS,
                flags: flag::END_STREAM,
                stream,
            });
        }
        responses
    }

    #[test]
    fn a_response_is_sent_with_its_last_byte() {
        let sent = [
            frame(kind::HEADERS, flag::END_HEADERS, 1, b"fields"),
            frame(kind::DATA, 0, 1, &[7; 100]),
            frame(6, 0, 0, &[0; 8]),
            frame(kind::DATA, flag::END_STREAM, 1, &[7; 50]),
        ]
        .concat();
        for size in 1..60 {
            let mut responses = begun(&[1, 3]);
            let (last, before) = sent.split_last().unwrap();
            for piece in before.chunks(size) {
                responses.sent(piece);
                assert_eq!(responses.unsent(), 2, "{size}");
            }
            responses.sent(&[*last]);
            assert_eq!(responses.unsent(), 1, "{size}");
        }
    }

    #[test]
    fn every_end_of_a_stream_counts() {
        for (end, left) in [
            (frame(kind::DATA, flag::END_STREAM, 3, b""), 1),
            (frame(kind::HEADERS, flag::END_STREAM, 3, b"trailers"), 1),
            (frame(kind::RST_STREAM, 0, 3, &[0; 4]), 1),
            (frame(kind::DATA, 0, 3, b""), 2),
            // An acknowledgement has the same bit.
            (frame(4, flag::END_STREAM, 0, b""), 2),
            (frame(kind::DATA, flag::END_STREAM, 9, b"x"), 2),
        ] {
            let mut responses = begun(&[1, 3, 3]);
            responses.sent(&end);
            assert_eq!(responses.unsent(), left, "{end:?}");
        }
        let mut responses = begun(&[1]);
        responses.received(FrameHead {
            length: 4,
            kind: kind::RST_STREAM,
            flags: 0,
            stream: 1,
        });
        assert_eq!(responses.unsent(), 0);
        let many: Vec<u32> = (0..10_000).map(|number| 2 * number + 1).collect();
        assert_eq!(begun(&many).unsent(), REQUESTS_MAX);
    }
}
