mod archive;
mod copy;
mod jobs;
mod label;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::table::{Table, bytes_text};
use super::{CommandError, Context, Exit};
use crate::ClientError;
use crate::clock;
use crate::http::{NewStorage, Storage as Info, StorageFilter, VerifyReport};

/// Create, list, open, finalize, verify, copy, export, import and delete storages
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
        /// The same, for those who like their arguments named
        #[arg(
            long = "name",
            value_name = "NAME",
            conflicts_with = "name",
            hide = true
        )]
        named: Option<String>,
        /// Longer text about it
        #[arg(long, default_value = "")]
        description: String,
        /// Label as TYPE=VALUE; may be repeated
        #[arg(long = "label", value_name = "TYPE=VALUE", value_parser = label)]
        labels: Vec<(String, String)>,
        /// Leave it closed
        #[arg(long)]
        closed: bool,
    },
    /// List storages
    List {
        /// Only this state
        #[arg(long)]
        state: Option<String>,
        /// Only with this label
        #[arg(long)]
        label: Option<String>,
        /// Only with this name
        #[arg(long)]
        name: Option<String>,
    },
    /// Show a storage and what it is doing
    Show(One),
    /// Make a created storage take packets
    Open(One),
    /// End writing and publish; it never changes again
    Finalize(One),
    /// Delete storages with all their files
    Delete {
        /// Ids or names
        #[arg(required = true, value_name = "ID|NAME")]
        storages: Vec<String>,
    },
    /// Have the server read everything again; exit code 1 when something is damaged
    Verify(One),
    /// Write a finalized storage to a ZIP archive
    Export(archive::Export),
    /// Take storages out of ZIP archives
    Import(archive::Import),
    /// Show the labels of a storage, give it some, or take some away
    Label(label::Label),
    /// Copy packets of a storage into another
    Copy(copy::Copy),
    /// List long work of the server, or cancel some
    Jobs(jobs::Jobs),
}

#[derive(Debug, Args)]
struct One {
    /// Id or name
    #[arg(value_name = "ID|NAME")]
    storage: String,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((kind, value)) if !kind.is_empty() => Ok((kind.to_owned(), value.to_owned())),
        _ => Err("a label is written TYPE=VALUE".to_owned()),
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
                    print_moved(context, &storage)
                }
                Action::List { state, label, name } => {
                    let state = state.map(|state| state.to_uppercase());
                    let filter = StorageFilter { state, label, name };
                    print_list(context, &client.storages(&filter).await?)
                }
                Action::Show(one) => {
                    let storage = client.find_storage(&one.storage).await?;
                    let status = client.storage_status(storage.id).await?;
                    print_shown(context, &storage, &status)
                }
                Action::Open(one) => {
                    let storage = client.find_storage(&one.storage).await?;
                    print_moved(context, &client.open_storage(storage.id).await?)
                }
                Action::Finalize(one) => {
                    let storage = client.find_storage(&one.storage).await?;
                    print_moved(context, &client.finalize_storage(storage.id).await?)
                }
                Action::Delete { storages } => {
                    for text in storages {
                        let id = client.find_storage(&text).await?.id;
                        client.delete_storage(id).await?;
                        if context.json() {
                            context.document(&json!({ "deleted": id }))?
                        } else {
                            context.line(format!("{id} deleted"))?
                        }
                    }
                    Ok(Exit::Done)
                }
                Action::Verify(one) => {
                    let storage = client.find_storage(&one.storage).await?;
                    let job = client.verify_storage(storage.id).await?;
                    let report = jobs::watch(context, &client, job).await?;
                    print_verified(context, &report_of(report)?)
                }
                Action::Export(export) => export.run(context, &client).await,
                Action::Import(import) => import.run(context, &client).await,
                Action::Label(label) => label.run(context, &client).await,
                Action::Copy(copy) => copy.run(context, &client).await,
                Action::Jobs(jobs) => jobs.run(context, &client).await,
            }
        })
    }
}

/// After a move: the id first, so that a script can cut it off.
fn print_moved(context: &Context, storage: &Info) -> Result<Exit, CommandError> {
    if context.json() {
        context.document(storage)?
    } else {
        context.line(format!("{} {} {}", storage.id, storage.state, storage.name))?
    }
    Ok(Exit::Done)
}

fn print_list(context: &Context, storages: &[Info]) -> Result<Exit, CommandError> {
    if context.json() {
        context.document(&json!({ "items": storages, "next": null }))?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["id", "state", "packets", "bytes", "created", "name"]);
    for storage in storages {
        table.row(vec![
            storage.id.to_string(),
            storage.state.clone(),
            storage.packets.to_string(),
            bytes_text(storage.bytes),
            storage.created.clone().unwrap_or_default(),
            storage.name.clone(),
        ]);
    }
    table.write(&mut *context.out())?;
    Ok(Exit::Done)
}

fn print_shown(
    context: &Context,
    storage: &Info,
    status: &serde_json::Map<String, Value>,
) -> Result<Exit, CommandError> {
    let shown = serde_json::to_value(storage).map_err(|error| ClientError::Answer {
        url: storage.id.to_string(),
        what: error.to_string(),
    })?;
    if context.json() {
        let mut shown = shown;
        shown["status"] = Value::Object(status.clone());
        context.document(&shown)?;
        return Ok(Exit::Done);
    }
    let fields = shown.as_object().into_iter().flatten();
    let status = status
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "id" | "state"));
    for (name, value) in fields.chain(status) {
        let text = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        context.line(format!("{:<18}{text}", name.replace('_', " ")))?;
    }
    Ok(Exit::Done)
}

fn report_of(value: Value) -> Result<VerifyReport, CommandError> {
    let report = serde_json::from_value(value).map_err(|error| ClientError::Answer {
        url: "the result of the job".to_owned(),
        what: error.to_string(),
    })?;
    Ok(report)
}

fn print_verified(context: &Context, report: &VerifyReport) -> Result<Exit, CommandError> {
    if context.json() {
        context.document(report)?;
    } else {
        for damage in &report.damage {
            let offset = damage
                .offset
                .map(|at| format!(" at {at}"))
                .unwrap_or_default();
            context.line(format!("damaged: {}{offset}: {}", damage.file, damage.what))?;
        }
        context.line(format!(
            "{} files, {} packets, {} read, {} damaged",
            report.files,
            report.packets,
            bytes_text(report.bytes),
            report.damage.len()
        ))?;
    }
    Ok(if report.damage.is_empty() {
        Exit::Done
    } else {
        Exit::NoMatchOrDamage
    })
}
