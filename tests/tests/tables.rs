//! Tables have one schema for every file of every kind, and the values of the JSON lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use harness::spans::send_spans;
use harness::{Server, Settings, run_tracehold, small_traces, tables_python};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::queries::{push, run};
use crate::recording::{record_now, saver, span, stop};

/// The columns of every kind.
const DEFAULT: [(&str, &str, &str); 7] = [
    ("ts", "timestamp[ns, tz=UTC]", "TIMESTAMPTZ_NS"),
    ("dur", "int64", "BIGINT"),
    ("name", TEXT, "VARCHAR"),
    ("cat", TEXT, "VARCHAR"),
    ("pid", "int64", "BIGINT"),
    ("tid", "int64", "BIGINT"),
    ("rest", "string", "VARCHAR"),
];
const TEXT: &str = "dictionary<values=string, indices=int32, ordered=0>";

type Row = Map<String, Value>;

fn lines(source: &[&str], more: &[&str]) -> Vec<Row> {
    let (code, out, errors) = run(&[&["query"], source, more, &["--format", "ndjson"]].concat());
    assert!(code <= 1, "{source:?} {more:?}: {errors}");
    let lines = out.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

struct Tables {
    python: PathBuf,
    folder: TempDir,
}

/// What readers find in a table.
struct Found {
    arrow: BTreeMap<String, String>,
    duckdb: BTreeMap<String, String>,
    rows: Vec<Row>,
}

impl Tables {
    /// Without the readers, the reason is printed.
    fn new() -> Option<Self> {
        Some(Self {
            python: tables_python()?,
            folder: tempfile::tempdir().unwrap(),
        })
    }

    fn read(&self, format: &str, source: &[&str], more: &[&str]) -> Found {
        let words = [&["query"], source, more, &["--format", format]].concat();
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let output = run_tracehold(&words);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code().unwrap() <= 1, "{words:?}: {errors}");
        let path = self.folder.path().join(format!("table.{format}"));
        fs::write(&path, output.stdout).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/data/table_rows.py");
        let mut reader = Command::new(&self.python);
        let output = reader.args([script, format]).arg(path).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let of = |name: &str| serde_json::from_value(found[name].clone()).unwrap();
        Found {
            arrow: of("arrow"),
            duckdb: of("duckdb"),
            rows: serde_json::from_value(found["rows"].clone()).unwrap(),
        }
    }

    /// The schema of the default columns, and every value of them and of all fields.
    fn check(&self, source: &[&str], kind: &str) {
        let all = lines(source, &[]);
        assert!(!all.is_empty(), "{source:?}");
        let names: BTreeSet<&String> = all.iter().flat_map(Map::keys).collect();
        let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
        // No column begins with `ts` by chance.
        let mut fields = vec!["ts"];
        let is_plain = |name: &str| !name.contains([',', '`']) && name != "ts";
        fields.extend(names.into_iter().filter(|name| is_plain(name)).take(60));
        let computed = ["(dur / 1000)", "(dur + 1us)", "(ts + dur)"];
        fields.extend(computed);
        let list = fields.join(",");
        let expected = lines(source, &["--fields", &list]);
        for format in ["parquet", "arrow"] {
            let found = self.read(format, source, &[]);
            for (name, arrow, duckdb) in DEFAULT {
                assert_eq!(found.arrow[name], arrow, "{kind} {format} {name}");
                assert_eq!(found.duckdb[name], duckdb, "{kind} {format} {name}");
            }
            assert_eq!(found.arrow.len(), DEFAULT.len(), "{kind} {format}");
            for (row, line) in found.rows.iter().zip(&all) {
                check_default_row(row, line, kind);
            }
            assert_eq!(found.rows.len(), all.len());
            let found = self.read(format, source, &["--fields", &list]);
            assert_eq!(found.rows.len(), expected.len(), "{kind} {format}");
            assert_eq!(found.arrow["(dur / 1000)"], "double");
            assert_eq!(found.arrow["(dur + 1us)"], "int64");
            assert_eq!(found.arrow["(ts + dur)"], "timestamp[ns, tz=UTC]");
            let has_one_schema = kind.starts_with("rocksdb") || kind == "io-trace";
            for (row, line) in found.rows.iter().zip(&expected) {
                check_row(row, line, &found.arrow, kind);
                assert!(!has_one_schema || row["rest"].is_null(), "{kind}: {row:?}");
            }
        }
    }
}

/// A value as a column of text contains it.
fn text(value: &Value) -> Value {
    match value {
        Value::Null | Value::String(_) => value.clone(),
        // A whole float has no fraction as text.
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap();
            Value::String(float.to_string())
        }
        other => Value::String(other.to_string()),
    }
}

