use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use io_analysis::bytes_text;

use super::progress::Progress;
use super::{CommandError, Context, Exit};
use crate::http::{Retry, StorageUrl};
use crate::mount::{Extent, MountProgress, Wanted, mount};

/// Download the index of a finalized storage, to query it without downloading its data
///
/// `tracehold query --dir DIR` then fetches only the data that can match. Run the command again to
/// resume an interrupted transfer.
#[derive(Debug, Args)]
pub(super) struct Mount {
    #[command(flatten)]
    transfer: TransferArgs,
}

/// Download all files of a finalized storage
///
/// Run the command again to resume an interrupted download, or to complete a mount.
#[derive(Debug, Args)]
pub(super) struct Download {
    #[command(flatten)]
    transfer: TransferArgs,
}

#[derive(Debug, Args)]
struct TransferArgs {
    /// Storage, by ID or name, or by its URL: http://HOST:PORT/storage/ID
    #[arg(value_name = "ID|NAME|URL")]
    storage: String,
    /// Output directory; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Name to add to the storage's label `explored_by`
    #[arg(long, value_name = "NAME", env = "TRACEHOLD_READER")]
    reader: Option<String>,
    /// How long to wait for chunk indexes that the server makes after a finalization
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    index_wait_seconds: u64,
}

impl Mount {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        self.transfer.run(context, Extent::Index)
    }
}

impl Download {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        self.transfer.run(context, Extent::All)
    }
}

impl TransferArgs {
    /// The storage: at its URL, or on the `--server`.
    fn source(&self, context: &Context) -> Result<StorageUrl, CommandError> {
        if self.storage.contains("://") {
            return Ok(self.storage.parse()?);
        }
        let client = context.persistent_client()?;
        context.block_on(async {
            let id = client.find_storage(&self.storage).await?.id;
            let server = client.server().clone();
            Ok(StorageUrl { server, id })
        })
    }

    fn run(self, context: &Context, extent: Extent) -> Result<Exit, CommandError> {
        let storage = self.source(context)?;
        let client = context.client_of(storage.server.clone(), Retry::persistent())?;
        let client = client.with_reader(self.reader);
        let progress = Progress::new(context, 0);
        let shown = progress.clone();
        let on_progress: crate::mount::Progress = Arc::new(move |event| match event {
            MountProgress::Total(bytes) => shown.set_total(bytes),
            MountProgress::Received(bytes) => shown.add(bytes),
            MountProgress::WaitingForIndexes => {
                shown.say("waiting until the server has made the chunk indexes")
            }
        });
        let wanted = Wanted {
            extent,
            index_wait: Duration::from_secs(self.index_wait_seconds),
        };
        let report = context.block_on(async {
            Ok(mount(&client, &storage, &self.folder, wanted, &on_progress).await?)
        });
        progress.clear();
        let report = report?;
        context.print(&report, || {
            format!(
                "{}: {} files fetched ({}), {} already present, {} not needed",
                self.folder.display(),
                report.fetched_files,
                bytes_text(report.fetched_bytes),
                report.kept_files,
                report.left_out_files
            )
        })?;
        if let Some(note) = report.index_note() {
            context.note(note);
        }
        Ok(Exit::Done)
    }
}
