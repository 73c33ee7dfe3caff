use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use io_analysis::bytes_text;
use serde_json::json;
use storage_format::Kind;
use uuid::Uuid;

use super::context::counted;
use super::progress::Progress;
use super::{CommandError, Context, Exit};
use crate::cutter::PACKET_BYTES_TARGET;
use crate::file_content::{is_named_as_trace, note_of_unknown};
use crate::push::{
    CutMethod, Follow, Plan, PlanOptions, PushEvent, PushOptions, SourceFile, StreamReport, Watch,
    push,
};

/// Push trace files to the server
///
/// Accepts CTF trace folders, DFTracer files (plain or gzip), Chrome traces (plain, gzip or zstd),
/// RocksDB traces and any other files, which are pushed as raw bytes. Files are cut into packets;
/// the server acknowledges each packet when it is durable. Run the command again to resume an
/// interrupted push.
#[derive(Debug, Args)]
pub(super) struct Push {
    /// Storage to push into, by ID or name [default: the server's buffer and recordings]
    #[arg(long, value_name = "ID|NAME")]
    storage: Option<String>,
    /// Agent that the files belong to [default: the name of this host]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Stream to push a single file as [default: the file name]
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Kind of the files [default: recognized by content]
    #[arg(long, value_name = "KIND")]
    kind: Option<Kind>,
    /// Continue to push as the files grow, until interrupted
    #[arg(long)]
    follow: bool,
    /// Target size of packets in bytes
    #[arg(long, value_name = "BYTES", default_value_t = PACKET_BYTES_TARGET,
          value_parser = packet_bytes)]
    packet_bytes: usize,
    /// Number of streams to push in parallel
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    parallel: usize,
    /// Files and folders to push
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

fn packet_bytes(text: &str) -> Result<usize, String> {
    let range = (1 << 10)..=(32 << 20);
    let bytes: usize = text.parse().map_err(|error| format!("{error}"))?;
    if range.contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("expected {} to {}", range.start(), range.end()))
    }
}

/// Bytes of packets in memory, for all streams together.
const IN_FLIGHT_BYTES_MAX: u32 = 64 << 20;

impl Push {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let plan = Plan::of(
            &self.paths,
            &PlanOptions {
                agent: self.agent,
                stream: self.stream,
                kind: self.kind,
                follow: self.follow,
            },
        )?;
        let skipped = plan.indexes_skipped;
        if skipped > 0 && !context.json() {
            context.note(note_of_indexes(skipped));
        }
        if !context.json() {
            for note in notes_of_plan(&plan, self.kind) {
                context.note(note);
            }
        }
        let client = context.persistent_client()?;
        let stop = Arc::new(AtomicBool::new(false));
        let follow = if self.follow {
            Some(Follow::new(
                Arc::clone(&stop),
                state_folder()?.join("follow"),
            ))
        } else {
            None
        };
        let total = plan.sources.iter().map(|source| source.length).sum();
        let progress = Progress::new(context, total);
        let left_out = Arc::new(AtomicBool::new(false));
        let watch = watch(context, &progress, &left_out);
        let reports = context.block_on(async {
            let storage = match &self.storage {
                Some(text) => Some(client.find_storage_to_fill(text).await?),
                None => None,
            };
            // Its agents and streams are declared there, too.
            let client = match storage {
                Some(id) => client.at_writer(id).await?,
                None => client,
            };
            let options = PushOptions {
                storage,
                packet_bytes: self.packet_bytes,
                streams_max: self.parallel,
                in_flight_bytes_max: IN_FLIGHT_BYTES_MAX,
                follow,
            };
            let interrupted = tokio::spawn(async move {
                if tokio::signal::ctrl_c().await.is_ok() {
                    stop.store(true, Ordering::Relaxed);
                }
            });
            if !self.follow {
                // An interrupt ends the program: a push can be resumed at any point.
                interrupted.abort();
            }
            let reports = push(&client, plan, &options, &watch).await?;
            Ok((storage, reports))
        });
        progress.clear();
        let (storage, reports) = reports?;
        let exit = print(context, storage, &reports, skipped)?;
        let is_complete = !left_out.load(Ordering::Relaxed);
        Ok(if is_complete {
            exit
        } else {
            Exit::of_integrity(false)
        })
    }
}

