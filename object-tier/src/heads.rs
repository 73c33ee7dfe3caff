//! The heads of a storage: its small files and the checksums of its large ones, in one object.

use bytes::Bytes;
use storage_format::checksum::crc32c;

use crate::{Bucket, Reader, Seal, SealedFile, SmallFile, TierError};

/// The heads, in memory. Cloning shares the bytes.
#[derive(Debug, Clone)]
pub struct Heads {
    key: String,
    bytes: Bytes,
}

impl Heads {
    /// Reads the heads that a seal names: one request, or several at once if they are large.
    ///
    /// # Errors
    /// When the store does not answer, or the heads are damaged or gone.
    pub async fn get(bucket: &Bucket, seal: &Seal) -> Result<Self, TierError> {
        let heads = &seal.heads;
        let reader = Reader::new(bucket.clone());
        let bytes = reader.fetch(&heads.key, 0..heads.length).await?;
        Self::new(seal, bytes)
    }

    /// The heads of a seal, from bytes that were kept elsewhere.
    ///
    /// # Errors
    /// When they are not the bytes that the seal describes.
    pub fn new(seal: &Seal, bytes: Bytes) -> Result<Self, TierError> {
        let heads = &seal.heads;
        if bytes.len() as u64 != heads.length {
            let (is, wanted) = (bytes.len(), heads.length);
            let problem = format!("it has {is} bytes, the seal says {wanted}");
            return Err(TierError::damaged(&heads.key, problem));
        }
        check(&heads.key, "it", &bytes, heads.checksum)?;
        Ok(Self {
            key: heads.key.clone(),
            bytes,
        })
    }

    /// The whole object, as it can be kept elsewhere.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// A small file.
    ///
    /// # Errors
    /// When its bytes do not match their checksum, or it is not a file of these heads.
    pub fn small(&self, file: &SmallFile) -> Result<Bytes, TierError> {
        self.part(&file.name, file.at, file.length, file.checksum)
    }

    /// The checksums of the granules of a large file.
    ///
    /// # Errors
    /// When they do not match their own checksum, or it is not a file of these heads.
    pub fn sums(&self, file: &SealedFile) -> Result<Bytes, TierError> {
        let length = file.sums_length();
        self.part(&file.name, file.sums_at, length, file.sums_checksum)
    }

    fn part(&self, name: &str, at: u64, length: u64, checksum: u32) -> Result<Bytes, TierError> {
        let whole = self.bytes.len();
        let begin = usize::try_from(at).ok();
        let end = at
            .checked_add(length)
            .and_then(|end| usize::try_from(end).ok());
        let (Some(begin), Some(end)) = (begin, end.filter(|end| *end <= whole)) else {
            let problem = format!("{name} ends behind its {whole} bytes");
            return Err(TierError::damaged(&self.key, problem));
        };
        let bytes = self.bytes.slice(begin..end);
        check(&self.key, name, &bytes, checksum)?;
        Ok(bytes)
    }
}

fn check(key: &str, what: &str, bytes: &[u8], checksum: u32) -> Result<(), TierError> {
    let found = crc32c(bytes);
    if found == checksum {
        return Ok(());
    }
    let problem = format!("{what} has the CRC32C {found:08x}, the seal says {checksum:08x}");
    Err(TierError::damaged(key, problem))
}

#[cfg(test)]
mod tests;
