mod local;
mod options;
mod print;
mod served;

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use query_engine::{Cancel, ReadError, Request};
use query_language::Query as Expression;
use query_language::time::{IntegerUnit, TimeError, parse_instant};
use row_formats::{Columns, Format, GroupsError};

use super::{CommandError, Context, Exit};
use options::QueryOptions;

/// Search events in files, in a storage of the server, or in a mounted folder
///
/// The last argument is the query expression, for example: name == 'read' and dur > 5ms. Without an
/// expression, all events match. Indexes are used if they are up to date. The exit code is 1 if no
/// event matches, or if something cannot be read: it is skipped and reported.
#[derive(Debug, Args)]
pub(super) struct Query {
    /// Trace files and folders to search, followed by the expression; - is the standard input; with
    /// --storage or --dir, only the expression
    #[arg(value_name = "FILE… EXPR")]
    arguments: Vec<String>,
    /// Search a storage on the server, by ID or name
    #[arg(long, value_name = "ID|NAME", conflicts_with = "dir")]
    storage: Option<String>,
    /// Search a mounted or downloaded folder; only chunks that can match are fetched
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Only events that start at or after TIME
    ///
    /// TIME is RFC 3339 (2026-11-21T01:00:00Z), a date, nanoseconds since 1970, or seconds since
    /// 1970 with a fraction.
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<i64>,
    /// Only events that start before TIME, exclusive
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<i64>,
    /// Fields to print, separated by commas [default: all]
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    fields: Vec<String>,
    /// Print only the number of matching events
    #[arg(long, conflicts_with_all = ["fields", "group_by"])]
    count: bool,
    /// Print counts and durations of the matching events, grouped by this field
    #[arg(long, value_name = "FIELD", conflicts_with = "fields")]
    group_by: Option<String>,
    /// Output format [default: text, or ndjson with --json]
    #[arg(long, value_enum)]
    format: Option<FormatArgument>,
    /// Size of the row groups of a Parquet file, which are built in memory, in KiB
    #[arg(
        long,
        value_name = "KIB",
        default_value_t = 16_384,
        value_parser = clap::value_parser!(u64).range(64..=1 << 20)
    )]
    row_group_kib: u64,
    /// Also print which chunks the indexes ruled out and what was read
    #[arg(long)]
    explain: bool,
    /// With --storage or --dir, also search derived streams (clones, spans, exceptions and
    /// aggregates), which repeat events of others
    #[arg(long)]
    derived: bool,
    /// Fail if something cannot be read, instead of skipping and reporting it
    #[arg(long)]
    strict: bool,
    /// Do not use indexes
    #[arg(long)]
    no_index: bool,
}

#[derive(Debug, Clone, Copy)]
struct FormatArgument(Format);

impl ValueEnum for FormatArgument {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            FormatArgument(Format::Text),
            FormatArgument(Format::Ndjson),
            FormatArgument(Format::Csv),
            FormatArgument(Format::Arrow),
            FormatArgument(Format::Parquet),
            FormatArgument(Format::Perfetto),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            Format::Text => "One line per event",
            Format::Ndjson => "One JSON object per event",
            Format::Csv => "Comma-separated values with a header line",
            Format::Arrow => "Arrow IPC stream",
            Format::Parquet => "Parquet file",
            Format::Perfetto => "Perfetto trace",
        };
        Some(PossibleValue::new(self.0.as_str()).help(help))
    }
}

fn time(text: &str) -> Result<i64, TimeError> {
    parse_instant(text, IntegerUnit::Nanoseconds)
}

