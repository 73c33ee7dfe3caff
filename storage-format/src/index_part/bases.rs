//! The time bases of the packets of an index part: what their times were read with.
//!
//! Few numbers stand for very many packets, so each stands once in a table between the blocks and
//! the footer, and entries say which one. A part none of whose packets has a time basis has no
//! table; that is how all parts were before there were time bases.
//!
//! ```text
//! u32 number, for each time basis · u32 CRC32C of these
//! ```

use std::collections::HashMap;

use super::Footer;
use crate::{
    FormatError, FormatErrorKind,
    checksum::crc32c,
    layout::{check_sum, get_u32},
};

const WHAT: &str = "index part time bases";
const NUMBER_BYTES: usize = size_of::<u32>();
/// An entry says with 16 bits which one it has; 0 is none.
const COUNT_MAX: usize = u16::MAX as usize;
/// A table is at most so long.
pub(super) const TABLE_BYTES_MAX: u64 = ((COUNT_MAX + 1) * NUMBER_BYTES) as u64;

/// The time bases of the packets of an index part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TimeBases(Vec<u32>);

impl TimeBases {
    /// Those of the whole part with these bytes and this footer.
    ///
    /// # Errors
    /// As [`Self::decode`].
    pub fn of_part(part: &[u8], footer: &Footer) -> Result<Self, FormatError> {
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = part.get(at(footer.bases.start)..at(footer.bases.end));
        Self::decode(bytes.unwrap_or_default(), footer.bases.start)
    }

    /// Reads the table from `bytes`, which begin at `offset` in the part: those that
    /// [`Footer::bases`] tells.
    ///
    /// # Errors
    /// When the bytes are damaged or impossible.
    pub fn decode(bytes: &[u8], offset: u64) -> Result<Self, FormatError> {
        let Some(end) = bytes.len().checked_sub(NUMBER_BYTES) else {
            return match bytes.is_empty() {
                true => Ok(Self::default()),
                false => Err(FormatError::truncated(WHAT, NUMBER_BYTES, bytes.len())),
            };
        };
        let numbers = &bytes[..end];
        if !end.is_multiple_of(NUMBER_BYTES) || end / NUMBER_BYTES > COUNT_MAX {
            let kind = FormatErrorKind::Field { name: "length" };
            return Err(FormatError::new(WHAT, offset, kind));
        }
        let at = offset.saturating_add(end as u64);
        check_sum(WHAT, at, get_u32(bytes, end), crc32c(numbers))?;
        let numbers = numbers.chunks_exact(NUMBER_BYTES);
        Ok(Self(numbers.map(|number| get_u32(number, 0)).collect()))
    }

    /// The number of which an entry says that it is the `code`th, from 1 on.
    pub(super) fn get(&self, code: u16) -> Option<u32> {
        let at = usize::from(code).checked_sub(1)?;
        self.0.get(at).copied()
    }
}

/// Collects the time bases of a part.
#[derive(Debug, Default)]
pub(super) struct TimeBasesBuilder {
    bases: TimeBases,
    codes: HashMap<u32, u16>,
}

impl TimeBasesBuilder {
    /// What an entry says of `number`. 0 when there is none, or the table is full: then it is not
    /// known what the times of the packet rest on, which is never wrong.
    pub(super) fn code_of(&mut self, number: Option<u32>) -> u16 {
        let Some(number) = number else { return 0 };
        if let Some(code) = self.codes.get(&number) {
            return *code;
        }
        let Ok(code) = u16::try_from(self.bases.0.len() + 1) else {
            return 0;
        };
        self.bases.0.push(number);
        self.codes.insert(number, code);
        code
    }

    /// Adds the table to the bytes of a part.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        if self.bases.0.is_empty() {
            return;
        }
        let start = out.len();
        for number in &self.bases.0 {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let checksum = crc32c(&out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    /// The table.
    pub(super) fn finish(self) -> TimeBases {
        self.bases
    }
}
