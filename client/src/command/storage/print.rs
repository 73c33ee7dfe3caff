use io_analysis::{Layout, TextTable, bytes_text};
use query_language::time::rfc3339;
use serde_json::{Map, Value};

use super::super::context::counted;
use super::super::listing::Listing;
use super::super::{CommandError, Context, Exit};
use crate::ClientError;
use crate::http::{Missing, RepairResult, Storage, VerifyReport};

/// Prints a storage on one line, the ID first, so that a script can cut it off.
pub(super) fn print_storage(context: &Context, storage: &Storage) -> Result<Exit, CommandError> {
    context.print(storage, || {
        format!("{} {} {}", storage.id, storage.state, storage.name)
    })?;
    Ok(Exit::Done)
}

/// Columns of a terminal on which the whole table of storages has room for names and times.
const WHOLE_TABLE_WIDTH: usize = 100;

pub(super) fn print_list(
    context: &Context,
    listing: Listing,
    storages: &[Storage],
) -> Result<Exit, CommandError> {
    listing.print_fitting(context, storages, |layout| table(storages, layout))?;
    Ok(Exit::Done)
}

/// The table of storages. On a narrow terminal, it lacks the columns that say least, so that IDs
/// are whole and most of a name is seen.
fn table(storages: &[Storage], layout: Layout) -> TextTable {
    let is_whole = layout.width.is_none_or(|width| width >= WHOLE_TABLE_WIDTH);
    let columns = ["ID", "STATE", "PACKETS", "BYTES", "CREATED", "NAME"];
    let is_shown = |column: &str| is_whole || !matches!(column, "PACKETS" | "CREATED");
    let shown = columns.into_iter().filter(|column| is_shown(column));
    let mut table = TextTable::new(shown);
    for storage in storages {
        let cells = [
            storage.id.to_string(),
            storage.state.clone(),
            storage.packets.to_string(),
            bytes_text(storage.bytes),
            storage.created.clone().unwrap_or_default(),
            storage.name.clone(),
        ];
        let cells = columns.into_iter().zip(cells);
        let cells = cells.filter(|(column, _)| is_shown(column));
        table.row(cells.map(|(_, cell)| cell).collect::<Vec<_>>());
    }
    table
}

/// Prints all fields of a storage and of its status.
pub(super) fn print_details(
    context: &Context,
    listing: Listing,
    storage: &Storage,
    status: &Map<String, Value>,
) -> Result<Exit, CommandError> {
    let mut document = serde_json::to_value(storage).map_err(|error| ClientError::Answer {
        url: storage.id.to_string(),
        what: error.to_string(),
    })?;
    if listing.is_json(context) {
        document["status"] = Value::Object(status.clone());
        context.document(&document)?;
        return Ok(Exit::Done);
    }
    let rows = rows(document, status);
    context.print_fields(rows.iter().map(|(name, value)| (name, value)))?;
    Ok(Exit::Done)
}

