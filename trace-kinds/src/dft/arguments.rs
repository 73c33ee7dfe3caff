//! The arguments of a record that somebody asked for.

use super::remainder::Remainder;
use super::scalar::{Cursor, Scalar};

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
    /// `remainder` is that of a record like this one.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        cursor: &mut Cursor<'a>,
        mut remainder: Option<&mut Remainder>,
    ) -> Option<()> {
        let mut place = 0;
        loop {
            if let Some(remainder) = &remainder
                && let Some(()) =
                    remainder.argument(place, cursor, |slot, value| self.slots[slot] = value)
            {
                place += 1;
                continue;
            }
            let begin = if place == 0 { b'{' } else { b',' };
            if cursor.peek() != Some(begin) {
                return (place > 0 && cursor.eat(b"}")).then_some(());
            }
            if !self.general(place, cursor, remainder.as_deref_mut())? {
                return Some(());
            }
            place += 1;
        }
    }

    /// Reads the argument of number `place` with what stands in front of it; `false` when there is
    /// none, but the end of the object.
    #[inline(never)]
    fn general(
        &mut self,
        place: usize,
        cursor: &mut Cursor<'a>,
        remainder: Option<&mut Remainder>,
    ) -> Option<bool> {
        let start = cursor.position();
        cursor.skip(1);
        if place == 0 && cursor.eat(b"}") {
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
        if self.keys.has_nested() && matches!(value, Scalar::Nested(_)) {
            return None;
        }
        if let Some(remainder) = remainder {
            remainder.learn_argument(place, lead, slot, value);
        }
        Some(true)
    }
}
