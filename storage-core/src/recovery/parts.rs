//! Recovery of the index parts of an open storage.
//!
//! Nothing lists the parts of an open storage: each gives the ordinals that it covers. After a
//! crash there may be a merged part and parts that it replaces. They describe the same packets, so
//! any parts that cover all ordinals without a gap are the index.

use std::{collections::BTreeMap, ops::RangeInclusive, path::PathBuf, sync::Arc};

use storage_format::{StorageId, repair_file::RepairFile};

use super::{Recovered, Scan};
use crate::{StorageError, tree::IndexPart};

impl Recovered {
    /// Adds the parts up to the first gap; the frames replace those after it.
    ///
    /// # Errors
    /// When a part cannot be read, but may be intact.
    pub(super) fn add_parts(
        &mut self,
        storage: StorageId,
        paths: Vec<PathBuf>,
        scan: &Scan,
    ) -> Result<(), StorageError> {
        let read = |path: &PathBuf| {
            let part = IndexPart::open(path, storage)?;
            scan.expect(part.block_bytes());
            // A damaged block would be an error of each of its readers.
            part.check_blocks(&scan.progress)?;
            Ok(Arc::new(part))
        };
        let checked: Vec<Result<_, StorageError>> = scan.all(&paths, read);
        let mut parts = Vec::with_capacity(paths.len());
        for (path, checked) in paths.into_iter().zip(checked) {
            match checked {
                Ok(part) if is_void(&self.repairs, &part) => self.leftovers.push(path),
                Ok(part) if self.replacements.are_gone(&part.footer) => self.leftovers.push(path),
                Ok(part) => parts.push(part),
                Err(error) if !error.is_loss() => return Err(error),
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "an index part is damaged; rebuilding the index from the frames"
                    );
                    self.is_rebuilt = true;
                    self.leftovers.push(path);
                }
            }
        }
        let mut next = 0;
        loop {
            let ordinals: Vec<_> = parts.iter().map(|part| part.ordinals()).collect();
            let Some(at) = first_of_chain(&ordinals, next) else {
                break;
            };
            let part = parts.swap_remove(at);
            if self.tree.is_followed_by(&part) {
                next = part.header.ordinal.saturating_add(1);
                self.tree.add_part(&part);
            } else {
                self.is_rebuilt = true;
                self.leftovers.push(part.path.clone());
            }
        }
        for part in parts {
            // The others were merged into a part of the tree.
            self.is_rebuilt |= part.header.ordinal >= next;
            self.leftovers.push(part.path.clone());
        }
        Ok(())
    }
}

/// Whether a part describes packets that a repair cut off the log.
pub(super) fn is_void(repairs: &RepairFile, part: &IndexPart) -> bool {
    let position = part.footer.position;
    position.is_some_and(|position| {
        let mut repairs = repairs.repairs.iter();
        repairs.any(|repair| repair.voids_part(&position))
    })
}

/// The part that continues the index at the ordinal `next`: the first of those that together reach
/// furthest, and of these the one with the most ordinals.
fn first_of_chain(parts: &[RangeInclusive<u64>], next: u64) -> Option<usize> {
    let mut sorted: Vec<_> = parts.iter().enumerate().collect();
    sorted.sort_by_key(|(_, ordinals)| std::cmp::Reverse(*ordinals.start()));
    // For each first ordinal: how far the parts from there reach, and the part to begin with.
    let mut best: BTreeMap<u64, (u64, u64, usize)> = BTreeMap::new();
    for (at, ordinals) in sorted {
        let (&start, &end) = (ordinals.start(), ordinals.end());
        let after = end.checked_add(1).and_then(|after| best.get(&after));
        let reach = after.map_or(end, |(reach, ..)| *reach);
        let known = best.entry(start).or_insert((reach, end, at));
        if (reach, end) > (known.0, known.1) {
            *known = (reach, end, at);
        }
    }
    best.get(&next).map(|(.., at)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts that are used, of those with these ordinals.
    fn check(parts: &[(u64, u64)], used: &[(u64, u64)]) {
        let mut left: Vec<_> = parts.iter().map(|&(first, last)| first..=last).collect();
        let (mut found, mut next) = (Vec::new(), 0);
        while let Some(at) = first_of_chain(&left, next) {
            let part = left.swap_remove(at);
            next = part.end() + 1;
            found.push((*part.start(), *part.end()));
        }
        assert_eq!(found, used, "of {parts:?}");
    }

    #[test]
    fn parts_that_reach_furthest_are_used() {
        check(&[], &[]);
        check(&[(1, 1), (0, 0), (2, 2)], &[(0, 0), (1, 1), (2, 2)]);
        // A gap ends the index.
        check(&[(0, 0), (2, 2)], &[(0, 0)]);
        check(&[(1, 1)], &[]);
        // A merged part replaces its parts, all of them or what a crash left of them.
        check(&[(0, 0), (1, 1), (0, 1), (2, 2)], &[(0, 1), (2, 2)]);
        check(&[(1, 1), (0, 2), (3, 3)], &[(0, 2), (3, 3)]);
        check(&[(0, 3), (0, 1), (2, 3), (4, 4)], &[(0, 3), (4, 4)]);
        // Without it, they are the index.
        check(&[(0, 1), (2, 2), (3, 5)], &[(0, 1), (2, 2), (3, 5)]);
        // A merge that was abandoned after its part was published overlaps a later one.
        let left = [(0, 3), (0, 0), (1, 1), (2, 5), (6, 6)];
        check(&left, &[(0, 0), (1, 1), (2, 5), (6, 6)]);
        check(&[(0, 3), (2, 5), (4, 4)], &[(0, 3), (4, 4)]);
    }
}
