//! Verifying what a seal names: every byte is read and compared.

use std::pin::pin;

use futures_util::{StreamExt, stream};
use storage_format::checksum::{crc32c, crc32c_combine};

use crate::{
    Bucket, Heads, Reader, Seal, SealedFile, TierError,
    seal::{GRANULE_BYTES, PART_BYTES},
};

/// Parts of a file that are read at once.
const PARTS_AT_ONCE: usize = 4;

/// Reads all objects of a storage and compares them with their checksums, those of the granules and
/// those of the whole. Returns one problem for each file that is damaged or gone. `on_bytes` hears
/// of bytes that were read.
///
/// # Errors
/// When the store does not answer: then nothing is known.
pub async fn verify_storage(
    bucket: &Bucket,
    seal: &Seal,
    heads: &Heads,
    on_bytes: impl Fn(u64),
) -> Result<Vec<String>, TierError> {
    let mut problems = Vec::new();
    // These heads may have been kept elsewhere: the object is looked at, too.
    match Heads::get(bucket, seal).await {
        Ok(heads) => on_bytes(heads.bytes().len() as u64),
        Err(error) => problems.push(problem(error)?),
    }
    for file in &seal.small {
        if let Err(error) = heads.small(file) {
            problems.push(problem(error)?);
        }
    }
    let reader = Reader::new(bucket.clone());
    for file in &seal.files {
        match verify_file(bucket, &reader, heads, file, &on_bytes).await {
            Ok(None) => {}
            Ok(Some(problem)) => problems.push(format!("{}: {problem}", file.name)),
            Err(error) => problems.push(format!("{}: {}", file.name, problem(error)?)),
        }
    }
    Ok(problems)
}

/// What is wrong with an object; an error if that is not known.
fn problem(error: TierError) -> Result<String, TierError> {
    match error {
        TierError::Damaged { .. } | TierError::Gone(_) => Ok(error.to_string()),
        _ => Err(error),
    }
}

async fn verify_file(
    bucket: &Bucket,
    reader: &Reader,
    heads: &Heads,
    file: &SealedFile,
    on_bytes: &impl Fn(u64),
) -> Result<Option<String>, TierError> {
    let key = &file.key;
    let object = bucket.head(key).await?;
    let length = object.ok_or_else(|| TierError::Gone(key.clone()))?.length;
    if length != file.length {
        let wanted = file.length;
        return Ok(Some(format!(
            "`{key}` has {length} bytes, the seal says {wanted}"
        )));
    }
    let sums = heads.sums(file)?;
    let mut sums = sums
        .as_chunks()
        .0
        .iter()
        .map(|sum| u32::from_le_bytes(*sum));
    let begins = (0..length.div_ceil(PART_BYTES)).map(|part| part.saturating_mul(PART_BYTES));
    let parts = begins.map(|begin| {
        let end = length.min(begin.saturating_add(PART_BYTES));
        reader.fetch(key, begin..end)
    });
    let mut parts = pin!(stream::iter(parts).buffered(PARTS_AT_ONCE));
    let (mut whole, mut at, mut first, mut damaged) = (0, 0_u64, None, 0_u64);
    let granule_length = usize::try_from(GRANULE_BYTES).unwrap_or(usize::MAX);
    while let Some(part) = parts.next().await {
        let part = part?;
        for granule in part.chunks(granule_length) {
            let sum = crc32c(granule);
            if sums.next() != Some(sum) {
                first.get_or_insert(at);
                damaged = damaged.saturating_add(1);
            }
            let length = u32::try_from(granule.len()).unwrap_or(u32::MAX);
            whole = crc32c_combine(whole, sum, length);
            at = at.saturating_add(u64::from(length));
        }
        on_bytes(part.len() as u64);
    }
    Ok(match first {
        Some(at) => Some(format!(
            "`{key}` is damaged: {damaged} pieces of 64 KiB, the first at {at}"
        )),
        None if whole != file.checksum => Some(format!(
            "`{key}` has the CRC32C {whole:08x}, the seal says {:08x}",
            file.checksum
        )),
        None => None,
    })
}

#[cfg(test)]
mod tests;
