//! Compression of files.

use std::io::{self, Read};

use crate::gzip::{MembersText, is_gzip};

const ZSTD_MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// Of a frame that decoders of zstd skip, without its lowest four bits. Programs that compress in
/// parallel begin a file with one.
const SKIPPABLE_MAGIC: u32 = 0x0184_d2a5;
/// Largest window of zstd, as its logarithm: the most that `zstd --long` uses by default.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

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
            Container::Gzip => Box::new(MembersText::new(source)),
            Container::Zstd => {
                let mut text = zstd::Decoder::new(source)?;
                text.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(text)
            }
        })
    }
}
