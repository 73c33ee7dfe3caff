use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use trace_query::{FieldPath, Query as Expression};
use trace_read::{
    ChunkSource, Columns, Csv, DftSet, GroupRow, Limits, Ndjson, ReadError, Report, Request,
    RowFormat, Text, count, group_by, write_json_value, write_rows,
};

use super::{CommandError, Context, Exit};

/// Find events in DFTracer files; exit code 1 when no event matches
///
/// The last argument is the expression, such as: name == 'read' and dur > 5ms. All events match
/// without one. A sidecar beside a file (`tracehold index`) is used when it belongs to the file.
#[derive(Debug, Args)]
pub(super) struct Query {
    /// Files, and behind them the expression
    #[arg(required = true, value_name = "FILE… EXPR")]
    arguments: Vec<String>,
    /// Only events that start at or after this time: RFC 3339, or nanoseconds since 1970
    #[arg(long, value_name = "T", value_parser = time)]
    from: Option<i64>,
    /// Only events that start before this time
    #[arg(long, value_name = "T", value_parser = time)]
    to: Option<i64>,
    /// Fields of the rows, instead of all
    #[arg(long, value_name = "F,…", value_delimiter = ',')]
    fields: Vec<String>,
    /// Print only the number of matching events
    #[arg(long, conflicts_with_all = ["fields", "group_by"])]
    count: bool,
    /// Print what the matching events add up to, by the values of this field
    #[arg(long, value_name = "F", conflicts_with = "fields")]
    group_by: Option<String>,
    /// How rows are printed; text without --json, else ndjson
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Tell what was ruled out and what was read
    #[arg(long)]
    explain: bool,
    /// Read the files without their indexes
    #[arg(long)]
    no_index: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line an event, for people
    Text,
    /// A JSON object an event
    Ndjson,
    /// Comma-separated values with a header
    Csv,
}

/// A time of the command line.
fn time(text: &str) -> Result<i64, String> {
    if let Ok(nanos) = text.parse() {
        return Ok(nanos);
    }
    let day = || format!("{text}T00:00:00Z").parse::<Timestamp>();
    let time = text.parse::<Timestamp>().or_else(|_| day());
    let time = time.map_err(|_| {
        "neither a time such as 2026-11-21T01:00:00Z nor nanoseconds since 1970".to_owned()
    })?;
    i64::try_from(time.as_nanosecond()).map_err(|_| "beyond the year 2262".to_owned())
}

impl Query {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CommandError> {
        let (files, query) = self.split()?;
        let request = Request {
            query,
            from: self.from,
            to: self.to,
        };
        let columns = match self.fields.as_slice() {
            [] => Columns::All,
            fields => Columns::Fields(fields.to_vec()),
        };
        let mut fields = columns.fields();
        fields.extend(self.group_by.as_deref().map(FieldPath::new));
        let sources = DftSet::sources(&files, !self.no_index, &request, &fields)?;
        for reason in sources.iter().filter_map(|source| source.unused_index()) {
            context.note(format!("{reason}; read without it"));
        }
        let (exit, report) = if self.count {
            self.print_count(context, &sources, &request)?
        } else if let Some(field) = &self.group_by {
            self.print_groups(context, &sources, &request, field)?
        } else {
            self.print_rows(context, &sources, &request, &columns)?
        };
        for fault in &report.counters.faults {
            context.note(fault);
        }
        if self.explain && !(self.count && context.json()) {
            context.flush()?;
            for line in explanation(&report, context.json()) {
                context.note(line);
            }
        }
        Ok(exit)
    }

    /// Files and expression: the last argument is a file when there is one of that name.
    fn split(&self) -> Result<(Vec<PathBuf>, Option<Expression>), CommandError> {
        let paths = |names: &[String]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let (last, files) = match self.arguments.split_last() {
            Some((last, files)) if !PathBuf::from(last).exists() => (last, files),
            _ => return Ok((paths(&self.arguments), None)),
        };
        if files.is_empty() {
            return Err(CommandError::usage(format!(
                "no file named {last}; name the files in front of the expression"
            )));
        }
        let query = Expression::parse(last).map_err(ReadError::from)?;
        Ok((paths(files), Some(query)))
    }

