use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use io_analysis::{TextTable, bytes_text};
use query_engine::{
    IndexFile, IndexOptions, Indexed, Limits, Once, Progress, ReadError, Scratch, Update,
    index_files, remove_leftovers, sidecar_path,
};
use serde_json::{Value, json};

use super::progress::watched;
use super::{CommandError, Context, Exit};

/// Build indexes for trace files, so that queries read only the parts that can match
///
/// Accepts DFTracer files (plain or gzip), Chrome traces, OpenTelemetry spans, RocksDB traces, I/O
/// traces of a server, folders of such files, and CTF trace folders, in which every stream file
/// gets an index. The index of FILE is FILE.idx; in a CTF trace folder it is .FILE.idx. An index
/// that is up to date is not rebuilt; if it only lacks fields, just those are added.
#[derive(Debug, Args)]
pub(super) struct Index {
    /// Trace files and CTF trace folders
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Also index this field; may be repeated
    #[arg(long = "field", value_name = "FIELD")]
    fields: Vec<String>,
    /// Chunk size in KiB [default: 16384 for text, 512 for packets]
    #[arg(
        long,
        value_name = "KIB",
        value_parser = clap::value_parser!(u64).range(16..=1 << 20)
    )]
    chunk_kib: Option<u64>,
    /// Uncompressed KiB between two points at which decompression can start
    #[arg(
        long,
        value_name = "KIB",
        default_value_t = 16_384,
        value_parser = clap::value_parser!(u64).range(64..=1 << 20)
    )]
    spacing_kib: u64,
    /// Also store the times and indexed values of all events of DFTracer files, in FILE.cidx
    ///
    /// Much larger than the index. Counts over parts of chunks are then answered without reading
    /// them.
    #[arg(long)]
    columns: bool,
    /// Rebuild indexes that are up to date
    #[arg(long)]
    force: bool,
}

impl Index {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let options = IndexOptions {
            fields: self.fields,
            chunk_bytes: self.chunk_kib.map(|kib| kib << 10),
            spacing_bytes: Some(self.spacing_kib << 10),
            columns: self.columns,
            rebuild: self.force,
        };
        let (mut files, mut failure) = (Vec::new(), None);
        let mut fail = |error: ReadError| {
            let error = CommandError::from(error);
            context.report(&error);
            failure = Some(error.exit());
        };
        let (mut refused, mut skipped) = (0, Vec::new());
        for path in &self.files {
            match index_files(path, &mut skipped) {
                Ok(found) => files.extend(found),
                Err(error) => {
                    refused += 1;
                    fail(error);
                }
            }
        }
        retain_each_once(context, &mut files);
        remove_leftovers_next_to(&files);
        for file in &skipped {
            context.note(file);
        }
        let is_empty = files.is_empty() && refused == 0;
        if is_empty {
            context.note("there are no stream files to index");
        }
        let mut outcomes = update_shown(context, &files, &options);
        outcomes.sort_by_key(|(index, _)| *index);
        let heads = ["FILE", "INDEX", "EVENTS", "CHUNKS", "TEXT", "SIZE"];
        let mut table = TextTable::new(heads);
        let (mut documents, mut is_damaged) = (Vec::new(), is_empty || !skipped.is_empty());
        for (index, outcome) in outcomes {
            let file = files[index].path().display().to_string();
            match outcome {
                Ok(indexed) => {
                    if let Some(fault) = &indexed.fault {
                        context.note(format!("{fault}; the rest is indexed"));
                        is_damaged = true;
                    }
                    if let Some(records @ 1..) = indexed.broken {
                        let what = if records == 1 { "record" } else { "records" };
                        context.note(format!("{file}: {records} {what} cannot be read"));
                        is_damaged = true;
                    }
                    if indexed.text_bytes == 0 && indexed.fault.is_none() {
                        context.note(format!(
                            "{file}: there is nothing to index; no index was written"
                        ));
                        is_damaged = true;
                    }
                    documents.push(document(&file, &indexed));
                    table.row(row(file, &indexed));
                }
                Err(error) => fail(error),
            }
        }
        if context.json() {
            context.document(&json!({ "files": documents }))?;
        } else {
            let text = table.fit(context.layout());
            context.out().write_all(text.as_bytes())?;
        }
        Ok(failure.unwrap_or(Exit::of_integrity(!is_damaged)))
    }
}