/// What of the files an export or a query will not give back, before they are pushed.
fn notes_of_plan(plan: &Plan, given: Option<Kind>) -> Vec<String> {
    let unknown = |it: &&SourceFile| it.method == CutMethod::Raw && is_named_as_trace(&it.path);
    let unknown = plan.sources.iter().filter(unknown);
    let notes = unknown
        .filter(|it| given.is_none() && it.length > 0)
        .map(|source| {
            format!(
                "note: {}; it is pushed as raw bytes, which no query reads (`tracehold query FILE` \
             says why)",
                note_of_unknown(&source.path)
            )
        });
    let is_text = |it: &&SourceFile| it.method.stores_text();
    let texts = plan.sources.iter().filter(is_text).count() as u64;
    let of_texts = (texts > 0).then(|| {
        let (files, are) = (
            counted(texts, "compressed file"),
            if texts == 1 { "is" } else { "are" },
        );
        format!(
            "note: of {files} (zstd, or gzip with spans) the text {are} stored, and an export \
             gives the text; --kind raw stores the compressed bytes, which no query reads"
        )
    });
    let derived = plan.derived_skipped.iter();
    let derived = derived.map(|folder| note_of_derived(folder));
    notes.chain(of_texts).chain(derived).collect()
}

/// Says that files of a folder are not pushed, and how they can be.
fn note_of_indexes(skipped: u64) -> String {
    let (files, they, them) = match skipped {
        1 => ("1 index", "it is", "it"),
        _ => (&*format!("{skipped} indexes"), "they are", "them"),
    };
    format!(
        "note: {files} of `tracehold index` skipped: {they} derived from the traces, and the \
         server makes its own; name {them} to push {them} all the same"
    )
}

/// Says that derived streams are not pushed, and how they can be.
fn note_of_derived(folder: &Path) -> String {
    format!(
        "note: {} is skipped: its streams repeat events of those beside it, from which they were \
         derived, and a query would count both; name the folder to push it all the same",
        folder.display()
    )
}

/// The folder for resume state, as the XDG base directory specification defines it.
fn state_folder() -> Result<PathBuf, CommandError> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let folder = state.filter(|path| path.is_absolute()).or_else(home);
    let folder = folder.ok_or_else(|| {
        CommandError::usage(
            "--follow stores its position under $XDG_STATE_HOME or $HOME; set one of them",
        )
    })?;
    Ok(folder.join("tracehold"))
}

