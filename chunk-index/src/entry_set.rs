//! Sets of entries of a file dictionary.
//!
//! ```text
//! entry set  the indexes of the entries, ascending: the first, then for each other its distance
//!            from the one before, less one
//! ```

use crate::wire::{Damage, Reader, put_varint};

/// Indexes of entries of a [`FileDictionary`](crate::FileDictionary), ascending and distinct.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntrySet {
    steps: Box<[u8]>,
}

impl EntrySet {
    /// The set of `indexes`, which are ascending, distinct and below `u32::MAX`.
    pub(crate) fn new(indexes: &[u32]) -> EntrySet {
        let (mut steps, mut next) = (Vec::with_capacity(indexes.len()), 0);
        for index in indexes {
            let step = index.checked_sub(next).expect("indexes are ascending");
            put_varint(&mut steps, u64::from(step));
            next = index.checked_add(1).expect("an index is below u32::MAX");
        }
        EntrySet {
            steps: steps.into(),
        }
    }

    /// The indexes, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let (mut reader, mut next) = (Reader::new(&self.steps), 0_u32);
        std::iter::from_fn(move || {
            let step = u32::try_from(reader.varint().ok()?).ok()?;
            let index = next.checked_add(step)?;
            next = index.checked_add(1)?;
            Some(index)
        })
    }

    /// Whether the set contains one of `indexes`, which are ascending.
    pub(crate) fn contains_any(&self, indexes: &[u32]) -> bool {
        let mut indexes = indexes.iter().copied().peekable();
        for entry in self.iter() {
            while indexes.next_if(|index| *index < entry).is_some() {}
            match indexes.peek() {
                None => return false,
                Some(index) if *index == entry => return true,
                Some(_) => {}
            }
        }
        false
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.steps
    }

    /// Reads what [`EntrySet::bytes`] returned.
    pub(crate) fn decode(bytes: &[u8]) -> Result<EntrySet, Damage> {
        let set = EntrySet {
            steps: bytes.into(),
        };
        // Every step ends in a byte without its top bit.
        let steps = bytes.iter().filter(|byte| **byte < 0x80).count();
        let is_complete = bytes.last().is_none_or(|byte| *byte < 0x80);
        if is_complete && set.iter().count() == steps {
            Ok(set)
        } else {
            Err(Damage("indexes of a set out of range"))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_survives_its_bytes(
            indexes in proptest::collection::btree_set(
                prop_oneof![0..300_u32, 0..u32::MAX], 0..60,
            ),
            others in proptest::collection::btree_set(0..300_u32, 0..9),
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let indexes: Vec<u32> = indexes.into_iter().collect();
            let set = EntrySet::new(&indexes);
            prop_assert_eq!(&set.iter().collect::<Vec<_>>(), &indexes);
            prop_assert_eq!(EntrySet::decode(set.bytes()), Ok(set.clone()));
            let contains_any = others.iter().any(|index| indexes.contains(index));
            let others: Vec<u32> = others.into_iter().collect();
            prop_assert_eq!(set.contains_any(&others), contains_any);
            // Every set that decodes can be iterated.
            if let Ok(set) = EntrySet::decode(&bytes) {
                prop_assert!(set.iter().is_sorted());
            }
        }
    }
}