    fn format(&self, context: &Context) -> Format {
        let otherwise = if context.json() {
            Format::Ndjson
        } else {
            Format::Text
        };
        self.format.unwrap_or(otherwise)
    }

    fn print_count(
        &self,
        context: &Context,
        sources: &[Box<dyn ChunkSource>],
        request: &Request,
    ) -> Result<(Exit, Report), CommandError> {
        let (count, report) = count(sources, request, Limits::default())?;
        if context.json() {
            let mut document = json!({ "count": count });
            if self.explain {
                document["explain"] = report_document(&report);
            }
            context.document(&document)?;
        } else {
            context.line(count.to_string())?;
        }
        Ok((Exit::Done, report))
    }

    fn print_rows(
        &self,
        context: &Context,
        sources: &[Box<dyn ChunkSource>],
        request: &Request,
        columns: &Columns,
    ) -> Result<(Exit, Report), CommandError> {
        let mut format: Box<dyn RowFormat> = match self.format(context) {
            Format::Text => Box::new(Text::default()),
            Format::Ndjson => Box::new(Ndjson::default()),
            Format::Csv => Box::new(Csv::default()),
        };
        let mut out = context.out();
        let mut write = |row: &[u8]| out.write_all(row);
        let limits = Limits::default();
        let report = write_rows(sources, request, columns, &mut *format, limits, &mut write)?;
        let exit = if report.matched == 0 {
            Exit::Found
        } else {
            Exit::Done
        };
        Ok((exit, report))
    }

    fn print_groups(
        &self,
        context: &Context,
        sources: &[Box<dyn ChunkSource>],
        request: &Request,
        field: &str,
    ) -> Result<(Exit, Report), CommandError> {
        let path = FieldPath::new(field);
        let (groups, report) = group_by(sources, request, &path, Limits::default())?;
        let mut out = context.out();
        match self.format(context) {
            Format::Ndjson => {
                for group in &groups {
                    serde_json::to_writer(&mut *out, &group_document(field, group))
                        .map_err(std::io::Error::from)?;
                    out.write_all(b"\n")?;
                }
            }
            Format::Csv => {
                writeln!(out, "{}", [&[field][..], &GROUP_COLUMNS].concat().join(","))?;
                for group in &groups {
                    writeln!(out, "{}", csv_line(field, group))?;
                }
            }
            Format::Text => {
                let heads = [&["value"][..], &GROUP_COLUMNS].concat();
                let mut table = super::table::Table::new(&heads);
                for group in &groups {
                    table.row(cells(field, group));
                }
                table.write(&mut *out)?;
            }
        }
        let exit = if groups.is_empty() {
            Exit::Found
        } else {
            Exit::Done
        };
        Ok((exit, report))
    }
}

/// What is told of a group besides its value. Durations are nanoseconds.
const GROUP_COLUMNS: [&str; 9] = [
    "count",
    "dur_count",
    "dur_sum",
    "dur_min",
    "dur_max",
    "dur_mean",
    "dur_p50",
    "dur_p90",
    "dur_p99",
];

fn group_document(field: &str, group: &GroupRow) -> Map<String, Value> {
    let durations = &group.totals.durations;
    let value = group.value.as_ref().and_then(|value| {
        let mut text = Vec::new();
        write_json_value(value.as_value(), &mut text);
        serde_json::from_slice(&text).ok()
    });
    let (min, max) = durations.range().unzip();
    let sum = (durations.count > 0).then(|| i64::try_from(durations.sum).unwrap_or(i64::MAX));
    let quantile = |q| durations.sketch.quantile(q);
    let mut document = Map::new();
    document.insert(field.to_owned(), value.unwrap_or(Value::Null));
    let values = [
        json!(group.totals.events),
        json!(durations.count),
        json!(sum),
        json!(min),
        json!(max),
        json!(durations.mean()),
        json!(quantile(0.5)),
        json!(quantile(0.9)),
        json!(quantile(0.99)),
    ];
    document.extend(
        GROUP_COLUMNS
            .iter()
            .map(|name| (*name).to_owned())
            .zip(values),
    );
    document
}

