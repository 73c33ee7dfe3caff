//! What queries and index builds could not read, by storage, since the server started.

use std::collections::HashMap;

use parking_lot::Mutex;
use query_engine::Skipped;
use serde::Serialize;
use storage_format::StorageId;

/// Reasons that are retained for a storage.
const REASONS_MAX: usize = 16;
/// Storages that are remembered; an arbitrary one makes room for the next.
const STORAGES_MAX: usize = 4096;

/// Data that could not be read, by storage.
#[derive(Default)]
pub(crate) struct UnreadableData(Mutex<HashMap<StorageId, Unreadable>>);

/// Data of one storage that could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Unreadable {
    /// The most records, packets and other parts that one query or index build skipped.
    unreadable_records: u64,
    /// Which, and why; some of the reasons if there are many.
    unreadable: Vec<String>,
}

impl UnreadableData {
    /// Records what one query or index build skipped.
    pub(crate) fn found(&self, skipped: &[Skipped]) {
        let mut of_query: HashMap<StorageId, Unreadable> = HashMap::new();
        for part in skipped {
            let Some(storage) = part.storage else {
                continue;
            };
            let found = of_query.entry(storage).or_default();
            found.unreadable_records = found.unreadable_records.saturating_add(part.parts);
            found.unreadable.extend(part.reasons.iter().cloned());
        }
        let mut known = self.0.lock();
        for (storage, found) in of_query {
            if known.len() >= STORAGES_MAX
                && !known.contains_key(&storage)
                && let Some(other) = known.keys().next().copied()
            {
                known.remove(&other);
            }
            known.entry(storage).or_default().merge(found);
        }
    }

    /// What was found in a storage.
    pub(crate) fn of(&self, storage: StorageId) -> Unreadable {
        self.0.lock().get(&storage).cloned().unwrap_or_default()
    }

    /// The storages in which something was found.
    pub(crate) fn storages(&self) -> Vec<StorageId> {
        self.0.lock().keys().copied().collect()
    }

    /// Forgets a storage that was deleted, or that may be readable now.
    pub(crate) fn forget(&self, storage: StorageId) {
        self.0.lock().remove(&storage);
    }
}

impl Unreadable {
    /// Queries skip the same data again and again, so counts are not added.
    fn merge(&mut self, found: Unreadable) {
        self.unreadable_records = self.unreadable_records.max(found.unreadable_records);
        for reason in found.unreadable {
            if self.unreadable.len() < REASONS_MAX && !self.unreadable.contains(&reason) {
                self.unreadable.push(reason);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(storage: u8, parts: u64, reason: &str) -> Skipped {
        Skipped {
            storage: Some(StorageId::from_bytes([storage; 16])),
            parts,
            reasons: vec![reason.to_owned()],
        }
    }

    #[test]
    fn the_same_damage_is_listed_once() {
        let data = UnreadableData::default();
        let all = [
            skipped(1, 2, "a"),
            skipped(1, 3, "b"),
            skipped(2, 1, "c"),
            Skipped::default(),
        ];
        data.found(&all);
        data.found(&all[..1]);
        let of = |storage| data.of(StorageId::from_bytes([storage; 16]));
        assert_eq!(of(1).unreadable_records, 5);
        assert_eq!(of(1).unreadable, ["a", "b"]);
        assert_eq!(of(2).unreadable_records, 1);
        assert_eq!(of(3), Unreadable::default());
        data.forget(StorageId::from_bytes([1; 16]));
        assert_eq!(of(1), Unreadable::default());
    }

    #[test]
    fn more_damage_than_is_listed_is_counted() {
        let data = UnreadableData::default();
        let all: Vec<_> = (0..50)
            .map(|place| skipped(1, 2, &format!("place {place}")))
            .collect();
        data.found(&all);
        let found = data.of(StorageId::from_bytes([1; 16]));
        assert_eq!(found.unreadable_records, 100);
        let listed: Vec<_> = all[..16]
            .iter()
            .map(|part| part.reasons[0].clone())
            .collect();
        assert_eq!(found.unreadable, listed);
    }

    #[test]
    fn memory_is_bounded() {
        let data = UnreadableData::default();
        for number in 0..STORAGES_MAX + 100 {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
            data.found(&[Skipped {
                storage: Some(StorageId::from_bytes(bytes)),
                parts: 1,
                reasons: (0..100).map(|reason| reason.to_string()).collect(),
            }]);
        }
        let known = data.0.lock();
        assert_eq!(known.len(), STORAGES_MAX);
        assert!(
            known
                .values()
                .all(|found| found.unreadable.len() == REASONS_MAX)
        );
    }
}
