use std::time::Duration;

use clap::Args;
use io_analysis::{TextTable, bytes_text};
use serde_json::Value;
use uuid::Uuid;

use super::super::listing::Listing;
use super::super::progress::{Progress, SAID_FROM};
use super::super::{CommandError, Context, Exit};
use crate::http::{Client, Job};

/// The first and the longest wait between two polls of a job.
const POLL_FIRST: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Jobs {
    /// Cancel this job
    #[arg(long, value_name = "JOB")]
    cancel: Option<Uuid>,
    #[command(flatten)]
    listing: Listing,
}

impl Jobs {
    pub(super) async fn run(
        self,
        context: &Context,
        client: &Client,
    ) -> Result<Exit, CommandError> {
        let jobs = match self.cancel {
            Some(id) => vec![client.cancel_job(id).await?],
            None => client.jobs().await?,
        };
        self.listing.print(context, &jobs, || {
            let mut table = TextTable::new(["ID", "KIND", "STATE", "DONE", "TOTAL"]);
            for job in &jobs {
                table.row([
                    job.id.to_string(),
                    job.kind.clone(),
                    job.state.clone(),
                    bytes_text(job.bytes_done),
                    job.bytes_total.map(bytes_text).unwrap_or_default(),
                ]);
            }
            table
        })?;
        Ok(Exit::Done)
    }
}

/// Waits for a job with a progress bar and returns its result; a wait that takes longer is said. An
/// interrupt cancels the job.
pub(super) async fn watch(
    context: &Context,
    client: &Client,
    mut job: Job,
    what: &'static str,
) -> Result<Value, CommandError> {
    let progress = Progress::new(context, 0);
    let mut delay = POLL_FIRST;
    let mut is_cancelled = false;
    while job.is_running() {
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            _ = tokio::signal::ctrl_c(), if !is_cancelled => {
                is_cancelled = true;
                client.cancel_job(job.id).await?;
            }
        }
        delay = POLL_MAX.min(delay * 2);
        job = client.job(job.id).await?;
        progress.say(what);
        progress.set_total(job.bytes_total.unwrap_or(0));
        progress.set_done(job.bytes_done);
    }
    progress.clear();
    Ok(job.outcome()?)
}

/// The result of a request that the server answers when its work is done; a wait that takes longer
/// is said.
pub(super) async fn answered<T>(
    context: &Context,
    request: impl Future<Output = T>,
    what: &'static str,
) -> T {
    let mut request = std::pin::pin!(request);
    tokio::select! {
        answer = &mut request => return answer,
        () = tokio::time::sleep(SAID_FROM) => {}
    }
    if context.says_waits() {
        context.note(what);
    }
    request.await
}
