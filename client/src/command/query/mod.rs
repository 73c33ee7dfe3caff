mod fields;
mod local;
mod options;
mod print;
mod served;

use std::io::{self, ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use query_engine::{BareTimes, Cancel, GroupSpec, Progress, ReadError, Request, ResultOrder};
use query_language::time::{Bound, parse_bound, parse_duration};
use query_language::{
    Aggregate, OrderKey, Query as Expression, parse_columns, parse_field, parse_fields,
};
use row_formats::{Columns, Format, GroupsError};

use super::output_file::OutputFile;
use super::{CommandError, Context, Exit};
use crate::clock::now_nanos;
pub(super) use fields::Fields;
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
    /// TIME is RFC 3339 (2026-11-21T01:00:00Z), a date, a number since 1970 with the unit ns, us,
    /// ms or s, nanoseconds since 1970 (refused for traces with another unit), seconds since 1970
    /// with a fraction, or a duration before now (-1h, now-1h).
    #[arg(long, value_name = "TIME", value_parser = parse_bound, allow_hyphen_values = true)]
    from: Option<Bound>,
    /// Only events that start before TIME, exclusive
    #[arg(long, value_name = "TIME", value_parser = parse_bound, allow_hyphen_values = true)]
    to: Option<Bound>,
    /// Fields to print, separated by commas; names with spaces or commas in backquotes
    /// [default: all]
    #[arg(long, value_name = "FIELD,…")]
    fields: Vec<String>,
    /// Print only the number of matching events
    #[arg(
        long,
        conflicts_with_all = [
            "fields", "group_by", "aggregate", "every", "histogram", "order_by", "limit", "offset",
        ]
    )]
    count: bool,
    /// Print groups of the matching events, by the values of these fields
    #[arg(long, value_name = "FIELD,…", conflicts_with = "fields")]
    group_by: Option<String>,
    /// What is computed of each group, or of all events [default: number and durations]
    ///
    /// A list of count, sum:FIELD, avg:FIELD, min:FIELD, max:FIELD, count:FIELD, distinct:FIELD and
    /// percentiles such as p99:FIELD, separated by commas.
    #[arg(long, value_name = "FUNCTION:FIELD,…", conflicts_with = "fields")]
    aggregate: Option<String>,
    /// Group by the start of events in intervals of this length, for example 1s
    #[arg(
        long,
        value_name = "DURATION",
        conflicts_with = "fields",
        value_parser = parse_duration
    )]
    every: Option<i64>,
    /// With --every: estimate numbers of events from chunk summaries, instead of reading chunks
    /// that are in several intervals; a note says so
    #[arg(long, requires = "every")]
    estimate: bool,
    /// Group by the power of two below the number that this field has
    #[arg(long, value_name = "FIELD", conflicts_with = "fields")]
    histogram: Option<String>,
    /// Order rows by these fields, or groups by these columns, for example: dur desc, name
    /// [default: rows by time, groups by size]
    #[arg(long, value_name = "FIELD [desc],…")]
    order_by: Option<String>,
    /// Print at most this many rows or groups
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Omit this many rows or groups at the beginning
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u64,
    /// Write the result to a file, which gets its name once it is complete
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Output format [default: that of the ending of --output, or text; ndjson with --json]
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
            FormatArgument(Format::Chrome),
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
            Format::Chrome => "Chrome trace in JSON",
        };
        Some(PossibleValue::new(self.0.as_str()).help(help))
    }
}

