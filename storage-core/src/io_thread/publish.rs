//! Small files: written under a temporary name, synced and renamed; then the folder is synced.

use std::{io, path::Path};

use bytes::Bytes;
use storage_format::paths::UNPUBLISHED_ENDING;

use crate::io::{BUFFER_BYTES, BlockIo, OpenHow};

/// Publishes `bytes` as `folder/name`. After a crash the file has the old content or the
/// new one, never a part of either.
pub(crate) async fn publish<B: BlockIo>(
    io: &B,
    folder: &Path,
    name: &str,
    bytes: &Bytes,
) -> io::Result<()> {
    assert!(
        !name.is_empty() && !name.contains('/'),
        "a published file is directly in its folder"
    );
    let unpublished = folder.join(format!("{name}{UNPUBLISHED_ENDING}"));
    let file = io.open(&unpublished, OpenHow::CreateSmall).await?;
    let written = write_all(io, &file, bytes).await;
    let synced = match written {
        Ok(()) => io.sync_data(&file).await,
        Err(error) => Err(error),
    };
    io.close(file).await?;
    synced?;
    io.rename(&unpublished, &folder.join(name)).await?;
    io.sync_folder(folder).await
}

async fn write_all<B: BlockIo>(io: &B, file: &B::File, bytes: &[u8]) -> io::Result<()> {
    let mut offset: u64 = 0;
    for part in bytes.chunks(BUFFER_BYTES) {
        let mut buffer = io.buffer().await;
        buffer[..part.len()].copy_from_slice(part);
        super::staging::write_fully(io, file, buffer, part.len(), offset).await?;
        offset = offset.saturating_add(part.len() as u64);
    }
    Ok(())
}
