//! Continues a pass that was interrupted: its files are in the folder of the storage.
//!
//! An index part of the pass describes bytes that were durable before it was written, so the parts
//! that follow each other without a gap say what is done. The data files are cut where the last of
//! these parts ends them; everything else is removed and done again. The complete leaf is compared
//! with its checksum in the end, whoever wrote its beginning.

use std::{collections::HashMap, io, path::Path, sync::Arc};

use storage_format::{
    FormatError, FormatErrorKind, LeafId, StorageId,
    index_part::{DataFileEntry, LeafEntry},
    paths::{FileName, FileRole},
    storage_file::FileEntry,
};

use super::{Plan, PlannedLeaf, output::Output};
use crate::{
    StorageError,
    checksums::sum_file,
    io::{remove_file, truncate},
    recovery::{ArrangedFiles, arranged_files},
    tree::IndexPart,
};

impl Output {
    /// Takes over what an interrupted pass wrote.
    pub(super) fn resume(&mut self, plan: &mut Plan) -> Result<(), StorageError> {
        let found = arranged_files(&self.folder, self.storage)?;
        let last = found.data.keys().next_back();
        let after = last.map_or(0, |file| file.0.saturating_add(1));
        self.next_file = self.next_file.max(after);
        if found.data.is_empty() {
            return Ok(());
        }
        assert!(
            self.tree.parts().is_empty(),
            "a pass is resumed before it writes"
        );
        match self.take_over(plan, &found) {
            Ok(()) => {}
            Err(StorageError::Cancelled) => return Err(StorageError::Cancelled),
            Err(error) => {
                tracing::warn!(
                    %error, storage = %self.storage,
                    "files of an interrupted finalization are not intact and are written again"
                );
                *self = Self::new(plan, self.pace.clone());
                self.next_file = self.next_file.max(after);
                plan.leaves
                    .iter_mut()
                    .for_each(|leaf| leaf.done = Default::default());
            }
        }
        let is_kept = |path: &Path| self.files.iter().any(|file| path.ends_with(&file.name));
        let paths = found.data.values().map(|(path, _)| path);
        let parts = found.parts.iter().map(|part| &part.path);
        for path in paths.chain(parts).filter(|path| !is_kept(path)) {
            remove_file(path).map_err(StorageError::io("remove", path))?;
        }
        Ok(())
    }

    fn take_over(&mut self, plan: &mut Plan, found: &ArrangedFiles) -> Result<(), StorageError> {
        let source = plan.leaves.iter().map(|leaf| (leaf.id, leaf));
        let source: HashMap<_, _> = source.collect();
        for part in &found.parts {
            if !self.continues(&source, part, found) {
                break;
            }
            self.tree.add_part(part);
            self.list_part(part)?;
        }
        for (&file, tail) in self.tree.files().clone().iter() {
            let Some((path, length)) = found.data.get(&file) else {
                continue;
            };
            let trusts = crate::sabotaged!("trust-leftovers");
            if *length > tail.length && !trusts {
                truncate(path, tail.length)?;
            }
            let pace = &mut self.pace;
            let sums = sum_file(path, tail.length, |part| pace.take(part.len() as u64))?;
            if (sums.length(), sums.checksum()) != (tail.length, tail.checksum) && !trusts {
                let kind = FormatErrorKind::Checksum {
                    stored: tail.checksum,
                    computed: sums.checksum(),
                };
                return Err(StorageError::damaged(path)(FormatError {
                    what: "arranged data file",
                    offset: 0,
                    kind,
                }));
            }
            self.files.push(FileEntry {
                name: FileName::Data(file).to_string(),
                role: FileRole::Data,
                length: tail.length,
                checksum: tail.checksum,
            });
            self.checksums.push(sums.finish(file));
        }
        for leaf in &mut plan.leaves {
            leaf.done = self
                .tree
                .leaf(leaf.id)
                .map(|leaf| leaf.tail)
                .unwrap_or_default();
        }
        Ok(())
    }

    /// Whether a part follows those before it, and describes files and leaves that are there.
    fn continues(
        &self,
        source: &HashMap<LeafId, &PlannedLeaf>,
        part: &IndexPart,
        found: &ArrangedFiles,
    ) -> bool {
        let parts = self.tree.parts().len() as u64;
        let is_there = |entry: &DataFileEntry| {
            let found = found.data.get(&entry.file);
            found.is_some_and(|(_, length)| *length >= entry.length)
        };
        let is_of_source = |entry: &LeafEntry| {
            let leaf = source.get(&entry.leaf);
            leaf.is_some_and(|leaf| {
                leaf.path == entry.path && entry.covered.end <= leaf.tail.length
            })
        };
        part.header.ordinal == parts
            && self.tree.is_followed_by(part)
            && !part.footer.files.is_empty()
            && part.footer.files.iter().all(is_there)
            && part.footer.leaves.iter().all(is_of_source)
    }

    fn list_part(&mut self, part: &Arc<IndexPart>) -> Result<(), StorageError> {
        let sums = sum_file(&part.path, u64::MAX, |_| Ok(()))?;
        let name = part.path.file_name().unwrap_or_default();
        self.files.push(FileEntry {
            name: name.to_string_lossy().into_owned(),
            role: FileRole::Index,
            length: sums.length(),
            checksum: sums.checksum(),
        });
        Ok(())
    }
}

/// Removes the files of a pass that is not continued, and that no storage file names; blocks.
pub(crate) fn remove_arranged(folder: &Path, storage: StorageId) {
    let found = match arranged_files(folder, storage) {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "files of a finalization that ended remain until the next start");
            return;
        }
    };
    let parts = found.parts.iter().map(|part| &part.path);
    for path in found.data.values().map(|(path, _)| path).chain(parts) {
        if let Err(error) = remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %path.display(), "a file that is not needed stays");
        }
    }
}
