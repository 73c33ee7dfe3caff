//! Recognition of files by their content, for queries, indexes and every command of the client.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use trace_kinds::{Content, LONG_PREFIX_BYTES, PREFIX_BYTES, Recognized, recognize};

use crate::ReadError;

/// How deep folders are searched.
pub(crate) const FOLDER_DEPTH_MAX: usize = 32;

/// Recognizes a regular file by its first bytes. Anything else is refused without being opened,
/// because opening a FIFO blocks.
///
/// # Errors
///
/// When it cannot be read, or is not a regular file.
pub fn recognize_file(path: &Path) -> Result<Recognized, ReadError> {
    let length = regular_file(path)?.len();
    let failed = |error| ReadError::fetch(path.display().to_string(), error);
    let mut file = File::open(path).map_err(failed)?;
    recognize_start(&mut file, length).map_err(failed)
}

/// As [`recognize_file`], for a file that was found in a folder and not named: a text that has a
/// record as an example in it is no DFTracer file.
///
/// # Errors
///
/// As [`recognize_file`].
pub fn recognize_found(path: &Path) -> Result<Recognized, ReadError> {
    let found = recognize_file(path)?;
    if found.content != Content::DftLines || is_named_as_lines(path) {
        return Ok(found);
    }
    let failed = |error| ReadError::fetch(path.display().to_string(), error);
    let file = File::open(path).map_err(failed)?;
    // What can be read decides, as it did before.
    let mut text = Vec::new();
    let source = found.container.text_of(file).map_err(failed)?;
    let _read = source.take(PREFIX_BYTES as u64).read_to_end(&mut text);
    Ok(if begins_with_record(&text) {
        found
    } else {
        Recognized {
            content: Content::Unknown("its first line is no record of a trace"),
            ..found
        }
    })
}

/// Whether the first line that is not blank is a record, or begins an array of them.
fn begins_with_record(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let record = text
        .strip_prefix(b"[")
        .map_or(text, <[u8]>::trim_ascii_start);
    record.is_empty() || record.starts_with(b"{")
}

/// Whether a file has a name that DFTracer gives.
pub(crate) fn is_named_as_lines(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    [".pfw", ".pfw.gz", ".pfw.zst"]
        .iter()
        .any(|ending| name.ends_with(ending.as_bytes()))
}

/// Recognizes a file of `length` bytes by its first ones, which are read next.
pub(crate) fn recognize_start(file: &mut File, length: u64) -> io::Result<Recognized> {
    let mut prefix = Vec::new();
    let mut start = file.take(PREFIX_BYTES as u64);
    start.read_to_end(&mut prefix)?;
    let is_whole = |prefix: &[u8]| prefix.len() as u64 >= length;
    let found = recognize(&prefix, is_whole(&prefix));
    if !found.is_undecided() || is_whole(&prefix) {
        return Ok(found);
    }
    start.set_limit((LONG_PREFIX_BYTES - PREFIX_BYTES) as u64);
    start.read_to_end(&mut prefix)?;
    Ok(recognize(&prefix, is_whole(&prefix)))
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
    recognize_file(&folder.join("metadata")).is_ok_and(|found| is_ctf_metadata(&found))
}

/// The end of the name of a folder in which an export writes the derived streams of an agent, whose
/// other streams are beside it. No id of an agent contains a plus sign.
pub const DERIVED_FOLDER_ENDING: &str = "+derived";

/// Whether an export wrote the derived streams of an agent into this folder: it is named so, and
/// what they were derived from is beside it. They repeat events, so who reads all that was exported
/// leaves them out.
pub fn is_derived_folder(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    let agent = name.and_then(|name| name.strip_suffix(DERIVED_FOLDER_ENDING));
    agent.is_some_and(|agent| {
        let is_beside = |name: String| folder.with_file_name(name).is_dir();
        !agent.is_empty() && (is_beside(agent.to_owned()) || is_beside(format!("{agent}+files")))
    })
}

fn is_ctf_metadata(found: &Recognized) -> bool {
    matches!(found.plain(), Some(Content::CtfMetadata(_)))
}

/// The folders with CTF traces at and below `path`, sorted. A trace folder is not searched for
/// further traces.
///
/// # Errors
///
/// When a folder cannot be read, there is no trace, or one has stream files and no metadata: it
/// would be skipped without a word.
pub fn find_traces(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let mut found = Vec::new();
    search(path, 0, &mut found)?;
    if found.is_empty() {
        return Err(ReadError::UnknownFile {
            path: path.to_owned(),
            reason: "no CTF trace is in it or below it: no file `metadata` with CTF metadata"
                .to_owned(),
        });
    }
    Ok(found)
}

/// As [`is_ctf_folder`], with an error when its file `metadata` cannot be read.
pub(crate) fn is_trace_folder(folder: &Path) -> Result<bool, ReadError> {
    match recognize_file(&folder.join("metadata")) {
        Ok(metadata) => Ok(is_ctf_metadata(&metadata)),
        Err(ReadError::Fetch { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(false)
        }
        Err(ReadError::NotAFile { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn search(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), ReadError> {
    if is_trace_folder(folder)? {
        found.push(folder.to_owned());
        return Ok(());
    }
    if depth == FOLDER_DEPTH_MAX {
        return Ok(());
    }
    let listed = fs::read_dir(folder).and_then(|entries| {
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        paths.collect::<io::Result<Vec<_>>>()
    });
    let failed = |error| ReadError::fetch(folder.display().to_string(), error);
    let mut entries = listed.map_err(failed)?;
    entries.sort();
    for entry in &entries {
        if entry.is_dir() {
            search(entry, depth + 1, found)?;
        } else if entry.is_file() && recognize_file(entry)?.plain() == Some(Content::CtfPackets) {
            return Err(ReadError::UnknownFile {
                path: folder.to_owned(),
                reason: "it has stream files of a CTF trace, but no file `metadata` with CTF \
                         metadata"
                    .to_owned(),
            });
        }
    }
    Ok(())
}
