//! Damage of a finalized storage that was found while the server runs.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

use crate::damage::Damage;

/// Places of a storage that are remembered; of a storage with more, these are enough to act on.
const PLACES_MAX: usize = 1000;

/// The damage, by file and offset.
#[derive(Debug, Default)]
pub(crate) struct KnownDamage {
    places: Mutex<BTreeMap<(String, u64), String>>,
    /// Whether there is any: nearly always there is none.
    is_any: AtomicBool,
}

impl KnownDamage {
    /// Adds damage; whether it was not known.
    pub(crate) fn add(&self, file: &str, offset: u64, what: String) -> bool {
        let mut places = self.places.lock();
        if places.len() >= PLACES_MAX {
            return false;
        }
        self.is_any.store(true, Ordering::Release);
        places.insert((file.to_owned(), offset), what).is_none()
    }

    /// Forgets damage of bytes that are intact again, because the file was restored; whether it
    /// was known.
    pub(super) fn remove(&self, file: &str, offset: u64) -> bool {
        if !self.is_any() {
            return false;
        }
        let mut places = self.places.lock();
        let was_known = places.remove(&(file.to_owned(), offset)).is_some();
        self.is_any.store(!places.is_empty(), Ordering::Release);
        was_known
    }

    /// The damage of a file in `found` that is not known.
    pub(crate) fn added(&self, file: &str, found: &[Damage]) -> Vec<Damage> {
        let places = self.places.lock();
        let is_new = |damage: &&Damage| !places.contains_key(&(file.to_owned(), damage.offset));
        found.iter().filter(is_new).cloned().collect()
    }

    /// Replaces all damage of a file.
    pub(crate) fn replace(&self, file: &str, found: Vec<Damage>) {
        self.forget(file);
        for Damage { offset, what, .. } in found {
            self.add(file, offset, what);
        }
    }

    /// Forgets the damage of a file that another one replaced.
    pub(crate) fn forget(&self, file: &str) {
        let mut places = self.places.lock();
        places.retain(|(damaged, _), _| damaged != file);
        self.is_any.store(!places.is_empty(), Ordering::Release);
    }

    /// Whether there is any.
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// Whether there is any in a file.
    pub(super) fn is_of(&self, file: &str) -> bool {
        self.is_any()
            && self
                .places
                .lock()
                .keys()
                .any(|(damaged, _)| damaged == file)
    }

    /// Up to `max` places, by file and offset, and the number of all.
    pub(crate) fn list(&self, max: usize) -> (Vec<Damage>, u64) {
        let places = self.places.lock();
        let listed = places
            .iter()
            .take(max)
            .map(|((file, offset), what)| Damage {
                file: file.clone(),
                offset: *offset,
                what: what.clone(),
            });
        (listed.collect(), places.len() as u64)
    }
}
