//! Groups as rows: a value of the field, and what the events with it add up to.

use super::csv::{write_cell, write_value};
use super::json::write_json_value;
use crate::GroupRow;

/// What is told of a group besides its value. Durations are nanoseconds.
pub const GROUP_COLUMNS: [&str; 9] = [
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

/// Appends a group as a JSON object in a line; a group of events that lack the field has `null`.
pub fn write_group_ndjson(field: &str, group: &GroupRow, out: &mut Vec<u8>) {
    out.push(b'{');
    write_json_value(trace_query::Value::from(field), out);
    out.push(b':');
    match &group.value {
        Some(value) => write_json_value(value.as_value(), out),
        None => out.extend_from_slice(b"null"),
    }
    for (name, number) in GROUP_COLUMNS.iter().zip(numbers(group)) {
        out.extend_from_slice(format!(",\"{name}\":").as_bytes());
        out.extend_from_slice(number.as_deref().unwrap_or("null").as_bytes());
    }
    out.extend_from_slice(b"}\n");
}

/// The header of groups as comma-separated values.
pub fn group_csv_head(field: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write_cell(field.as_bytes(), &mut out);
    for name in GROUP_COLUMNS {
        out.push(b',');
        out.extend_from_slice(name.as_bytes());
    }
    out.push(b'\n');
    out
}

/// Appends a group as comma-separated values; what is not known is empty.
pub fn write_group_csv(group: &GroupRow, out: &mut Vec<u8>) {
    if let Some(value) = &group.value {
        write_value(value.as_value(), out);
    }
    for number in numbers(group) {
        out.push(b',');
        out.extend_from_slice(number.unwrap_or_default().as_bytes());
    }
    out.push(b'\n');
}

/// The numbers of a group in the order of [`GROUP_COLUMNS`], as JSON spells them.
fn numbers(group: &GroupRow) -> [Option<String>; 9] {
    let durations = &group.totals.durations;
    let (min, max) = durations.range().unzip();
    let sum = (durations.count > 0).then(|| i64::try_from(durations.sum).unwrap_or(i64::MAX));
    let quantile = |q| durations.quantile(q);
    let whole = |number: Option<i64>| number.map(|number| number.to_string());
    let real = |number: Option<f64>| {
        let mut text = Vec::new();
        write_json_value(trace_query::Value::Float(number?), &mut text);
        String::from_utf8(text).ok()
    };
    [
        Some(group.totals.events.to_string()),
        Some(durations.count.to_string()),
        whole(sum),
        whole(min),
        whole(max),
        real(durations.mean()),
        real(quantile(0.5)),
        real(quantile(0.9)),
        real(quantile(0.99)),
    ]
}
