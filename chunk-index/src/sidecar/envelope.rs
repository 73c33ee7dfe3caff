//! Header, footer and trailer around the body of a sidecar file, and the packing of its parts.

use super::error::{SidecarError, damaged};
use crate::packing::{compress, decompress};
use crate::wire::{Damage, Reader};

/// The largest block or footer that is read, unpacked.
const RAW_BYTES_MAX: usize = 64 << 20;
/// The longest footer with its trailer.
pub(crate) const PACKED_BYTES_MAX: usize = RAW_BYTES_MAX + TRAILER_BYTES;
/// Smaller blocks and footers are not compressed.
const PACK_BYTES_MIN: usize = 128;
/// The level of blocks and footers: small, written once, fetched over the network.
const LEVEL: i32 = 9;
/// The level of columns.
const FAST_LEVEL: i32 = 1;
pub(crate) const HEADER_BYTES: usize = 24;
const TRAILER_BYTES: usize = 48;

const _: () = assert!(HEADER_BYTES == 8 + 4 + 4 + 4 + 4);
const _: () = assert!(TRAILER_BYTES == 8 + 4 + 4 + 4 + 4 + 8 + 4 + 4 + 8);

/// Compresses a part if that makes it smaller; returns the stored bytes and the raw length.
pub(crate) fn pack(raw: Vec<u8>) -> Result<(Vec<u8>, u32), SidecarError> {
    pack_at(LEVEL, raw)
}

/// As [`pack`], for large parts that are written while a trace is read.
pub(crate) fn pack_fast(raw: Vec<u8>) -> Result<(Vec<u8>, u32), SidecarError> {
    pack_at(FAST_LEVEL, raw)
}

fn pack_at(level: i32, raw: Vec<u8>) -> Result<(Vec<u8>, u32), SidecarError> {
    let raw_length = u32::try_from(raw.len())
        .ok()
        .filter(|_| raw.len() <= RAW_BYTES_MAX)
        .ok_or(SidecarError::TooLarge {
            bytes: raw.len(),
            max: RAW_BYTES_MAX,
        })?;
    if raw.len() >= PACK_BYTES_MIN {
        let packed = compress(&raw, level);
        if packed.len() < raw.len() {
            return Ok((packed, raw_length));
        }
    }
    Ok((raw, raw_length))
}

pub(crate) fn unpack(stored: &[u8], raw_length: u32) -> Result<Vec<u8>, Damage> {
    let raw_length = raw_length as usize;
    if raw_length == stored.len() {
        return Ok(stored.to_vec());
    }
    if raw_length > RAW_BYTES_MAX {
        return Err(Damage("longer than allowed"));
    }
    let raw = decompress(stored, raw_length).map_err(|_| Damage("cannot be decompressed"))?;
    if raw.len() == raw_length {
        Ok(raw)
    } else {
        Err(Damage("decompresses to another length"))
    }
}

fn low_half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// What identifies files of one type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signature {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
}

/// The first bytes of a file.
pub(crate) fn header(form: Signature) -> Vec<u8> {
    let mut header = form.magic.to_vec();
    header.extend(form.version.to_le_bytes());
    header.extend([0; 8]);
    header.extend(crc32c::crc32c(&header).to_le_bytes());
    header
}

/// The footer and the trailer of a file whose body ends at `offset`.
pub(crate) fn close(
    form: Signature,
    offset: u64,
    footer: Vec<u8>,
) -> Result<Vec<u8>, SidecarError> {
    assert!(
        offset >= HEADER_BYTES as u64,
        "a footer follows the header of its file"
    );
    let (mut end, raw_length) = pack(footer)?;
    let checksum = crc32c::crc32c(&end);
    let length = u32::try_from(end.len()).expect("a footer is far below 4 GiB");
    let begin = end.len();
    end.extend(offset.to_le_bytes());
    end.extend(length.to_le_bytes());
    end.extend(raw_length.to_le_bytes());
    end.extend(checksum.to_le_bytes());
    end.extend(form.version.to_le_bytes());
    end.extend((offset + (begin + TRAILER_BYTES) as u64).to_le_bytes());
    end.extend([0; 4]);
    end.extend(crc32c::crc32c(&end[begin..]).to_le_bytes());
    end.extend(form.magic);
    Ok(end)
}

/// Appends the footer and the trailer to the body of a file.
pub(crate) fn closed(
    form: Signature,
    mut file: Vec<u8>,
    footer: Vec<u8>,
) -> Result<Vec<u8>, SidecarError> {
    let end = close(form, file.len() as u64, footer)?;
    file.extend(end);
    Ok(file)
}

/// The location of the footer, according to the trailer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trailer {
    pub(crate) offset: u64,
    length: u32,
    raw_length: u32,
    pub(crate) checksum: u32,
}

impl Trailer {
    /// Reads the trailer from the last bytes of a file of `file_length` bytes.
    pub(crate) fn read(
        form: Signature,
        tail: &[u8],
        file_length: u64,
    ) -> Result<Trailer, SidecarError> {
        let trailer = tail
            .last_chunk::<TRAILER_BYTES>()
            .ok_or(SidecarError::NotAnIndex("too short"))?;
        let (begin, end) = trailer.split_at(TRAILER_BYTES - 8);
        if end != form.magic {
            return Err(SidecarError::NotAnIndex(
                "its last bytes are not those of one",
            ));
        }
        let at = file_length.saturating_sub(TRAILER_BYTES as u64);
        let damage = |reason: &'static str| damaged("the trailer", at, reason);
        let mut reader = Reader::new(begin);
        let mut word = || reader.word().map_err(|_| damage("too short"));
        let (offset, lengths, rest, length, last) = (word()?, word()?, word()?, word()?, word()?);
        if crc32c::crc32c(&begin[..36]) != (last >> 32) as u32 {
            return Err(damage("checksum differs"));
        }
        let version = (rest >> 32) as u32;
        if version != form.version {
            return Err(SidecarError::Version {
                found: version,
                wanted: form.version,
            });
        }
        let trailer = Trailer {
            offset,
            length: low_half(lengths),
            raw_length: (lengths >> 32) as u32,
            checksum: low_half(rest),
        };
        let footer_end = offset.checked_add(u64::from(trailer.length));
        if length != file_length || footer_end != Some(at) {
            return Err(damage("belongs to a file of another length"));
        }
        Ok(trailer)
    }

    /// The body of the footer, or the number of bytes at the end of the file that contain it.
    pub(crate) fn footer(
        &self,
        tail: &[u8],
        file_length: u64,
    ) -> Result<Result<Vec<u8>, u64>, SidecarError> {
        let wanted = file_length - self.offset;
        let begin = usize::try_from(wanted)
            .ok()
            .and_then(|wanted| tail.len().checked_sub(wanted));
        let Some(begin) = begin else {
            return Ok(Err(wanted));
        };
        let damage = |reason| damaged("the footer", self.offset, reason);
        let stored = &tail[begin..begin + self.length as usize];
        if crc32c::crc32c(stored) != self.checksum {
            return Err(damage(Damage("checksum differs")));
        }
        Ok(Ok(unpack(stored, self.raw_length).map_err(damage)?))
    }
}
