//! Damage of a storage that was found while the server runs.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

use crate::damage::Damage;

/// Places of a file that are remembered; of a file with more, these are enough to act on.
const PLACES_MAX: usize = 1000;
/// Files of a storage whose damage is remembered.
const FILES_MAX: usize = 1000;

/// The damage of a file.
#[derive(Debug, Default)]
struct OfFile {
    /// By offset.
    places: BTreeMap<u64, String>,
    /// How many more there are at least.
    more: u64,
}

impl OfFile {
    fn count(&self) -> u64 {
        (self.places.len() as u64).saturating_add(self.more)
    }
}

/// The damage, by file.
#[derive(Debug, Default)]
pub(crate) struct KnownDamage {
    files: Mutex<BTreeMap<String, OfFile>>,
    /// Whether there is any: nearly always there is none.
    is_any: AtomicBool,
}

/// Damage of a file that was not known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NewDamage {
    /// Places that were not known.
    pub(crate) places: Vec<Damage>,
    /// How many more there are.
    pub(crate) more: u64,
}

impl KnownDamage {
    /// Adds damage; whether it was not known. Of the places beyond the bound only the first is new.
    pub(crate) fn add(&self, file: &str, offset: u64, what: String) -> bool {
        let mut files = self.files.lock();
        if files.len() >= FILES_MAX && !files.contains_key(file) {
            return false;
        }
        self.is_any.store(true, Ordering::Release);
        let of_file = files.entry(file.to_owned()).or_default();
        if of_file.places.len() < PLACES_MAX || of_file.places.contains_key(&offset) {
            return of_file.places.insert(offset, what).is_none();
        }
        let is_first = of_file.more == 0;
        of_file.more = of_file.more.max(1);
        is_first
    }

    /// Forgets damage of bytes that are intact again, because the file was restored; whether it
    /// was known.
    pub(crate) fn remove(&self, file: &str, offset: u64) -> bool {
        if !self.is_any() {
            return false;
        }
        let mut files = self.files.lock();
        let Some(of_file) = files.get_mut(file) else {
            return false;
        };
        let was_known = of_file.places.remove(&offset).is_some();
        if of_file.places.is_empty() {
            files.remove(file);
        }
        self.is_any.store(!files.is_empty(), Ordering::Release);
        was_known
    }

    /// Replaces all damage of a file by what was found when all of it was read; returns what of it
    /// was not known.
    pub(crate) fn replace(&self, file: &str, mut found: Vec<Damage>) -> NewDamage {
        if found.is_empty() {
            self.forget(file);
            return NewDamage::default();
        }
        found.sort_by_key(|damage| damage.offset);
        found.dedup_by_key(|damage| damage.offset);
        let mut files = self.files.lock();
        if files.len() >= FILES_MAX && !files.contains_key(file) {
            return NewDamage::default();
        }
        self.is_any.store(true, Ordering::Release);
        let known = files.remove(file).unwrap_or_default();
        let more = found.len().saturating_sub(PLACES_MAX) as u64;
        found.truncate(PLACES_MAX);
        let places = found.iter();
        let of_file = OfFile {
            places: places
                .map(|damage| (damage.offset, damage.what.clone()))
                .collect(),
            more,
        };
        files.insert(file.to_owned(), of_file);
        found.retain(|damage| !known.places.contains_key(&damage.offset));
        NewDamage {
            places: found,
            more: more.saturating_sub(known.more),
        }
    }

    /// Forgets the damage of a file.
    pub(super) fn forget(&self, file: &str) {
        self.retain(|damaged| damaged != file);
    }

    /// Forgets the damage of other files than these.
    pub(super) fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        if !self.is_any() {
            return;
        }
        let mut files = self.files.lock();
        files.retain(|damaged, _| is_kept(damaged));
        self.is_any.store(!files.is_empty(), Ordering::Release);
    }

    /// Whether there is any.
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// Whether there is any in a file.
    pub(super) fn is_of(&self, file: &str) -> bool {
        self.is_any() && self.files.lock().contains_key(file)
    }

    /// Up to `max` places, by file and offset.
    pub(super) fn list(&self, max: usize) -> Vec<Damage> {
        let files = self.files.lock();
        let places = files.iter().flat_map(|(file, of_file)| {
            let places = of_file.places.iter();
            places.map(move |(&offset, what)| Damage {
                file: file.clone(),
                offset,
                what: what.clone(),
            })
        });
        places.take(max).collect()
    }

    /// Number of all places of this damage and another one. A place that both have is one place.
    pub(super) fn count_with(&self, other: &Self) -> u64 {
        if !other.is_any() {
            let files = self.files.lock();
            return files.values().map(OfFile::count).sum();
        }
        let others: BTreeMap<String, (Vec<u64>, u64)> = {
            let files = other.files.lock();
            let offsets =
                |of_file: &OfFile| -> Vec<u64> { of_file.places.keys().copied().collect() };
            let all = files.iter();
            all.map(|(file, found)| (file.clone(), (offsets(found), found.more)))
                .collect()
        };
        let files = self.files.lock();
        let own = files.iter().map(|(file, of_file)| {
            let places = &of_file.places;
            let Some((offsets, more)) = others.get(file) else {
                return of_file.count();
            };
            let added = offsets.iter().filter(|at| !places.contains_key(at));
            let kept = places.len().saturating_add(added.count()) as u64;
            kept.saturating_add(of_file.more.max(*more))
        });
        let own: u64 = own.sum();
        let rest = others.iter().filter(|(file, _)| !files.contains_key(*file));
        let rest = rest.map(|(_, (offsets, more))| (offsets.len() as u64).saturating_add(*more));
        own.saturating_add(rest.sum::<u64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(offsets: std::ops::Range<u64>) -> Vec<Damage> {
        let damage = |offset| Damage {
            file: "file".into(),
            offset,
            what: "wrong".into(),
        };
        offsets.map(damage).collect()
    }

    #[test]
    fn damage_beyond_the_bound_is_new_once() {
        let known = KnownDamage::default();
        let max = PLACES_MAX as u64;
        let all = max + 7;
        let first = known.replace("file", found(0..all));
        assert_eq!((first.places.len() as u64, first.more), (max, 7));
        for _ in 0..2 {
            assert_eq!(known.replace("file", found(0..all)), NewDamage::default());
        }
        assert_eq!(known.replace("file", found(0..all + 2)).more, 2);
        // A bad file hides no other one.
        assert!(known.add("other", 5, "wrong".into()));
        assert!(!known.add("other", 5, "wrong".into()));
        let none = KnownDamage::default();
        assert_eq!(known.count_with(&none), all + 3);
        assert_eq!(none.count_with(&known), all + 3);
        known.forget("file");
        assert_eq!(known.list(9).len(), 1);
        assert!(known.remove("other", 5) && !known.is_any());
    }

    #[test]
    fn a_place_that_both_have_is_one() {
        let (readers, scrub) = (KnownDamage::default(), KnownDamage::default());
        for offset in 0..300 {
            readers.add("file", offset, "wrong".into());
        }
        scrub.replace("file", found(200..400));
        assert_eq!(readers.count_with(&scrub), 400);
        assert_eq!(scrub.count_with(&readers), 400);
    }
}