/// What is shown of a storage and its status: each field once, times as text, no empty lists.
fn rows(mut document: Value, status: &Map<String, Value>) -> Vec<(String, Value)> {
    for name in ["begin", "end"] {
        let time = document[name].as_i64().map(rfc3339);
        if let Some(time) = time {
            document[name] = time.into();
        }
    }
    let storage = document.as_object().into_iter().flatten();
    let more = status
        .iter()
        .filter(|(name, _)| document.get(name.as_str()).is_none());
    let is_empty = |value: &Value| {
        value.as_array().is_some_and(Vec::is_empty) || value.as_str().is_some_and(str::is_empty)
    };
    let rows = storage.chain(more).filter(|(_, value)| !is_empty(value));
    rows.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Prints the result of a verification.
pub(super) fn print_verified(context: &Context, result: Value) -> Result<Exit, CommandError> {
    let report: VerifyReport =
        serde_json::from_value(result).map_err(|error| ClientError::Answer {
            url: "the result of the job".to_owned(),
            what: error.to_string(),
        })?;
    context.print(&report, || verified_text(&report))?;
    Ok(verified_exit(&report))
}

fn verified_text(report: &VerifyReport) -> String {
    let mut text = String::new();
    for damage in &report.damage {
        let offset = damage.offset.map(|at| format!(" at {at}"));
        let offset = offset.unwrap_or_default();
        text.push_str(&format!(
            "damaged: {}{offset}: {}\n",
            damage.file, damage.what
        ));
    }
    for missing in &report.missing {
        text.push_str(&missing_line(missing));
    }
    if let Some(reason) = &report.missing_unknown {
        text.push_str(&format!(
            "it is not known which packets are missing: {reason}\n"
        ));
    }
    text += &format!(
        "{}, {}, {} read, {} damaged",
        counted(report.files, "file"),
        counted(report.packets, "packet"),
        bytes_text(report.bytes),
        report.damage.len()
    );
    if report.missing_packets > 0 || report.repair.is_some() {
        text += &format!(", {} missing", report.missing_packets);
    }
    text + report.repair.as_ref().map_or("", repair_line)
}

fn verified_exit(report: &VerifyReport) -> Exit {
    let is_told = report.missing_unknown.is_none();
    let is_whole = is_told && report.damage.is_empty() && report.missing_packets == 0;
    Exit::of_integrity(is_whole)
}

fn missing_line(missing: &Missing) -> String {
    let Missing {
        first,
        last,
        file,
        offset,
        length,
        leaf,
    } = missing;
    let leaf = leaf.as_ref().map(|leaf| format!(", leaf {leaf}"));
    let leaf = leaf.unwrap_or_default();
    format!("missing: packets {first} to {last}{leaf}: {file} at {offset}, {length} bytes\n")
}

fn repair_line(repair: &RepairResult) -> &'static str {
    if repair.repaired {
        "\nthe storage is open again"
    } else if !repair.needed {
        "\nthere is nothing to repair"
    } else {
        "\nnothing was changed; --confirm opens the storage without what is missing"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_of_storages_fits_80_columns_with_whole_ids() {
        let id = "0189f7a0-1234-7abc-8def-0123456789ab";
        let storage = json!({
            "id": id, "name": "a name that is longer than any column", "state": "FINALIZED",
            "packets": 1_234_567, "bytes": 1_099_511_627_775_u64,
            "created": "2026-11-29T03:44:21.123456789Z",
        });
        let storages: Vec<Storage> = vec![serde_json::from_value(storage).unwrap()];
        let lines = |width: Option<usize>| {
            let layout = Layout {
                width,
                has_colour: false,
            };
            let text = table(&storages, layout).fit(layout);
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        for width in [76, 80, 99, 100, 120] {
            let [heading, row] = &lines(Some(width))[..] else {
                panic!("{width}: {:?}", lines(Some(width)));
            };
            assert!(row.chars().count() <= width, "{width}: {row}");
            assert!(
                row.starts_with(id) && row.contains("a name that"),
                "{width}: {row}"
            );
            assert_eq!(heading.contains("PACKETS"), width >= 100, "{heading}");
        }
        let all = lines(None);
        assert!(
            all[0].ends_with("CREATED                         NAME"),
            "{all:?}"
        );
        assert!(
            all[1].ends_with("a name that is longer than any column"),
            "{all:?}"
        );
    }

    #[test]
    fn each_finding_alone_is_told_and_decides_the_exit_code() {
        let damage = json!([{ "file": "f", "offset": 7, "what": "torn" }]);
        let missing = json!([{ "first": 3, "last": 4, "file": "f", "offset": 9, "length": 5 }]);
        let nothing = "0 files, 0 packets, 0 B read, 0 damaged";
        for (result, exit, text) in [
            (json!({}), Exit::Done, nothing.to_owned()),
            (
                json!({ "missing_unknown": "a.repairs is damaged" }),
                Exit::NoMatchOrDamage,
                format!(
                    "it is not known which packets are missing: a.repairs is damaged\n{nothing}"
                ),
            ),
            (
                json!({ "missing_packets": 2 }),
                Exit::NoMatchOrDamage,
                format!("{nothing}, 2 missing"),
            ),
            (
                json!({ "missing_packets": 2, "missing": missing }),
                Exit::NoMatchOrDamage,
                format!("missing: packets 3 to 4: f at 9, 5 bytes\n{nothing}, 2 missing"),
            ),
            (
                json!({ "damage": damage }),
                Exit::NoMatchOrDamage,
                "damaged: f at 7: torn\n0 files, 0 packets, 0 B read, 1 damaged".to_owned(),
            ),
        ] {
            let report: VerifyReport = serde_json::from_value(result.clone()).unwrap();
            assert_eq!(verified_text(&report), text);
            assert_eq!(verified_exit(&report), exit, "{result}");
        }
    }
}
