use std::path::{Path, PathBuf};

use clap::Args;
use io_analysis::bytes_text;
use serde_json::json;

use super::super::progress::Progress;
use super::super::{CommandError, Context, Exit};
use super::print::print_storage;
use crate::http::{Client, Storage};

#[derive(Debug, Args)]
pub(super) struct Export {
    /// Storage to export, by ID or name
    #[arg(value_name = "ID|NAME")]
    storage: String,
    /// Output file [default: ID.zip in the current directory]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Import {
    /// ZIP archives of storages
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Export {
    pub(super) async fn run(
        self,
        context: &Context,
        client: &Client,
    ) -> Result<Exit, CommandError> {
        let id = client.find_storage(&self.storage).await?.id;
        let file = self.file.unwrap_or_else(|| format!("{id}.zip").into());
        let progress = Progress::new(context, 0);
        let advance = advance(&progress);
        let bytes = client.export_storage(id, &file, &advance).await;
        progress.clear();
        let bytes = bytes?;
        let document = json!({ "storage": id, "file": file, "bytes": bytes });
        context.print(&document, || {
            let bytes = bytes_text(bytes);
            format!("{id} exported to {} ({bytes})", file.display())
        })?;
        Ok(Exit::Done)
    }
}

impl Import {
    pub(super) async fn run(
        self,
        context: &Context,
        client: &Client,
    ) -> Result<Exit, CommandError> {
        for file in self.files {
            let storage = import_file(context, client, &file).await?;
            print_storage(context, &storage)?;
            note_unused_files(context, &storage);
        }
        Ok(Exit::Done)
    }
}

/// Notes the derived files of an archive that the server discarded, with its reasons.
fn note_unused_files(context: &Context, storage: &Storage) {
    let files = storage.more.get("not_taken");
    let files = files.and_then(|files| files.as_array());
    for file in files.into_iter().flatten() {
        let text = |key| file.get(key).and_then(|text| text.as_str()).unwrap_or("?");
        context.note(format!("{} is not used: {}", text("name"), text("reason")));
    }
}

async fn import_file(
    context: &Context,
    client: &Client,
    file: &Path,
) -> Result<Storage, CommandError> {
    let progress = Progress::new(context, 0);
    let imported = client.import_storage(file, advance(&progress)).await;
    progress.clear();
    Ok(imported?)
}

fn advance(progress: &Progress) -> impl Fn(u64, Option<u64>) + Send + Sync + 'static {
    let progress = progress.clone();
    move |bytes, total| {
        if let Some(total) = total {
            progress.set_total(total);
        }
        progress.add(bytes);
    }
}
