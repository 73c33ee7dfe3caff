//! The seal: the object `s/<storage>/seal`, JSON, which is created once and names everything that
//! belongs to a finalized storage.
//!
//! ```text
//! heads   small file | small file | … | sums of file 0 | sums of file 1 | …
//!         └ at, length, checksum        └ sums_at, 4 bytes a granule, sums_checksum
//! ```
//!
//! The parts of the heads follow each other without gaps and fill it: a seal that says otherwise
//! is damaged.

use std::collections::HashSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use storage_format::{StorageId, paths::FileName};

use crate::{Bucket, TierError, keys};

/// Bytes of a large file that one checksum covers.
pub const GRANULE_BYTES: u64 = 64 << 10;
/// Bytes that a reader asks for at once; longer ranges are cut.
pub(crate) const PART_BYTES: u64 = 8 << 20;
/// Longest seal, in bytes.
pub(crate) const SEAL_BYTES_MAX: u64 = 64 << 20;
/// Longest heads, in bytes. A reader has them in memory.
pub(crate) const HEADS_BYTES_MAX: u64 = 1 << 30;
/// Longest file, in bytes: no object of S3 is longer.
pub(crate) const FILE_BYTES_MAX: u64 = 5 << 40;

/// Version of the seal.
pub(crate) const FORMAT: u32 = 1;

/// What belongs to a finalized storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Version of the seal: 1.
    pub format: u32,
    /// The storage.
    pub storage: StorageId,
    /// 32 hexadecimal digits that make the body unique.
    pub nonce: String,
    /// The node that sealed it.
    pub node: String,
    /// When, ns since the epoch.
    pub sealed: i64,
    /// The object with the small files and the checksums of the large ones.
    pub heads: SealedObject,
    /// The small files, in the order in which the heads have them.
    pub small: Vec<SmallFile>,
    /// The large files, in the order in which the heads have their checksums.
    pub files: Vec<SealedFile>,
}

/// An object, whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedObject {
    /// Its key.
    pub key: String,
    /// Its length in bytes.
    pub length: u64,
    /// CRC32C of its bytes.
    pub checksum: u32,
}

/// A small file, which is in the heads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmallFile {
    /// Its name in the folder of the storage.
    pub name: String,
    /// Where it begins in the heads.
    pub at: u64,
    /// Its length in bytes.
    pub length: u64,
    /// CRC32C of its bytes.
    pub checksum: u32,
}

/// A large file, which is an object of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedFile {
    /// Its name in the folder of the storage.
    pub name: String,
    /// The key of its object.
    pub key: String,
    /// Its length in bytes.
    pub length: u64,
    /// CRC32C of its bytes.
    pub checksum: u32,
    /// Where its sums begin in the heads: the CRC32C of each granule, 4 bytes, little endian.
    pub sums_at: u64,
    /// CRC32C of the sums.
    pub sums_checksum: u32,
}

impl SealedFile {
    /// Length of its sums in bytes.
    #[must_use]
    pub fn sums_length(&self) -> u64 {
        sums_length(self.length)
    }
}

/// Length of the sums of a file of this length, in bytes.
pub(crate) fn sums_length(length: u64) -> u64 {
    // No overflow: it is far shorter than the file.
    length.div_ceil(GRANULE_BYTES).saturating_mul(4)
}

impl Seal {
    /// The seal of a storage, if it has one: one request.
    ///
    /// # Errors
    /// When the store does not answer, or the seal is damaged.
    pub async fn get(bucket: &Bucket, storage: StorageId) -> Result<Option<Self>, TierError> {
        let found = bucket
            .get_at_most(&keys::seal(storage), SEAL_BYTES_MAX)
            .await?;
        found.map(|body| Self::decode(storage, &body)).transpose()
    }

    /// The body of the object.
    ///
    /// # Errors
    /// When a reader would refuse it.
    pub fn encode(&self) -> Result<Bytes, TierError> {
        let damaged = |problem: String| TierError::damaged(&keys::seal(self.storage), problem);
        self.check().map_err(damaged)?;
        let body = serde_json::to_vec(self).map_err(|error| damaged(error.to_string()))?;
        if body.len() as u64 > SEAL_BYTES_MAX {
            let problem = format!("it has {} bytes, {SEAL_BYTES_MAX} are allowed", body.len());
            return Err(damaged(problem));
        }
        Ok(body.into())
    }

