//! Compression of files.

use std::io::{self, BufRead, Read};
use std::ops::Range;

use crate::gzip::{MembersText, is_gzip};

const ZSTD_MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// Of a frame that decoders of zstd skip, without its lowest four bits. Programs that compress in
/// parallel begin a file with one.
const SKIPPABLE_MAGIC: u32 = 0x0184_d2a5;
/// Largest window of zstd, as its logarithm: the most that `zstd --long` uses by default.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Bytes that zstd gets at once. What it makes of those with an error is lost, so they are few.
const PIECE_BYTES: u64 = 4 << 10;

/// A file in pieces that are the same however it is read: from a disk or through a pipe, the same
/// text comes out of a damaged one.
struct Pieces<R> {
    source: R,
    piece: Vec<u8>,
    at: usize,
}

impl<R: Read> BufRead for Pieces<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.piece.len() {
            self.piece.clear();
            self.at = 0;
            let mut next = (&mut self.source).take(PIECE_BYTES);
            let read = next.read_to_end(&mut self.piece);
            // What precedes an error is read first.
            if self.piece.is_empty() {
                read?;
            }
        }
        Ok(self.piece.get(self.at..).unwrap_or_default())
    }

    fn consume(&mut self, count: usize) {
        self.at = self.piece.len().min(self.at + count);
    }
}

impl<R: Read> Read for Pieces<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

/// Bytes of text that are made at once. What precedes an error in those is lost, so they are few,
/// and as many whoever reads them.
const TEXT_BYTES: usize = 16 << 10;

/// A text that is made in steps of one size, whatever is read at once: the same text comes out of a
/// damaged file.
struct Steps<R> {
    text: R,
    step: Box<[u8]>,
    unread: Range<usize>,
}

impl<R: Read> Steps<R> {
    fn new(text: R) -> Self {
        Self {
            text,
            step: vec![0; TEXT_BYTES].into(),
            unread: 0..0,
        }
    }
}

impl<R: Read> Read for Steps<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unread.is_empty() && !buffer.is_empty() {
            self.unread = 0..self.text.read(&mut self.step)?;
        }
        let unread = self.step.get(self.unread.clone()).unwrap_or_default();
        let count = unread.len().min(buffer.len());
        buffer[..count].copy_from_slice(&unread[..count]);
        self.unread.start += count;
        Ok(count)
    }
}

/// How the content of a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// Not at all.
    Plain,
    /// Gzip members.
    Gzip,
    /// Zstandard frames.
    Zstd,
}

impl Container {
    /// The container of a file that starts with `prefix`; 4 bytes are enough.
    pub fn of(prefix: &[u8]) -> Container {
        let magic = prefix.first_chunk().copied().map(u32::from_le_bytes);
        let is_skippable = magic.is_some_and(|magic| magic >> 4 == SKIPPABLE_MAGIC);
        if is_gzip(prefix) {
            Container::Gzip
        } else if prefix.starts_with(&ZSTD_MAGIC) || is_skippable {
            Container::Zstd
        } else {
            Container::Plain
        }
    }

    /// The text of a file, all its members or frames, decompressed while it is read. Where the file
    /// ends inside one of them, that is an error of the kind `UnexpectedEof`.
    ///
    /// # Errors
    ///
    /// When decompressing cannot begin.
    pub fn text_of<'r>(
        self,
        source: impl Read + Send + 'r,
    ) -> io::Result<Box<dyn Read + Send + 'r>> {
        Ok(match self {
            Container::Plain => Box::new(source),
            Container::Gzip => Box::new(Steps::new(MembersText::new(source))),
            Container::Zstd => {
                let mut text = zstd::Decoder::with_buffer(Pieces {
                    source,
                    piece: Vec::new(),
                    at: 0,
                })?;
                text.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(Steps::new(text))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A file that is read a few bytes at a time, as from a pipe.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(self.1);
            self.0.read(&mut buffer[..count])
        }
    }

    #[test]
    fn the_text_of_a_damaged_file_does_not_depend_on_how_it_is_read() {
        let text: Vec<u8> = (0..1_u32 << 20)
            .flat_map(|number| number.wrapping_mul(0x9e37_79b1).to_le_bytes())
            .map(|byte| byte % 23)
            .collect();
        let mut file = Vec::new();
        for part in text.chunks(1 << 20) {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(part).unwrap();
            file.extend(encoder.finish().unwrap());
        }
        let read = |source: Box<dyn Read + Send + '_>| {
            let (mut text, mut found) = (Container::Zstd.text_of(source).unwrap(), Vec::new());
            let result = text.read_to_end(&mut found);
            (found, result.is_err())
        };
        assert!(read(Box::new(&file[..])) == (text, false));
        let mut errors = 0;
        for at in [10, file.len() / 5, file.len() / 2, file.len() - 70_000] {
            let mut damaged = file.clone();
            damaged[at] ^= 0x10;
            let found = read(Box::new(&damaged[..]));
            errors += u32::from(found.1);
            for step in [1, 1_000, 65_536] {
                let slow = read(Box::new(Slow(&damaged, step)));
                assert!(slow == found, "{at} {step}");
                // Nor on how much is read at once.
                let mut text = Container::Zstd.text_of(&damaged[..]).unwrap();
                let (mut read, mut buffer) = (Vec::new(), vec![0; step]);
                while let Ok(count) = text.read(&mut buffer)
                    && count > 0
                {
                    read.extend_from_slice(&buffer[..count]);
                }
                assert!(read == found.0, "{at} {step}");
            }
        }
        assert!(errors > 0, "no damage was noticed");
    }
}
