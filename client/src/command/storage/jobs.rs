use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::table::{Table, bytes_text};
use super::super::{CommandError, Context, Exit};
use super::archive::{bytes_bar, clear};
use crate::http::{Client, Job};

/// The first wait between two looks at a job, and the longest.
const LOOK_FIRST: Duration = Duration::from_millis(20);
const LOOK_LAST: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct Jobs {
    /// Tell this job to stop
    #[arg(long, value_name = "JOB")]
    cancel: Option<Uuid>,
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
        if context.json() {
            context.document(&json!({ "items": jobs, "next": null }))?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new(&["id", "kind", "state", "done", "of"]);
        for job in jobs {
            table.row(vec![
                job.id.to_string(),
                job.kind,
                job.state,
                bytes_text(job.bytes_done),
                job.bytes_total.map(bytes_text).unwrap_or_default(),
            ]);
        }
        table.write(&mut *context.out())?;
        Ok(Exit::Done)
    }
}

/// Waits for the end of a job with a bar; gives what came of it. An interrupt cancels the job.
pub(super) async fn watch(
    context: &Context,
    client: &Client,
    mut job: Job,
) -> Result<Value, CommandError> {
    let bar = bytes_bar(context);
    let mut look = LOOK_FIRST;
    let mut is_cancelled = false;
    while job.is_running() {
        tokio::select! {
            () = tokio::time::sleep(look) => {}
            _ = tokio::signal::ctrl_c(), if !is_cancelled => {
                is_cancelled = true;
                client.cancel_job(job.id).await?;
            }
        }
        look = LOOK_LAST.min(look * 2);
        job = client.job(job.id).await?;
        if let Some(bar) = &bar {
            bar.set_length(job.bytes_total.unwrap_or(0));
            bar.set_position(job.bytes_done);
        }
    }
    clear(bar);
    Ok(job.outcome()?)
}
