use clap::{Args, ValueEnum};
use io_analysis::bytes_text;

use super::super::{CommandError, Context, Exit};
use super::jobs;
use crate::ClientError;
use crate::http::{Client, Tier as TierDocument};

/// Shows where the storage is without an action.
#[derive(Debug, Args)]
pub(super) struct Tier {
    /// Storage, by ID or name
    #[arg(value_name = "ID|NAME")]
    storage: String,
    /// What to do with it
    #[arg(value_enum)]
    action: Option<Action>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Upload it, whatever the policy of the server says
    Upload,
    /// Give the space of its data files on the server back
    Evict,
    /// Fetch all of its bytes to the server and keep them
    Fetch,
    /// Read all of its objects and compare them with their checksums
    Verify,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Evict => "evict",
            Self::Fetch => "fetch",
            Self::Verify => "verify",
        }
    }
}

impl Tier {
    pub(super) async fn run(
        self,
        context: &Context,
        client: &Client,
    ) -> Result<Exit, CommandError> {
        let storage = client.find_storage(&self.storage).await?;
        let document =
            match self.action {
                Some(action) => {
                    let job = client.tier_storage(storage.id, action.name()).await?;
                    jobs::watch(context, client, job, "waiting for the object store").await?
                }
                None => storage.more.get("tier").cloned().ok_or_else(|| {
                    ClientError::input("the server has no object store".to_owned())
                })?,
            };
        let tier: TierDocument =
            serde_json::from_value(document).map_err(|error| ClientError::Answer {
                url: storage.id.to_string(),
                what: error.to_string(),
            })?;
        context.print(&tier, || line(&storage.id.to_string(), &tier))?;
        Ok(Exit::of_integrity(
            tier.problems.is_none_or(|found| found.is_empty()),
        ))
    }
}

fn line(id: &str, tier: &TierDocument) -> String {
    let mut text = format!("{id} {}", tier.state);
    if let Some(store) = &tier.store {
        let (bytes, here) = (bytes_text(tier.bytes), bytes_text(tier.bytes_here));
        text += &format!(" in {store}: {bytes}, {here} of it on this server");
    }
    for problem in tier.problems.iter().flatten() {
        text += &format!("\ndamaged: {problem}");
    }
    text
}
