use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use query_engine::{
    IndexFile, IndexOptions, Indexed, Limits, ReadError, Scratch, Update, index_files, sidecar_path,
};
use serde_json::{Value, json};

use super::table::{Table, bytes_text};
use super::{CommandError, Context, Exit};

/// Make sidecar indexes beside trace files, so that queries read only what can match
///
/// DFTracer files, plain or gzip, RocksDB traces, I/O traces of a server, and folders of CTF
/// traces, of which every file of packets gets an index. The sidecar of FILE is FILE.idx, in the
/// folder of a CTF trace .FILE.idx. One that is up to date is left alone, and where only fields are
/// missing only those are added.
#[derive(Debug, Args)]
pub(super) struct Index {
    /// Files, and folders of CTF traces
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Index this field, too; may be repeated
    #[arg(long = "field", value_name = "FIELD")]
    fields: Vec<String>,
    /// Text of a chunk, or packets of one, in KiB: 16384 of text, 512 of packets unless it is given
    #[arg(
        long,
        value_name = "KIB",
        value_parser = clap::value_parser!(u64).range(16..=1 << 20)
    )]
    chunk_kib: Option<u64>,
    /// Text between two places where inflating can begin, in KiB
    #[arg(
        long,
        value_name = "KIB",
        default_value_t = 16_384,
        value_parser = clap::value_parser!(u64).range(64..=1 << 20)
    )]
    spacing_kib: u64,
    /// Also keep the times and values of every event of DFTracer files, in FILE.cidx: larger than
    /// the index by far, for counts over parts of chunks without reading them
    #[arg(long)]
    columns: bool,
    /// Make the index anew even where it is up to date
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
            anew: self.force,
        };
        let (mut files, mut failure) = (Vec::new(), None);
        let mut fail = |error: ReadError| {
            let error = CommandError::from(error);
            context.report(&error);
            failure = Some(error.exit());
        };
        for path in &self.files {
            match index_files(path) {
                Ok(found) => files.extend(found),
                Err(error) => fail(error),
            }
        }
        let mut outcomes = update_all(&files, &options);
        outcomes.sort_by_key(|(place, _)| *place);
        let mut table = Table::new(&["file", "index", "events", "chunks", "text", "size"]);
        let mut documents = Vec::new();
        for (place, outcome) in outcomes {
            let file = files[place].path().display().to_string();
            match outcome {
                Ok(indexed) => {
                    if let Some(fault) = &indexed.fault {
                        context.note(format!("{fault}; what lies in front is indexed"));
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
            table.write(&mut *context.out())?;
        }
        Ok(failure.unwrap_or(Exit::Done))
    }
}

/// Updates the sidecars, a file a thread at once.
fn update_all(
    files: &[IndexFile],
    options: &IndexOptions,
) -> Vec<(usize, Result<Indexed, ReadError>)> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        let mut scratch = Scratch::default();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(place) else {
                return;
            };
            let outcome = file.update(options, &mut scratch);
            let mut outcomes = outcomes.lock().unwrap_or_else(|poison| poison.into_inner());
            outcomes.push((place, outcome));
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
        Update::Built => "built".to_owned(),
    }
}

fn document(file: &str, indexed: &Indexed) -> Value {
    json!({
        "file": file,
        "index": sidecar_path(file.as_ref()).display().to_string(),
        "update": match &indexed.update {
            Update::Fresh => "fresh",
            Update::Extended(_) => "extended",
            Update::Built => "built",
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

fn row(file: String, indexed: &Indexed) -> Vec<String> {
    vec![
        file,
        update_text(&indexed.update),
        indexed.events.to_string(),
        indexed.chunks.to_string(),
        bytes_text(indexed.text_bytes),
        bytes_text(indexed.sidecar_bytes + indexed.columns_bytes.unwrap_or(0)),
    ]
}
