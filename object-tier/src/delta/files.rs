//! The Parquet files of a table: `storage=<storage>/<nonce>.parquet` below its folder.

use std::{fs::File, time::Duration};

use storage_format::StorageId;

use super::{DeltaTable, now};
use crate::{TierError, clock, keys, upload};

const ENDING: &str = ".parquet";

/// The folder of the files of a storage, below that of the table.
fn folder(storage: StorageId) -> String {
    format!("storage={storage}")
}

impl DeltaTable {
    /// Stores a local file for a storage, before it is added. Returns its path below the folder of
    /// the table, and its length.
    ///
    /// # Errors
    /// When the file cannot be read, or the store fails.
    pub async fn store_file(
        &self,
        storage: StorageId,
        file: File,
    ) -> Result<(String, u64), TierError> {
        let path = format!("{}/{}{ENDING}", folder(storage), clock::nonce());
        let key = format!("{}/{path}", self.prefix);
        let length = upload::store_file(&self.bucket, &key, file).await?;
        Ok((path, length))
    }

    /// Deletes what interrupted tries to add a storage have stored. To be called by its writer
    /// after it was added: from then on no delayed request can add other files. Returns how many.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete_leftovers(&self, storage: StorageId) -> Result<u64, TierError> {
        let parent = format!("{}/", self.prefix);
        let folder = format!("{parent}{}", folder(storage));
        let mut deleted = 0;
        for object in self.bucket.list_all(&folder).await? {
            let Some(path) = object.key.strip_prefix(&parent) else {
                continue;
            };
            // Programs that rewrite files of the table give them other names.
            let name = path
                .rsplit('/')
                .next()
                .and_then(|name| name.strip_suffix(ENDING));
            if name.is_some_and(keys::is_nonce) && !self.log.knows(path) {
                self.bucket.delete(&object.key).await?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    /// Deletes the files of storages that were removed at least `grace` ago. Readers of earlier
    /// versions of the table, which were opened before, miss them then. Each file is deleted once
    /// in the life of this table, because the log does not say whether it was. Returns how many.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete_removed(&mut self, grace: Duration) -> Result<u64, TierError> {
        let grace = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
        let mut deleted = 0;
        for path in self.log.removed_until(now().saturating_sub(grace)) {
            // Other programs may name a file by its URL, or escape its path; they delete it, too.
            if !path.contains([':', '%']) {
                self.bucket
                    .delete(&format!("{}/{path}", self.prefix))
                    .await?;
                deleted += 1;
            }
            self.log.forget_removed(&path);
        }
        Ok(deleted)
    }
}
