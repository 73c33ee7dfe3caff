//! The bytes of a gzip file around the position of the scanner.

use std::io::Read;

use super::GzipError;

/// Bytes that are read at a time.
pub(super) const READ_BYTES: usize = 256 << 10;
/// Last bytes of the file that are remembered.
const TAIL_BYTES: usize = 4;

/// The bytes of a file around the current position.
pub(super) struct Input<'b, R> {
    source: R,
    bytes: &'b mut Vec<u8>,
    /// The current position in `bytes`.
    at: usize,
    /// Offset in the file of the first of `bytes`.
    offset: u64,
    /// Bytes from this offset in the file on can be read again.
    retained: Option<u64>,
    tail: [u8; TAIL_BYTES],
    ended: bool,
}

impl<'b, R: Read> Input<'b, R> {
    pub(super) fn new(source: R, bytes: &'b mut Vec<u8>) -> Input<'b, R> {
        bytes.clear();
        Input {
            source,
            bytes,
            at: 0,
            offset: 0,
            retained: None,
            tail: [0; TAIL_BYTES],
            ended: false,
        }
    }

    /// The offset in the file of the next byte.
    pub(super) fn position(&self) -> u64 {
        self.offset + self.at as u64
    }

    /// The next bytes, as far as they were read.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Whether the file has no more bytes than `rest`.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The last four bytes of the file, once it has ended.
    pub(super) fn tail(&self) -> [u8; TAIL_BYTES] {
        self.tail
    }

    pub(super) fn advance(&mut self, len: usize) {
        assert!(len <= self.rest().len(), "only bytes that were read");
        self.at += len;
    }

    /// The rest, with the byte before it; `None` if that is not in memory.
    pub(super) fn with_last_byte(&self) -> Option<&[u8]> {
        self.at.checked_sub(1).map(|at| &self.bytes[at..])
    }

    /// Keeps the bytes from the current position on, so that [`Input::go_back`] can return here.
    pub(super) fn retain(&mut self) {
        self.retained = Some(self.position());
    }

    /// Frees retained bytes.
    pub(super) fn release(&mut self) {
        self.retained = None;
    }

    /// Bytes that are retained before the current position.
    pub(super) fn retained_len(&self) -> u64 {
        self.retained.map_or(0, |start| self.position() - start)
    }

    /// Moves to an offset whose bytes are retained.
    pub(super) fn go_back(&mut self, offset: u64) {
        let end = self.offset + self.bytes.len() as u64;
        assert!(
            self.retained.is_some_and(|start| start <= offset) && offset <= end,
            "only to retained bytes"
        );
        self.at = usize::try_from(offset - self.offset).expect("in memory");
    }

    /// Reads until `len` bytes are available or the file ends.
    pub(super) fn fill(&mut self, len: usize) -> Result<(), GzipError> {
        if self.rest().len() >= len || self.ended {
            return Ok(());
        }
        let unused = match self.retained {
            Some(start) => usize::try_from(start - self.offset).expect("in memory"),
            // The last consumed byte may contain the start of a block.
            None => self.at.saturating_sub(1),
        };
        self.bytes.drain(..unused);
        self.offset += unused as u64;
        self.at -= unused;
        while self.rest().len() < len && !self.ended {
            let (filled, missing) = (self.bytes.len(), len - self.rest().len());
            self.bytes.resize(filled + READ_BYTES.max(missing), 0);
            let read = self.source.read(&mut self.bytes[filled..]);
            let read = match read {
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                    self.bytes.truncate(filled);
                    continue;
                }
                Err(source) => {
                    return Err(GzipError::Read {
                        offset: self.offset + filled as u64,
                        source,
                    });
                }
            };
            self.bytes.truncate(filled + read);
            let new = &self.bytes[filled..];
            for byte in &new[new.len().saturating_sub(TAIL_BYTES)..] {
                self.tail.rotate_left(1);
                self.tail[TAIL_BYTES - 1] = *byte;
            }
            self.ended = read == 0;
        }
        Ok(())
    }
}
