//! Prints counts, groups and explanations.

use std::io::Write;

use io_analysis::TextTable;
use query_engine::{ReadError, Report};
use row_formats::{Format, GroupColumn, GroupRow, Known, write_group_ndjson, write_groups};
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

/// Prints groups. Returns more notes for the user than the report has.
pub(super) fn print_groups(
    context: &Context,
    (columns, groups): (&[GroupColumn], &[GroupRow]),
    options: &QueryOptions,
    report: &Report,
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
    let skipped: Vec<String> = report.skipped_reasons().map(str::to_owned).collect();
    let known = Known {
        skipped: &skipped,
        notes: &report.notes,
    };
    let mut out = context.out();
    let mut write = |bytes: &[u8]| out.write_all(bytes);
    let notes = write_groups(
        options.format,
        columns,
        groups,
        options.row_group_bytes,
        known,
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

/// Large fractions without decimal places, as means of nanoseconds, others with three. What would
/// be too long to read, and what three places would show as zero, has the digits that identify it.
fn fraction_text(fraction: f64) -> String {
    match fraction.abs() {
        0.0 => "0".to_owned(),
        EXPONENT_MIN.. | ..EXPONENT_BELOW => format!("{fraction:e}"),
        1_000.0.. => format!("{fraction:.0}"),
        ..0.0005 => fraction.to_string(),
        _ => {
            let text = format!("{fraction:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

/// From here on, a fraction is written with an exponent, and below the other bound.
const EXPONENT_MIN: f64 = 1e21;
const EXPONENT_BELOW: f64 = 1e-6;

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

#[cfg(test)]
mod tests {
    use chunk_index::OwnedValue;
    use query_language::FieldPath;
    use row_formats::GroupColumnKind;

    use super::*;

    #[test]
    fn fractions_are_short() {
        let columns = [GroupColumn {
            label: "x".to_owned(),
            kind: GroupColumnKind::Values(FieldPath::new("x")),
        }];
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.5, "0.5"),
            (2.0, "2"),
            (-1.23456, "-1.235"),
            (999.9996, "1000"),
            (1234.5678, "1235"),
            (-9.99e20, "-999000000000000000000"),
            (1e21, "1e21"),
            (1e308, "1e308"),
            (-1.5e300, "-1.5e300"),
            (1.2345678901234567e200, "1.2345678901234567e200"),
            (f64::MAX, "1.7976931348623157e308"),
            (0.0005, "0.001"),
            (0.0004, "0.0004"),
            (-0.000_001_5, "-0.0000015"),
            (1e-6, "0.000001"),
            (9.9e-7, "9.9e-7"),
            (-1e-300, "-1e-300"),
            (5e-324, "5e-324"),
            // JSON has no such numbers.
            (f64::NAN, "-"),
            (f64::INFINITY, "-"),
        ] {
            let (mut table, mut line) = (GroupTable::new(&columns), Vec::new());
            let group = vec![Some(OwnedValue::Float(value))];
            write_group_ndjson(&columns, &group, &mut line);
            table.row(&line);
            let shown = table.table.to_text();
            assert_eq!(shown.lines().nth(1).unwrap().trim(), text, "{value:?}");
        }
    }
}
