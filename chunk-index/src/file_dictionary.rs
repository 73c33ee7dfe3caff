//! The dictionary of a file: the distinct values of a dimension over all chunks.
//!
//! A Bloom filter takes ten bits a value and has false positives. Where a file stores all values
//! anyway because each has attributes (the names of DFTracer's hashes), the filter of a chunk can
//! be the set of its entries in that list: exact, and a third of the size.
//!
//! ```text
//! file dictionary  number of entries; a byte for the type of each (0 number, 1 sixteen
//!                  hexadecimal digits, 2 other text); then eight bytes for each of types 0 and 1,
//!                  in their order; then each text
//! ```

use std::cmp::Ordering;
use std::collections::HashMap;

use query_language::{Number, Scalar, Value};

use crate::wire::{Damage, Reader, put_text, put_varint};

/// A value of a file dictionary.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DictionaryEntry {
    /// A whole number from zero, or text that spells it.
    Number(u64),
    /// Any other text.
    Text(Box<[u8]>),
}

impl DictionaryEntry {
    /// The entry of a value; `None` for values that no dictionary contains. Values that compare
    /// equal have the same entry, except for text that spells a number as a fraction.
    pub fn of(value: Value<'_>) -> Option<DictionaryEntry> {
        let number = match value.as_number() {
            Some(Number::Int(number)) => u64::try_from(number).ok(),
            _ => None,
        };
        match (number, value) {
            (Some(number), _) => Some(DictionaryEntry::Number(number)),
            (None, Value::Str(text)) => Some(DictionaryEntry::Text(text.into())),
            _ => None,
        }
    }
}

/// The values of a dimension over a whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileDictionary {
    types: Vec<u8>,
    /// The number, the digits, or the index in `texts`.
    words: Vec<u64>,
    texts: Vec<Box<[u8]>>,
}

const NUMBER: u8 = 0;
const DIGITS: u8 = 1;
const TEXT: u8 = 2;
/// Entries that a file dictionary may have.
pub(crate) const ENTRIES_MAX: usize = 1 << 16;
/// Literals of a list that are searched for one by one.
const SEARCHED_EACH_MAX: usize = 8;

impl FileDictionary {
    /// A dictionary of `entries`, in an order that has a meaning only to the caller; `None` when
    /// there are too many.
    pub fn new(entries: impl IntoIterator<Item = DictionaryEntry>) -> Option<FileDictionary> {
        let mut dictionary = FileDictionary::default();
        for entry in entries {
            if dictionary.types.len() == ENTRIES_MAX {
                return None;
            }
            let (entry_type, word) = match entry {
                DictionaryEntry::Number(number) => (NUMBER, number),
                DictionaryEntry::Text(text) => match digits(&text) {
                    Some(word) => (DIGITS, word),
                    None => {
                        dictionary.texts.push(text);
                        (TEXT, dictionary.texts.len() as u64 - 1)
                    }
                },
            };
            dictionary.types.push(entry_type);
            dictionary.words.push(word);
        }
        Some(dictionary)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// The entry at an index.
    pub fn entry(&self, index: usize) -> Option<DictionaryEntry> {
        let (entry_type, word) = (*self.types.get(index)?, *self.words.get(index)?);
        Some(match entry_type {
            NUMBER => DictionaryEntry::Number(word),
            DIGITS => DictionaryEntry::Text(spell(word).into()),
            _ => DictionaryEntry::Text(self.texts.get(usize::try_from(word).ok()?)?.clone()),
        })
    }

    /// The index of each entry; of equal entries the first.
    fn indexes(&self) -> HashMap<DictionaryEntry, u32> {
        let mut indexes = HashMap::with_capacity(self.len());
        for (index, at) in self.numbered().rev() {
            if let Some(entry) = self.entry(at) {
                indexes.insert(entry, index);
            }
        }
        indexes
    }

    /// The indexes of all entries, in both of their types.
    fn numbered(&self) -> impl DoubleEndedIterator<Item = (u32, usize)> {
        let length = u32::try_from(self.len()).expect("a dictionary has at most ENTRIES_MAX");
        (0..length).zip(0..self.len())
    }

    /// The index of each value; `None` for values that the dictionary lacks.
    pub(crate) fn indexes_of<'a>(
        &self,
        values: impl Iterator<Item = Value<'a>>,
    ) -> Vec<Option<u32>> {
        let indexes = self.indexes();
        values
            .map(|value| indexes.get(&DictionaryEntry::of(value)?).copied())
            .collect()
    }