/// Reports progress: a bar on a terminal, lines elsewhere, nothing with `--json`.
fn watch(context: &Context, progress: &Progress, left_out: &Arc<AtomicBool>) -> Watch {
    let left_out = Arc::clone(left_out);
    let (shown, is_json) = (progress.clone(), context.json());
    let note = move |text: String| match shown.bar() {
        Some(bar) => bar.println(text),
        None if is_json => {}
        None => {
            use std::io::Write;
            // A push does not fail because its progress cannot be printed.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    };
    let progress = progress.clone();
    let watch = move |event| match event {
        PushEvent::MetadataInvalid { path, what } => note(format!(
            "warning: {}: {what}; the packets are stored as they are, and can be queried when the \
             folder is pushed again with metadata that can be parsed",
            path.display()
        )),
        PushEvent::NewVersion(source) => note(format!(
            "note: {}: stream {} of agent {} has packets of an earlier version of this file, or of \
             another with its name; all of this one is pushed, and queries read both. Push into \
             another storage, or with --stream, to keep them apart",
            source.path.display(),
            source.stream,
            source.agent
        )),
        PushEvent::Begun { source, sequence } => {
            if let Some(bar) = progress.bar() {
                bar.set_message(source.stream.to_string());
            }
            if sequence > 0 {
                let path = source.path.display();
                note(format!(
                    "{path}: resuming after {} already on the server",
                    counted(sequence, "packet")
                ));
            }
        }
        PushEvent::Advanced { bytes } => progress.add(bytes),
        PushEvent::Ended(report) => {
            lines_of_end(&report).into_iter().for_each(&note);
        }
        PushEvent::LeftOut { path, what } => {
            left_out.store(true, Ordering::Relaxed);
            note(format!(
                "warning: {} appeared in a followed folder and is not followed: {what}",
                path.display()
            ));
        }
        PushEvent::Failed { source, what } => {
            // The complete reason of the first failure is printed at the end.
            let reason = what.lines().next().unwrap_or_default();
            note(format!("{} failed: {reason}", source.path.display()));
        }
    };
    Arc::new(watch)
}

/// What is said when a stream is complete.
fn lines_of_end(report: &StreamReport) -> Vec<String> {
    let path = report.path.display();
    let unreadable = (report.unreadable_records > 0).then(|| {
        format!(
            "warning: {path}: {} cannot be read; the file is stored as it is, and queries will say \
             that their results lack something",
            counted(report.unreadable_records, "record")
        )
    });
    let is_empty = report.packets == 0 && report.resumed_at == 0;
    let empty = is_empty.then(|| {
        format!("note: {path} has no packets: nothing of it is stored, and exports lack it")
    });
    let damage = report.damage.as_ref().map(|damage| {
        format!(
            "warning: {damage}; what cannot be read is stored as packets that nobody can decode, so \
             that queries say that their results lack it"
        )
    });
    let remark = report
        .remark
        .as_ref()
        .map(|remark| format!("note: {remark}"));
    let more = [unreadable, empty, damage, remark].into_iter().flatten();
    std::iter::once(report_line(report)).chain(more).collect()
}

fn report_line(report: &StreamReport) -> String {
    let mut line = format!(
        "{}: {}, {} as {} {}/{}",
        report.path.display(),
        counted(report.packets, "packet"),
        match report.events {
            Some(events) => format!("{}, {}", counted(events, "event"), bytes_text(report.bytes)),
            None => bytes_text(report.bytes),
        },
        report.kind,
        report.agent,
        report.stream
    );
    for (count, what) in [
        (report.duplicates, "already on the server"),
        (report.not_recorded, "not recorded"),
        (report.not_durable - report.not_recorded, "not yet durable"),
    ] {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    line
}

fn print(
    context: &Context,
    storage: Option<Uuid>,
    reports: &[StreamReport],
    indexes_skipped: u64,
) -> Result<Exit, CommandError> {
    let packets: u64 = reports.iter().map(|report| report.packets).sum();
    let bytes: u64 = reports.iter().map(|report| report.bytes).sum();
    let document = json!({
        "storage": storage, "packets": packets, "bytes": bytes, "streams": reports,
        "indexes_skipped": indexes_skipped,
    });
    context.print(&document, || {
        format!(
            "pushed {}, {} in {}",
            counted(packets, "packet"),
            bytes_text(bytes),
            counted(reports.len() as u64, "stream")
        )
    })?;
    let not_recorded: u64 = reports.iter().map(|report| report.not_recorded).sum();
    if not_recorded > 0 {
        context.note(format!(
            "note: no recording takes {}, which the memory of the server has for a while: push \
             with --storage, or start a recording first. `tracehold buffer copy` stores what is \
             still there",
            counted(not_recorded, "packet")
        ));
    }
    let is_intact = reports.iter().all(|report| report.damage.is_none());
    Ok(Exit::of_integrity(not_recorded == 0 && is_intact))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_stream_says_what_is_not_as_expected() {
        let report = |events, duplicates, (not_durable, not_recorded)| StreamReport {
            path: "t.pfw".into(),
            agent: "host".to_owned(),
            stream: "t".to_owned(),
            kind: Kind::Dft,
            epoch: 1,
            resumed_at: 0,
            packets: 2,
            bytes: 9,
            events,
            unreadable_records: 0,
            duplicates,
            not_durable,
            not_recorded,
            damage: None,
            remark: None,
        };
        let size = bytes_text(9);
        for (report, events, more) in [
            (report(None, 0, (0, 0)), "", ""),
            (report(Some(1), 0, (0, 0)), "1 event, ", ""),
            (report(None, 1, (0, 0)), "", ", 1 already on the server"),
            (report(None, 0, (2, 0)), "", ", 2 not yet durable"),
            (
                report(None, 0, (2, 1)),
                "",
                ", 1 not recorded, 1 not yet durable",
            ),
        ] {
            let line = format!("t.pfw: 2 packets, {events}{size} as dft host/t{more}");
            assert_eq!(report_line(&report), line);
        }
    }

    #[test]
    fn skipped_indexes_are_counted() {
        for (count, begin) in [
            (1, "note: 1 index of `tracehold index` skipped: it is "),
            (2, "note: 2 indexes of `tracehold index` skipped: they are "),
        ] {
            let note = note_of_indexes(count);
            assert!(note.starts_with(begin), "{note}");
        }
    }
}
