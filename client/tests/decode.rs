//! `decode` of a CTF trace within a window of time.

use std::path::PathBuf;
use std::process::{Command, Output};

use query_language::time::rfc3339;
use serde_json::Value;

fn decode(options: &[&str]) -> Output {
    let trace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/lttng");
    Command::new(env!("CARGO_BIN_EXE_tracehold"))
        .args(["decode", "--format", "ndjson"])
        .args(options)
        .arg(trace)
        .output()
        .expect("the program starts")
}

fn times(options: &[&str]) -> Vec<i64> {
    let output = decode(options);
    assert_eq!(output.status.code(), Some(0), "{options:?}");
    let text = String::from_utf8(output.stdout).expect("the program prints text");
    let time = |line: &str| {
        let event: Value = serde_json::from_str(line).expect("a line is a JSON object");
        event["ts"].as_i64().expect("an event has a time")
    };
    text.lines().map(time).collect()
}

#[test]
fn a_window_is_half_open_in_every_form_of_time() {
    let all = times(&[]);
    let middle = all[all.len() / 2];
    let before = || all.iter().copied().filter(|time| *time < middle);
    let rfc3339 = rfc3339(middle);
    let utc = rfc3339.trim_end_matches('Z');
    let forms = [
        middle.to_string(),
        format!("{}.{:09}", middle / 1_000_000_000, middle % 1_000_000_000),
        rfc3339.clone(),
        utc.replace('T', " "),
        utc[11..].to_owned(),
    ];
    for form in &forms {
        assert!(times(&["--to", form]).into_iter().eq(before()), "{form}");
        let found = times(&["--from", form]);
        assert!(found.iter().all(|time| *time >= middle), "{form}");
        assert_eq!(found.len() + before().count(), all.len(), "{form}");
    }
    assert!(times(&["--from", &forms[0], "--to", &forms[0]]).is_empty());
}

#[test]
fn another_text_is_refused_with_an_example() {
    let output = decode(&["--from", "yesterday"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).expect("the program prints text");
    assert!(error.contains("2026-11-21T01:00:00Z"), "{error}");
}
