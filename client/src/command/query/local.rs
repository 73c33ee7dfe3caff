//! Queries over local files and mounted folders.

use std::io::Write;
use std::path::{Path, PathBuf};

use query_engine::{
    ChunkSource, Limits, ReadError, Report, StorageSet, StoredLeaf, count, derived_note,
    field_columns, group_by, list_fields, open_paths, without_derived, write_rows,
};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::options::QueryOptions;
use super::print::{explain, explanation_of, print_count, print_groups};
use super::{CommandError, Context, Exit};
use crate::command::progress::watched;
use crate::file_content::{left_out, note_of_unknown};
use crate::http::Retry;
use crate::mount;

pub(super) fn run_files(
    context: &Context,
    files: &[PathBuf],
    no_index: bool,
    options: &QueryOptions,
) -> Result<Exit, CommandError> {
    let opened = open_paths(files, !no_index, &options.request, &options.fields());
    if opened.is_err() {
        note_storages(context, files);
    }
    let opened = opened?;
    for path in left_out(files) {
        let what = note_of_unknown(&path);
        context.note(format!("note: skipped: {what}; name it to see why"));
    }
    for repeated in &opened.repeated {
        context.note(format!("warning: {repeated}"));
    }
    for folder in &opened.derived {
        context.note(format!(
            "note: {} is omitted: its streams repeat events of those beside it, from which they \
             were derived; name the folder, too, to read it",
            folder.display()
        ));
    }
    run(context, &opened.sources, options, &|_| {})
}

/// Says which of the names that are no files are storages on the server.
pub(super) fn note_storages(context: &Context, files: &[PathBuf]) {
    if context.json() {
        return;
    }
    let names = files.iter().filter(|path| !path.exists());
    let Ok(client) = context.client() else {
        return;
    };
    for name in names.filter_map(|path| path.to_str()) {
        // A server that cannot be asked says nothing about the name.
        let found = context.block_on(async { Ok(client.find_storage(name).await?) });
        if found.is_ok_and(|storage| storage.name == name || storage.id.to_string() == name) {
            context.note(format!(
                "hint: {name} is no file, but a storage on {}: search it with --storage {name}",
                client.server()
            ));
        }
    }
}

pub(super) fn run_mounted(
    context: &Context,
    folder: &Path,
    no_index: bool,
    options: &QueryOptions,
) -> Result<Exit, CommandError> {
    // Drives the client's connections, so it must outlive them.
    let runtime = Runtime::new().map_err(|error| CommandError::io("async runtime", error))?;
    let mounted = mount::leaves(folder, runtime.handle(), |origin| {
        context.client_of_folder(origin, Retry::default())
    })?;
    if let Some(origin) = mounted.needed_server() {
        context.note_of_withheld(origin)?;
    }
    let leaves = mounted.leaves.into_iter();
    let leaves = leaves.map(|leaf| StoredLeaf {
        sidecar: leaf.sidecar.filter(|_| !no_index),
        ..leaf
    });
    let (mut leaves, mut derived): (Vec<StoredLeaf>, _) = (leaves.collect(), 0);
    if !options.derived {
        (leaves, derived) = without_derived(leaves);
    }
    let set = StorageSet::open(leaves, None)?;
    let sources = set.sources(&options.request, &options.fields())?;
    run(context, &sources, options, &|document| {
        let (requests, bytes) = (mounted.transferred.requests(), mounted.transferred.bytes());
        document["explain"]["requests"] = requests.into();
        document["explain"]["moved_bytes"] = bytes.into();
        if let Some(note) = derived_note(derived) {
            context.note(&note);
            if let Some(notes) = document["notes"].as_array_mut() {
                notes.push(note.into());
            }
        }
    })
}

fn run(
    context: &Context,
    sources: &[Box<dyn ChunkSource>],
    options: &QueryOptions,
    complete_explanation: &dyn Fn(&mut Value),
) -> Result<Exit, CommandError> {
    for reason in sources.iter().filter_map(|source| source.unused_index()) {
        context.note(format!(
            "{reason}; the query reads the file without its index"
        ));
    }
    let limits = options.limits();
    let (request, progress) = (&options.request, &options.request.progress);
    let (exit, report) = if options.count {
        let (count, report) = watched(context, progress, || count(sources, request, limits))?;
        print_count(context, count, &report)?;
        (Exit::of_match(count > 0), report)
    } else if options.list_fields {
        let listed = watched(context, progress, || list_fields(sources, request, limits));
        let (fields, mut report) = listed?;
        let notes = print_groups(context, (&field_columns(), &fields), options, &report)?;
        report.notes.extend(notes);
        (Exit::of_match(!fields.is_empty()), report)
    } else if let Some(spec) = &options.groups {
        let found = || group_by(sources, request, spec, limits);
        let (groups, mut report) = watched(context, progress, found)?;
        let columns = spec.columns().map_err(ReadError::from)?;
        let notes = print_groups(context, (&columns, &groups), options, &report)?;
        report.notes.extend(notes);
        let found = report.matched > 0 && !groups.is_empty();
        (Exit::of_match(found), report)
    } else {
        let report = print_rows(context, sources, options, limits)?;
        (Exit::of_match(report.rows > 0), report)
    };
    for damaged in &report.damaged {
        context.note(format!("{damaged}; the query read the data instead"));
    }
    for reason in report.skipped_reasons() {
        context.note(format!("{reason}; the result lacks what could not be read"));
    }
    for note in &report.notes {
        context.note(note);
    }
    if options.explain {
        context.flush()?;
        let mut document = explanation_of(&report);
        complete_explanation(&mut document);
        explain(context, &document);
    }
    Ok(if report.is_complete() {
        exit
    } else {
        Exit::NoMatchOrDamage
    })
}

fn print_rows(
    context: &Context,
    sources: &[Box<dyn ChunkSource>],
    options: &QueryOptions,
    limits: Limits,
) -> Result<Report, CommandError> {
    let mut format = options.format.rows();
    let is_terminal = context.is_terminal();
    let mut out = context.out();
    let mut write = |row: &[u8]| out.write_all(row);
    let (request, columns) = (&options.request, &options.columns);
    let mut work = || write_rows(sources, request, columns, &mut *format, limits, &mut write);
    // A bar between the rows on the same terminal would be in their way.
    Ok(if is_terminal {
        work()
    } else {
        watched(context, &request.progress, work)
    }?)
}
