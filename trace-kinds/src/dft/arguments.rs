//! The requested arguments of a record.

use super::remainder::Remainder;
use super::scalar::{Cursor, Scalar};

/// The argument keys that a decoder needs.
#[derive(Debug, Clone, Default)]
pub(super) struct ArgumentKeys {
    keys: Vec<Box<[u8]>>,
    /// A bit for the length and first byte of each key; it rejects nearly every other key.
    filter: u64,
    /// Whether a key has a dot and so may be the path of a member of a nested object.
    nested: bool,
}

impl ArgumentKeys {
    /// The slot of `key`; a new key gets the next one.
    pub(super) fn insert(&mut self, key: &str) -> usize {
        let bytes = key.as_bytes();
        if let Some(slot) = self.keys.iter().position(|known| **known == *bytes) {
            return slot;
        }
        self.filter |= filter_bit(bytes);
        self.nested |= bytes.contains(&b'.');
        self.keys.push(bytes.into());
        self.keys.len() - 1
    }

    #[inline(always)]
    fn slot(&self, key: &[u8]) -> Option<usize> {
        if self.filter & filter_bit(key) == 0 {
            return None;
        }
        self.keys.iter().position(|known| **known == *key)
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nested objects must be searched.
    pub(super) fn has_nested(&self) -> bool {
        self.nested
    }

    /// All keys with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.keys.iter().map(|key| &**key).enumerate()
    }
}

#[inline(always)]
fn filter_bit(key: &[u8]) -> u64 {
    let first = key.first().copied().unwrap_or(0);
    1 << ((u64::from(first) ^ (key.len() as u64).wrapping_mul(11)) & 63)
}

/// The requested arguments of one record.
#[derive(Debug)]
pub(super) struct Arguments<'k, 'a> {
    keys: &'k ArgumentKeys,
    slots: Vec<Scalar<'a>>,
}

impl<'k, 'a> Arguments<'k, 'a> {
    pub(super) fn new(keys: &'k ArgumentKeys) -> Self {
        Arguments {
            keys,
            slots: vec![Scalar::Null; keys.len()],
        }
    }

    #[inline]
    pub(super) fn get(&self, slot: usize) -> Scalar<'a> {
        self.slots[slot]
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.slots.fill(Scalar::Null);
    }

    /// Reads an object with its braces. `None` if the cursor is not at one, or at one that a JSON
    /// parser must read. `remainder` is that of the record's shape.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        cursor: &mut Cursor<'a>,
        mut remainder: Option<&mut Remainder>,
    ) -> Option<()> {
        let mut index = 0;
        loop {
            if let Some(remainder) = &remainder
                && let Some(()) =
                    remainder.argument(index, cursor, |slot, value| self.slots[slot] = value)
            {
                index += 1;
                continue;
            }
            let begin = if index == 0 { b'{' } else { b',' };
            if cursor.peek() != Some(begin) {
                return (index > 0 && cursor.eat(b"}")).then_some(());
            }
            if !self.general(index, cursor, remainder.as_deref_mut())? {
                return Some(());
            }
            index += 1;
        }
    }

    /// Reads argument `index` with the bytes before it; `false` at the end of the object.
    #[inline(never)]
    fn general(
        &mut self,
        index: usize,
        cursor: &mut Cursor<'a>,
        remainder: Option<&mut Remainder>,
    ) -> Option<bool> {
        let start = cursor.position();
        cursor.skip(1);
        if index == 0 && cursor.eat(b"}") {
            return Some(false);
        }
        if !cursor.eat(b"\"") {
            return None;
        }
        let key = cursor.string_body()?;
        if !cursor.eat(b":") {
            return None;
        }
        let slot = self.keys.slot(key);
        let lead = &cursor.bytes()[start..cursor.position()];
        let value = cursor.value()?;
        if let Some(slot) = slot {
            self.slots[slot] = value;
        }
        // Nested values have one spelling, that of the JSON parser.
        if matches!(value, Scalar::Nested(_)) && (slot.is_some() || self.keys.has_nested()) {
            return None;
        }
        if let Some(remainder) = remainder {
            remainder.learn_argument(index, lead, slot, value);
        }
        Some(true)
    }
}
