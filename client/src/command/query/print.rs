//! Prints counts, groups and explanations.

use std::io::Write;

use query_engine::{ReadError, Report};
use row_formats::{Format, GROUP_COLUMNS, GroupRow, write_group_ndjson, write_groups};
use serde_json::{Map, Value, json};

use super::options::QueryOptions;
use crate::command::{CommandError, Context};
use io_analysis::TextTable;

pub(super) fn print_count(
    context: &Context,
    count: u64,
    report: &Report,
    explain: bool,
) -> Result<(), CommandError> {
    if !context.json() {
        return context.line(count.to_string());
    }
    let mut document = json!({ "count": count });
    if !report.is_complete() {
        document["skipped"] = report.skipped_reasons().collect();
    }
    if explain {
        document["explain"] = report_document(report);
    }
    context.document(&document)
}

pub(super) fn print_groups(
    context: &Context,
    field: &str,
    groups: &[GroupRow],
    options: &QueryOptions,
) -> Result<(), CommandError> {
    if options.format == Format::Text {
        let (mut table, mut row) = (GroupTable::new(), Vec::new());
        for group in groups {
            row.clear();
            write_group_ndjson(field, group, &mut row);
            table.row(field, &row);
        }
        return table.write(context);
    }
    let mut out = context.out();
    let mut write = |bytes: &[u8]| out.write_all(bytes);
    write_groups(
        options.format,
        field,
        groups,
        options.row_group_bytes,
        &mut write,
    )
    .map_err(ReadError::from)?;
    Ok(())
}

/// Groups as a text table.
pub(super) struct GroupTable(TextTable);

impl GroupTable {
    pub(super) fn new() -> Self {
        let heads = std::iter::once("value").chain(GROUP_COLUMNS);
        Self(TextTable::new(heads.map(str::to_uppercase)))
    }

    /// Adds a group from its line of NDJSON.
    pub(super) fn row(&mut self, field: &str, line: &[u8]) {
        let document: Map<String, Value> = serde_json::from_slice(line).unwrap_or_default();
        let cell = |name: &str| match document.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => match number.as_f64() {
                Some(fraction) if number.is_f64() => format!("{fraction:.0}"),
                _ => number.to_string(),
            },
            Some(Value::Bool(value)) => value.to_string(),
            _ => "-".to_owned(),
        };
        let cells = std::iter::once(cell(field));
        let cells = cells.chain(GROUP_COLUMNS.iter().map(|name| cell(name)));
        self.0.row(cells.collect::<Vec<_>>());
    }

    pub(super) fn write(self, context: &Context) -> Result<(), CommandError> {
        Ok(context.out().write_all(self.0.to_text().as_bytes())?)
    }
}

fn report_document(report: &Report) -> Value {
    serde_json::from_str(&report.json()).unwrap_or_default()
}

pub(super) fn explanation(report: &Report, json: bool) -> Vec<String> {
    if json {
        vec![json!({ "explain": report_document(report) }).to_string()]
    } else {
        report.lines()
    }
}
