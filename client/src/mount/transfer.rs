use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use storage_format::checksum::crc32c_append;
use storage_format::checksum_file::{FileChecksums, PIECE_BYTES};
use storage_format::paths::FileRole;
use storage_format::storage_file::FileEntry;
use tokio::task::spawn_blocking;

use super::publish::unpublished;
use super::report::{Fetched, MountProgress, Progress};
use super::verify::{different, sum};
use crate::ClientError;
use crate::http::{Client, StorageUrl};

const READ_BYTES: usize = 1 << 20;
/// Bytes are buffered up to this size before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// The transfer of one file.
pub(super) struct Transfer {
    pub(super) client: Client,
    pub(super) storage: StorageUrl,
    pub(super) file: FileEntry,
    pub(super) path: PathBuf,
    /// Whether the local file says that this file is complete and was verified.
    pub(super) known_complete: bool,
    /// The checksums of the pieces of the file, if they are known.
    pub(super) pieces: Option<FileChecksums>,
    pub(super) progress: Progress,
}

/// The part of a file that is present.
#[derive(Debug)]
struct Part {
    file: File,
    length: u64,
    checksum: u32,
}

impl Transfer {
    /// Returns the file's name and what was fetched of it.
    pub(super) async fn run(self) -> Result<(String, Fetched), ClientError> {
        let fetched = if self.is_present().await? {
            (self.progress)(MountProgress::Received(self.file.length));
            Fetched::Nothing
        } else {
            match self.fetch().await {
                Err(error) if self.is_replaceable() && is_of_content(&error) => Fetched::Replaced,
                fetched => fetched?,
            }
        };
        Ok((self.file.name, fetched))
    }

    /// Whether the server may have another file of this name by now.
    fn is_replaceable(&self) -> bool {
        matches!(self.file.role, FileRole::ChunkIndex | FileRole::Provenance)
    }

    /// Whether the file is complete. Verifies its checksum unless that was done before.
    async fn is_present(&self) -> Result<bool, ClientError> {
        match fs::metadata(&self.path) {
            Ok(metadata) if metadata.len() != self.file.length => return Ok(false),
            Ok(_) if self.known_complete => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(ClientError::file(&self.path, error)),
        }
        let part = read_part(self.path.clone(), OpenOptions::new().read(true).clone()).await?;
        Ok(part.checksum == self.file.checksum)
    }

    async fn fetch(&self) -> Result<Fetched, ClientError> {
        let unpublished = unpublished(&self.path);
        // What is intact of a damaged file is kept, if it is known what that is.
        if self.pieces.is_some() && self.path.is_file() {
            fs::rename(&self.path, &unpublished)
                .map_err(|error| ClientError::file(&self.path, error))?;
        }
        let (part, fetched, resumed) = self.complete(&unpublished).await?;
        if self.is_right(&part) {
            self.publish(part, &unpublished)?;
            return Ok(Fetched::Bytes(fetched));
        }
        drop(part);
        if let Some(pieces) = &self.pieces
            && resumed
        {
            let healed = self.heal(&unpublished, pieces).await?;
            let (part, rest, _) = self.complete(&unpublished).await?;
            if self.is_right(&part) {
                self.publish(part, &unpublished)?;
                return Ok(Fetched::Pieces(fetched + healed + rest));
            }
        }
        fs::remove_file(&unpublished).map_err(|error| ClientError::file(&unpublished, error))?;
        let again = if resumed {
            "; the partial file was discarded, run the command again"
        } else {
            "; verify the storage with `tracehold storage verify`"
        };
        let what = format!("the received bytes do not match the checksum of the file{again}");
        let place = format!("{}/{}", self.storage, self.file.name);
        Err(ClientError::damaged(place, what))
    }

    fn is_right(&self, part: &Part) -> bool {
        part.length == self.file.length && part.checksum == self.file.checksum
    }

    fn publish(&self, part: Part, unpublished: &Path) -> Result<(), ClientError> {
        let published = part
            .file
            .sync_all()
            .and_then(|()| fs::rename(unpublished, &self.path));
        published.map_err(|error| ClientError::file(&self.path, error))
    }

