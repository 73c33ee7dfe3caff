//! zstd with reused contexts.

use std::cell::RefCell;
use std::io;

use zstd::bulk::{Compressor, Decompressor};

thread_local! {
    /// Contexts of zstd: creating one takes longer than packing or unpacking most blocks.
    static COMPRESSOR: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses at a level.
pub(crate) fn compress(raw: &[u8], level: i32) -> Vec<u8> {
    COMPRESSOR.with_borrow_mut(|cached| {
        let (_, mut compressor) = match cached.take().filter(|(of, _)| *of == level) {
            Some(same) => same,
            None => {
                let new = Compressor::new(level).expect("the level is one of zstd's");
                (level, new)
            }
        };
        let packed = compressor.compress(raw);
        *cached = Some((level, compressor));
        packed.expect("compressing memory into memory that grows does not fail")
    })
}

/// Decompresses to at most `raw_bytes_max` bytes.
pub(crate) fn decompress(stored: &[u8], raw_bytes_max: usize) -> io::Result<Vec<u8>> {
    DECOMPRESSOR.with_borrow_mut(|cached| {
        let mut decompressor = match cached.take() {
            Some(same) => same,
            None => Decompressor::new()?,
        };
        let raw = decompressor.decompress(stored, raw_bytes_max);
        *cached = Some(decompressor);
        raw
    })
}
