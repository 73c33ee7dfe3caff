//! Prints counts, groups and explanations.

use std::io::Write;

use io_analysis::TextTable;
use query_engine::{ReadError, Report};
use row_formats::{Format, GroupColumn, GroupRow, write_group_ndjson, write_groups};
use serde_json::{Map, Value, json};

use super::options::QueryOptions;
use crate::command::{CommandError, Context};

pub(super) fn print_count(
    context: &Context,
    count: u64,
    report: &Report,
) -> Result<(), CommandError> {
    if !context.json() {
        return context.line(count.to_string());
    }
    let mut document = json!({ "count": count });
    if !report.is_complete() {
        document["skipped"] = report.skipped_reasons().collect();
    }
    context.document(&document)
}

/// Prints groups. Returns notes for the user.
pub(super) fn print_groups(
    context: &Context,
    columns: &[GroupColumn],
    groups: &[GroupRow],
    options: &QueryOptions,
) -> Result<Vec<String>, CommandError> {
    if options.format == Format::Text {
        let (mut table, mut row) = (GroupTable::new(columns), Vec::new());
        for group in groups {
            row.clear();
            write_group_ndjson(columns, group, &mut row);
            table.row(&row);
        }
        table.write(context)?;
        return Ok(Vec::new());
    }
    let mut out = context.out();
    let mut write = |bytes: &[u8]| out.write_all(bytes);
    let notes = write_groups(
        options.format,
        columns,
        groups,
        options.row_group_bytes,
        &mut write,
    )
    .map_err(ReadError::from)?;
    Ok(notes)
}

/// Groups as a text table.
pub(super) struct GroupTable {
    columns: Vec<String>,
    table: TextTable,
}

impl GroupTable {
    pub(super) fn new(columns: &[GroupColumn]) -> Self {
        let columns = columns.iter().map(|column| column.label.clone());
        let columns: Vec<String> = columns.collect();
        let heads = columns.iter().map(|label| label.to_uppercase());
        Self {
            table: TextTable::new(heads),
            columns,
        }
    }

    /// Adds a group from its line of NDJSON.
    pub(super) fn row(&mut self, line: &[u8]) {
        let document: Map<String, Value> = serde_json::from_slice(line).unwrap_or_default();
        let cells = self.columns.iter().map(|name| match document.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => match number.as_f64() {
                Some(fraction) if number.is_f64() => fraction_text(fraction),
                _ => number.to_string(),
            },
            Some(Value::Bool(value)) => value.to_string(),
            _ => "-".to_owned(),
        });
        let cells: Vec<String> = cells.collect();
        self.table.row(cells);
    }

    pub(super) fn write(self, context: &Context) -> Result<(), CommandError> {
        let text = self.table.fit(context.layout());
        Ok(context.out().write_all(text.as_bytes())?)
    }
}

/// Large fractions without decimal places, as means of nanoseconds, others with three.
fn fraction_text(fraction: f64) -> String {
    if fraction.abs() >= 1_000.0 {
        return format!("{fraction:.0}");
    }
    let text = format!("{fraction:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

/// The explanation of a query that was executed here, as the server writes it.
pub(super) fn explanation_of(report: &Report) -> Value {
    let explain: Value = serde_json::from_str(&report.json()).unwrap_or_default();
    let skipped: Vec<&str> = report.skipped_reasons().collect();
    let damaged = report.damaged.iter().map(String::as_str);
    let notes = skipped.iter().copied().chain(damaged);
    let notes: Vec<&str> = notes
        .chain(report.notes.iter().map(String::as_str))
        .collect();
    json!({ "explain": explain, "notes": notes, "skipped": skipped })
}

/// Prints an explanation: with `--json` as it is, otherwise a line for each fact.
pub(super) fn explain(context: &Context, document: &Value) {
    if context.json() {
        return context.note(document.to_string());
    }
    for line in explanation_lines(&document["explain"]) {
        context.note(line);
    }
}

fn explanation_lines(explain: &Value) -> Vec<String> {
    let number = |name: &str| explain[name].as_u64().unwrap_or(0);
    let ruled_out = |tier: &str| explain["ruled_out"][tier].as_u64().unwrap_or(0);
    let tiers = ["statistics", "dictionaries", "filters"];
    let left = tiers.iter().fold(number("chunks"), |left, tier| {
        left.saturating_sub(ruled_out(tier))
    });
    let mut lines = vec![
        format!(
            "sources: {}, ruled out by origin: {}, with an index: {}",
            number("sources"),
            number("left_out"),
            number("indexed")
        ),
        format!("chunks: {}", number("chunks")),
    ];
    lines.extend(tiers.map(|tier| format!("  ruled out by {tier}: {}", ruled_out(tier))));
    let mut add = |text: String| lines.push(text);
    add(format!("  answered by summaries: {}", number("summarized")));
    let slowest = number("slowest");
    add(format!(
        "  answered by slowest events in the index: {slowest}"
    ));
    add(format!("  answered by columns: {}", number("columns")));
    add(format!(
        "  read: {} of the {left} that remained",
        number("read")
    ));
    for (name, what) in [
        ("index_bytes", "index bytes fetched"),
        ("column_bytes", "column bytes fetched"),
        ("fetched_bytes", "bytes fetched"),
        ("decoded_bytes", "bytes decoded"),
        ("events", "events decoded"),
    ] {
        add(format!("{what}: {}", number(name)));
    }
    let about = if explain["ended_early"] == true {
        "at least "
    } else if explain["matched_is_estimate"] == true {
        "about "
    } else {
        ""
    };
    add(format!("events matched: {about}{}", number("matched")));
    add(format!("rows: {}", number("rows")));
    if number("timed") > 0 {
        add(format!(
            "runs of packets without a chunk index: {}, ruled out by the times of their packets: {}",
            number("timed"),
            number("out_of_time")
        ));
    }
    for (name, what) in [
        ("skipped", "unreadable records skipped"),
        ("spills", "times that rows were spilled to a file"),
    ] {
        if number(name) > 0 {
            add(format!("{what}: {}", number(name)));
        }
    }
    for (name, what) in [
        ("requests", "requests to the server"),
        ("moved_bytes", "bytes transferred"),
    ] {
        if explain[name].is_u64() {
            lines.push(format!("{what}: {}", number(name)));
        }
    }
    lines
}