fn cells(field: &str, group: &GroupRow) -> Vec<String> {
    let mut document = group_document(field, group);
    let mut cell = |name: &str| match document.remove(name) {
        Some(Value::String(text)) => text,
        Some(Value::Number(number)) => match number.as_f64() {
            Some(fraction) if number.is_f64() => format!("{fraction:.0}"),
            _ => number.to_string(),
        },
        Some(Value::Bool(value)) => value.to_string(),
        _ => "-".to_owned(),
    };
    let value = cell(field);
    std::iter::once(value)
        .chain(GROUP_COLUMNS.iter().map(|name| cell(name)))
        .collect()
}

fn csv_line(field: &str, group: &GroupRow) -> String {
    let mut document = group_document(field, group);
    let mut cell = |name: &str| match document.remove(name) {
        Some(Value::String(text)) if text.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Some(Value::String(text)) => text,
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    let value = cell(field);
    let cells = std::iter::once(value).chain(GROUP_COLUMNS.iter().map(|name| cell(name)));
    cells.collect::<Vec<_>>().join(",")
}

fn report_document(report: &Report) -> Value {
    let [statistics, dictionaries, filters] = report.ruled_out;
    json!({
        "sources": report.sources,
        "indexed": report.indexed,
        "chunks": report.chunks,
        "ruled_out": {
            "statistics": statistics, "dictionaries": dictionaries, "filters": filters,
        },
        "summarized": report.summarized,
        "slowest": report.slowest,
        "read": report.read,
        "index_bytes": report.index_bytes,
        "fetched_bytes": report.counters.fetched_bytes,
        "decoded_bytes": report.counters.decoded_bytes,
        "events": report.counters.decoded.events,
        "broken": report.counters.decoded.broken,
        "matched": report.matched,
    })
}

fn explanation(report: &Report, json: bool) -> Vec<String> {
    match json {
        true => vec![json!({ "explain": report_document(report) }).to_string()],
        false => report.lines(),
    }
}

impl From<ReadError> for CommandError {
    fn from(error: ReadError) -> CommandError {
        match error {
            ReadError::Query(error) => CommandError::usage(error.to_string()),
            ReadError::TooManyGroups { .. } => CommandError::usage(error.to_string()),
            ReadError::UnknownFile { .. } => CommandError::usage(error.to_string()),
            ReadError::Fetch { place, source } => CommandError::io(place, source),
            ReadError::Output(source) => CommandError::Output(source),
            ReadError::Spill(source) => CommandError::io("a temporary file", source),
            ReadError::Gzip { place, source } => CommandError::damage(place, source),
            ReadError::Decode { place, source } => CommandError::damage(place, source),
            ReadError::Sidecar { place, source } => CommandError::damage(place, source),
            ReadError::Window { place, source } => CommandError::damage(place, source),
            ReadError::Shrunk { ref place } => {
                CommandError::damage(place, "shorter than when it was indexed; index it again")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_or_nanoseconds() {
        let second = 1_000_000_000;
        assert_eq!(time("12"), Ok(12));
        assert_eq!(time("-1"), Ok(-1));
        assert_eq!(time("1970-01-01T00:00:01Z"), Ok(second));
        assert_eq!(time("1970-01-01T01:00:01+01:00"), Ok(second));
        assert_eq!(time("1970-01-02"), Ok(86_400 * second));
        assert!(time("yesterday").is_err());
        assert!(time("9999-01-01T00:00:00Z").is_err());
    }
}
