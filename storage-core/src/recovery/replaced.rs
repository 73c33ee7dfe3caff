//! Recovery of a storage in which arranged files replaced files of the log.
//!
//! The storage file names the arranged files that are in use. Those that it does not name were
//! being made when the server ended, and the files of the log that the named ones replaced were
//! being removed: both are leftovers, and so are the index parts that describe them.

use std::{
    collections::{BTreeMap, HashSet},
    ffi::OsStr,
    path::PathBuf,
};

use storage_format::{
    DataFileId, FormatError, FormatErrorKind,
    index_part::{Footer, LogPosition},
    log::ReplacedFile,
    paths::FileName,
};

use super::{Listing, Recovered};
use crate::{StorageError, tree::IndexTree};

/// The files of the log that arranged files replaced.
#[derive(Debug, Default)]
pub(super) struct Replacements {
    /// By the id of the file that was replaced.
    by_file: BTreeMap<DataFileId, ReplacedFile>,
    /// Arranged files that the storage file names and of which nothing is left: neither they can be
    /// used, nor the files that they replaced.
    lost: Vec<DataFileId>,
}

impl Replacements {
    pub(super) fn get(&self, file: DataFileId) -> Option<&ReplacedFile> {
        self.by_file.get(&file)
    }

    /// Whether an index part describes files that are not part of the storage: replaced ones, or
    /// arranged ones that are not in use, of which there may be no trace but this part.
    pub(super) fn are_gone(&self, footer: &Footer) -> bool {
        let mut files = footer.files.iter();
        files.any(|entry| match entry.file.replaced() {
            // A part that an earlier attempt left describes another file of this name.
            Some(replaced) => self
                .get(replaced)
                .is_none_or(|used| used.arranged_length != entry.length),
            None => self.get(entry.file).is_some(),
        })
    }

    /// Whether a position is inside of a file that was replaced.
    fn contain(&self, position: &LogPosition) -> bool {
        let replaced = self.get(position.file);
        replaced.is_some_and(|replaced| position.batch < replaced.next_batch)
    }

    /// The largest id of a file that was replaced.
    pub(super) fn last(&self) -> Option<DataFileId> {
        self.by_file.last_key_value().map(|(&file, _)| file)
    }
}

impl Listing {
    /// Decides by the names in the storage file which arranged files are in use; returns the files
    /// that are not.
    pub(super) fn take_replaced(&mut self, named: &[String]) -> (Replacements, Vec<PathBuf>) {
        let mut replacements = Replacements::default();
        let mut leftovers = Vec::new();
        let names: HashSet<&OsStr> = named.iter().map(OsStr::new).collect();
        let arranged = self.data.iter().filter_map(|(&id, file)| {
            let replaced = file.replaces?;
            let is_named = file
                .path
                .file_name()
                .is_some_and(|name| names.contains(name));
            // Its bytes are durable before it is named. If it is not whole all the same, the file
            // that it replaced may still be there.
            let is_whole = file.length >= replaced.arranged_length;
            let is_alone = !self.data.contains_key(&replaced.file);
            let is_used = is_named && (is_whole || is_alone);
            Some((id, replaced, is_used))
        });
        for (id, replaced, is_used) in arranged.collect::<Vec<_>>() {
            let unused = if is_used {
                replacements.by_file.insert(replaced.file, replaced);
                replaced.file
            } else {
                id
            };
            leftovers.extend(self.data.remove(&unused).map(|file| file.path));
        }
        let files = named.iter().filter_map(|name| match name.parse() {
            Ok(FileName::Data(file)) => Some((file, file.replaced()?)),
            _ => None,
        });
        let lost = files.filter(|(_, replaced)| {
            replacements.get(*replaced).is_none() && !self.data.contains_key(replaced)
        });
        replacements.lost = lost.map(|(file, _)| file).collect();
        (replacements, leftovers)
    }
}

impl Recovered {
    /// Notes damage when an arranged file cannot be used: a later file of the log, which says that
    /// its packets were there, may not exist.
    pub(super) fn check_replaced(&mut self) {
        let lost = self.replacements.lost.first().copied();
        if let Some(file) = lost.filter(|_| self.damage.is_none()) {
            let name = FileName::Data(file).to_string();
            self.damaged(StorageError::damaged(name)(FormatError {
                what: "arranged data file",
                offset: 0,
                kind: FormatErrorKind::Field { name: "header" },
            }));
        }
    }

    /// Forgets the last index parts if they end inside of a file that was replaced: an arranged
    /// file is read as a whole. This happens only when the parts after them are lost.
    pub(super) fn forget_partial(&mut self) {
        let mut parts = self.tree.parts().to_vec();
        let count = parts.len();
        while let Some(last) = parts.pop_if(|part| {
            let position = part.footer.position.as_ref();
            position.is_some_and(|position| self.replacements.contain(position))
        }) {
            self.is_rebuilt = true;
            self.leftovers.push(last.path.clone());
        }
        if parts.len() < count {
            self.tree = IndexTree::new(self.tree.storage());
            parts.iter().for_each(|part| self.tree.add_part(part));
        }
    }
}
