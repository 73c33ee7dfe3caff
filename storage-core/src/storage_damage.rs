//! The files whose damage a storage remembers.

use std::{collections::HashSet, sync::atomic::Ordering};

use storage_format::{
    paths::{FileName, FileRole},
    storage_file::StorageState,
};

use crate::{damage::Damage, storage::Storage};

impl Storage {
    /// Whether the storage file lists a file, and the storage is not being deleted.
    pub(crate) fn lists(&self, name: &str) -> bool {
        let file = self.file.read();
        !self.is_deleted.load(Ordering::SeqCst) && file.files.iter().any(|file| file.name == name)
    }

    /// Remembers damage that a verification found, so that the status has it; the log has it once,
    /// with what to do.
    pub(crate) fn remember_damage(&self, damage: &Damage, remedy: &str) {
        let Damage { file, offset, what } = damage;
        if self.checked.scrubbed.add(file, *offset, what.clone()) {
            tracing::error!(
                storage = %self.id, file, offset, what,
                "a verification found damage; {remedy}"
            );
        }
    }

    /// Forgets the damage of files that are no part of the storage any more: they were replaced.
    pub(crate) fn forget_damage_of_others(&self) {
        if !self.checked.are_damaged() {
            return;
        }
        let own = [FileName::Storage(self.id), FileName::StorageCopy(self.id)];
        let mut names: HashSet<String> = own.iter().map(ToString::to_string).collect();
        if self.state() == StorageState::Finalized {
            let file = self.file.read();
            names.extend(file.files.iter().map(|file| file.name.clone()));
        } else if let Some(tree) = &*self.tree.read() {
            let files = tree.files().keys();
            names.extend(files.map(|&file| FileName::Data(file).to_string()));
        }
        self.checked.retain_damage(|name| {
            // No list has the derived files.
            names.contains(name) || self.has_derived(name)
        });
    }

    fn has_derived(&self, name: &str) -> bool {
        let role = name.parse().map(|name: FileName| name.role());
        let is_derived = matches!(role, Ok(FileRole::ChunkIndex | FileRole::Provenance));
        is_derived && self.folder.join(name).exists()
    }
}
