use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use storage_format::Kind;
use uuid::Uuid;

use super::table::bytes_text;
use super::{CommandError, Context, Exit};
use crate::cutter::PACKET_BYTES_TARGET;
use crate::push::{Follow, Plan, PlanOptions, PushEvent, PushOptions, StreamReport, Watch, push};

/// Push traces: CTF folders, .pfw and .pfw.gz files, RocksDB traces, any other file
///
/// Files are cut into packets, and each is acknowledged when it is safely on the server's disk.
/// Pushed again, a file goes on where the server's knowledge of it ends.
#[derive(Debug, Args)]
pub(super) struct Push {
    /// Storage to push into, by id or name; without it, the buffer and the recordings get it all
    #[arg(long, value_name = "ID|NAME")]
    storage: Option<String>,
    /// Agent that the files belong to [default: the name of this machine]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Stream that a single file becomes [default: its name]
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Kind of the files, instead of what they look like
    #[arg(long, value_name = "KIND")]
    kind: Option<Kind>,
    /// Go on when files grow, until interrupted
    #[arg(long)]
    follow: bool,
    /// Length that packets have about
    #[arg(long, value_name = "BYTES", default_value_t = PACKET_BYTES_TARGET,
          value_parser = packet_bytes)]
    packet_bytes: usize,
    /// Streams pushed side by side
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    parallel: usize,
    /// Files and folders
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

fn packet_bytes(text: &str) -> Result<usize, String> {
    let range = (1 << 10)..=(32 << 20);
    let bytes: usize = text.parse().map_err(|error| format!("{error}"))?;
    if range.contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("between {} and {}", range.start(), range.end()))
    }
}

/// Bytes of packets in memory, over all streams.
const IN_FLIGHT_BYTES_MAX: u32 = 64 << 20;

impl Push {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let plan = Plan::of(
            &self.paths,
            &PlanOptions {
                agent: self.agent,
                stream: self.stream,
                kind: self.kind,
            },
        )?;
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
        // A file that is followed never ends, so each needs its place at once.
        let streams_max = if self.follow {
            plan.sources.len()
        } else {
            self.parallel
        };
        let (watch, bar) = watch(context, &plan);
        let reports = context.block_on(async {
            let storage = match &self.storage {
                Some(text) => Some(client.find_storage(text).await?.id),
                None => None,
            };
            let options = PushOptions {
                storage,
                packet_bytes: self.packet_bytes,
                streams_max,
                in_flight_bytes_max: IN_FLIGHT_BYTES_MAX,
                follow,
            };
            let interrupted = tokio::spawn(async move {
                if tokio::signal::ctrl_c().await.is_ok() {
                    stop.store(true, Ordering::Relaxed);
                }
            });
            if !self.follow {
                // An interrupt ends the program as usual: a push is resumable at any moment.
                interrupted.abort();
            }
            let reports = push(&client, plan, &options, &watch).await?;
            Ok((storage, reports))
        });
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        let (storage, reports) = reports?;
        print(context, storage, &reports)
    }
}

/// Where this program keeps what it needs to resume, as the XDG base directory specification says.
fn state_folder() -> Result<PathBuf, CommandError> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let folder = state.filter(|path| path.is_absolute()).or_else(home);
    let folder = folder.ok_or_else(|| {
        CommandError::usage(
            "--follow keeps where it is in $XDG_STATE_HOME or $HOME; neither is set",
        )
    })?;
    Ok(folder.join("tracehold"))
}

/// Shows progress: a bar on a terminal, lines elsewhere, nothing for programs.
fn watch(context: &Context, plan: &Plan) -> (Watch, Option<ProgressBar>) {
    let bar = context.shows_progress().then(|| {
        let total = plan.sources.iter().map(|source| source.length).sum();
        let bar = ProgressBar::new(total);
        let style = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";
        bar.set_style(ProgressStyle::with_template(style).expect("the template is constant"));
        bar
    });
    let shown = bar.clone();
    let plain = bar.is_none() && !context.json();
    let note = move |text: String| match &shown {
        Some(bar) => bar.println(text),
        None if plain => {
            use std::io::Write;
            // Progress that nobody can read is not worth failing for.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
        None => {}
    };
    let moved = bar.clone();
    let watch = move |event| match event {
        PushEvent::Begun { source, sequence } => {
            if let Some(bar) = &moved {
                bar.set_message(source.stream.to_string());
            }
            if sequence > 0 {
                let path = source.path.display();
                note(format!(
                    "{path}: {} there already, going on",
                    packets_text(sequence)
                ));
            }
        }
        PushEvent::Advanced { bytes } => {
            if let Some(bar) = &moved {
                bar.inc(bytes);
            }
        }
        PushEvent::Ended(report) => {
            note(report_line(&report));
            if let Some(remark) = report.remark {
                note(format!("note: {remark}"));
            }
        }
        PushEvent::Failed { source, what } => {
            // The whole reason of the first failure is the last thing that is printed.
            let reason = what.lines().next().unwrap_or_default();
            note(format!("{} failed: {reason}", source.path.display()));
        }
    };
    (Arc::new(watch), bar)
}

fn report_line(report: &StreamReport) -> String {
    let mut line = format!(
        "{}: {}, {} as {} {}/{}",
        report.path.display(),
        packets_text(report.packets),
        bytes_text(report.bytes),
        report.kind,
        report.agent,
        report.stream
    );
    for (count, what) in [
        (report.duplicates, "were there already"),
        (report.not_durable, "not yet durable"),
    ] {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    line
}

fn packets_text(count: u64) -> String {
    format!("{count} packet{}", if count == 1 { "" } else { "s" })
}

fn print(
    context: &Context,
    storage: Option<Uuid>,
    reports: &[StreamReport],
) -> Result<Exit, CommandError> {
    let packets: u64 = reports.iter().map(|report| report.packets).sum();
    let bytes: u64 = reports.iter().map(|report| report.bytes).sum();
    if context.json() {
        context.document(&json!({
            "storage": storage, "packets": packets, "bytes": bytes, "streams": reports,
        }))?;
    } else {
        context.line(format!(
            "pushed {}, {} in {} stream{}",
            packets_text(packets),
            bytes_text(bytes),
            reports.len(),
            if reports.len() == 1 { "" } else { "s" }
        ))?;
    }
    Ok(Exit::Done)
}