    /// The seal of `storage` with this body.
    ///
    /// # Errors
    /// When the body is not a seal, or what it says does not fit together.
    pub fn decode(storage: StorageId, body: &[u8]) -> Result<Self, TierError> {
        let damaged = |problem: String| TierError::damaged(&keys::seal(storage), problem);
        let seal: Self =
            serde_json::from_slice(body).map_err(|error| damaged(error.to_string()))?;
        if seal.storage != storage {
            return Err(damaged(format!("it is of storage {}", seal.storage)));
        }
        seal.check().map_err(damaged)?;
        Ok(seal)
    }

    /// The large file with this name.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<&SealedFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// The small file with this name.
    #[must_use]
    pub fn small_file(&self, name: &str) -> Option<&SmallFile> {
        self.small.iter().find(|file| file.name == name)
    }

    /// Where the sums of the large files begin in the heads.
    #[must_use]
    pub fn sums_at(&self) -> u64 {
        let first = self.files.first();
        first.map_or(self.heads.length, |file| file.sums_at)
    }

    fn check(&self) -> Result<(), String> {
        if self.format != FORMAT {
            return Err(format!(
                "it has version {}, this program reads version {FORMAT}: use a newer program",
                self.format
            ));
        }
        if !keys::is_nonce(&self.nonce) {
            return Err("its nonce is not 32 hexadecimal digits".into());
        }
        let heads = &self.heads;
        if !keys::is_heads(self.storage, &heads.key) {
            return Err(format!("its heads have the key {:?}", shown(&heads.key)));
        }
        if heads.length > HEADS_BYTES_MAX {
            return Err(format!("its heads have {} bytes", heads.length));
        }
        self.check_names()?;
        self.check_layout()
    }

    fn check_names(&self) -> Result<(), String> {
        let small = self.small.iter().map(|file| &file.name);
        let large = self.files.iter().map(|file| &file.name);
        let mut seen = HashSet::new();
        for name in small.chain(large) {
            check_name(self.storage, name)?;
            if !seen.insert(name) {
                return Err(format!("it names {name} twice"));
            }
        }
        let own = FileName::Storage(self.storage).to_string();
        if self.small_file(&own).is_none() {
            return Err(format!("its heads have no {own}"));
        }
        let mut keys = HashSet::new();
        for file in &self.files {
            let key = &file.key;
            if !keys::is_file(self.storage, &file.name, key) || !keys.insert(key) {
                return Err(format!("{} has the key {:?}", file.name, shown(key)));
            }
        }
        Ok(())
    }

    fn check_layout(&self) -> Result<(), String> {
        let mut position = 0_u64;
        let mut follow = |name: &str, at: u64, length: u64| {
            if at != position {
                return Err(format!(
                    "{name} begins at {at} of the heads, not {position}"
                ));
            }
            let end = position.checked_add(length);
            position = end.ok_or_else(|| format!("{name} has {length} bytes in the heads"))?;
            Ok(())
        };
        for file in &self.small {
            follow(&file.name, file.at, file.length)?;
        }
        for file in &self.files {
            if file.length > FILE_BYTES_MAX {
                return Err(format!("{} has {} bytes", file.name, file.length));
            }
            follow(&file.name, file.sums_at, file.sums_length())?;
        }
        if position != self.heads.length {
            let length = self.heads.length;
            return Err(format!("its heads have {length} bytes, not {position}"));
        }
        Ok(())
    }
}

/// Whether a file of this storage may have this name.
pub(crate) fn check_name(storage: StorageId, name: &str) -> Result<(), String> {
    let refused = || format!("it names {:?}, which is no file of it", shown(name));
    let parsed: FileName = name.parse().map_err(|_| refused())?;
    let is_own = match &parsed {
        FileName::Storage(id)
        | FileName::Local(id)
        | FileName::Checksums(id)
        | FileName::StorageCopy(id)
        | FileName::Repairs(id)
        | FileName::Seal(id) => *id == storage,
        _ => true,
    };
    // Only the one spelling: names are compared as text.
    if is_own && parsed.to_string() == name {
        Ok(())
    } else {
        Err(refused())
    }
}

fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
