//! Numbers and text inside the bodies of sidecar blocks.
//!
//! A number is a varint ([`storage_format::read_varint`]). A signed number is folded first (0, -1,
//! 1, -2, …). Text is its length and its bytes.

pub(crate) use storage_format::put_varint;
use storage_format::{VarintError, read_varint, varint_fits};

/// The reason why bytes cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Damage(pub(crate) &'static str);

pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, (value << 1 ^ value >> 63).cast_unsigned());
}

/// A wide number as two varints, low half first.
pub(crate) fn put_wide(out: &mut Vec<u8>, value: u128) {
    let (low, high) = (value & u128::from(u64::MAX), value >> 64);
    for half in [low, high] {
        put_varint(out, u64::try_from(half).expect("a half has 64 bits"));
    }
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Optional text: its length plus one, or zero.
pub(crate) fn put_optional_text(out: &mut Vec<u8>, text: Option<&[u8]>) {
    match text {
        Some(text) => {
            put_varint(out, text.len() as u64 + 1);
            out.extend_from_slice(text);
        }
        None => out.push(0),
    }
}

/// Reads a body from its beginning to its end.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Damage> {
        let (first, rest) = self.rest.split_first().ok_or(Damage("ends too early"))?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(Damage("ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (array, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(Damage("ends too early"))?;
        self.rest = rest;
        Ok(*array)
    }

    /// Four bytes, little-endian.
    pub(crate) fn word32(&mut self) -> Result<u32, Damage> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes, little-endian.
    pub(crate) fn word(&mut self) -> Result<u64, Damage> {
        self.array().map(u64::from_le_bytes)
    }

    /// A varint of at most 32 bits.
    pub(crate) fn varint32(&mut self) -> Result<u32, Damage> {
        u32::try_from(self.varint()?).map_err(|_| Damage("number too large"))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Damage> {
        let (value, length) = read_varint(self.rest).map_err(|error| match error {
            VarintError::Truncated => Damage("ends too early"),
            VarintError::TooLong => Damage("number of more than 64 bits"),
        })?;
        let (bytes, rest) = self.rest.split_at(length);
        if !varint_fits(bytes) {
            return Err(Damage("number of more than 64 bits"));
        }
        self.rest = rest;
        Ok(value)
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Damage> {
        let folded = self.varint()?;
        Ok((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
    }

    pub(crate) fn wide(&mut self) -> Result<u128, Damage> {
        let low = self.varint()?;
        Ok(u128::from(self.varint()?) << 64 | u128::from(low))
    }

    /// The length of a list whose items take at least `each` bytes, checked against the remaining
    /// bytes.
    pub(crate) fn length(&mut self, each: usize) -> Result<usize, Damage> {
        let length = usize::try_from(self.varint()?).map_err(|_| Damage("length too large"))?;
        match length.checked_mul(each) {
            Some(bytes) if bytes <= self.rest.len() => Ok(length),
            _ => Err(Damage("length beyond the end")),
        }
    }

    pub(crate) fn text(&mut self) -> Result<&'a [u8], Damage> {
        let length = self.length(1)?;
        self.bytes(length)
    }

    pub(crate) fn optional_text(&mut self) -> Result<Option<&'a [u8]>, Damage> {
        match self.varint()?.checked_sub(1) {
            None => Ok(None),
            Some(length) => {
                let length = usize::try_from(length).map_err(|_| Damage("length too large"))?;
                self.bytes(length).map(Some)
            }
        }
    }

    /// Checks that nothing follows.
    pub(crate) fn end(&self) -> Result<(), Damage> {
        match self.rest {
            [] => Ok(()),
            _ => Err(Damage("bytes after the end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_numbers_are_refused() {
        for bytes in [&[][..], &[0x80], &[0xff; 10], &[0xff; 11]] {
            assert!(Reader::new(bytes).varint().is_err(), "{bytes:?}");
        }
        let max = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(Reader::new(&max).varint(), Ok(u64::MAX));
        assert!(Reader::new(&[200, 1, 0]).text().is_err());
    }

    proptest! {
        #[test]
        fn values_survive_a_round_trip(
            number in any::<u64>(), signed in any::<i64>(), wide in any::<u128>(),
            text in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20)),
        ) {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            put_signed(&mut out, signed);
            put_wide(&mut out, wide);
            put_optional_text(&mut out, text.as_deref());
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint(), Ok(number));
            prop_assert_eq!(reader.signed(), Ok(signed));
            prop_assert_eq!(reader.wide(), Ok(wide));
            prop_assert_eq!(reader.optional_text(), Ok(text.as_deref()));
            prop_assert_eq!(reader.end(), Ok(()));
        }
    }
}
