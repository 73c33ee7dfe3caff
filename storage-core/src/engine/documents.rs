//! Small named files in the data folder that other crates own.
//!
//! A document is text, and its last line is a comment with the checksum of all lines before. One
//! without this line was written by an earlier version, or by hand, and is accepted; the next
//! change adds the line.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use io_trace::Cause;
use storage_format::{
    FormatError, FormatErrorKind, checksum::crc32c, limits::ENVELOPE_BODY_BYTES_MAX,
    paths::UNPUBLISHED_ENDING,
};

use super::{blocking::Blocking, folder_lock::lock_folder};
use crate::{
    StorageError,
    aside::set_aside,
    io::{StagedFile, remove_file, rename, sync_folder},
    io_thread::IoThread,
    read::read_small,
    writer::Services,
};

/// Replaces a document of a data folder that no server uses, durably; blocks. `change` gets the
/// document as it is, and returns the next one with what the caller wants to know.
///
/// # Errors
/// When a server uses the folder, a file cannot be read or written, or `change` fails.
pub fn change_document<T, E: From<StorageError>>(
    folder: &Path,
    name: &str,
    change: impl FnOnce(Option<Vec<u8>>) -> Result<(Bytes, T), E>,
) -> Result<T, E> {
    let _lock = lock_folder(folder)?;
    let path = folder.join(name);
    let document = read_document(&path)?;
    let (content, result) = change(document)?;
    let staged = folder.join(format!("{name}{UNPUBLISHED_ENDING}"));
    match remove_file(&staged) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(StorageError::io("remove", staged)(error).into());
        }
        _ => {}
    }
    let mut file = StagedFile::create(staged.clone())?;
    file.write(&with_checksum(&content))?;
    file.finish()?;
    rename(&staged, &path).map_err(StorageError::io("rename", &staged))?;
    sync_folder(folder)?;
    Ok(result)
}

fn read_document(path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
    match read_small(path, u64::from(ENVELOPE_BODY_BYTES_MAX)) {
        Ok(bytes) => {
            let checked = without_checksum(bytes);
            checked.map(Some).map_err(StorageError::damaged(path))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StorageError::io("read", path)(error)),
    }
}

/// The beginning of the last line.
const CHECKSUM: &[u8] = b"# crc32c ";

/// The content with the line of its checksum.
fn with_checksum(content: &[u8]) -> Vec<u8> {
    let mut bytes = content.to_vec();
    bytes.push(b'\n');
    let checksum = format!("{:08x}\n", crc32c(&bytes));
    bytes.extend_from_slice(CHECKSUM);
    bytes.extend_from_slice(checksum.as_bytes());
    bytes
}

/// The content without the line of its checksum, which is checked.
fn without_checksum(mut bytes: Vec<u8>) -> Result<Vec<u8>, FormatError> {
    let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let at = text.iter().rposition(|byte| *byte == b'\n');
    let Some(end) = at.map(|at| at.saturating_add(1)) else {
        return Ok(bytes);
    };
    let Some(stored) = text.get(end..).and_then(|line| line.strip_prefix(CHECKSUM)) else {
        return Ok(bytes);
    };
    let found = crc32c(bytes.get(..end).unwrap_or_default());
    if stored != format!("{found:08x}").as_bytes() {
        return Err(FormatError {
            what: "document",
            offset: 0,
            kind: FormatErrorKind::Field {
                name: "checksum in the last line",
            },
        });
    }
    bytes.truncate(end.saturating_sub(1));
    Ok(bytes)
}

/// Named documents in the data folder: each is replaced completely or not at all.
#[derive(Debug, Clone)]
pub struct Documents {
    folder: Arc<PathBuf>,
    io_thread: IoThread,
    blocking: Blocking,
}

impl Documents {
    pub(super) fn new(services: &Services, blocking: Blocking) -> Self {
        Self {
            folder: Arc::new(services.config.data_dir.clone()),
            io_thread: services.io_thread.clone(),
            blocking,
        }
    }

    /// The document with this name; `None` when it was never written.
    ///
    /// # Errors
    /// When the file cannot be read, or does not match its checksum.
    pub async fn read(&self, name: &'static str) -> Result<Option<Vec<u8>>, StorageError> {
        let path = self.folder.join(name);
        self.blocking
            .run(Cause::Manage, move || read_document(&path))
            .await
    }

    /// Moves a document that cannot be decoded out of the way, and returns where it is now.
    ///
    /// # Errors
    /// When the file cannot be renamed.
    pub async fn set_aside(&self, name: &'static str) -> Result<PathBuf, StorageError> {
        let path = self.folder.join(name);
        self.blocking
            .run(Cause::Manage, move || set_aside(&path))
            .await
    }

    /// Replaces a document, durably.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn write(&self, name: &'static str, content: Bytes) -> Result<(), StorageError> {
        let folder = PathBuf::clone(&self.folder);
        let path = folder.join(name);
        let content = Bytes::from(with_checksum(&content));
        let published = self.io_thread.publish(folder, name.to_owned(), content);
        published.await.map_err(StorageError::io("write", path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_noticed_or_breaks_the_text() {
        for content in ["", "{}", "{\"a\":1}\n", "# crc32c 00000000\n"] {
            let written = with_checksum(content.as_bytes());
            assert_eq!(
                without_checksum(written.clone()).unwrap(),
                content.as_bytes()
            );
            for at in 0..written.len() * 8 {
                let mut damaged = written.clone();
                damaged[at / 8] ^= 1 << (at % 8);
                // Without the mark of the last line, the line is part of the text.
                let is_noticed = without_checksum(damaged.clone())
                    .map_or(true, |read| read.len() > content.len());
                assert!(is_noticed, "{content:?}, bit {at}");
            }
        }
    }

    #[test]
    fn a_document_without_a_checksum_is_accepted() {
        for content in ["", "\n", "{}", "{}\n", "{\n}"] {
            let read = without_checksum(content.as_bytes().to_vec());
            assert_eq!(read.unwrap(), content.as_bytes());
        }
    }
}
