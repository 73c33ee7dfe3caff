//! Whether the seal of a storage fits the files that it has now.

use std::path::Path;

use parking_lot::Mutex;
use serde::Serialize;
use storage_format::{
    checksum::crc32c_append,
    paths::FileRole,
    seal::{FileHashes, SEAL_BYTES_MAX, Seal},
    storage_file::{FileEntry, StorageFile},
};

use crate::{StorageError, damage::Damage, nature::Nature, read::read_small};

/// Whether a storage has a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SealState {
    /// It has none.
    None,
    /// It has one, which lists the files that the storage has.
    Sealed,
    /// It has one that cannot be read, or that lists other files: its index was rebuilt since.
    Broken,
}

/// What the seal of a storage says of the files that the storage file lists, and whether its file
/// was read; blocks the thread. Their bytes are not read.
///
/// # Errors
/// When the system lacks what it takes to read the seal, which says nothing about it.
fn state_of(folder: &Path, file: &StorageFile) -> Result<(SealState, bool), StorageError> {
    match read_seal(folder, file) {
        None => Ok((SealState::None, true)),
        Some((own, Ok(seal))) if differences(own, &seal, file).is_empty() => {
            Ok((SealState::Sealed, true))
        }
        Some((_, Err(error))) if error.nature() == Nature::Transient => Err(error),
        Some((_, Err(StorageError::Io { .. }))) => Ok((SealState::Broken, false)),
        Some(_) => Ok((SealState::Broken, true)),
    }
}

/// The seal that a storage file lists, if it lists one; blocks the thread.
pub(crate) fn read_seal<'f>(
    folder: &Path,
    file: &'f StorageFile,
) -> Option<(&'f FileEntry, Result<Seal, StorageError>)> {
    let own = file
        .files
        .iter()
        .find(|entry| entry.role == FileRole::Seal)?;
    let path = folder.join(&own.name);
    let bytes = read_small(&path, SEAL_BYTES_MAX).map_err(StorageError::io("read", &path));
    let seal = bytes.and_then(|bytes| {
        let seal = Seal::decode(&bytes).and_then(|seal| {
            seal.check_id(file.id)?;
            Ok(seal)
        });
        seal.map_err(StorageError::damaged(path))
    });
    Some((own, seal))
}

/// What the seal in the file `own` says otherwise than the list of files, of which the bytes are
/// not read.
pub(crate) fn differences(own: &FileEntry, seal: &Seal, file: &StorageFile) -> Vec<Damage> {
    let others = file
        .files
        .iter()
        .filter(|entry| entry.role != FileRole::Seal);
    let mut found = Vec::new();
    let mut add = |what| {
        found.push(Damage {
            file: own.name.clone(),
            offset: 0,
            what,
        });
    };
    for entry in others {
        let name = &entry.name;
        match seal.file(name) {
            None => add(format!(
                "the seal is broken: {name} is not sealed; an index that was made again is another \
                 file"
            )),
            Some(sealed) if sealed.hashes.length != entry.length => add(format!(
                "the seal is broken: {name} has {} bytes, and had {} when it was sealed",
                entry.length, sealed.hashes.length
            )),
            Some(_) => {}
        }
    }
    for sealed in &seal.files {
        if !file.files.iter().any(|entry| entry.name == sealed.name) {
            add(format!(
                "the seal is broken: the storage does not have {} any more",
                sealed.name
            ));
        }
    }
    if seal.signature.is_some() && !seal.is_signed() {
        add("the seal is broken: its signature is not that of its key".to_owned());
    }
    found
}

/// What is wrong if a file is not as it was sealed.
pub(crate) fn difference_of(seal: &Seal, name: &str, hashes: &FileHashes) -> Option<Damage> {
    let sealed = seal.file(name)?;
    let is_compared = !crate::sabotaged!("trust-seal");
    (is_compared && sealed.hashes.hash != hashes.hash).then(|| Damage {
        file: name.to_owned(),
        offset: 0,
        what: "its bytes are not those that were sealed".to_owned(),
    })
}

/// What is known about the seal of a storage with a list of files of this checksum.
#[derive(Debug, Default)]
pub(crate) struct KnownSeal(Mutex<Option<(u32, SealState)>>);

impl KnownSeal {
    /// Whether the seal fits the files; blocks the thread. A long seal is read once for a list of
    /// files, which changes when the index is rebuilt; one that the disk refuses is read again.
    ///
    /// # Errors
    /// When the seal cannot be read now.
    pub(crate) fn state(
        &self,
        folder: &Path,
        file: &StorageFile,
    ) -> Result<SealState, StorageError> {
        let names = file.files.iter().map(|entry| entry.name.as_bytes());
        let names = names.fold(0, crc32c_append);
        let mut known = self.0.lock();
        match *known {
            Some((of, state)) if of == names => Ok(state),
            _ => {
                let (state, was_read) = state_of(folder, file)?;
                if was_read {
                    *known = Some((names, state));
                }
                Ok(state)
            }
        }
    }
}
