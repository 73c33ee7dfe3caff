//! Follows the frames of an HTTP/2 connection by their lengths (RFC 9113 section 4.1).

/// Length of the head of a frame.
const HEAD_BYTES: usize = 9;

/// Types of frames (RFC 9113 section 6).
pub(super) mod kind {
    pub(in crate::connection) const DATA: u8 = 0;
    pub(in crate::connection) const HEADERS: u8 = 1;
    pub(in crate::connection) const RST_STREAM: u8 = 3;
}

/// Flags of frames.
pub(super) mod flag {
    pub(in crate::connection) const END_STREAM: u8 = 1;
    pub(in crate::connection) const END_HEADERS: u8 = 4;
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) length: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHead {
    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct FrameHeads {
    head: [u8; HEAD_BYTES],
    head_length: usize,
    payload_left: u32,
}

impl FrameHeads {
    /// Takes from `bytes` up to the end of the next head, or all of them.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Option<FrameHead> {
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let left = usize::try_from(self.payload_left).unwrap_or(usize::MAX);
                let (taken, rest) = bytes.split_at(left.min(bytes.len()));
                // No more than `payload_left`, so it does not saturate.
                let taken = u32::try_from(taken.len()).unwrap_or(u32::MAX);
                self.payload_left = self.payload_left.saturating_sub(taken);
                *bytes = rest;
                continue;
            }
            let wanted = HEAD_BYTES - self.head_length;
            let (taken, rest) = bytes.split_at(wanted.min(bytes.len()));
            self.head[self.head_length..self.head_length + taken.len()].copy_from_slice(taken);
            self.head_length += taken.len();
            *bytes = rest;
            if self.head_length == HEAD_BYTES {
                self.head_length = 0;
                let [a, b, c, kind, flags, s, t, u, v] = self.head;
                self.payload_left = u32::from_be_bytes([0, a, b, c]);
                return Some(FrameHead {
                    length: self.payload_left,
                    kind,
                    flags,
                    stream: u32::from_be_bytes([s & 0x7f, t, u, v]),
                });
            }
        }
        None
    }

    pub(super) fn is_within_head(&self) -> bool {
        self.head_length > 0
    }

    pub(super) fn is_within_payload(&self) -> bool {
        self.payload_left > 0
    }
}

/// The bytes of a frame.
#[cfg(test)]
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}
