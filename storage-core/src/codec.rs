//! Compression of payloads.

use std::cell::RefCell;

use bytes::Bytes;
use storage_format::Codec;

/// Payloads shorter than this are not compressed: a zstd frame would hardly be shorter.
const COMPRESS_BYTES_MIN: usize = 128;

thread_local! {
    static COMPRESSOR: RefCell<Option<(i32, zstd::bulk::Compressor<'static>)>> =
        const { RefCell::new(None) };
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The stored form of `raw`: compressed if the codec says so and the result is shorter.
pub(crate) fn store(raw: &Bytes, codec: Codec, level: i32) -> (Codec, Bytes) {
    let packed = match codec {
        Codec::Zstd if raw.len() >= COMPRESS_BYTES_MIN => compress(raw, level),
        _ => None,
    };
    let (codec, stored) = match packed {
        Some(packed) if packed.len() < raw.len() => (Codec::Zstd, packed),
        _ => (Codec::None, raw.clone()),
    };
    assert!(
        stored.is_empty() == raw.is_empty() && stored.len() <= raw.len(),
        "a stored payload has bytes, and no more than the packet"
    );
    (codec, stored)
}

fn compress(raw: &[u8], level: i32) -> Option<Bytes> {
    COMPRESSOR.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|(made_for, _)| *made_for != level) {
            *slot = Some((level, zstd::bulk::Compressor::new(level).ok()?));
        }
        let (_, compressor) = slot.as_mut()?;
        SCRATCH.with_borrow_mut(|scratch| {
            // A result that is not shorter than the raw bytes is of no use.
            scratch.resize(raw.len(), 0);
            let length = compressor
                .compress_to_buffer(raw, scratch.as_mut_slice())
                .ok()?;
            Some(Bytes::copy_from_slice(&scratch[..length]))
        })
    })
}

/// The bytes as the agent sent them; `None` when `stored` does not expand to `raw_size` bytes.
pub fn expand(stored: Bytes, codec: Codec, raw_size: u32) -> Option<Bytes> {
    let raw_size = usize::try_from(raw_size).ok()?;
    let raw = match codec {
        Codec::None => stored,
        Codec::Zstd => zstd::bulk::decompress(&stored, raw_size).ok()?.into(),
    };
    (raw.len() == raw_size).then_some(raw)
}
