//! Queries that the server executes on a storage.

use std::io::Write;

use row_formats::{Columns, Format};
use serde_json::{Value, json};

use super::options::QueryOptions;
use super::print::GroupTable;
use super::{CommandError, Context, Exit};
use crate::http::QuerySpec;

/// Longest line of a response that is parsed: counts, groups, explanations.
const LINE_BYTES_MAX: usize = 16 << 20;

pub(super) fn run(
    context: &Context,
    storage: &str,
    options: &QueryOptions,
) -> Result<Exit, CommandError> {
    let client = context.client()?;
    let spec = spec(options);
    context.block_on(async {
        let storage = client.find_storage(storage).await?.id;
        let mut answer = client.query(storage, &spec).await?;
        if !options.format.is_lines() && !options.count {
            while let Some(bytes) = answer.next().await? {
                context.out().write_all(&bytes)?;
            }
            return Ok(Exit::of_match(answer.matched() != Some(0)));
        }
        let mut printer = Printer::new(context, options);
        while let Some(bytes) = answer.next().await? {
            printer.take(&bytes)?;
        }
        printer.finish()
    })
}

fn spec(options: &QueryOptions) -> QuerySpec {
    let whole = options.count || options.group_by.is_some();
    QuerySpec {
        query: options
            .request
            .query
            .as_ref()
            .map(|query| query.text().to_owned()),
        from: options.request.from,
        to: options.request.to,
        fields: match &options.columns {
            Columns::All => Vec::new(),
            Columns::Fields(fields) => fields.clone(),
        },
        count: options.count,
        group_by: options.group_by.clone(),
        format: match options.format {
            // Text tables are built here, and explanations are parsed from lines of JSON.
            Format::Text if whole => Format::Ndjson.as_str(),
            format if options.count && !format.is_lines() => Format::Ndjson.as_str(),
            format => format.as_str(),
        },
        explain: options.explain,
    }
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
    /// Whether the server skipped damaged data.
    has_skipped: bool,
}

impl<'a> Printer<'a> {
    fn new(context: &'a Context, options: &'a QueryOptions) -> Self {
        let as_table = options.group_by.is_some() && options.format == Format::Text;
        Self {
            context,
            options,
            table: as_table.then(GroupTable::new),
            pending: Vec::new(),
            lines: 0,
            counted: 0,
            has_skipped: false,
        }
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
            match (&mut self.table, &self.options.group_by) {
                (Some(table), Some(field)) => table.row(field, line),
                _ if self.options.count => self.print_count(line)?,
                _ => self.context.out().write_all(line)?,
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
        for skipped in document["skipped"].as_array().into_iter().flatten() {
            self.has_skipped = true;
            let what = skipped.as_str().unwrap_or_default();
            self.context
                .note(format!("{what}; the server skipped this data"));
        }
        self.context
            .print(&json!({ "count": count }), || count.to_string())
    }

    fn finish(mut self) -> Result<Exit, CommandError> {
        let last = std::mem::take(&mut self.pending);
        let explanation = last.strip_prefix(b"# ").unwrap_or(&last);
        let explains = self.options.explain && explanation.starts_with(b"{\"explain\":");
        if !explains {
            self.print(&last)?;
        }
        if let Some(table) = self.table.take() {
            table.write(self.context)?;
        }
        if explains {
            self.context.flush()?;
            explain(self.context, explanation);
        }
        let head = u64::from(self.options.format == Format::Csv);
        let matched = if self.options.count {
            self.counted > 0 && !self.has_skipped
        } else {
            self.lines > head
        };
        Ok(Exit::of_match(matched))
    }
}

fn explain(context: &Context, line: &[u8]) {
    if context.json() {
        context.note(String::from_utf8_lossy(line).trim_end());
        return;
    }
    let document: Value = serde_json::from_slice(line).unwrap_or_default();
    for (name, value) in document["explain"].as_object().into_iter().flatten() {
        context.note(format!("{name}: {value}"));
    }
    for note in document["notes"].as_array().into_iter().flatten() {
        context.note(note.as_str().unwrap_or_default());
    }
}
