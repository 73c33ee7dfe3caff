//! Parquet, Arrow and Perfetto files written by queries are readable by other programs and contain
//! the same data as the JSON lines.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use harness::{Server, Settings, run_tracehold, small_traces, tables_python};
use serde_json::Value;

const QUERIES: &[&str] = &["", "dur > 10us", "name == 'nosuch'"];

/// The standard output of a query, and whether anything matched.
fn query_output(source: &[&str], more: &[&str]) -> (Vec<u8>, bool) {
    let words = [&["query"], source, more].concat();
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let output = run_tracehold(&words);
    let code = output.status.code().unwrap();
    assert!(
        code <= 1,
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    (output.stdout, code == 0)
}

struct Readers<'p> {
    python: &'p Path,
    folder: &'p Path,
}

impl Readers<'_> {
    /// What the external readers find in files of these formats.
    fn read(&self, answers: &[(&str, Vec<u8>)]) -> Vec<Value> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/data/read_format.py");
        let mut reader = Command::new(self.python);
        reader.arg(script);
        for (format, bytes) in answers {
            let path = self.folder.join(format!("answer.{format}"));
            fs::write(&path, bytes).unwrap();
            reader.arg(format).arg(&path);
        }
        let output = reader.output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{complaint}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let lines = lines.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().unwrap()
    }

    /// Runs the query in every format and compares the results with the JSON lines.
    fn check(&self, source: &[&str], query: &str) {
        let (lines, found) = query_output(source, &[query, "--format", "ndjson"]);
        let rows: Vec<Value> = String::from_utf8(lines)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let mut names = BTreeMap::<&str, u64>::new();
        for row in &rows {
            *names.entry(row["name"].as_str().unwrap()).or_default() += 1;
        }
        let times = rows.iter().filter_map(|row| row["ts"].as_i64());
        let sum: i64 = rows.iter().filter_map(|row| row["dur"].as_i64()).sum();
        let answers = ["parquet", "arrow", "perfetto"].map(|format| {
            let (bytes, also_found) = query_output(source, &[query, "--format", format]);
            assert_eq!(also_found, found, "{source:?} {format}: {query}");
            (format, bytes)
        });
        for (found, (format, _)) in self.read(&answers).iter().zip(&answers) {
            let what = format!("{source:?} {format} {query}: {found}");
            assert_eq!(
                found["count"].as_u64().unwrap(),
                rows.len() as u64,
                "{what}"
            );
            assert_eq!(found["dur_sum"].as_i64().unwrap_or(0), sum, "{what}");
            assert_eq!(found["first"].as_i64(), times.clone().min(), "{what}");
            assert_eq!(found["last"].as_i64(), times.clone().max(), "{what}");
            let found_names: BTreeMap<&str, u64> = found["names"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, count)| (name.as_str(), count.as_u64().unwrap()))
                .collect();
            assert_eq!(found_names, names, "{what}");
            assert_ne!(found["ordered"], false, "{what}");
        }
    }

    fn check_groups(&self, source: &[&str], field: &str) {
        let (lines, _) = query_output(source, &["", "--group-by", field, "--format", "ndjson"]);
        let text = String::from_utf8(lines).unwrap();
        let mut expected = BTreeMap::new();
        for line in text.lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let value = match &row[field] {
                Value::String(text) => text.clone(),
                Value::Null => "None".to_owned(),
                other => other.to_string(),
            };
            expected.insert(value, (row["count"].clone(), row["dur_sum"].clone()));
        }
        let answers = ["parquet", "arrow"].map(|format| {
            let (bytes, _) = query_output(source, &["", "--group-by", field, "--format", format]);
            (format, bytes)
        });
        for (found, (format, _)) in self.read(&answers).iter().zip(&answers) {
            let groups = found["groups"].as_object().unwrap().iter();
            let groups: BTreeMap<String, (Value, Value)> = groups
                .map(|(value, sums)| (value.clone(), (sums[0].clone(), sums[1].clone())))
                .collect();
            assert_eq!(groups, expected, "{source:?} {format} by {field}");
        }
    }
}

#[test]
fn tables_and_timelines_contain_the_same_data_as_json_lines() {
    let Some(python) = tables_python() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let readers = Readers {
        python: &python,
        folder: folder.path(),
    };
    let server = Server::start(folder.path(), &Settings::default());
    let storage = server.api().create_storage("all");
    let url = server.url();
    for path in small_traces() {
        let file = path.to_str().unwrap();
        for query in QUERIES {
            readers.check(&[file], query);
        }
        readers.check_groups(&[file], "name");
        readers.check_groups(&[file], "tid");
        let push = ["push", "--server", &url, "--storage", &storage, file];
        let output = run_tracehold(&push.map(str::to_owned));
        assert!(output.status.success());
    }
    let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
    for query in QUERIES.iter().chain(&["kind == 'ctf'"]) {
        readers.check(&stored, query);
    }
    readers.check_groups(&stored, "name");
    readers.check_groups(&stored, "pid");
}

#[test]
fn column_types_follow_the_names() {
    let Some(python) = tables_python() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let readers = Readers {
        python: &python,
        folder: folder.path(),
    };
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/trace-0-of-1.pfw.gz");
    let source = [trace.to_str().unwrap()];
    let answers = ["parquet", "arrow"].map(|format| {
        let fields = "ts,dur,name,pid,args.ret,fname";
        let words = ["exists(ret)", "--fields", fields, "--format", format];
        (format, query_output(&source, &words).0)
    });
    for (found, (format, _)) in readers.read(&answers).iter().zip(&answers) {
        let columns = &found["columns"];
        for (column, kind) in [
            ("ts", "TIMESTAMPTZ_NS"),
            ("dur", "BIGINT"),
            ("pid", "BIGINT"),
            ("args.ret", "BIGINT"),
            ("name", "VARCHAR"),
            ("fname", "VARCHAR"),
            ("rest", "VARCHAR"),
        ] {
            assert_eq!(columns[column], kind, "{format} {columns}");
        }
    }
}

#[test]
fn data_that_a_format_cannot_represent_is_refused() {
    let (_folder, _server, mut api) = Server::fresh();
    let storage = api.create_storage("empty");
    let path = format!("/storages/{storage}/query");
    let mut refused = |body: &str, expected: &str| {
        let body: Value = serde_json::from_str(body).unwrap();
        let problem = api.refused("POST", &path, Some(&body));
        let detail = problem.document["detail"].as_str().unwrap_or_default();
        assert_eq!(problem.status, 400, "{problem:?}");
        assert!(detail.contains(expected), "{detail}");
    };
    refused(r#"{"group_by": "name", "format": "perfetto"}"#, "timeline");
    refused(r#"{"group_by": "name", "format": "chrome"}"#, "timeline");
    refused(r#"{"order_by": "dur", "format": "chrome"}"#, "timeline");
    refused(r#"{"explain": true, "format": "parquet"}"#, "explanation");
    refused(r#"{"explain": true, "format": "arrow"}"#, "explanation");
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/trace-0-of-1.pfw.gz");
    let words = [
        "query",
        trace.to_str().unwrap(),
        "--group-by",
        "name",
        "--format",
        "perfetto",
    ];
    let output = run_tracehold(&words.map(str::to_owned));
    assert_eq!(output.status.code(), Some(2));
}
