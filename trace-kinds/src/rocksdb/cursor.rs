//! Bounded reading of the fields inside a payload.

use storage_format::read_varint;

/// The most bytes that a varint of 32 bits takes.
const VARINT32_BYTES_MAX: usize = 5;

/// The rest of a payload. Every getter consumes what it returns, or returns `None` and consumes
/// nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }

    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    #[inline]
    pub(super) fn fixed32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.rest.split_first_chunk::<4>()?;
        self.rest = rest;
        Some(u32::from_le_bytes(*bytes))
    }

    #[inline]
    pub(super) fn fixed64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.rest.split_first_chunk::<8>()?;
        self.rest = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    /// A byte string after its length, a varint32.
    #[inline]
    pub(super) fn prefixed(&mut self) -> Option<&'a [u8]> {
        // Names and keys are nearly always shorter than 128 bytes: one length byte.
        let (length, rest) = match *self.rest.first()? {
            short if short < 0x80 => (usize::from(short), &self.rest[1..]),
            _ => long_length(self.rest)?,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.rest = rest;
        Some(value)
    }
}

/// A varint32 of two to five bytes; bits above the 32nd are dropped, as RocksDB does.
fn long_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (value, length) = read_varint(&bytes[..bytes.len().min(VARINT32_BYTES_MAX)]).ok()?;
    let value = usize::try_from(value & u64::from(u32::MAX)).ok()?;
    Some((value, &bytes[length..]))
}

/// The last of the varint64s at the start of `bytes`, 0 without any.
///
/// RocksDB calls the result the block's offset in its file. It was that while keys were file
/// prefix + offset; since 6.29 keys are hashes and the number means nothing, but it is still a
/// column of the text form.
pub(super) fn last_varint64(mut bytes: &[u8]) -> u64 {
    let mut last = 0;
    while let Ok((value, length)) = read_varint(bytes) {
        last = value;
        bytes = &bytes[length..];
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_one_to_five_bytes() {
        let mut payload = vec![3];
        payload.extend(b"abc");
        payload.extend([0x80, 0x01]);
        payload.extend([7; 128]);
        let mut cursor = Cursor::new(&payload);
        assert_eq!(cursor.prefixed(), Some(&b"abc"[..]));
        assert_eq!(cursor.prefixed(), Some(&[7; 128][..]));
        assert_eq!(cursor.prefixed(), None);
        for hostile in [
            &[5u8, 1][..],
            &[0xff; 4],
            &[0xff, 0xff, 0xff, 0xff, 0x0f, 1],
            &[0x80; 9],
        ] {
            assert_eq!(Cursor::new(hostile).prefixed(), None, "{hostile:?}");
        }
    }

    #[test]
    fn last_of_several_varints() {
        for (bytes, expected) in [
            (&[][..], 0),
            (&[0x05], 5),
            (&[0x05, 0x80, 0x01], 128),
            (&[0x05, 0x80], 5),
            (
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                u64::MAX,
            ),
            (
                &[
                    0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02,
                ],
                1,
            ),
        ] {
            assert_eq!(last_varint64(bytes), expected, "{bytes:?}");
        }
    }
}
