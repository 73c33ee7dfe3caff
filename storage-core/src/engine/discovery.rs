//! Finds the storages of the data folder when the engine starts.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use storage_format::{
    StorageId,
    paths::{FileName, FileRole},
    storage_file::{FileEntry, StorageFile, StorageState, Totals},
};

use super::{
    event_files,
    folders::{DELETED_PREFIX, STAGING_PREFIX},
};
use crate::{
    StorageError,
    catalog::Catalog,
    checksums::are_missing,
    io::{remove_file, remove_folder},
    storage_copy,
};

/// A storage in the data folder.
pub(super) struct OnDisk {
    pub(super) folder: PathBuf,
    pub(super) file: StorageFile,
    /// Bytes of its data files, if it has to be recovered.
    pub(super) unfinished_bytes: Option<u64>,
    /// Whether its storage file cannot be read: `file` has what is known about it.
    pub(super) is_unreadable: bool,
    /// Whether `file` has nothing but its id, because its storage file is lost.
    pub(super) are_labels_lost: bool,
}

/// The storages in `folder`; what is left of deletions and imports is removed.
pub(super) fn find_storages(folder: &Path, catalog: &Catalog) -> Result<Vec<OnDisk>, StorageError> {
    let mut found = Vec::new();
    let names = std::fs::read_dir(folder).map_err(StorageError::io("list", folder))?;
    for name in names {
        let path = name.map_err(StorageError::io("list", folder))?.path();
        let text = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if text.starts_with(DELETED_PREFIX) || text.starts_with(STAGING_PREFIX) {
            if let Err(error) = remove_folder(&path) {
                tracing::warn!(
                    %error, path = %path.display(),
                    "what remains of a deletion or an import cannot be removed; the next start \
                     tries again"
                );
            }
            continue;
        }
        let Ok(id) = text.parse::<StorageId>() else {
            tracing::warn!(
                path = %path.display(),
                "a folder of the storages folder is not a storage and is ignored"
            );
            continue;
        };
        found.extend(find_storage(id, path, catalog));
    }
    let ids: std::collections::HashSet<_> = found.iter().map(|on_disk| on_disk.file.id).collect();
    for (storage, name) in catalog.keep_only(|id| ids.contains(&id)) {
        tracing::warn!(
            %storage, name,
            "a storage that was here has no files any more: if nobody deleted it, its folder was \
             lost or removed; bring it back from a backup and start again"
        );
    }
    Ok(found)
}

/// The storage in `folder`; one that cannot be read must not prevent others from being served.
fn find_storage(id: StorageId, folder: PathBuf, catalog: &Catalog) -> Option<OnDisk> {
    let path = folder.join(FileName::Storage(id).to_string());
    if !path.exists() && is_unpublished_only(&folder) {
        // The creation was never acknowledged: the storage file is the first file of a storage.
        if let Err(error) = remove_folder(&folder) {
            tracing::warn!(
                %error, path = %folder.display(),
                "what remains of a creation cannot be removed; the next start tries again"
            );
        }
        return None;
    }
    let file = match catalog.storage_file(id, &path) {
        Ok(file) => file,
        Err(error) => match storage_copy::restore(&folder, id, &error) {
            Some(file) => file,
            None => {
                return Some(OnDisk {
                    are_labels_lost: true,
                    ..unreadable(folder, nothing_but_its_id(id), &error)
                });
            }
        },
    };
    if file.state == StorageState::Finalized {
        event_files::sweep(&folder);
        // A copy that says otherwise names files that would be removed.
        if refresh_copy(&folder, &file) {
            remove_unlisted(&folder, &file);
        }
    } else {
        // A copy that says FINALIZED must not be taken for the storage file of an open storage.
        if let Err(error) = storage_copy::refresh_open(&folder, &file) {
            return Some(unreadable(folder, file, &error));
        }
    }
    let is_unfinished = !matches!(file.state, StorageState::Created | StorageState::Finalized);
    Some(OnDisk {
        unfinished_bytes: is_unfinished.then(|| data_bytes(&folder)),
        folder,
        file,
        is_unreadable: false,
        are_labels_lost: false,
    })
}

