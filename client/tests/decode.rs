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

#[test]
fn traces_of_lines_and_of_chrome_are_printed_up_to_the_damage() {
    let folder = tempfile::tempdir().expect("a folder for the file");
    let path = folder.path().join("trace");
    let check = |trace: &str, format: &str, code: i32, out: &str, note: &str| {
        std::fs::write(&path, trace).expect("the file can be written");
        let output = Command::new(env!("CARGO_BIN_EXE_tracehold"))
            .args(["decode", "--format", format])
            .arg(&path)
            .output()
            .expect("the program starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (found, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(found, out, "{trace}");
        assert_eq!(output.status.code(), Some(code), "{trace}: {err}");
        assert!(err.contains(note), "{trace}: {err}");
        assert_eq!(err.is_empty(), note.is_empty(), "{trace}: {err}");
    };
    let event = r#"{"ph":"X","ts":1.5,"dur":2,"name":"n","args":{"a":"b\n"}}"#;
    let line = "1970-01-01T00:00:00.000001500Z name=n ph=X args.a=b\\n dur=2000\n";
    let json = "{\"args\":{\"a\":\"b\\n\"},\"dur\":2000,\"name\":\"n\",\"ph\":\"X\",\"ts\":1500}\n";
    let document = |list: &str| format!("{{\"traceEvents\":[{list}]}}");
    check(&document(event), "text", 0, line, "");
    check(&document(event), "ndjson", 0, json, "");
    let broken = format!("{event},{{\"ph\":\"X\"}},{event}");
    check(
        &document(&broken),
        "text",
        1,
        &line.repeat(2),
        "1 records cannot be read",
    );
    check(
        &format!("[{event},{{"),
        "text",
        1,
        line,
        "inside the record at byte",
    );
    let dft = r#"{"id":1,"name":"r","cat":"P","pid":1,"tid":1,"ts":5,"dur":2,"ph":"X","args":{}}"#;
    let line = "1970-01-01T00:00:00.000005000Z";
    std::fs::write(&path, format!("[\n{dft}\n{dft}\n")).expect("the file can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_tracehold"))
        .arg("decode")
        .arg(&path)
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches(line).count(), 2, "{text}");
    assert!(text.contains("name=r") && output.status.success(), "{text}");
}
