//! Checks of the path of an output file.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use query_engine::is_ctf_folder;
use storage_format::paths::FileName;

use super::CommandError;
use crate::file_content::recognize_file;

/// The most symbolic links in a row, as in the kernel.
const LINKS_MAX: usize = 40;
/// Folders below an input that are searched; traces are not deeper.
const DEPTH_MAX: usize = 32;

/// Refuses an output that would replace one of the inputs, or a file of a trace in one of them.
pub(super) fn check_output(output: &Path, inputs: &[PathBuf]) -> Result<(), CommandError> {
    // What does not exist, or is a FIFO or a device, replaces nothing.
    let Some(known) = fs::metadata(output).ok().filter(Metadata::is_file) else {
        return Ok(());
    };
    let is_input = |input: &PathBuf| match fs::metadata(input) {
        Ok(found) if found.is_dir() => is_in_trace(&known, input, 0),
        Ok(found) => is_same(&known, &found),
        Err(_) => false,
    };
    match inputs.iter().find(|input| is_input(input)) {
        Some(input) => Err(CommandError::usage(format!(
            "{}: the output would replace an input, {}; write to another file",
            output.display(),
            input.display()
        ))),
        None => Ok(()),
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether a folder contains the file under a name by which it is read. Results of earlier commands
/// may be next to traces. A folder that cannot be read is reported by whoever reads the trace.
fn is_in_trace(file: &Metadata, folder: &Path, depth: usize) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_file = |path: &Path| fs::metadata(path).is_ok_and(|found| is_same(file, &found));
    let is_mounted = |name: &str| name.parse::<FileName>().is_ok();
    let mut is_ctf = None;
    for entry in entries {
        let path = entry.path();
        // Links to folders are not followed in traces.
        let found = if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            depth < DEPTH_MAX && is_in_trace(file, &path, depth + 1)
        } else {
            is_file(&path)
                && (*is_ctf.get_or_insert_with(|| is_ctf_folder(folder))
                    || entry.file_name().to_str().is_some_and(is_mounted)
                    || recognize_file(&path).is_ok_and(|found| found.kind().is_some()))
        };
        if found {
            return true;
        }
    }
    false
}

/// The path behind symbolic links, which need not exist: renaming a file to the name of a link
/// replaces the link.
pub(super) fn behind_links(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        // Links in a circle.
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else {
            break;
        };
        path = match path.parent() {
            Some(folder) => folder.join(target),
            None => target,
        };
    }
    Ok(path)
}
