use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::table::bytes_text;
use super::{CommandError, Context, Exit};
use crate::http::{Retry, StorageUrl};
use crate::mount::{Extent, MountProgress, Progress, mount};

/// Bring the index and agent files of a finalized storage here, to explore it without its data
#[derive(Debug, Args)]
pub(super) struct Mount {
    #[command(flatten)]
    from_to: FromTo,
}

/// Bring a finalized storage here, all of it; run again, it goes on where it stopped
#[derive(Debug, Args)]
pub(super) struct Download {
    #[command(flatten)]
    from_to: FromTo,
}

#[derive(Debug, Args)]
struct FromTo {
    /// http://HOST:PORT/storage/ID
    #[arg(value_name = "STORAGE-URL")]
    storage: String,
    /// Folder for the files; made when it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Name to note on the storage as one who explores it
    #[arg(long, value_name = "NAME", env = "TRACEHOLD_READER")]
    reader: Option<String>,
}

impl Mount {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        self.from_to.run(context, Extent::Index)
    }
}

impl Download {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        self.from_to.run(context, Extent::All)
    }
}

impl FromTo {
    fn run(self, context: &Context, extent: Extent) -> Result<Exit, CommandError> {
        let storage: StorageUrl = self.storage.parse()?;
        let client = context.client_of(storage.server.clone(), Retry::persistent())?;
        let client = client.with_reader(self.reader);
        let bar = context.shows_progress().then(|| {
            let style = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
            let style = ProgressStyle::with_template(style).expect("the template is constant");
            ProgressBar::new(0).with_style(style)
        });
        let shown = bar.clone();
        let progress: Progress = Arc::new(move |progress| {
            if let Some(bar) = &shown {
                match progress {
                    MountProgress::Total(bytes) => bar.set_length(bytes),
                    MountProgress::Received(bytes) => bar.inc(bytes),
                }
            }
        });
        let report = context.block_on(async {
            Ok(mount(&client, &storage, &self.folder, extent, &progress).await?)
        });
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        let report = report?;
        if context.json() {
            context.document(&report)?;
        } else {
            context.line(format!(
                "{}: {} files fetched ({}), {} were here, {} left out",
                self.folder.display(),
                report.fetched_files,
                bytes_text(report.fetched_bytes),
                report.kept_files,
                report.left_out_files
            ))?;
        }
        Ok(Exit::Done)
    }
}