/// The lengths of the data files in a folder, as far as they can be determined.
fn data_bytes(folder: &Path) -> u64 {
    let Ok(names) = std::fs::read_dir(folder) else {
        return 0;
    };
    let is_data = |name: &std::fs::DirEntry| {
        let name = name.file_name();
        let parsed = name.to_str().map(str::parse::<FileName>);
        matches!(parsed, Some(Ok(name)) if name.role() == FileRole::Data)
    };
    let data = names.flatten().filter(is_data);
    data.filter_map(|name| Some(name.metadata().ok()?.len()))
        .fold(0, u64::saturating_add)
}

/// Removes data files and index parts that a finalized storage does not have: those that were
/// replaced by arranged files when it was finalized. Nothing is removed unless all that it has is
/// there, because what is there may be all that is left of its packets.
fn remove_unlisted(folder: &Path, file: &StorageFile) {
    let is_there = |listed: &FileEntry| {
        let found = std::fs::metadata(folder.join(&listed.name));
        found.is_ok_and(|found| found.len() == listed.length)
    };
    let Ok(names) = std::fs::read_dir(folder) else {
        return;
    };
    let names = names.flatten().map(|name| name.file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let is_unlisted = |name: &String| {
        let role = name.parse::<FileName>().map(|name| name.role());
        let is_replaceable = matches!(role, Ok(FileRole::Data | FileRole::Index));
        is_replaceable && !file.files.iter().any(|listed| listed.name == *name)
    };
    let unlisted: Vec<_> = names.filter(is_unlisted).collect();
    if unlisted.is_empty() {
        return;
    }
    if !file.files.iter().all(is_there) {
        tracing::error!(
            storage = %file.id,
            "files of a finalized storage are missing or have another length; files that it does \
             not list stay, because they may contain its packets"
        );
        return;
    }
    for name in unlisted {
        let path = folder.join(name);
        if let Err(error) = remove_file(&path) {
            tracing::warn!(
                %error, path = %path.display(),
                "a file that finalization replaced cannot be removed; the next start tries again"
            );
        }
    }
}

/// Writes the second copy of a storage file that a server did not write any more. Returns whether
/// there is none of before.
fn refresh_copy(folder: &Path, file: &StorageFile) -> bool {
    let name = FileName::StorageCopy(file.id);
    let is_copied = || folder.join(name.to_string()).exists();
    let has_copy = file.lists(FileRole::Checksums) || are_missing(folder, file) || is_copied();
    // Storages that were finalized before there were copies remain as they are.
    if !has_copy || storage_copy::is_current(folder, file.id) {
        return true;
    }
    let path = || folder.join(name.to_string());
    let bytes = file.encode().map_err(StorageError::damaged(path()));
    let written = bytes.and_then(|bytes| storage_copy::replace(folder, &name, &bytes));
    if let Err(error) = &written {
        tracing::warn!(%error, storage = %file.id, "the second copy of its storage file is not written");
    }
    written.is_ok() || !is_copied()
}

fn unreadable(folder: PathBuf, mut file: StorageFile, error: &StorageError) -> OnDisk {
    tracing::error!(
        %error, storage = %file.id,
        "the storage cannot be read and is FAILED; restore its files, import it again, or delete it"
    );
    file.state = StorageState::Failed;
    file.failure.get_or_insert_with(|| error.to_string());
    OnDisk {
        folder,
        file,
        unfinished_bytes: None,
        is_unreadable: true,
        are_labels_lost: false,
    }
}

/// What is known about a storage whose storage file is lost.
fn nothing_but_its_id(id: StorageId) -> StorageFile {
    let created = i64::try_from(id.unix_millis()).unwrap_or(i64::MAX);
    StorageFile {
        id,
        name: String::new(),
        description: String::new(),
        state: StorageState::Failed,
        labels: BTreeMap::new(),
        created: created.saturating_mul(1_000_000),
        opened: None,
        finalized: None,
        server_version: String::new(),
        idempotency_key: None,
        failure: None,
        totals: Totals::default(),
        files: Vec::new(),
    }
}

fn is_unpublished_only(folder: &Path) -> bool {
    let Ok(names) = std::fs::read_dir(folder) else {
        return false;
    };
    names.flatten().all(|name| {
        name.file_name()
            .to_str()
            .is_some_and(|text| text.ends_with(storage_format::paths::UNPUBLISHED_ENDING))
    })
}
