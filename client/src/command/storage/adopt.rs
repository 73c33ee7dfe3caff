use clap::Args;
use uuid::Uuid;

use super::super::{CommandError, Context, Exit};
use super::jobs;
use crate::ClientError;
use crate::http::{Adopted, Client};

/// Takes over a storage whose node is gone.
#[derive(Debug, Args)]
pub(super) struct Adopt {
    /// Storage, by ID: the server does not know its name yet
    #[arg(value_name = "ID")]
    storage: Uuid,
    /// Also from a node that gives signs of life; and without its packets, if they are on the disk
    /// of that node and nowhere else
    #[arg(long)]
    force: bool,
}

impl Adopt {
    pub(super) async fn run(
        self,
        context: &Context,
        client: &Client,
    ) -> Result<Exit, CommandError> {
        let job = client.adopt_storage(self.storage, self.force).await?;
        let document = jobs::watch(context, client, job, "waiting for the takeover").await?;
        let adopted: Adopted =
            serde_json::from_value(document).map_err(|error| ClientError::Answer {
                url: self.storage.to_string(),
                what: error.to_string(),
            })?;
        let line = || {
            format!(
                "{} {}: {} packets",
                self.storage, adopted.state, adopted.packets
            )
        };
        context.print(&adopted, line)?;
        Ok(Exit::Done)
    }
}