impl Query {
    /// Refuses what the format has no form for.
    fn check_format(
        &self,
        format: Format,
        has_groups: bool,
        has_order: bool,
    ) -> Result<(), CommandError> {
        if !has_groups && format.is_timeline() && has_order {
            return Err(CommandError::usage(
                "a timeline is in order of time; leave out --order-by",
            ));
        }
        if has_groups && !format.supports_groups() {
            return Err(ReadError::from(GroupsError::Timeline).into());
        }
        if self.count && (format.is_binary() || format.is_timeline()) {
            return Err(CommandError::usage(format!(
                "--count prints one number, which {} has no form for; leave out --format",
                format.as_str()
            )));
        }
        let prints = self.output.is_none() && io::stdout().is_terminal();
        if format.is_binary() && !self.count && prints {
            return Err(CommandError::usage(format!(
                "{} is a binary format; write it to a file with -o, or to a program",
                format.as_str()
            )));
        }
        Ok(())
    }

    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let split = self.split();
        if let (Err(_), Some(first)) = (&split, self.arguments.first()) {
            local::note_storages(context, &[path(first)]);
        }
        let (files, expression) = split?;
        let format = self.format(context);
        let groups = self.groups()?;
        let order = self.order()?;
        self.check_format(format, groups.is_some(), !order.keys.is_empty())?;
        let row_group_bytes = usize::try_from(self.row_group_kib << 10).unwrap_or(usize::MAX);
        let expression = expression.filter(|text| !text.trim().is_empty());
        let query = expression.map(|text| Expression::parse(&text)).transpose();
        let (from, to) = self.window()?;
        let options = QueryOptions {
            request: Request {
                query: query.map_err(ReadError::from)?,
                from,
                to,
                bare_times: self.bare_times(),
                strict: self.strict,
                order,
                missing: Vec::new(),
                cancel: Cancel::default(),
                progress: Progress::default(),
            },
            row_group_bytes,
            columns: self.columns()?,
            count: self.count,
            list_fields: false,
            groups,
            format,
            explain: self.explain,
            derived: self.derived,
        };
        let output = self.output.as_deref();
        let inputs = || files.iter().chain(&self.dir).cloned().collect::<Vec<_>>();
        let output = output.map(|path| OutputFile::begin(context, path, &inputs()));
        let output = output.transpose()?;
        let exit = match (self.storage, self.dir) {
            (Some(storage), _) => served::run(context, &storage, &options),
            (None, Some(folder)) => local::run_mounted(context, &folder, self.no_index, &options),
            (None, None) => local::run_files(context, &files, self.no_index, &options),
        }?;
        if let Some(output) = output {
            output.finish(context)?;
        }
        Ok(exit)
    }

    /// The format that is asked for, or that a reader of the file expects.
    fn format(&self, context: &Context) -> Format {
        if let Some(FormatArgument(format)) = self.format {
            return format;
        }
        if context.json() {
            return Format::Ndjson;
        }
        let of_name = self.output.as_deref().and_then(Path::extension);
        let of_name = of_name.and_then(|ending| Format::of_ending(ending.to_str()?));
        of_name.filter(|_| !self.count).unwrap_or(Format::Text)
    }

    /// The limits of the window, in nanoseconds since 1970.
    fn window(&self) -> Result<(Option<i64>, Option<i64>), CommandError> {
        let now = now_nanos();
        let limit = |bound: Option<Bound>| bound.map(|bound| bound.nanos(now));
        let (from, to) = (limit(self.from), limit(self.to));
        if from.zip(to).is_some_and(|(from, to)| from > to) {
            return Err(CommandError::usage("--from is after --to; exchange them"));
        }
        Ok((from, to))
    }

    fn bare_times(&self) -> BareTimes {
        let is_bare = |bound: Option<Bound>| bound.is_some_and(Bound::is_bare);
        BareTimes {
            from: is_bare(self.from),
            to: is_bare(self.to),
        }
    }

    /// The requested fields of rows.
    fn columns(&self) -> Result<Columns, CommandError> {
        let lists = self.fields.iter().map(|list| parse_columns(list));
        let lists = lists.collect::<Result<Vec<_>, _>>();
        let fields = lists.map_err(ReadError::from)?.concat();
        Ok(if fields.is_empty() {
            Columns::All
        } else {
            Columns::Fields(fields)
        })
    }

    /// The requested groups, if the result is groups.
    fn groups(&self) -> Result<Option<GroupSpec>, CommandError> {
        let keys = self.group_by.as_deref().map(parse_fields).transpose();
        let aggregates = self.aggregate.as_deref().map(Aggregate::parse_list);
        let histogram = self.histogram.as_deref().map(parse_field).transpose();
        let spec = GroupSpec {
            keys: keys.map_err(ReadError::from)?.unwrap_or_default(),
            every: self.every,
            histogram: histogram.map_err(ReadError::from)?,
            aggregates: aggregates
                .transpose()
                .map_err(ReadError::from)?
                .unwrap_or_default(),
            estimate: self.estimate,
        };
        spec.columns().map_err(ReadError::from)?;
        Ok((!spec.is_empty()).then_some(spec))
    }

    /// The order of the result, and which part of it.
    fn order(&self) -> Result<ResultOrder, CommandError> {
        let keys = self.order_by.as_deref().map(OrderKey::parse_list);
        Ok(ResultOrder {
            keys: keys
                .transpose()
                .map_err(ReadError::from)?
                .unwrap_or_default(),
            limit: self.limit,
            offset: self.offset,
        })
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
        let paths = |names: &[String]| names.iter().map(|name| path(name)).collect::<Vec<_>>();
        let (last, files) = match self.arguments.split_last() {
            Some((last, files)) if !path(last).exists() => (last, files),
            Some(_) => return Ok((paths(&self.arguments), None)),
            None => {
                return Err(CommandError::usage(
                    "nothing to search; give files, --storage ID|NAME or --dir DIR",
                ));
            }
        };
        // What is not an expression was meant as a file.
        if (files.is_empty() || is_like_a_path(last)) && Expression::parse(last).is_err() {
            let missing = std::fs::metadata(last).err();
            let missing = missing.unwrap_or_else(|| io::ErrorKind::NotFound.into());
            return Err(CommandError::io(last, missing));
        }
        if files.is_empty() {
            return Err(CommandError::usage(format!(
                "no file is named {last}; put the files before the expression"
            )));
        }
        Ok((paths(files), Some(last.clone())))
    }
}

