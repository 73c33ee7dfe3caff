//! Files that are written once: under a temporary name, synced and renamed; then the folder is
//! synced. A file that cannot be published leaves nothing, unless it cannot be removed, either:
//! then the next start removes it.

use std::{io, path::Path};

use bytes::Bytes;
use storage_format::paths::UNPUBLISHED_ENDING;
use tokio::sync::mpsc;

use crate::io::{BUFFER_BYTES, BlockIo, OpenHow};

/// Bytes of a large file that are written before it is synced, so that no sync is long.
const SYNC_BYTES: u64 = 8 << 20;

/// A piece of a file that is made while it is written.
#[derive(Debug)]
pub(crate) enum Piece {
    Bytes(Bytes),
    /// The file is complete.
    End,
}

/// The content of a file.
#[derive(Debug)]
pub(crate) enum Content {
    Whole(Bytes),
    /// When the sender goes away before the end, nothing is published.
    Pieces(mpsc::Receiver<Piece>),
}

/// Publishes a file as `folder/name`. After a crash the file has the old content or the new one,
/// never a part of either.
pub(crate) async fn publish<B: BlockIo>(
    io: &B,
    folder: &Path,
    name: &str,
    content: Content,
) -> io::Result<()> {
    assert!(
        !name.is_empty() && !name.contains('/'),
        "a published file is directly in its folder"
    );
    let unpublished = folder.join(format!("{name}{UNPUBLISHED_ENDING}"));
    let file = io.open(&unpublished, OpenHow::CreateSmall).await?;
    crate::fault_point!(async "publish.created");
    let written = match content {
        Content::Whole(bytes) => write_all(io, &file, &bytes, 0).await,
        Content::Pieces(pieces) => write_pieces(io, &file, pieces).await,
    };
    crate::fault_point!(async "publish.written");
    let synced = match written {
        Ok(()) if crate::sabotaged!("skip-publish-sync") => Ok(()),
        Ok(()) => io.sync_data(&file).await,
        Err(error) => Err(error),
    };
    let published = folder.join(name);
    let is_kept = crate::sabotaged!("skip-rename") && published.exists();
    let renamed = match (synced, io.close(file).await) {
        (Ok(()), Ok(())) if is_kept => Ok(()),
        (Ok(()), Ok(())) => {
            crate::fault_point!(async "publish.synced");
            io.rename(&unpublished, &published).await
        }
        (Err(error), _) | (_, Err(error)) => Err(error),
    };
    if let Err(error) = renamed {
        let _ = io.remove(&unpublished).await;
        return Err(error);
    }
    crate::fault_point!(async "publish.renamed");
    if !crate::sabotaged!("skip-folder-sync") {
        io.sync_folder(folder).await?;
    }
    crate::fault_point!(async "publish.durable");
    Ok(())
}

async fn write_pieces<B: BlockIo>(
    io: &B,
    file: &B::File,
    mut pieces: mpsc::Receiver<Piece>,
) -> io::Result<()> {
    let (mut offset, mut synced): (u64, u64) = (0, 0);
    loop {
        match pieces.recv().await {
            Some(Piece::Bytes(bytes)) => {
                write_all(io, file, &bytes, offset).await?;
                offset = offset.saturating_add(bytes.len() as u64);
            }
            Some(Piece::End) => return Ok(()),
            None => return Err(io::ErrorKind::Interrupted.into()),
        }
        if offset.saturating_sub(synced) >= SYNC_BYTES {
            io.sync_data(file).await?;
            synced = offset;
        }
    }
}

async fn write_all<B: BlockIo>(
    io: &B,
    file: &B::File,
    bytes: &[u8],
    mut offset: u64,
) -> io::Result<()> {
    for part in bytes.chunks(BUFFER_BYTES) {
        let mut buffer = io.buffer().await;
        buffer[..part.len()].copy_from_slice(part);
        super::staging::write_fully(io, file, buffer, part.len(), offset).await?;
        offset = offset.saturating_add(part.len() as u64);
    }
    Ok(())
}
