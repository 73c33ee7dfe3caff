//! Putting the heads together.

use bytes::Bytes;
use storage_format::{StorageId, checksum::crc32c, paths::FileName};

use super::{LocalFile, journal::Finished, object::Source};
use crate::{
    SealedFile, SmallFile, TierError, keys,
    seal::{HEADS_BYTES_MAX, sums_length},
};

/// The heads and what the seal says about them.
pub(super) struct Assembled {
    pub(super) bytes: Bytes,
    pub(super) small: Vec<SmallFile>,
    pub(super) files: Vec<SealedFile>,
}

/// Reads the small files and puts the heads together. Blocks.
pub(super) fn assemble(
    storage: StorageId,
    storage_file: &Bytes,
    small: &[LocalFile],
    files: Vec<Finished>,
) -> Result<Assembled, TierError> {
    let lengths = small.iter().map(|file| file.length);
    let lengths = lengths.chain(files.iter().map(|file| sums_length(file.length)));
    let length = lengths.fold(storage_file.len() as u64, u64::saturating_add);
    if length > HEADS_BYTES_MAX {
        let problem = format!(
            "it would have {length} bytes, {HEADS_BYTES_MAX} are allowed: upload fewer files as \
             small ones"
        );
        return Err(TierError::Store {
            doing: "put",
            key: keys::heads(storage, "*"),
            reason: problem,
            is_passing: false,
        });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    let mut append = |name: String, body: &[u8]| {
        let file = SmallFile {
            name,
            at: bytes.len() as u64,
            length: body.len() as u64,
            checksum: crc32c(body),
        };
        bytes.extend_from_slice(body);
        file
    };
    let name = FileName::Storage(storage).to_string();
    let mut in_heads = vec![append(name, storage_file)];
    for file in small {
        let (source, _) = Source::open(&file.path, file.length)?;
        let (body, sums) = source.part(0, file.length)?;
        file.check(sums.checksum)?;
        in_heads.push(append(file.name.clone(), &body));
    }
    let files = files.into_iter().map(|file| {
        let sums_at = bytes.len() as u64;
        bytes.extend_from_slice(&file.sums);
        SealedFile {
            name: file.name,
            key: file.key,
            length: file.length,
            checksum: file.checksum,
            sums_at,
            sums_checksum: crc32c(&file.sums),
        }
    });
    let files = files.collect();
    Ok(Assembled {
        bytes: bytes.into(),
        small: in_heads,
        files,
    })
}
