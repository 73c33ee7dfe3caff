//! The dictionary of a chunk: all values of a dimension, with the number of events that have each.

use query_language::Value;

use crate::OwnedValue;
use crate::packing::compress;
use crate::wire::{Damage, Reader, put_signed, put_text, put_varint};

/// Values with their counts, distinct, ordered by type and value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Dictionary {
    entries: Vec<(OwnedValue, u64)>,
}

/// Limit of the uncompressed size of a dictionary, as a multiple of its compressed limit. No real
/// dictionary compresses better, so trying would be a waste of time.
const TRIED_FACTOR: usize = 16;
/// Limits of readers for the values of a dictionary, and for the bytes of all its text: text that
/// shares the beginning of the text before it takes almost no space in a sidecar.
const ENTRIES_MAX: usize = 1 << 16;
const TEXT_BYTES_MAX: usize = 1 << 20;
/// The compression level for measuring the size of a dictionary.
const MEASURE_LEVEL: i32 = 1;

impl Dictionary {
    /// The dictionary of `values`, if it takes at most `room` bytes compressed.
    pub(crate) fn within<'a>(
        values: impl Iterator<Item = (Value<'a>, u64)>,
        room: usize,
    ) -> Option<Dictionary> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        for (value, count) in values {
            bytes += match value {
                Value::Str(text) => text.len() + 2,
                _ => 2,
            };
            let room = room.saturating_mul(TRIED_FACTOR).min(TEXT_BYTES_MAX);
            if bytes > room || entries.len() == ENTRIES_MAX {
                return None;
            }
            entries.push((OwnedValue::from(value), count));
        }
        entries.sort_by(|(left, _), (right, _)| left.order(right));
        let dictionary = Dictionary { entries };
        let mut encoded = Vec::new();
        dictionary.encode(&mut encoded);
        let fits = encoded.len() <= room || compress(&encoded, MEASURE_LEVEL).len() <= room;
        fits.then_some(dictionary)
    }

    /// The values and the number of events that have each.
    pub fn entries(&self) -> &[(OwnedValue, u64)] {
        &self.entries
    }

    /// Appends the entries: their number, then the type, value and count of each. Text omits the
    /// bytes that it shares with the text before it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        assert!(
            self.entries.len() <= ENTRIES_MAX,
            "readers refuse more entries"
        );
        put_varint(out, self.entries.len() as u64);
        let mut previous: &[u8] = &[];
        for (value, count) in &self.entries {
            match value {
                OwnedValue::Int(value) => {
                    out.push(0);
                    put_signed(out, *value);
                }
                OwnedValue::Uint(value) => {
                    out.push(1);
                    put_varint(out, *value);
                }
                OwnedValue::Float(value) => {
                    out.push(2);
                    out.extend(value.to_bits().to_le_bytes());
                }
                OwnedValue::Bool(value) => {
                    out.push(3);
                    out.push(u8::from(*value));
                }
                OwnedValue::Str(text) => {
                    out.push(4);
                    let shared = text
                        .iter()
                        .zip(previous)
                        .take_while(|(a, b)| a == b)
                        .count();
                    put_varint(out, shared as u64);
                    put_text(out, &text[shared..]);
                    previous = text;
                }
            }
            put_varint(out, *count);
        }
    }

    /// Reads what [`Dictionary::encode`] wrote.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Dictionary, Damage> {
        // Each entry takes at least three bytes.
        let length = reader.length(3)?;
        if length > ENTRIES_MAX {
            return Err(Damage("dictionary of too many values"));
        }
        let mut bytes = 0;
        let mut entries: Vec<(OwnedValue, u64)> = Vec::with_capacity(length);
        let mut text: Vec<u8> = Vec::new();
        for _ in 0..length {
            let value = match reader.byte()? {
                0 => OwnedValue::Int(reader.signed()?),
                1 => OwnedValue::Uint(reader.varint()?),
                2 => OwnedValue::Float(f64::from_bits(reader.word()?)),
                3 => OwnedValue::Bool(reader.byte()? != 0),
                4 => {
                    let shared = usize::try_from(reader.varint()?)
                        .ok()
                        .filter(|shared| *shared <= text.len());
                    text.truncate(shared.ok_or(Damage("text shares more than there is"))?);
                    text.extend(reader.text()?);
                    bytes += text.len();
                    if bytes > TEXT_BYTES_MAX {
                        return Err(Damage("dictionary of too much text"));
                    }
                    OwnedValue::Str(text.as_slice().into())
                }
                _ => return Err(Damage("unknown type of value")),
            };
            entries.push((value, reader.varint()?));
        }
        Ok(Dictionary { entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_a_round_trip() {
        let values = [
            (Value::Str(b"/data/b"), 3),
            (Value::Str(b"/data/a"), 1),
            (Value::Str(b""), 1),
            (Value::Int(-5), 2),
            (Value::Uint(u64::MAX), 2),
            (Value::Float(0.5), 9),
            (Value::Bool(true), 1),
        ];
        let dictionary = Dictionary::within(values.into_iter(), 4_096).unwrap();
        let mut bytes = Vec::new();
        dictionary.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(Dictionary::decode(&mut reader), Ok(dictionary));
        assert_eq!(reader.end(), Ok(()));
    }

    #[test]
    fn a_dictionary_that_does_not_fit_is_dropped() {
        let texts: Vec<String> = (0..2_000_u64)
            .map(|value| format!("{:x}", crate::value::mix(value)))
            .collect();
        let values = || texts.iter().map(|text| (Value::from(text.as_str()), 1));
        assert_eq!(Dictionary::within(values(), 4_096), None);
        assert!(Dictionary::within(values().take(100), 4_096).is_some());
        // 40,000 bytes of text that repeats itself fit when compressed.
        let alike: Vec<String> = (0..1_000)
            .map(|value| format!("/p/lustre1/{value:029}"))
            .collect();
        let values = alike.iter().map(|text| (Value::from(text.as_str()), 1));
        assert!(Dictionary::within(values, 4_096).is_some());
    }
}
