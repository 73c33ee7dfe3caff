//! Recognition of files by their content.

use std::fs;
use std::path::{Path, PathBuf};

use query_engine::ReadError;
use trace_kinds::{Content, Recognized};

use crate::ClientError;

/// Recognizes a file by its first bytes. Push, decode and analyze share this with queries and
/// indexes, so a file is the same to all of them.
pub(crate) fn recognize_file(path: &Path) -> Result<Recognized, ClientError> {
    query_engine::recognize_file(path).map_err(|error| refused(path, error))
}

/// As [`recognize_file`], for a file that was found in a folder and not named.
pub(crate) fn recognize_found(path: &Path) -> Result<Recognized, ClientError> {
    query_engine::recognize_found(path).map_err(|error| refused(path, error))
}

/// Refuses everything but regular files, without opening it: opening a FIFO blocks.
pub(crate) fn check_regular(path: &Path) -> Result<(), ClientError> {
    let metadata = query_engine::regular_file(path);
    metadata.map(|_| ()).map_err(|error| refused(path, error))
}

fn refused(path: &Path, error: ReadError) -> ClientError {
    match error {
        ReadError::Fetch { source, .. } => ClientError::file(path, source),
        error => ClientError::input(error.to_string()),
    }
}

/// Why a command that accepts the files in `accepted` refuses this one.
pub(crate) fn refusal(found: &Recognized, accepted: &str) -> String {
    let hint = found.hint().map(|hint| format!(" ({hint})"));
    let hint = hint.unwrap_or_default();
    format!("this is {found}{hint}; expected {accepted}")
}

/// Endings of the names of traces: who names a file like this expects that it is read.
const TRACE_ENDINGS: [&str; 10] = [
    ".pfw", ".json", ".jsonl", ".ndjson", ".trace", ".pb", ".gz", ".gzip", ".zst", ".zstd",
];
/// Folders are entered this deep, as by queries.
const FOLDER_DEPTH_MAX: usize = 32;

/// Whether a file is named like a trace.
pub(crate) fn is_named_as_trace(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    TRACE_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Says that a file that is named like a trace is none.
pub(crate) fn note_of_unknown(path: &Path) -> String {
    let path = path.display();
    format!("{path} is named like a trace, but is none that is known")
}

/// The files in folders of a query that are named like traces, and of which queries do not know
/// what they are. A damaged file of DFTracer is read all the same.
pub(crate) fn left_out(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in paths.iter().filter(|path| path.is_dir()) {
        search_left_out(folder, 0, &mut found);
    }
    found
}

/// What cannot be listed now was read by the query before, or told.
fn search_left_out(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if depth > FOLDER_DEPTH_MAX || query_engine::is_ctf_folder(folder) {
        return;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
            search_left_out(&path, depth + 1, found);
        } else if is_named_as_trace(&path) && is_left_out(&path) {
            found.push(path);
        }
    }
}

fn is_left_out(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_dft = [".pfw", ".pfw.gz"].iter().any(|it| name.ends_with(it));
    let is_unknown = |found: Recognized| match found.content {
        // Queries say themselves what cannot be decompressed.
        Content::Unknown(reason) => reason != trace_kinds::UNDECOMPRESSED,
        _ => false,
    };
    !is_dft && recognize_found(path).is_ok_and(is_unknown)
}
