//! The arguments of a record that somebody asked for.

use super::scalar::{Cursor, Scalar};
use super::shapes::KeyShapes;

/// The argument keys that a decoder keeps.
#[derive(Debug, Clone, Default)]
pub(super) struct ArgumentKeys {
    keys: Vec<Box<[u8]>>,
    /// A bit for each (length, first byte) of a key: nearly every other key is told apart by it.
    filter: u64,
    /// Whether a key has a dot and so may stand for a field of a nested object.
    nested: bool,
}

impl ArgumentKeys {
    /// The slot of `key`, given now if it had none.
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

    /// Whether a nested object must be looked into.
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

/// The wanted arguments of one record.
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

    /// Reads an object, its braces included. `None` when the cursor is not at one, or at one that
    /// must be taken apart by a JSON parser.
    ///
    /// `expected` are the keys of a record like this one.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        cursor: &mut Cursor<'a>,
        mut expected: Option<&mut KeyShapes>,
    ) -> Option<()> {
        if !cursor.eat(b"{") {
            return None;
        }
        if cursor.eat(b"}") {
            return Some(());
        }
        let mut place = 0;
        loop {
            let (bytes, start) = (cursor.bytes(), cursor.position());
            let known = match &expected {
                Some(keys) => keys.expected(place, bytes, start),
                None => None,
            };
            let slot = match known {
                Some(key) => {
                    cursor.skip(key.len);
                    key.slot
                }
                None => {
                    let slot = self.key(cursor)?;
                    if let Some(keys) = &mut expected {
                        keys.learn(place, bytes, (start, cursor.position()), slot);
                    }
                    slot
                }
            };
            place += 1;
            let value = cursor.value()?;
            if let Some(slot) = slot {
                self.slots[slot] = value;
            }
            if self.keys.has_nested() && matches!(value, Scalar::Nested(_)) {
                return None;
            }
            if !cursor.eat(b",") {
                return cursor.eat(b"}").then_some(());
            }
        }
    }
    /// Reads a key with its colon; gives the slot of its value.
    #[inline]
    fn key(&self, cursor: &mut Cursor<'a>) -> Option<Option<usize>> {
        if !cursor.eat(b"\"") {
            return None;
        }
        let key = cursor.string_body()?;
        cursor.eat(b":").then(|| self.keys.slot(key))
    }
}
