//! A storage that is in the object store and not here: its small files are written, the others are
//! holes.

use std::collections::HashMap;

use bytes::Bytes;
use io_trace::Cause;
use storage_format::{
    StorageId,
    checksum::crc32c,
    paths::{FileName, FileRole},
    storage_file::{StorageFile, StorageState},
    tier_file::TierFile,
};

use super::Tiering;
use crate::{
    StorageError,
    clock::random_u64,
    engine::{StorageInfo, folders::STAGING_PREFIX, import::Staged, texts::check_texts},
    io::{StagedFile, create_folder, remove_folder, replace_with_hole, sync_folder},
};

/// A storage as it was found in the store.
#[derive(Debug, Clone)]
pub struct Adoption {
    /// Where its files are.
    pub tier: TierFile,
    /// The checksums of the granules of these.
    pub sums: Bytes,
    /// The other files: name and bytes, the storage file among them.
    pub small: Vec<(String, Bytes)>,
}

impl Tiering {
    /// Serves a storage from the store; one that is here is not touched.
    ///
    /// # Errors
    /// When it is here already, what was found is not a storage, or a file cannot be written.
    pub async fn adopt(&self, adoption: Adoption) -> Result<StorageInfo, StorageError> {
        let transfer = self.transfer.clone();
        transfer.space.check()?;
        transfer.registry.check_count()?;
        let name = format!("{STAGING_PREFIX}{:016x}", random_u64());
        let folder = transfer.registry.folder().join(name);
        let (id, to) = (adoption.tier.storage, folder.clone());
        if self.registry.known(id).is_ok() {
            return Err(StorageError::StorageExists(id));
        }
        let staged = self
            .blocking
            .run(Cause::Import, move || stage(&adoption, to))
            .await;
        let published = match staged {
            Ok(staged) => {
                crate::fault_point!(async "tier.adopt.staged");
                transfer.publish_staged(staged).await
            }
            Err(error) => Err(error),
        };
        if published.is_err() {
            let remove = move || {
                let _ = remove_folder(&folder);
                Ok(())
            };
            self.blocking.run(Cause::Import, remove).await?;
        }
        published
    }
}

/// Checks the files against each other and writes them; blocks the thread.
fn stage(adoption: &Adoption, folder: std::path::PathBuf) -> Result<Staged, StorageError> {
    let (file, bytes) = check(adoption)?;
    create_folder(&folder).map_err(StorageError::io("create", &folder))?;
    let write = |name: String, bytes: &[u8]| {
        let mut staged = StagedFile::create(folder.join(name))?;
        staged.write(bytes)?;
        staged.finish().map(drop)
    };
    let id = file.id;
    let own = FileName::Storage(id).to_string();
    for (name, bytes) in adoption.small.iter().filter(|(name, _)| *name != own) {
        write(name.clone(), bytes)?;
    }
    for tiered in &adoption.tier.files {
        let path = folder.join(&tiered.name);
        replace_with_hole(&path, tiered.length).map_err(StorageError::io("create", path))?;
    }
    write(FileName::TierSums(id).to_string(), &adoption.sums)?;
    let tier = adoption.tier.encode();
    let tier = tier.map_err(StorageError::damaged(&folder))?;
    write(FileName::Tier(id).to_string(), &tier)?;
    write(FileName::StorageCopy(id).to_string(), &bytes)?;
    write(own, &bytes)?;
    sync_folder(&folder)?;
    Ok(Staged {
        folder,
        file,
        bytes: bytes.to_vec(),
    })
}

fn check(adoption: &Adoption) -> Result<(StorageFile, Bytes), StorageError> {
    let tier = &adoption.tier;
    let refused = |problem: String| refused(tier.storage, problem);
    let own = FileName::Storage(tier.storage).to_string();
    let mut small: HashMap<&str, &Bytes> = HashMap::new();
    for (name, bytes) in &adoption.small {
        small.insert(name, bytes);
    }
    let bytes = *small
        .get(own.as_str())
        .ok_or_else(|| refused("it has no storage file".into()))?;
    let file = StorageFile::decode(bytes).map_err(|error| refused(error.to_string()))?;
    file.check_id(tier.storage)
        .map_err(|error| refused(error.to_string()))?;
    if file.state != StorageState::Finalized {
        return Err(refused("it is not finalized".into()));
    }
    check_texts(
        Some(&file.name),
        Some(&file.description),
        Some(&file.labels),
    )?;
    for listed in &file.files {
        let is_as_listed = match small.get(listed.name.as_str()) {
            Some(bytes) => bytes.len() as u64 == listed.length && crc32c(bytes) == listed.checksum,
            None => tier.files.iter().any(|tiered| {
                let about = (&tiered.name, tiered.length, tiered.checksum);
                about == (&listed.name, listed.length, listed.checksum)
            }),
        };
        if !is_as_listed {
            return Err(refused(format!(
                "`{}` is missing or another file",
                listed.name
            )));
        }
    }
    let names = adoption.small.iter().map(|(name, _)| name);
    for name in names.chain(tier.files.iter().map(|tiered| &tiered.name)) {
        let role = name.parse::<FileName>().map(|name| name.role());
        let is_listed = file.files.iter().any(|listed| listed.name == *name);
        let is_derived = matches!(role, Ok(FileRole::ChunkIndex | FileRole::Provenance));
        if *name != own && !is_listed && !is_derived {
            return Err(refused(format!("`{name}` does not belong to it")));
        }
    }
    Ok((file, bytes.clone()))
}

fn refused(id: StorageId, problem: String) -> StorageError {
    StorageError::Invalid {
        what: "storage in the object store",
        problem: format!("{id}: {problem}"),
    }
}