/// Whether a fraction differs by what the JSON reader of the tests loses, which does not read the
/// last digit exactly.
fn is_near(found: &Value, expected: &Value) -> bool {
    let found = match found {
        Value::String(text) => text.parse().ok(),
        other => other.as_f64(),
    };
    let expected = expected.as_f64().filter(|_| expected.is_f64());
    let near = |(a, b): (f64, f64)| (a - b).abs() <= b.abs() * (2.0 * f64::EPSILON);
    found.zip(expected).is_some_and(near)
}

fn check_row(row: &Row, line: &Row, types: &BTreeMap<String, String>, kind: &str) {
    let rest: Row = match row["rest"].as_str() {
        Some(rest) => serde_json::from_str(rest).unwrap(),
        None => Row::new(),
    };
    for (name, expected) in line {
        let found = &row[name];
        if let Some(misfit) = rest.get(name) {
            assert_eq!((found, misfit), (&Value::Null, expected), "{kind} {name}");
            continue;
        }
        let is_same = match types[name].as_str() {
            TEXT => *found == text(expected) || is_near(found, expected),
            // Text that spells a number is one in a column of numbers.
            "double" => *found == *expected || is_near(found, expected),
            _ => *found == *expected || text(found) == text(expected),
        };
        assert!(is_same, "{kind} {name}: {found} not {expected}");
    }
}

/// Common fields have a column, all others are in `rest`.
fn check_default_row(row: &Row, line: &Row, kind: &str) {
    let rest: Row = match row["rest"].as_str() {
        Some(rest) => serde_json::from_str(rest).unwrap(),
        None => Row::new(),
    };
    let (mut columns, mut others) = (0, 0);
    for (name, expected) in line {
        match row.get(name).filter(|found| !found.is_null()) {
            Some(found) => {
                columns += 1;
                assert_eq!(text(found), text(expected), "{kind} {name}");
            }
            None => {
                others += 1;
                assert_eq!(rest[name], *expected, "{kind} {name}");
            }
        }
    }
    assert_eq!(rest.len(), others, "{kind} {line:?}");
    // Some kinds compute common fields from others, and then do not list them.
    let given = DEFAULT[..6]
        .iter()
        .filter(|(name, ..)| !row[*name].is_null());
    assert!(given.count() >= columns, "{kind} {row:?}");
}

#[test]
fn tables_of_all_kinds_have_one_schema_and_the_values_of_json_lines() {
    let Some(tables) = Tables::new() else { return };
    let server = Server::start(&tables.folder.path().join("data"), &Settings::default());
    let url = server.url();
    let mut api = server.api();
    api.done("POST", "/io-trace/start", None);
    let kinds = [
        "ctf",
        "dft",
        "rocksdb-io",
        "rocksdb-block-cache",
        "chrome",
        "chrome",
    ];
    let traces = small_traces();
    assert_eq!(traces.len(), kinds.len());
    for (path, kind) in traces.iter().zip(kinds) {
        tables.check(&[path.to_str().unwrap()], kind);
        let storage = api.create_storage(path.file_name().unwrap().to_str().unwrap());
        push(&server, &storage, path, "65536");
        tables.check(&["--server", &url, "--storage", &storage], kind);
    }
    let (recording, spans) = record_now(&mut api, json!({ "processors": saver() }));
    send_spans(
        &mut api,
        "shop",
        &[span(1, 1, 0, "buy"), span(1, 2, 1, "look")],
    );
    stop(&mut api, &recording);
    tables.check(&["--server", &url, "--storage", &spans], "otlp");
    let ended = api.done("POST", "/io-trace/stop", None);
    let trace = ended["storage"].as_str().unwrap();
    tables.check(&["--server", &url, "--storage", trace], "io-trace");
}

#[test]
fn tables_of_groups_have_types_that_do_not_follow_their_values() {
    let Some(tables) = Tables::new() else { return };
    let words = [
        "--every",
        "1s",
        "--group-by",
        "name,ret,(dur // 1000)",
        "--aggregate",
        "count,sum:ret,sum:x,avg:dur,min:fname,max:ts",
    ];
    let expected = [
        ("ts", "timestamp[ns, tz=UTC]"),
        ("name", TEXT),
        ("ret", "int64"),
        ("(dur // 1000)", "int64"),
        ("count", "int64"),
        ("sum:ret", "int64"),
        ("sum:x", "double"),
        ("avg:dur", "double"),
        ("min:fname", TEXT),
        ("max:ts", "timestamp[ns, tz=UTC]"),
        ("rest", "string"),
    ];
    let expected = expected.map(|(name, kind)| (name.to_owned(), kind.to_owned()));
    let expected: BTreeMap<String, String> = expected.into();
    for path in &small_traces()[..2] {
        for filter in ["", "nosuch == 1"] {
            let source = [path.to_str().unwrap(), filter];
            let found = tables.read("parquet", &source, &words);
            assert_eq!(found.arrow, expected, "{source:?}");
            let lines = lines(&source, &words);
            assert_eq!(found.rows.len(), lines.len(), "{source:?}");
            for (row, line) in found.rows.iter().zip(&lines) {
                check_row(row, line, &found.arrow, "groups");
            }
        }
    }
}