/// Keeps each file once, however often it was named: two threads would write the same index.
fn retain_each_once(context: &Context, files: &mut Vec<IndexFile>) {
    let mut once = Once::default();
    files.retain(|file| once.is_first(file.path()));
    for repeated in once.into_repeated() {
        context.note(format!("warning: {repeated}"));
    }
}

/// Removes what killed runs left in the folders of the files.
fn remove_leftovers_next_to(files: &[IndexFile]) {
    let folders = files.iter().filter_map(|file| file.path().parent());
    for folder in folders.collect::<BTreeSet<&Path>>() {
        let here = folder.as_os_str().is_empty();
        // A folder that cannot be read cannot be written to, either: the index reports that.
        let _removed = remove_leftovers(if here { Path::new(".") } else { folder });
    }
}

/// Updates the indexes, and shows meanwhile how far that is.
fn update_shown(
    context: &Context,
    files: &[IndexFile],
    options: &IndexOptions,
) -> Vec<(usize, Result<Indexed, ReadError>)> {
    let progress = Progress::default();
    let lengths = files.iter().filter_map(|file| file.path().metadata().ok());
    progress.expect_bytes(lengths.map(|file| file.len()).sum());
    watched(context, &progress, || update_all(files, options, &progress))
}

/// Updates the indexes on several threads, one file per thread at a time.
fn update_all(
    files: &[IndexFile],
    options: &IndexOptions,
    progress: &Progress,
) -> Vec<(usize, Result<Indexed, ReadError>)> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        let mut scratch = Scratch {
            progress: progress.clone(),
            ..Scratch::default()
        };
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(index) else {
                return;
            };
            let outcome = file.update(options, &mut scratch);
            let mut outcomes = outcomes.lock().unwrap_or_else(|poison| poison.into_inner());
            outcomes.push((index, outcome));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..Limits::default().threads.min(files.len()) {
            scope.spawn(work);
        }
        work();
    });
    outcomes
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner())
}

fn update_text(update: &Update) -> String {
    match update {
        Update::Fresh => "up to date".to_owned(),
        Update::Extended(fields) => format!("added {}", fields.join(", ")),
        Update::Grown => "grown".to_owned(),
        Update::Built => "built".to_owned(),
        Update::Empty => "none".to_owned(),
    }
}

fn document(file: &str, indexed: &Indexed) -> Value {
    let has_index = indexed.update != Update::Empty;
    json!({
        "file": file,
        "index": has_index.then(|| sidecar_path(file.as_ref()).display().to_string()),
        "update": match &indexed.update {
            Update::Fresh => "fresh",
            Update::Extended(_) => "extended",
            Update::Grown => "grown",
            Update::Built => "built",
            Update::Empty => "empty",
        },
        "chunks": indexed.chunks,
        "events": indexed.events,
        "broken": indexed.broken,
        "text_bytes": indexed.text_bytes,
        "file_bytes": indexed.file_bytes,
        "index_bytes": indexed.sidecar_bytes,
        "columns_bytes": indexed.columns_bytes,
        "fault": indexed.fault,
    })
}

fn row(file: String, indexed: &Indexed) -> [String; 6] {
    [
        file,
        update_text(&indexed.update),
        indexed.events.to_string(),
        indexed.chunks.to_string(),
        bytes_text(indexed.text_bytes),
        bytes_text(indexed.sidecar_bytes + indexed.columns_bytes.unwrap_or(0)),
    ]
}