    /// Fetches what is missing at the end of a partial file. Returns it with the bytes fetched, and
    /// whether some were there before.
    async fn complete(&self, unpublished: &Path) -> Result<(Part, u64, bool), ClientError> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let mut part = read_part(unpublished.to_owned(), options).await?;
        let mut fetched = 0;
        let resumed = part.length > 0;
        (self.progress)(MountProgress::Received(part.length.min(self.file.length)));
        let mut budget = self.client.retry_budget();
        while part.length < self.file.length {
            let before = part.length;
            let outcome = self.fetch_rest(&mut part).await;
            fetched += part.length - before;
            if part.length > before {
                budget = self.client.retry_budget();
            }
            if let Err(error) = outcome {
                budget.wait_after_cut(error).await?;
            }
        }
        Ok((part, fetched, resumed))
    }

    /// Fetches the damaged pieces of a partial file again. Returns their bytes.
    async fn heal(&self, path: &Path, pieces: &FileChecksums) -> Result<u64, ClientError> {
        let failed = |error| ClientError::file(path, error);
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length > self.file.length {
            file.set_len(self.file.length).map_err(failed)?;
        }
        let (read, id) = (file.try_clone().map_err(failed)?, pieces.file);
        let summed = spawn_blocking(move || sum(read).map(|sums| sums.finish(id)));
        let found = match summed.await {
            Ok(found) => found.map_err(failed)?,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        let mut healed = 0;
        for begin in different(&found.pieces, &pieces.pieces) {
            let end = self.file.length.min(begin + PIECE_BYTES);
            let mut budget = self.client.retry_budget();
            let bytes = loop {
                match self.fetch_piece(begin..end).await {
                    Ok(bytes) => break bytes,
                    Err(error) => budget.wait_after_cut(error).await?,
                }
            };
            file.write_all_at(&bytes, begin).map_err(failed)?;
            healed += bytes.len() as u64;
        }
        Ok(healed)
    }

    /// The bytes of a range of the file.
    async fn fetch_piece(&self, range: Range<u64>) -> Result<Vec<u8>, ClientError> {
        let name = &self.file.name;
        let wanted = std::slice::from_ref(&range);
        let mut answer = self.client.file(&self.storage, name, wanted, None).await?;
        let length = range.end - range.start;
        let mut bytes = Vec::new();
        while let Some((offset, more)) = answer.next().await? {
            let expected = range.start + bytes.len() as u64;
            if offset != expected || bytes.len() as u64 + more.len() as u64 > length {
                let what = format!("received offset {offset}, expected {expected}");
                return Err(ClientError::damaged(
                    format!("{}/{name}", self.storage),
                    what,
                ));
            }
            bytes.extend_from_slice(&more);
        }
        if bytes.len() as u64 == length {
            Ok(bytes)
        } else {
            Err(ClientError::Cut {
                url: format!("{}/{name}", self.storage),
                place: format!("at offset {}", range.start + bytes.len() as u64),
            })
        }
    }

    /// Sends one request for the missing bytes.
    async fn fetch_rest(&self, part: &mut Part) -> Result<(), ClientError> {
        let name = &self.file.name;
        let mut answer = self
            .client
            .file_from(&self.storage, name, part.length)
            .await?;
        let mut gathered = Vec::with_capacity(WRITE_BYTES);
        loop {
            let next = answer.next().await;
            if let Ok(Some((offset, bytes))) = &next {
                let expected = part.length + gathered.len() as u64;
                let end = offset + bytes.len() as u64;
                if *offset != expected || end > self.file.length {
                    let what =
                        format!("received bytes {offset} to {end}, expected offset {expected}");
                    return Err(ClientError::damaged(
                        format!("{}/{name}", self.storage),
                        what,
                    ));
                }
                gathered.extend_from_slice(bytes);
            }
            let more = matches!(next, Ok(Some(_)));
            if gathered.len() >= WRITE_BYTES || !more {
                gathered = self.append(part, gathered).await?;
            }
            if !more {
                return next.map(|_| ());
            }
        }
    }

    /// Appends bytes to the file, and returns the empty buffer.
    async fn append(&self, part: &mut Part, mut bytes: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        let failed = |error| ClientError::file(&self.path, error);
        let mut file = part.file.try_clone().map_err(failed)?;
        let (length, checksum) = (bytes.len() as u64, crc32c_append(part.checksum, &bytes));
        let writing = spawn_blocking(move || {
            let written = file.write_all(&bytes);
            bytes.clear();
            written.map(|()| bytes)
        });
        let bytes = match writing.await {
            Ok(written) => written.map_err(failed)?,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        part.length += length;
        part.checksum = checksum;
        (self.progress)(MountProgress::Received(length));
        Ok(bytes)
    }
}

/// Whether an error says that a file is not what was listed.
fn is_of_content(error: &ClientError) -> bool {
    match error {
        ClientError::Damaged { .. } => true,
        ClientError::Refused(problem) => matches!(problem.status, 404 | 412 | 416),
        _ => false,
    }
}

/// Opens a file and computes its length and checksum.
async fn read_part(path: PathBuf, options: OpenOptions) -> Result<Part, ClientError> {
    let reading = spawn_blocking(move || {
        read_through(&path, &options).map_err(|error| ClientError::file(&path, error))
    });
    match reading.await {
        Ok(part) => part,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

fn read_through(path: &Path, options: &OpenOptions) -> std::io::Result<Part> {
    let mut part = Part {
        file: options.open(path)?,
        length: 0,
        checksum: 0,
    };
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match part.file.read(&mut buffer)? {
            0 => return Ok(part),
            read => {
                part.length += read as u64;
                part.checksum = crc32c_append(part.checksum, &buffer[..read]);
            }
        }
    }
}
