//! `tracehold storage share`: URLs that give access to one storage without a token.

use clap::Args;
use io_analysis::TextTable;

use super::super::duration::seconds;
use super::super::listing::Listing;
use super::super::{CommandError, Context, Exit};
use crate::http::{Client, NewShare};

/// Make a URL that gives access to one storage without a token; needs a token of an operator
///
/// Whoever has the URL may read, query and export the storage until it expires, and nothing else.
/// It is printed once. Other commands take it as --server.
#[derive(Debug, Args)]
pub(super) struct Share {
    /// Storage, by ID or name
    #[arg(value_name = "ID|NAME")]
    storage: String,
    /// It expires after this time, such as 7d or 12h
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = seconds,
        required_unless_present_any = ["list", "revoke"]
    )]
    expires: Option<u64>,
    /// What the URL is for; shown in lists
    #[arg(long, value_name = "TEXT", default_value = "share")]
    name: String,
    /// List the shares of the storage instead, without their secrets
    #[arg(long, conflicts_with_all = ["expires", "revoke"])]
    list: bool,
    /// Revoke a share instead, by the ID that --list shows; may be repeated
    #[arg(long, value_name = "ID", conflicts_with = "expires")]
    revoke: Vec<String>,
    #[command(flatten)]
    listing: Listing,
}

impl Share {
    pub(super) async fn run(
        self,
        context: &Context,
        client: &Client,
    ) -> Result<Exit, CommandError> {
        let storage = client.find_storage(&self.storage).await?.id;
        for id in &self.revoke {
            client.revoke_share(storage, id).await?;
        }
        if self.list {
            return print(context, self.listing, client, storage).await;
        }
        if let Some(expires_seconds) = self.expires {
            let new = NewShare {
                name: self.name,
                expires_seconds,
            };
            let created = client.create_share(storage, &new).await?;
            let url = format!("{}{}", client.server(), created.path);
            context.print(&created, || url.clone())?;
        }
        Ok(Exit::Done)
    }
}

async fn print(
    context: &Context,
    listing: Listing,
    client: &Client,
    storage: uuid::Uuid,
) -> Result<Exit, CommandError> {
    let shares = client.shares(storage).await?;
    listing.print(context, &shares, || {
        let mut table = TextTable::new(["ID", "STATE", "CREATED", "EXPIRES", "NAME"]);
        for share in &shares {
            let state = match (&share.revoked, share.is_good) {
                (Some(_), _) => "revoked",
                (None, true) => "good",
                (None, false) => "expired",
            };
            table.row([
                share.id.clone(),
                state.to_owned(),
                share.created.clone(),
                share.expires.clone().unwrap_or_default(),
                share.name.clone(),
            ]);
        }
        table
    })?;
    Ok(Exit::Done)
}
