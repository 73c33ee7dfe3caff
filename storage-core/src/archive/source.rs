//! The bytes of an archive, counted as they are read.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};

/// Size of the read buffer in bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// Size of the signature of a record in bytes.
const SIGNATURE_BYTES: u64 = 4;

/// A stream with the number of bytes read.
pub(super) struct Source<R> {
    inner: BufReader<R>,
    offset: u64,
}

impl<R: Read> Source<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner: BufReader::with_capacity(BUFFER_BYTES, inner),
            offset: 0,
        }
    }

    /// Bytes read so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Offset of the record whose signature was just read.
    pub(super) fn record_offset(&self) -> u64 {
        self.offset.saturating_sub(SIGNATURE_BYTES)
    }

    /// Exactly `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Exactly `length` bytes; the 16-bit length bounds the memory.
    pub(super) fn bytes(&mut self, length: u16) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::from(length)];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Whether nothing follows.
    pub(super) fn is_at_end(&mut self) -> io::Result<bool> {
        loop {
            match self.inner.fill_buf() {
                Ok(bytes) => return Ok(bytes.is_empty()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.offset = self.offset.saturating_add(count as u64);
        Ok(count)
    }
}

impl<R: Read> BufRead for Source<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.inner.consume(count);
        self.offset = self.offset.saturating_add(count as u64);
    }
}
