//! `tracehold audit verify`: whether an audit log is what the server wrote.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use audit_log::{AuditDamage, End, verify};
use clap::{Args, Subcommand};
use serde_json::json;

use super::{CommandError, Context, Exit};
use crate::ClientError;

/// Verify the audit log of a server
#[derive(Debug, Args)]
pub(super) struct Audit {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check that no line was removed, changed or moved; the exit code is 1 otherwise
    ///
    /// Prints the number of the last line and its seal. Note them elsewhere, and compare: lines
    /// that are missing at the end, and a log that was written anew, cannot be found otherwise.
    Verify {
        /// Files of one audit log, the oldest first, or the folder `audit` of a data folder
        #[arg(required = true, value_name = "FILE|DIR")]
        files: Vec<PathBuf>,
    },
}

impl Audit {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let Action::Verify { files } = self.action;
        let mut end: Option<End> = None;
        for path in all_files(files)? {
            let opened = File::open(&path).map_err(AuditDamage::from);
            match opened.and_then(|file| verify(BufReader::new(file), end)) {
                Ok(found) => end = Some(found),
                Err(damage) => {
                    let report = json!({ "file": path, "damage": damage.to_string() });
                    context.print(&report, || format!("{}: {damage}", path.display()))?;
                    return Ok(Exit::NoMatchOrDamage);
                }
            }
        }
        let end = end.unwrap_or_default();
        let (number, seal) = (end.number, end.seal_text());
        let report = json!({ "lines": number, "seal": seal });
        context.print(&report, || {
            format!("intact: {number} lines, the last one has the seal {seal}")
        })?;
        Ok(Exit::Done)
    }
}

/// The files, those of a folder in the order in which they were written: complete ones have the
/// number of their last line in the name, and the current one sorts behind them.
fn all_files(paths: Vec<PathBuf>) -> Result<Vec<PathBuf>, CommandError> {
    let mut all = Vec::new();
    for path in paths {
        if !path.is_dir() {
            all.push(path);
            continue;
        }
        let failed = |error: std::io::Error| {
            ClientError::input(format!("cannot list {}: {error}", path.display()))
        };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(failed)? {
            let file = entry.map_err(failed)?.path();
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("audit") && name.ends_with(".jsonl") {
                files.push(file);
            }
        }
        if files.is_empty() {
            let text = format!("{} has no file of an audit log", path.display());
            return Err(ClientError::input(text).into());
        }
        // `-` sorts before `.`.
        files.sort();
        all.append(&mut files);
    }
    Ok(all)
}