impl Query {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let (files, expression) = self.split()?;
        let format = self.format.map(|argument| argument.0);
        let format = format.unwrap_or(if context.json() {
            Format::Ndjson
        } else {
            Format::Text
        });
        if self.group_by.is_some() && !format.supports_groups() {
            return Err(ReadError::from(GroupsError::Timeline).into());
        }
        if !format.is_lines() && !self.count && io::stdout().is_terminal() {
            return Err(CommandError::usage(format!(
                "{} is a binary format; redirect the output to a file or a program",
                format.as_str()
            )));
        }
        let row_group_bytes = usize::try_from(self.row_group_kib << 10).unwrap_or(usize::MAX);
        let expression = expression.filter(|text| !text.trim().is_empty());
        let query = expression.map(|text| Expression::parse(&text)).transpose();
        let options = QueryOptions {
            request: Request {
                query: query.map_err(ReadError::from)?,
                from: self.from,
                to: self.to,
                strict: self.strict,
                cancel: Cancel::default(),
            },
            row_group_bytes,
            columns: match self.fields.as_slice() {
                [] => Columns::All,
                fields => Columns::Fields(fields.to_vec()),
            },
            count: self.count,
            group_by: self.group_by,
            format,
            explain: self.explain,
            derived: self.derived,
        };
        match (self.storage, self.dir) {
            (Some(storage), _) => served::run(context, &storage, &options),
            (None, Some(folder)) => local::run_mounted(context, &folder, self.no_index, &options),
            (None, None) => local::run_files(context, &files, self.no_index, &options),
        }
    }

    /// Splits the arguments into files and expression. The last argument is the expression, unless
    /// a file with that name exists.
    fn split(&self) -> Result<(Vec<PathBuf>, Option<String>), CommandError> {
        if self.storage.is_some() || self.dir.is_some() {
            return match self.arguments.as_slice() {
                [] => Ok((Vec::new(), None)),
                [expression] => Ok((Vec::new(), Some(expression.clone()))),
                _ => Err(CommandError::usage(
                    "--storage and --dir accept no files, only one expression; \
                    quote the expression so that it is one argument",
                )),
            };
        }
        let path = |name: &String| match name.as_str() {
            "-" => PathBuf::from("/dev/stdin"),
            name => PathBuf::from(name),
        };
        let paths = |names: &[String]| names.iter().map(path).collect::<Vec<_>>();
        let (last, files) = match self.arguments.split_last() {
            Some((last, files)) if !path(last).exists() => (last, files),
            Some(_) => return Ok((paths(&self.arguments), None)),
            None => {
                return Err(CommandError::usage(
                    "nothing to search; give files, --storage ID|NAME or --dir DIR",
                ));
            }
        };
        if files.is_empty() {
            // What is not an expression was meant as a file.
            if Expression::parse(last).is_err() {
                return Err(CommandError::io(last, io::ErrorKind::NotFound.into()));
            }
            return Err(CommandError::usage(format!(
                "no file is named {last}; put the files before the expression"
            )));
        }
        Ok((paths(files), Some(last.clone())))
    }
}

impl From<ReadError> for CommandError {
    fn from(error: ReadError) -> CommandError {
        match error {
            ReadError::Query(error) => CommandError::usage(error.to_string()),
            ReadError::TooManyGroups { .. } => CommandError::usage(error.to_string()),
            ReadError::UnknownFile { .. }
            | ReadError::NotATrace { .. }
            | ReadError::NotAStream { .. }
            | ReadError::NotAFile { .. } => CommandError::usage(error.to_string()),
            ReadError::NoColumns { .. } | ReadError::NoIndex { .. } => {
                CommandError::usage(error.to_string())
            }
            ReadError::Fetch { place, source } => CommandError::io(place, source),
            ReadError::Output(source) => CommandError::Output(source),
            ReadError::Spill(source) => CommandError::io("a temporary file", source),
            ReadError::Gzip { place, source } => CommandError::damage(place, source),
            ReadError::Decode { place, source } => CommandError::damage(place, source),
            ReadError::Sidecar { place, source } => CommandError::damage(place, source),
            ReadError::Window { place, source } => CommandError::damage(place, source),
            ReadError::DamagedFrame { place, source } => CommandError::damage(place, source),
            ReadError::DamagedPacket {
                place,
                offset,
                problem,
            } => CommandError::damage(place, format!("the packet at byte {offset}: {problem}")),
            ReadError::Folder(error) => CommandError::damage(error.path.display(), &error.fault),
            ReadError::Groups(GroupsError::Timeline) => CommandError::usage(error.to_string()),
            ReadError::Groups(GroupsError::Output(source)) => CommandError::Output(source),
            ReadError::Incomplete { ref reason } => {
                CommandError::damage("the result would be incomplete", reason)
            }
            ReadError::Cancelled => CommandError::usage(error.to_string()),
            ReadError::Shrunk { ref place } => {
                CommandError::damage(place, "shorter than when it was indexed; index it again")
            }
        }
    }
}
