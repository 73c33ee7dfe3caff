//! Queries that the server executes on a storage.

use std::io::Write;

use query_engine::Progress;
use row_formats::{Columns, Format};
use serde_json::{Value, json};
use storage_format::DERIVED_ENDINGS;

use super::options::QueryOptions;
use super::print::{GroupTable, explain};
use super::{CommandError, Context, Exit};
use crate::command::progress::watched;
use crate::http::{Client, QueryRows, QuerySpec, SkippedData};

/// Longest line of a response that is parsed: counts, groups, explanations.
const LINE_BYTES_MAX: usize = 16 << 20;

pub(super) fn run(
    context: &Context,
    storage: &str,
    options: &QueryOptions,
) -> Result<Exit, CommandError> {
    let client = context.client()?;
    let progress = &options.request.progress;
    let work = || context.block_on(ask(context, (&client, storage), options, progress));
    // A bar between the rows on the same terminal would be in their way.
    let (printer, answer) = if context.is_terminal() && options.is_rows() {
        work()
    } else {
        watched(context, progress, work)
    }?;
    let Some(mut printer) = printer else {
        let is_complete = report_skipped(context, &answer.skipped().unwrap_or_default());
        report_notes(context, &answer.notes());
        let found = answer.matched() != Some(0) && answer.rows() != Some(0);
        return Ok(Exit::of_match(is_complete && found));
    };
    if !options.explain {
        printer.notes = answer.notes();
    }
    let exit = printer.finish(answer.skipped())?;
    // All events are one group, also if there are none.
    let found = answer.matched() != Some(0);
    Ok(if found { exit } else { Exit::of_match(false) })
}

/// Asks the server, and prints its answer while it arrives, but for what is known only at its end.
async fn ask<'a>(
    context: &'a Context,
    (client, storage): (&Client, &str),
    options: &'a QueryOptions,
    progress: &Progress,
) -> Result<(Option<Printer<'a>>, QueryRows), CommandError> {
    let storage = client.find_storage(storage).await?.id;
    let mut answer = client.query(storage, &spec(options)).await?;
    if !options.format.is_lines() && !options.count {
        while let Some(bytes) = answer.next().await? {
            progress.add_bytes(bytes.len() as u64);
            context.out().write_all(&bytes)?;
        }
        return Ok((None, answer));
    }
    let mut printer = Printer::new(context, options)?;
    while let Some(bytes) = answer.next().await? {
        progress.add_bytes(bytes.len() as u64);
        printer.take(&bytes)?;
    }
    Ok((Some(printer), answer))
}

fn spec(options: &QueryOptions) -> QuerySpec {
    let whole = !options.is_rows();
    let (order, bare) = (&options.request.order, options.request.bare_times);
    let groups = options.groups.clone().unwrap_or_default();
    let list = |items: Vec<String>| (!items.is_empty()).then(|| items.join(", "));
    let aggregates = groups.aggregates.iter();
    let keys = order.keys.iter();
    QuerySpec {
        query: options
            .request
            .query
            .as_ref()
            .map(|query| query.text().to_owned()),
        from: options.request.from,
        to: options.request.to,
        bare_times: [("from", bare.from), ("to", bare.to)]
            .into_iter()
            .filter_map(|(name, is_bare)| is_bare.then_some(name))
            .collect(),
        fields: match &options.columns {
            Columns::All | Columns::First(_) => Vec::new(),
            Columns::Fields(fields) => fields.iter().map(|name| alone(name)).collect(),
        },
        count: options.count,
        list_fields: options.list_fields,
        group_by: list(groups.keys.iter().map(|key| quoted(key)).collect()),
        aggregate: list(aggregates.map(|one| quoted(&one.label)).collect()),
        every: groups.every.map(|nanos| format!("{nanos}ns")),
        estimate: groups.estimate,
        histogram: groups.histogram.as_deref().map(alone),
        order_by: list(
            keys.map(|key| {
                let direction = if key.descending { " desc" } else { "" };
                format!("{}{direction}", quoted(&key.label))
            })
            .collect(),
        ),
        limit: order.limit,
        offset: order.offset,
        format: match options.format {
            // Text tables are built here, and explanations are parsed from lines of JSON.
            Format::Text if whole => Format::Ndjson.as_str(),
            format if options.count && !format.is_lines() => Format::Ndjson.as_str(),
            format => format.as_str(),
        },
        explain: options.explain,
        strict: options.request.strict,
        derived: options.derived,
    }
}

/// A field of a list, which may contain other characters than names.
fn quoted(label: &str) -> String {
    // Only arithmetic contains backquotes, and its brackets delimit it.
    if label.contains('`') {
        return label.to_owned();
    }
    format!("`{label}`")
}

/// A field outside of a list, in which only spaces at the ends need backquotes; earlier servers
/// know none there.
fn alone(label: &str) -> String {
    if label.trim() == label {
        label.to_owned()
    } else {
        quoted(label)
    }
}

/// Prints what a reader of the result must know.
fn report_notes(context: &Context, notes: &[String]) {
    notes.iter().for_each(|note| context.note(note));
}

/// Reports what the server skipped. Returns whether that is nothing.
fn report_skipped(context: &Context, skipped: &SkippedData) -> bool {
    for reason in &skipped.reasons {
        context.note(format!("{reason}; the server skipped this data"));
    }
    if skipped.parts > 0 && skipped.reasons.is_empty() {
        let parts = skipped.parts;
        context.note(format!(
            "the server skipped {parts} records that cannot be read"
        ));
    }
    skipped.parts == 0 && skipped.reasons.is_empty()
}