/// Whether a text has the form of a path, and of nothing that is written in an expression.
fn is_like_a_path(text: &str) -> bool {
    let is_of_name = |letter: char| letter.is_alphanumeric() || "/._-+@".contains(letter);
    text.contains(['/', '.']) && text.chars().all(is_of_name)
}

/// A file to read; `-` is the standard input.
fn path(name: &str) -> PathBuf {
    match name {
        "-" => PathBuf::from("/dev/stdin"),
        name => PathBuf::from(name),
    }
}

impl From<ReadError> for CommandError {
    fn from(error: ReadError) -> CommandError {
        match error {
            ReadError::Query(error) => CommandError::usage(error.to_string()),
            ReadError::BareTime { .. }
            | ReadError::TooManyGroups { .. }
            | ReadError::GroupSpec(_) => CommandError::usage(error.to_string()),
            ReadError::UnknownFile { .. }
            | ReadError::NotATrace { .. }
            | ReadError::NotAStream { .. }
            | ReadError::NotAFile { .. } => CommandError::usage(error.to_string()),
            ReadError::NoColumns { .. } | ReadError::NoIndex { .. } => {
                CommandError::usage(error.to_string())
            }
            // Bytes that were read, and are not what was written.
            ReadError::Fetch { place, source } if source.kind() == ErrorKind::InvalidData => {
                CommandError::damage(place, source)
            }
            ReadError::Fetch { place, source } => CommandError::io(place, source),
            ReadError::Output(source) => CommandError::Output(source),
            ReadError::Spill(source) => CommandError::io(
                "temporary file (in the folder that TMPDIR names; it needs free space)",
                source,
            ),
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
            ReadError::Cancelled | ReadError::SplitOutdated { .. } => {
                CommandError::usage(error.to_string())
            }
            ReadError::Shrunk { ref place } => CommandError::damage(
                place,
                "shorter than when it was opened or indexed; read it again, and index it again if \
                 it has an index",
            ),
        }
    }
}
