//! The files and traces under the given paths.

use std::fs;
use std::path::{Path, PathBuf};

use query_engine::{is_ctf_folder, is_derived_folder};

use super::derived::is_derived;
use super::naming::dotted;
use crate::ClientError;
use crate::file_content::check_regular;

/// Folders are entered this deep: a link that leads back up must end somewhere.
const FOLDER_DEPTH_MAX: usize = 32;
/// The file of a CTF trace that is no stream.
pub(super) const CTF_METADATA: &str = "metadata";

/// The files and traces under the given paths.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) files: Vec<FoundFile>,
    pub(super) traces: Vec<CtfTrace>,
    pub(super) indexes_skipped: u64,
    /// Folders of derived streams, which are not pushed.
    pub(super) derived_skipped: Vec<PathBuf>,
}

/// A file that is no part of a CTF trace.
#[derive(Debug)]
pub(super) struct FoundFile {
    pub(super) path: PathBuf,
    /// Name of its stream.
    pub(super) word: String,
    /// Whether it is a given path, and not in a folder that is.
    pub(super) is_given: bool,
}

/// A folder with a CTF trace.
#[derive(Debug)]
pub(super) struct CtfTrace {
    pub(super) folder: PathBuf,
    /// Name of the trace, relative to the given path.
    pub(super) word: String,
    pub(super) files: Vec<PathBuf>,
}

impl Found {
    /// What is under these paths.
    pub(super) fn under(paths: &[PathBuf]) -> Result<Self, ClientError> {
        let mut found = Found::default();
        for path in paths {
            let metadata = fs::metadata(path).map_err(|error| ClientError::file(path, error))?;
            if metadata.is_dir() {
                found.enter(path, Path::new(""), 0)?
            } else {
                check_regular(path)?;
                found.files.push(FoundFile {
                    path: path.clone(),
                    word: file_word(path),
                    is_given: true,
                })
            }
        }
        // Who names such a folder, too, means it.
        found
            .derived_skipped
            .retain(|folder| !paths.contains(folder));
        Ok(found)
    }

    fn enter(&mut self, folder: &Path, below: &Path, depth: usize) -> Result<(), ClientError> {
        if depth > FOLDER_DEPTH_MAX {
            let what = format!(
                "{}: folders are nested more than {FOLDER_DEPTH_MAX} deep",
                folder.display()
            );
            return Err(ClientError::input(what));
        }
        let mut entries = sorted_entries(folder)?;
        let count = entries.len();
        entries.retain(|(path, is_folder)| *is_folder || !is_derived(path));
        self.indexes_skipped += (count - entries.len()) as u64;
        let is_trace = entries.iter().any(|(path, is_folder)| {
            !is_folder && path.file_name().is_some_and(|name| name == CTF_METADATA)
        }) && is_ctf_folder(folder);
        if is_trace {
            let word = match dotted(below) {
                word if word.is_empty() => file_word(folder),
                word => word,
            };
            let files = entries.into_iter().filter(|(path, is_folder)| {
                !is_folder && path.file_name().is_some_and(|name| name != CTF_METADATA)
            });
            self.traces.push(CtfTrace {
                folder: folder.to_owned(),
                word,
                files: files.map(|(path, _)| path).collect(),
            });
            return Ok(());
        }
        for (path, is_folder) in entries {
            let below = below.join(path.file_name().unwrap_or_default());
            if is_folder && is_derived_folder(&path) {
                self.derived_skipped.push(path);
            } else if is_folder {
                self.enter(&path, &below, depth + 1)?
            } else {
                self.files.push(FoundFile {
                    path,
                    word: dotted(&below),
                    is_given: false,
                })
            }
        }
        Ok(())
    }
}

pub(super) fn file_word(path: &Path) -> String {
    let whole = || fs::canonicalize(path).unwrap_or_default();
    let name = match path.file_name() {
        Some(name) => name.to_owned(),
        // `.` and `..` have a name only after they are resolved.
        None => whole().file_name().unwrap_or_default().to_owned(),
    };
    name.to_string_lossy().into_owned()
}

/// The entries of a folder except hidden ones, sorted by name; true for folders.
fn sorted_entries(folder: &Path) -> Result<Vec<(PathBuf, bool)>, ClientError> {
    let failed = |error| ClientError::file(folder, error);
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        let metadata = fs::metadata(&path).map_err(|error| ClientError::file(&path, error))?;
        if metadata.is_dir() || metadata.is_file() {
            entries.push((path, metadata.is_dir()));
        }
    }
    entries.sort();
    Ok(entries)
}
