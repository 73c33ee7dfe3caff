use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::super::table::bytes_text;
use super::super::{CommandError, Context, Exit};
use super::print_moved;
use crate::http::Client;

#[derive(Debug, Args)]
pub(super) struct Export {
    /// Id or name
    #[arg(value_name = "ID|NAME")]
    storage: String,
    /// File to write; <ID>.zip in the current folder when left out
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
        let bar = bytes_bar(context);
        let shown = bar.clone();
        let progress = move |bytes, total| advance(shown.as_ref(), bytes, total);
        let bytes = client.export_storage(id, &file, &progress).await;
        clear(bar);
        let bytes = bytes?;
        if context.json() {
            context.document(&json!({ "storage": id, "file": file, "bytes": bytes }))?
        } else {
            let bytes = bytes_text(bytes);
            context.line(format!("{id} exported to {} ({bytes})", file.display()))?;
        }
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
            let storage = import_one(context, client, &file).await?;
            print_moved(context, &storage)?;
            note_unused_files(context, &storage);
        }
        Ok(Exit::Done)
    }
}

/// Names what came along in an archive and does not fit its data files.
fn note_unused_files(context: &Context, storage: &crate::http::Storage) {
    let files = storage
        .more
        .get("not_taken")
        .and_then(|files| files.as_array());
    for file in files.into_iter().flatten() {
        let text = |key| file.get(key).and_then(|text| text.as_str()).unwrap_or("?");
        context.note(format!("{} is not used: {}", text("name"), text("reason")));
    }
}

async fn import_one(
    context: &Context,
    client: &Client,
    file: &Path,
) -> Result<crate::http::Storage, CommandError> {
    let bar = bytes_bar(context);
    let shown = bar.clone();
    let progress = move |bytes, total| advance(shown.as_ref(), bytes, total);
    let imported = client.import_storage(file, progress).await;
    clear(bar);
    Ok(imported?)
}

/// A bar that counts bytes, where it would be seen.
pub(super) fn bytes_bar(context: &Context) -> Option<ProgressBar> {
    context.shows_progress().then(|| {
        let style = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let style = ProgressStyle::with_template(style).expect("the template is constant");
        ProgressBar::new(0).with_style(style)
    })
}

fn advance(bar: Option<&ProgressBar>, bytes: u64, total: Option<u64>) {
    if let Some(bar) = bar {
        total.into_iter().for_each(|total| bar.set_length(total));
        bar.inc(bytes);
    }
}

pub(super) fn clear(bar: Option<ProgressBar>) {
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}
