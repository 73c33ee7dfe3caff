//! `decode` of a CTF trace within a window of time.

use std::path::{Path, PathBuf};
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
        "1 record cannot be read",
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

/// A CTF trace with two packets, of which the second says that the tracer discarded events before
/// it, and with metadata that has an unknown scope.
fn write_odd_trace(folder: &Path) {
    let metadata = "/* CTF 1.8 */
trace { major = 1; minor = 8; byte_order = le;
  packet.header := struct { integer { size = 32; align = 8; } magic; }; };
stream {
  strange := struct { integer { size = 8; align = 8; } x; };
  packet.context := struct {
    integer { size = 32; align = 8; } content_size;
    integer { size = 32; align = 8; } packet_size;
    integer { size = 32; align = 8; } events_discarded; };
  event.header := struct { integer { size = 8; align = 8; } id; }; };
event { id = 0; name = \"e\"; fields := struct { integer { size = 8; align = 8; } x; }; };
";
    std::fs::write(folder.join("metadata"), metadata).expect("the file can be written");
    let packet = |discarded: u32| {
        let bits = 18 * 8_u32;
        let head = [0xc1fc_1fc1, bits, bits, discarded];
        let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend([0, 1]);
        bytes
    };
    let stream = [packet(0), packet(3)].concat();
    std::fs::write(folder.join("stream"), stream).expect("the file can be written");
}

#[test]
fn damage_losses_and_oddities_of_ctf_are_told() {
    let folder = tempfile::tempdir().expect("a folder for the trace");
    write_odd_trace(folder.path());
    let run = |options: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tracehold"))
            .arg("decode")
            .args(options)
            .arg(folder.path())
            .output()
            .expect("the program starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, out, err) = run(&[]);
    assert_eq!((code, out.lines().count()), (Some(0), 2), "{err}");
    assert!(err.contains("unknown scope ignored"), "{err}");
    assert!(err.contains("Tracer discarded 3 events"), "{err}");

    // The file ends inside its second packet.
    let stream = folder.path().join("stream");
    let whole = std::fs::read(&stream).expect("the file can be read");
    std::fs::write(&stream, &whole[..whole.len() - 1]).expect("the file can be written");
    let trimmed = folder.path().with_extension("trimmed");
    let trimmed = trimmed.to_str().expect("the path is text");
    for options in [
        &["--salvage"][..],
        &["--salvage", "--details"],
        &["--salvage", "-o", "counter"],
        &["--salvage", "-o", "dummy"],
        &["--salvage", "-o", "ctf", "-w", trimmed],
        &[],
    ] {
        let (code, _, err) = run(options);
        assert_eq!(code, Some(1), "{options:?}: {err}");
        let faults = err.lines().filter(|line| line.starts_with("tracehold: "));
        assert!(faults.count() > 0, "{options:?}: {err}");
        let is_trimmed = options.contains(&"ctf");
        assert_eq!(err.contains("; the rest was written"), is_trimmed, "{err}");
        assert_eq!(err.contains("as they were"), is_trimmed, "{err}");
    }
    let (code, out, _) = run(&["-o", "elements"]);
    assert_eq!(code, Some(1), "{out}");
    std::fs::remove_dir_all(trimmed).expect("the folder can be removed");
}

/// What a killed run left is removed by the next one.
#[test]
fn an_index_removes_what_killed_runs_left() {
    let folder = tempfile::tempdir().expect("a folder for the trace");
    let path = folder.path().join("trace.pfw");
    let line = r#"{"id":1,"name":"r","cat":"P","pid":1,"tid":1,"ts":5,"dur":2,"ph":"X","args":{}}"#;
    std::fs::write(&path, format!("[\n{line}\n")).expect("the file can be written");
    let left = folder.path().join(".tracehold-killed.idx.tmp");
    std::fs::write(&left, "half").expect("the file can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_tracehold"))
        .arg("index")
        .arg(&path)
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    assert!(!left.exists() && folder.path().join("trace.pfw.idx").exists());
}