/// What was skipped according to the JSON of a count or of a summary.
fn skipped_of(document: &Value) -> Option<SkippedData> {
    let reasons = document["skipped"].as_array()?;
    let texts = reasons.iter().filter_map(Value::as_str);
    Some(SkippedData {
        parts: document["skipped_records"].as_u64().unwrap_or(0),
        reasons: texts.map(str::to_owned).collect(),
    })
}

/// Prints a response while it arrives. Rows pass through; a trailing explanation is removed.
struct Printer<'a> {
    context: &'a Context,
    options: &'a QueryOptions,
    table: Option<GroupTable>,
    /// The incomplete line, or the last complete one, which may be the explanation.
    pending: Vec<u8>,
    lines: u64,
    /// The count, if one was requested.
    counted: u64,
    /// What was skipped, according to the response itself.
    skipped: Option<SkippedData>,
    /// What a reader of the result must know.
    notes: Vec<String>,
}

impl<'a> Printer<'a> {
    fn new(context: &'a Context, options: &'a QueryOptions) -> Result<Self, CommandError> {
        let columns = options.columns_of_groups()?;
        let columns = columns.filter(|_| options.format == Format::Text);
        let table = columns.map(|columns| GroupTable::new(&columns));
        Ok(Self {
            context,
            options,
            table,
            pending: Vec::new(),
            lines: 0,
            counted: 0,
            skipped: None,
            notes: Vec::new(),
        })
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), CommandError> {
        self.pending.extend_from_slice(bytes);
        // The last line stays until another one follows.
        let whole = self.pending.strip_suffix(b"\n").unwrap_or(&self.pending);
        let Some(end) = whole.iter().rposition(|byte| *byte == b'\n') else {
            if self.pending.len() > LINE_BYTES_MAX {
                let what = format!("a line of the response exceeds {LINE_BYTES_MAX} bytes");
                return Err(CommandError::damage("the server", what));
            }
            return Ok(());
        };
        let rest = self.pending.split_off(end + 1);
        let lines = std::mem::replace(&mut self.pending, rest);
        self.print(&lines)
    }

    fn print(&mut self, lines: &[u8]) -> Result<(), CommandError> {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            self.lines += 1;
            match &mut self.table {
                Some(table) => table.row(line),
                None if self.options.count => self.print_count(line)?,
                None => self.context.out().write_all(line)?,
            }
        }
        Ok(())
    }

    fn print_count(&mut self, line: &[u8]) -> Result<(), CommandError> {
        let document: Value = serde_json::from_slice(line).unwrap_or_default();
        let Some(count) = document["count"].as_u64() else {
            return Err(CommandError::damage(
                "the server",
                "the response is not a count",
            ));
        };
        self.counted = count;
        let mut printed = json!({ "count": count });
        if let Some(skipped) = skipped_of(&document) {
            printed["skipped"] = json!(skipped.reasons);
            self.skipped = Some(skipped);
        }
        self.context.print(&printed, || count.to_string())
    }

    /// `skipped` is what the server skipped, according to the fields of the response.
    fn finish(mut self, skipped: Option<SkippedData>) -> Result<Exit, CommandError> {
        let last = std::mem::take(&mut self.pending);
        let explanation = last.strip_prefix(b"# ").unwrap_or(&last);
        let explains = self.options.explain && explanation.starts_with(b"{\"explain\":");
        if last.starts_with(b"{\"summary\":{\"skipped\":") {
            let document: Value = serde_json::from_slice(&last).unwrap_or_default();
            self.skipped = skipped_of(&document["summary"]);
        } else if !explains {
            self.print(&last)?;
        }
        if let Some(table) = self.table.take() {
            table.write(self.context)?;
        }
        if explains {
            self.context.flush()?;
            explain_line(self.context, explanation);
        }
        let head = u64::from(self.options.format == Format::Csv);
        let matched = if self.options.count {
            self.counted > 0
        } else {
            self.lines > head
        };
        self.context.flush()?;
        let skipped = skipped.or(self.skipped).unwrap_or_default();
        let is_complete = report_skipped(self.context, &skipped);
        report_notes(self.context, &self.notes);
        if !matched {
            note_derived(self.context, self.options, &self.notes);
        }
        Ok(Exit::of_match(is_complete && matched))
    }
}

/// Says why nothing of a derived stream is found that the query names.
fn note_derived(context: &Context, options: &QueryOptions, notes: &[String]) {
    let query = options.request.query.as_ref();
    let text = query.map(|query| query.text()).unwrap_or_default();
    let is_named = DERIVED_ENDINGS.iter().any(|ending| text.contains(ending));
    let is_told = notes.iter().any(|note| note.contains("--derived"));
    if is_named && !options.derived && !is_told {
        context.note(
            "note: the query names a derived stream, and those are omitted, because they repeat \
             events of others; --derived includes them",
        );
    }
}

/// Prints the explanation of the server, and its notes.
fn explain_line(context: &Context, line: &[u8]) {
    let document: Value = serde_json::from_slice(line).unwrap_or_default();
    explain(context, &document);
    if context.json() {
        return;
    }
    let skipped = document["skipped"].as_array();
    for note in document["notes"].as_array().into_iter().flatten() {
        // What was skipped is reported anyway.
        if !skipped.is_some_and(|skipped| skipped.contains(note)) {
            context.note(note.as_str().unwrap_or_default());
        }
    }
}
