mod adopt;
mod archive;
mod copy;
mod jobs;
mod label;
mod print;
mod share;
mod tier;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::listing::Listing;
use super::{CommandError, Context, Exit};
use crate::clock;
use crate::http::{Client, NewStorage, StorageFilter};
use crate::mount::verify_folder;
use label::type_and_value;
use print::{print_details, print_list, print_storage, print_verified};

/// Create, list, finalize, verify, copy, archive and delete storages
#[derive(Debug, Args)]
pub(super) struct Storage {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a storage and open it
    Create {
        /// Name of the storage
        #[arg(required_unless_present = "named")]
        name: Option<String>,
        /// Same as NAME
        #[arg(
            long = "name",
            value_name = "NAME",
            conflicts_with = "name",
            hide = true
        )]
        named: Option<String>,
        /// Description of the storage
        #[arg(long, default_value = "")]
        description: String,
        /// Add a label; may be repeated
        #[arg(long = "label", value_name = "TYPE=VALUE", value_parser = type_and_value)]
        labels: Vec<(String, String)>,
        /// Do not open the storage
        #[arg(long)]
        closed: bool,
    },
    /// List storages
    List {
        /// Only storages in this state
        #[arg(long)]
        state: Option<String>,
        /// Only storages with this label: TYPE, TYPE:VALUE, or a comparison such as 'rating>=4'
        #[arg(long)]
        label: Option<String>,
        /// Only storages with this name
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show the properties and status of a storage
    Show(Show),
    /// Open a storage for writing
    Open(StorageArg),
    /// Finalize a storage: stop writing, sync everything, make it immutable
    Finalize(StorageArg),
    /// Delete storages and all their files
    Delete {
        /// Storages to delete, by ID or name
        #[arg(required = true, value_name = "ID|NAME")]
        storages: Vec<String>,
        /// Delete storages whose labels are lost, too: a legal hold may have protected them
        #[arg(long)]
        without_labels: bool,
    },
    /// Re-read all files of a storage and report damage
    ///
    /// The exit code is 1 if anything is damaged or missing.
    Verify(VerifyArg),
    /// Export a finalized storage as a ZIP archive
    Export(archive::Export),
    /// Import storages from ZIP archives
    Import(archive::Import),
    /// Show, add or remove labels of a storage
    Label(label::Label),
    /// Copy packets of a storage into another storage
    Copy(copy::Copy),
    /// Make a URL that gives access to one storage without a token, until it expires
    Share(share::Share),
    /// Show where a storage is in the object store, or upload, evict, fetch or verify it there
    Tier(tier::Tier),
    /// Take over a storage whose node is gone: this server writes it from now on
    ///
    /// With object_store.durability = "object" every acknowledged packet is there.
    Adopt(adopt::Adopt),
    /// List jobs of the server, or cancel one
    Jobs(jobs::Jobs),
}

#[derive(Debug, Args)]
struct VerifyArg {
    /// Storage, by ID or name
    #[arg(
        value_name = "ID|NAME",
        required_unless_present = "dir",
        conflicts_with = "dir"
    )]
    storage: Option<String>,
    /// Verify the storage in this directory, which `download` wrote; no server is needed
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Say which packets of a FAILED or OPEN storage are whole, and which are missing
    #[arg(long, conflicts_with = "dir")]
    repair: bool,
    /// Open the storage without what is missing
    #[arg(long, requires = "repair")]
    confirm: bool,
}

#[derive(Debug, Args)]
struct Show {
    /// Storage, by ID or name
    #[arg(value_name = "ID|NAME")]
    storage: String,
    #[command(flatten)]
    listing: Listing,
}

#[derive(Debug, Args)]
struct StorageArg {
    /// Storage, by ID or name
    #[arg(value_name = "ID|NAME")]
    storage: String,
}

impl VerifyArg {
    /// The step of a repair, as the server names it.
    fn step(&self) -> Option<&'static str> {
        self.repair
            .then_some(if self.confirm { "confirm" } else { "plan" })
    }
}

impl Storage {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let client = context.client()?;
        context.block_on(async {
            match self.action {
                Action::Create {
                    name,
                    named,
                    description,
                    labels,
                    closed,
                } => {
                    let new = NewStorage {
                        name: name.or(named).unwrap_or_default(),
                        description,
                        labels: labels.into_iter().collect(),
                        open: !closed,
                    };
                    let storage = client.create_storage(&new, clock::new_id()).await?;
                    print_storage(context, &storage)
                }
                Action::List {
                    state,
                    label,
                    name,
                    listing,
                } => {
                    let state = state.map(|state| state.to_uppercase());
                    let filter = StorageFilter { state, label, name };
                    print_list(context, listing, &client.storages(&filter).await?)
                }
                Action::Show(show) => show.run(context, &client).await,
                Action::Open(arg) => {
                    let storage = client.find_storage(&arg.storage).await?;
                    print_storage(context, &client.open_storage(storage.id).await?)
                }
                Action::Finalize(arg) => {
                    let storage = client.find_storage(&arg.storage).await?;
                    let request = client.finalize_storage(storage.id);
                    let what = "waiting for the finalization";
                    print_storage(context, &jobs::answered(context, request, what).await?)
                }
                Action::Delete {
                    storages,
                    without_labels,
                } => delete(context, &client, (storages, without_labels)).await,
                Action::Verify(VerifyArg { dir: Some(dir), .. }) => {
                    let report = serde_json::to_value(verify_folder(&dir)?);
                    print_verified(context, report.unwrap_or_default())
                }
                Action::Verify(arg) => {
                    let step = arg.step();
                    let wanted = arg.storage.unwrap_or_default();
                    let storage = client.find_storage(&wanted).await?;
                    let job = client.verify_storage(storage.id, step).await?;
                    print_verified(
                        context,
                        jobs::watch(context, &client, job, "waiting for the verification").await?,
                    )
                }
                Action::Export(export) => export.run(context, &client).await,
                Action::Import(import) => import.run(context, &client).await,
                Action::Label(label) => label.run(context, &client).await,
                Action::Copy(copy) => copy.run(context, &client).await,
                Action::Share(share) => share.run(context, &client).await,
                Action::Tier(tier) => tier.run(context, &client).await,
                Action::Adopt(adopt) => adopt.run(context, &client).await,
                Action::Jobs(jobs) => jobs.run(context, &client).await,
            }
        })
    }
}

impl Show {
    async fn run(self, context: &Context, client: &Client) -> Result<Exit, CommandError> {
        let id = client.find_storage(&self.storage).await?.id;
        // A list does not wait for packets that can be counted now.
        let storage = client.storage(id).await?;
        let status = client.storage_status(id).await?;
        print_details(context, self.listing, &storage, &status)
    }
}

async fn delete(
    context: &Context,
    client: &Client,
    (storages, without_labels): (Vec<String>, bool),
) -> Result<Exit, CommandError> {
    for text in storages {
        let id = client.find_storage(&text).await?.id;
        client.delete_storage(id, without_labels).await?;
        context.print(&json!({ "deleted": id }), || format!("{id} deleted"))?;
    }
    Ok(Exit::Done)
}
