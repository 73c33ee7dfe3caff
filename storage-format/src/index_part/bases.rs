//! The time bases of the packets of an index part.
//!
//! Many packets share few time bases, so a table between the blocks and the footer contains each
//! one once, and entries refer to it by index. A part whose packets have no time basis has no
//! table; neither have the parts from before time bases were introduced.
//!
//! ```text
//! u32 number, for each time basis · u32 CRC32C of these
//! ```

use std::collections::HashMap;

use crate::{
    FormatError, FormatErrorKind,
    checksum::crc32c,
    integer::{u64_of, usize_of},
    layout::{check_checksum, get_u32},
};

const WHAT: &str = "index part time bases";
const NUMBER_BYTES: usize = size_of::<u32>();
/// An entry refers to the table with 16 bits; 0 is none.
const COUNT_MAX: usize = usize_of(u16::MAX as u32);
/// Longest table, in bytes.
pub(super) const TABLE_BYTES_MAX: u64 = u64_of((COUNT_MAX + 1) * NUMBER_BYTES);

/// The time bases of the packets of an index part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TimeBases(Vec<u32>);

impl TimeBases {
    /// Decodes the table from `bytes`, which begin at `offset` in the part; the footer gives the
    /// range.
    ///
    /// # Errors
    /// When the bytes are damaged or impossible.
    pub fn decode(bytes: &[u8], offset: u64) -> Result<Self, FormatError> {
        let Some(end) = bytes.len().checked_sub(NUMBER_BYTES) else {
            return if bytes.is_empty() {
                Ok(Self::default())
            } else {
                Err(FormatError::truncated(WHAT, NUMBER_BYTES, bytes.len()))
            };
        };
        let numbers = &bytes[..end];
        if !end.is_multiple_of(NUMBER_BYTES) || end / NUMBER_BYTES > COUNT_MAX {
            let kind = FormatErrorKind::Field { name: "length" };
            return Err(FormatError::new(WHAT, offset, kind));
        }
        let at = offset.saturating_add(u64_of(end));
        check_checksum(WHAT, at, get_u32(bytes, end), crc32c(numbers))?;
        let numbers = numbers.chunks_exact(NUMBER_BYTES);
        Ok(Self(numbers.map(|number| get_u32(number, 0)).collect()))
    }

    /// The time basis to which entries refer as `code`, counted from 1.
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
    /// The builder that has collected these.
    pub(super) fn of(bases: &TimeBases) -> Self {
        let codes = (bases.0.iter().copied()).zip(1_u16..).collect();
        let bases = bases.clone();
        Self { bases, codes }
    }

    /// The code by which entries refer to `number`. 0 when there is none or the table is full: the
    /// time basis of the packet is then unknown, which is always correct.
    pub(super) fn code_of(&mut self, number: Option<u32>) -> u16 {
        let Some(number) = number else { return 0 };
        if let Some(code) = self.codes.get(&number) {
            return *code;
        }
        let Ok(code) = u16::try_from(self.bases.0.len().saturating_add(1)) else {
            return 0;
        };
        self.bases.0.push(number);
        self.codes.insert(number, code);
        code
    }

    /// Appends the table to the bytes of a part.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        if self.bases.0.is_empty() {
            return;
        }
        let start = out.len();
        for number in &self.bases.0 {
            out.extend_from_slice(&number.to_le_bytes());
        }
        assert!(
            self.bases.0.len() <= COUNT_MAX,
            "entries refer to the table with 16 bits"
        );
        let checksum = crc32c(&out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    /// The table.
    pub(super) fn finish(self) -> TimeBases {
        self.bases
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Codec, StreamPosition,
        frame::Facts,
        index_part::{ArrayBlock, PacketEntry},
    };

    fn table(count: u32) -> (TimeBasesBuilder, Vec<u8>) {
        let mut builder = TimeBasesBuilder::default();
        for number in 0..count {
            let code = builder.code_of(Some(number));
            let expected = u16::try_from(number.saturating_add(1)).unwrap_or(0);
            assert_eq!(code, expected, "{number}");
            assert_eq!(builder.code_of(Some(number)), expected, "{number} again");
        }
        assert_eq!(builder.code_of(None), 0);
        let mut bytes = Vec::new();
        builder.encode(&mut bytes);
        (builder, bytes)
    }

    #[test]
    fn a_table_has_as_many_numbers_as_entries_can_refer_to() {
        for (count, bytes, kept) in [
            (0, 0, 0),
            (1, 8, 1),
            (65_535, 262_144, 65_535),
            (65_537, 262_144, 65_535_u16),
        ] {
            let (builder, table) = table(count);
            assert_eq!(table.len(), bytes, "{count}");
            assert!(u64_of(table.len()) <= TABLE_BYTES_MAX, "{count}");
            let found = TimeBases::decode(&table, 100).unwrap();
            assert_eq!(found, builder.finish(), "{count}");
            assert_eq!(found.get(0), None);
            let last = kept.checked_sub(1).map(u32::from);
            assert_eq!(found.get(kept), last, "{count}");
            assert_eq!(found.get(kept.wrapping_add(1)), None, "{count}");
        }
        assert_eq!(TABLE_BYTES_MAX, 262_144);
    }

    #[test]
    fn a_table_of_another_length_is_refused() {
        let sealed = |length: usize| {
            let mut bytes = vec![7; length];
            bytes.extend(crc32c(&bytes).to_le_bytes());
            bytes
        };
        let too_long = sealed(262_144);
        for (bytes, name) in [
            (sealed(3), "length"),
            (sealed(5), "length"),
            (too_long, "length"),
        ] {
            let error = TimeBases::decode(&bytes, 100).unwrap_err();
            let expected = FormatError::new(WHAT, 100, FormatErrorKind::Field { name });
            assert_eq!(error, expected, "{} bytes", bytes.len());
        }
        assert!(TimeBases::decode(&sealed(262_140), 0).is_ok());
        for length in 1..4 {
            let error = TimeBases::decode(&sealed(0)[..length], 100).unwrap_err();
            assert_eq!(error, FormatError::truncated(WHAT, 4, length));
        }
    }

    #[test]
    fn a_packet_without_room_for_its_time_basis_has_an_unknown_one() {
        let (mut builder, _) = table(65_535);
        let entry = |time_basis| PacketEntry {
            number: 1,
            offset: 2,
            stored_size: 3,
            raw_size: 3,
            position: StreamPosition::new(4, 5),
            facts: Facts {
                events: Some(6),
                time_basis,
                ..Facts::default()
            },
            raw_checksum: 7,
            codec: Codec::None,
        };
        for (time_basis, expected) in [(Some(9), Some(9)), (Some(70_000), None), (None, None)] {
            let bytes = entry(time_basis).encode(&mut builder);
            let block = ArrayBlock::new(&bytes, &builder.bases).unwrap();
            assert_eq!(block.get(0), Ok(entry(expected)), "{time_basis:?}");
            assert_eq!(bytes[69], entry(expected).facts.known_bits());
        }
    }
}
