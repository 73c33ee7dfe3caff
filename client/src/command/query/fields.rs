use std::path::PathBuf;

use clap::Args;
use query_engine::Request;
use row_formats::{Columns, Format};

use super::options::QueryOptions;
use super::{CommandError, Context, Exit, FormatArgument, local, path, served};

/// List the fields that events have, by kind
///
/// Each field is listed with the types of its values and the number of events that have it. All
/// events are read.
#[derive(Debug, Args)]
pub(in crate::command) struct Fields {
    /// Trace files and folders; - is the standard input
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    /// List the fields of a storage on the server, by ID or name
    #[arg(long, value_name = "ID|NAME", conflicts_with_all = ["dir", "files"])]
    storage: Option<String>,
    /// List the fields of a mounted or downloaded folder
    #[arg(long, value_name = "DIR", conflicts_with = "files")]
    dir: Option<PathBuf>,
    /// Output format [default: text, or ndjson with --json]
    #[arg(long, value_enum)]
    format: Option<FormatArgument>,
    /// Also list the fields of derived streams (clones, spans, exceptions and aggregates)
    #[arg(long)]
    derived: bool,
}

/// Bytes of a row group of a Parquet file: all fields.
const ROW_GROUP_BYTES: usize = 16 << 20;

impl Fields {
    pub(in crate::command) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let format = self.format.map(|argument| argument.0);
        let format = format.unwrap_or(if context.json() {
            Format::Ndjson
        } else {
            Format::Text
        });
        if !format.supports_groups() {
            return Err(CommandError::usage("a timeline cannot contain fields"));
        }
        let options = QueryOptions {
            request: Request::default(),
            columns: Columns::All,
            count: false,
            list_fields: true,
            groups: None,
            format,
            explain: false,
            derived: self.derived,
            row_group_bytes: ROW_GROUP_BYTES,
        };
        match (self.storage, self.dir) {
            (Some(storage), _) => served::run(context, &storage, &options),
            (None, Some(folder)) => local::run_mounted(context, &folder, false, &options),
            (None, None) if self.files.is_empty() => Err(CommandError::usage(
                "nothing to list; give files, --storage ID|NAME or --dir DIR",
            )),
            (None, None) => {
                let files: Vec<PathBuf> = self.files.iter().map(|name| path(name)).collect();
                local::run_files(context, &files, false, &options)
            }
        }
    }
}