    /// Appends the indexes of all entries whose values may equal `literal`.
    pub(crate) fn find(&self, literal: &Scalar, into: &mut Vec<u32>) {
        match literal {
            Scalar::Bool(_) => {}
            Scalar::Str(text) => {
                if let Some(entry) = DictionaryEntry::of(Value::Str(text)) {
                    self.find_entry(&entry, into);
                }
            }
            Scalar::Number(number) => {
                if let Some(value) = unsigned(*number) {
                    self.find_entry(&DictionaryEntry::Number(value), into);
                }
                self.find_fractions(&[*number], into);
            }
        }
    }

    /// As [`FileDictionary::find`] for each of `literals`, in one pass when there are many.
    pub(crate) fn find_all(&self, literals: &[Scalar], into: &mut Vec<u32>) {
        if literals.len() <= SEARCHED_EACH_MAX {
            literals.iter().for_each(|literal| self.find(literal, into));
            return;
        }
        let indexes = self.indexes();
        for literal in literals {
            let value = match literal {
                Scalar::Str(text) => Some(Value::Str(text)),
                Scalar::Number(number) => unsigned(*number).map(Value::Uint),
                Scalar::Bool(_) => None,
            };
            let entry = value.and_then(DictionaryEntry::of);
            into.extend(entry.and_then(|entry| indexes.get(&entry)));
        }
        let numbers = literals.iter().filter_map(|literal| match literal {
            Scalar::Number(number) => Some(*number),
            Scalar::Str(_) | Scalar::Bool(_) => None,
        });
        self.find_fractions(&numbers.collect::<Vec<_>>(), into);
    }

    fn find_entry(&self, entry: &DictionaryEntry, into: &mut Vec<u32>) {
        let (entry_type, word) = match entry {
            DictionaryEntry::Number(number) => (NUMBER, *number),
            DictionaryEntry::Text(text) => match digits(text) {
                Some(word) => (DIGITS, word),
                None => match self.texts.iter().position(|known| known == text) {
                    Some(at) => (TEXT, at as u64),
                    None => return,
                },
            },
        };
        let is_entry = |at: usize| self.words[at] == word && self.types[at] == entry_type;
        let found = self.numbered().filter(|(_, at)| is_entry(*at));
        into.extend(found.map(|(index, _)| index));
    }

