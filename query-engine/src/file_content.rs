//! Recognition of files by their content, for queries, indexes and every command of the client.

use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use trace_kinds::{Content, PREFIX_BYTES, Recognized, recognize};

use crate::ReadError;

/// Recognizes a regular file by its first bytes. Anything else is refused without being opened,
/// because opening a FIFO blocks.
///
/// # Errors
///
/// When it cannot be read, or is not a regular file.
pub fn recognize_file(path: &Path) -> Result<Recognized, ReadError> {
    let length = regular_file(path)?.len();
    let failed = |error| ReadError::fetch(path.display().to_string(), error);
    let mut prefix = Vec::new();
    let file = File::open(path).map_err(failed)?;
    let read = file.take(PREFIX_BYTES as u64).read_to_end(&mut prefix);
    read.map_err(failed)?;
    Ok(recognize(&prefix, prefix.len() as u64 >= length))
}

/// The metadata of a regular file.
///
/// # Errors
///
/// When it cannot be read, or is not a regular file.
pub fn regular_file(path: &Path) -> Result<Metadata, ReadError> {
    let failed = |error| ReadError::fetch(path.display().to_string(), error);
    let metadata = fs::metadata(path).map_err(failed)?;
    let file_type = metadata.file_type();
    if file_type.is_file() {
        return Ok(metadata);
    }
    let what = if file_type.is_dir() {
        "a folder"
    } else if file_type.is_fifo() {
        "a FIFO"
    } else if file_type.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(ReadError::NotAFile {
        path: path.to_owned(),
        what,
    })
}

/// Whether a folder is a CTF trace: its file `metadata` is metadata of CTF.
pub fn is_ctf_folder(folder: &Path) -> bool {
    recognize_file(&folder.join("metadata"))
        .is_ok_and(|found| matches!(found.plain(), Some(Content::CtfMetadata(_))))
}
