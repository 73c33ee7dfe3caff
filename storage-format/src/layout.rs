//! Little-endian fields at constant offsets of a fixed layout, and a cursor for variable layouts.

use std::ops::RangeInclusive;

use crate::{
    error::{FormatError, FormatErrorKind},
    integer::u64_of,
};

/// Writes `value` into `bytes` at the constant offset `at`.
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    field(bytes, at, N);
    bytes[at..][..N].copy_from_slice(&value);
}

/// The `N` bytes of `bytes` at the constant offset `at`; the caller has checked the length.
pub(crate) fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    field(bytes, at, N);
    value.copy_from_slice(&bytes[at..][..N]);
    value
}

/// Asserts that a field of `length` bytes at the constant offset `at` is inside of its layout.
#[inline]
fn field(bytes: &[u8], at: usize, length: usize) {
    debug_assert!(
        at.saturating_add(length) <= bytes.len(),
        "a field is inside of its layout"
    );
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
        assert!(
            self.at <= self.bytes.len(),
            "a cursor stays inside of its bytes"
        );
        let end = self.at.saturating_add(length);
        let Some(taken) = self.bytes.get(self.at..end) else {
            return Err(FormatError::truncated(self.what, end, self.bytes.len()));
        };
        self.at = end;
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
        FormatError::new(self.what, u64_of(self.at), FormatErrorKind::Field { name })
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }
}

/// Checks the magic number and the version at the start of a file of format version 1.
pub(crate) fn check_start(
    what: &'static str,
    bytes: &[u8],
    magic: [u8; 8],
    length: usize,
) -> Result<(), FormatError> {
    let version = crate::FORMAT_VERSION;
    check_version(what, bytes, magic, length, version..=version).map(|_| ())
}

/// Checks the magic number and the version at the start of a file; returns the version.
pub(crate) fn check_version(
    what: &'static str,
    bytes: &[u8],
    magic: [u8; 8],
    length: usize,
    versions: RangeInclusive<u16>,
) -> Result<u16, FormatError> {
    assert!(length >= 10, "a header has a magic number and a version");
    if bytes.len() < 10 {
        return Err(FormatError::truncated(what, length, bytes.len()));
    }
    if bytes[..8] != magic {
        return Err(FormatError::new(what, 0, FormatErrorKind::Magic));
    }
    let found = get_u16(bytes, 8);
    if !versions.contains(&found) {
        let newest = *versions.end();
        let kind = FormatErrorKind::Version { found, newest };
        return Err(FormatError::new(what, 8, kind));
    }
    if bytes.len() < length {
        return Err(FormatError::truncated(what, length, bytes.len()));
    }
    Ok(found)
}

/// Compares a stored checksum with the computed one.
pub(crate) fn check_checksum(
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
