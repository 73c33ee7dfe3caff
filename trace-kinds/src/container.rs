//! Compression of files.

use crate::gzip::is_gzip;

const ZSTD_MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();

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
        if is_gzip(prefix) {
            Container::Gzip
        } else if prefix.starts_with(&ZSTD_MAGIC) {
            Container::Zstd
        } else {
            Container::Plain
        }
    }
}
