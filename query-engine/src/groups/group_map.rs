//! The groups of one thread, by the values of their keys.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use chunk_index::{OwnedValue, Totals};
use query_language::Value;

use super::field_values::FieldValues;
use super::group_key::write_key;

/// Groups that one result may have.
pub const GROUPS_MAX: usize = 1 << 20;
/// Bytes that all groups of one result may take.
pub const GROUP_BYTES_MAX: usize = 512 << 20;

/// Values of keys, of which a group has few.
pub(crate) type Key = Box<[Option<OwnedValue>]>;

/// A group.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) key: Key,
    pub(crate) totals: Totals,
    /// The fields that aggregates other than those of [`Totals`] need.
    pub(crate) values: Box<[FieldValues]>,
}

/// Groups, and the index of each.
#[derive(Debug, Default)]
pub(crate) struct GroupMap {
    pub(crate) groups: Vec<Group>,
    indexes: HashMap<Vec<u8>, usize>,
    /// Scratch space: the key that is looked up.
    bytes: Vec<u8>,
}

/// Why there is no group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

impl GroupMap {
    /// The group with this key, and the bytes that it takes if it is new.
    pub(crate) fn group<'v>(
        &mut self,
        key: impl Iterator<Item = Option<Value<'v>>> + Clone,
        fields: usize,
    ) -> Result<(&mut Group, usize), Full> {
        self.bytes.clear();
        for value in key.clone() {
            write_key(value, &mut self.bytes);
        }
        let (index, taken) = match self.indexes.get(&self.bytes) {
            Some(index) => (*index, 0),
            None if self.groups.len() >= GROUPS_MAX => return Err(Full),
            None => {
                self.indexes.insert(self.bytes.clone(), self.groups.len());
                self.groups.push(Group {
                    key: key
                        .clone()
                        .map(|value| value.map(OwnedValue::from))
                        .collect(),
                    totals: Totals::default(),
                    values: vec![FieldValues::default(); fields].into(),
                });
                let slots = size_of::<Group>() + size_of::<(Vec<u8>, usize)>();
                let keys = key.count() * size_of::<Option<OwnedValue>>();
                let values = fields * size_of::<FieldValues>();
                let taken = slots + keys + 2 * self.bytes.len() + values;
                (self.groups.len() - 1, taken)
            }
        };
        self.groups
            .get_mut(index)
            .map(|group| (group, taken))
            .ok_or(Full)
    }

    /// Adds a group of another map.
    pub(crate) fn merge(&mut self, group: Group) -> Result<(), Full> {
        let key = group.key.iter();
        let key = key.map(|value| value.as_ref().map(OwnedValue::as_value));
        let (own, _) = self.group(key, group.values.len())?;
        own.totals.merge(&group.totals);
        for (own, other) in own.values.iter_mut().zip(group.values) {
            own.merge(other);
        }
        Ok(())
    }
}

/// Memory that all threads share.
#[derive(Debug, Default)]
pub(crate) struct Budget(AtomicUsize);

impl Budget {
    /// Takes bytes.
    pub(crate) fn take(&self, bytes: usize) -> Result<(), Full> {
        if bytes > 0 && self.0.fetch_add(bytes, Ordering::Relaxed) > GROUP_BYTES_MAX {
            return Err(Full);
        }
        Ok(())
    }
}
