//! Writes the part of CTF traces in a window of time, as CTF traces.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use ctf_folder::write_trimmed;
use query_engine::find_traces;

use super::ctf::{first_instant, has_no_files, refused};
use super::format::Format;
use super::selection::Selection;
use crate::command::context::counted;
use crate::command::{CommandError, Context};

/// Writes the traces in the folders `paths`; whether all were whole.
pub(super) fn write(
    context: &Context,
    paths: &[PathBuf],
    selection: &Selection<'_>,
) -> Result<bool, CommandError> {
    let usage = |what: &str| Err(CommandError::usage(what.to_owned()));
    let options = selection.babeltrace;
    let Some(output) = &options.output else {
        return usage("--format ctf needs --output, the new folder of the trace");
    };
    if options.has_style() || options.stream_intersection || options.details {
        return usage("--format ctf takes times only: the events stay as they are");
    }
    let mut traces = Vec::new();
    for path in paths {
        for folder in find_traces(path)? {
            let trace = selection.open(path, &folder, Format::Ctf)?;
            traces.push((name(path, &folder), trace));
        }
    }
    let is_single = traces.len() == 1;
    let targets: Vec<PathBuf> = traces
        .iter()
        .map(|(name, _)| {
            if is_single {
                output.clone()
            } else {
                output.join(name)
            }
        })
        .collect();
    if let Some(twice) = repeated(&targets) {
        return usage(&format!(
            "{}: two traces would be written there; write them one by one",
            twice.display()
        ));
    }
    let begins = traces
        .iter()
        .filter_map(|(_, trace)| first_instant(std::slice::from_ref(trace)));
    let window = selection.window(begins.min())?;
    let mut is_whole = !has_no_files(context, traces.iter().map(|(_, trace)| trace));
    for ((_, trace), target) in traces.iter().zip(&targets) {
        let written = write_trimmed(trace, window, selection.on_fault(), target);
        let written = written.map_err(refused)?;
        context.note(format!(
            "{}: {} as they were, {} in part",
            target.display(),
            counted(written.whole, "packet"),
            counted(written.trimmed, "packet")
        ));
        for fault in trace.faults.iter().chain(&written.faults) {
            is_whole = false;
            context.note(format!("tracehold: {fault}; the rest was written"));
        }
    }
    Ok(is_whole)
}

/// The folder of one of several traces: its path from the folder above the one that was given.
fn name(path: &Path, folder: &Path) -> PathBuf {
    let top = path.file_name().map(PathBuf::from).unwrap_or_default();
    top.join(folder.strip_prefix(path).unwrap_or(Path::new("")))
}

/// A path that is there twice.
fn repeated(paths: &[PathBuf]) -> Option<&PathBuf> {
    let mut known = HashSet::new();
    paths.iter().find(|path| !known.insert(*path))
}
