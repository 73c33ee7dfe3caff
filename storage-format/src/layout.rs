//! Little-endian fields at constant places of a fixed layout, and a cursor for variable ones.

use crate::error::{FormatError, FormatErrorKind};

/// Writes `value` into `bytes` at the constant place `at`.
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// The `N` bytes of `bytes` at the constant place `at`; the caller has checked the length.
pub(crate) fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    value
}

pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(get(bytes, at))
}

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

pub(crate) fn get_i64(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(get(bytes, at))
}

/// Reads fields of variable layouts one after another; every read is checked.
pub(crate) struct Cursor<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes, at: 0 }
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], FormatError> {
        let rest = self.bytes.len() - self.at;
        if length > rest {
            return Err(FormatError::truncated(
                self.what,
                self.at.saturating_add(length),
                self.bytes.len(),
            ));
        }
        let taken = &self.bytes[self.at..self.at + length];
        self.at += length;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        Ok(get(self.take(N)?, 0))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, FormatError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub(crate) fn fault(&self, name: &'static str) -> FormatError {
        FormatError::new(self.what, self.at as u64, FormatErrorKind::Field { name })
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }
}

/// Checks the magic number and the version that begin every file of ours.
pub(crate) fn check_start(
    what: &'static str,
    bytes: &[u8],
    magic: [u8; 8],
    length: usize,
) -> Result<(), FormatError> {
    if bytes.len() < 10 {
        return Err(FormatError::truncated(what, length, bytes.len()));
    }
    if bytes[..8] != magic {
        return Err(FormatError::new(what, 0, FormatErrorKind::Magic));
    }
    let found = get_u16(bytes, 8);
    if found != crate::FORMAT_VERSION {
        return Err(FormatError::new(
            what,
            8,
            FormatErrorKind::Version { found },
        ));
    }
    if bytes.len() < length {
        return Err(FormatError::truncated(what, length, bytes.len()));
    }
    Ok(())
}

/// Compares a stored checksum with the one of the bytes that are there.
pub(crate) fn check_sum(
    what: &'static str,
    offset: u64,
    stored: u32,
    computed: u32,
) -> Result<(), FormatError> {
    if stored == computed {
        return Ok(());
    }
    Err(FormatError::new(
        what,
        offset,
        FormatErrorKind::Checksum { stored, computed },
    ))
}