    /// Finds text such as `12e4`, which is an entry distinct from that of the equal number.
    fn find_fractions(&self, numbers: &[Number], into: &mut Vec<u32>) {
        if numbers.is_empty() {
            return;
        }
        let equals_number = |text: &[u8]| {
            Value::Str(text).as_number().is_some_and(|value| {
                let mut orders = numbers.iter().map(|number| value.compare(*number));
                orders.any(|order| order == Some(Ordering::Equal))
            })
        };
        let mut texts = self.texts.iter();
        for (index, at) in self.numbered() {
            let word = self.words[at];
            let is_equal = match self.types[at] {
                DIGITS => may_be_fraction(word) && equals_number(&spell(word)),
                // The texts have the order of their entries.
                TEXT => texts.next().is_some_and(|text| equals_number(text)),
                _ => false,
            };
            if is_equal {
                into.push(index);
            }
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        assert_eq!(self.types.len(), self.words.len(), "an entry has a word");
        assert!(self.len() <= ENTRIES_MAX, "readers refuse more entries");
        let mut out = Vec::new();
        put_varint(&mut out, self.len() as u64);
        out.extend(&self.types);
        for (entry_type, word) in self.types.iter().zip(&self.words) {
            if *entry_type != TEXT {
                out.extend(word.to_le_bytes());
            }
        }
        self.texts.iter().for_each(|text| put_text(&mut out, text));
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Result<FileDictionary, Damage> {
        let mut reader = Reader::new(body);
        let length = reader.length(2)?;
        if length > ENTRIES_MAX {
            return Err(Damage("file dictionary with too many entries"));
        }
        let types = reader.bytes(length)?.to_vec();
        let mut words = Vec::with_capacity(length);
        let mut texts = 0;
        for entry_type in &types {
            words.push(match *entry_type {
                NUMBER | DIGITS => reader.word()?,
                TEXT => {
                    texts += 1;
                    texts - 1
                }
                _ => return Err(Damage("unknown type of an entry")),
            });
        }
        let text = |_| reader.text().map(Box::from);
        let texts = (0..texts).map(text).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(FileDictionary {
            types,
            words,
            texts,
        })
    }
}

fn unsigned(number: Number) -> Option<u64> {
    match number.normalize() {
        Number::Int(value) => u64::try_from(value).ok(),
        Number::Float(_) => None,
    }
}

/// The number that sixteen lower-case hexadecimal digits spell.
fn digits(text: &[u8]) -> Option<u64> {
    let text: &[u8; 16] = text.try_into().ok()?;
    text.iter().try_fold(0, |word, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(word << 4 | u64::from(digit))
    })
}

fn spell(word: u64) -> [u8; 16] {
    let bytes = word.to_be_bytes();
    std::array::from_fn(|at| {
        let pair = bytes[at / 2];
        let digit = if at % 2 == 0 { pair >> 4 } else { pair & 15 };
        digit + if digit < 10 { b'0' } else { b'a' - 10 }
    })
}

/// Whether sixteen digits may spell a number: only decimal digits and the `e` of an exponent.
fn may_be_fraction(word: u64) -> bool {
    (0..16).all(|at| matches!(word >> (4 * at) & 15, 0..=9 | 14))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use query_language::{CompareOp, Condition, Matcher};

    use super::*;
    use crate::OwnedValue;

    fn value() -> impl Strategy<Value = OwnedValue> {
        let text = |text: String| OwnedValue::Str(text.into_bytes().into());
        prop_oneof![
            "[0-9]{1,3}".prop_map(text),
            "[0-9]{2}e[0-2]".prop_map(text),
            "0{12}[0-9e]{4}".prop_map(text),
            "[0-9a-f]{16}".prop_map(text),
            "[a-z/]{0,3}".prop_map(text),
            (0..2_000_u64).prop_map(OwnedValue::Uint),
        ]
    }

    proptest! {
        #[test]
        fn every_value_that_equals_a_literal_is_found(
            values in proptest::collection::vec(value(), 0..40),
            literals in proptest::collection::vec(value(), 1..20),
        ) {
            let entries = values.iter().filter_map(|value| DictionaryEntry::of(value.as_value()));
            let dictionary = FileDictionary::new(entries).unwrap();
            prop_assert_eq!(dictionary.len(), values.len(), "each of these is an entry");
            prop_assert_eq!(FileDictionary::decode(&dictionary.encode()), Ok(dictionary.clone()));
            let indexes = dictionary.indexes_of(values.iter().map(OwnedValue::as_value));
            let mut literals: Vec<Scalar> = literals
                .iter()
                .map(|literal| match literal {
                    OwnedValue::Str(text) => Scalar::Str(text.clone()),
                    OwnedValue::Uint(value) => Scalar::Number(Number::Int(i128::from(*value))),
                    other => panic!("{other:?}"),
                })
                .collect();
            literals.push(Scalar::Number(Number::Float(120.0)));
            let entry = |index: u32| dictionary.entry(usize::try_from(index).unwrap());
            let mut all_found = Vec::new();
            dictionary.find_all(&literals, &mut all_found);
            for literal in &literals {
                let matcher = Matcher::new(&Condition::Compare(CompareOp::Eq, literal.clone()));
                let mut found = Vec::new();
                dictionary.find(literal, &mut found);
                for (value, index) in values.iter().zip(&indexes) {
                    let index = index.expect("every entry has an index");
                    if matcher.passes(value.as_value()) {
                        for found in [&found, &all_found] {
                            let is_found = found.iter().any(|at| entry(*at) == entry(index));
                            prop_assert!(is_found, "{value:?} equals {literal:?}");
                        }
                    }
                }
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = FileDictionary::decode(&bytes);
        }
    }
}
