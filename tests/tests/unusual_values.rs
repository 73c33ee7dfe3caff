//! Durations below zero and below a nanosecond, objects as fields, and units that nobody knows.

use std::fs;
use std::path::Path;

use harness::Server;
use serde_json::{Value, json};

use crate::queries::{push, run, settings, wait_for_indexes};

/// The only row of a result, as JSON.
fn row(source: &[&str], more: &[&str]) -> Value {
    let all = [&["query"], source, more, &["--json"]].concat();
    let (code, out, errors) = run(&all);
    assert_eq!(code, 0, "{all:?}: {errors}");
    serde_json::from_str(out.lines().next().unwrap()).unwrap()
}

fn counted(source: &[&str], expression: &str) -> u64 {
    let all = [&["query"], source, &[expression, "--count"]].concat();
    let (code, out, errors) = run(&all);
    assert!(code <= 1, "{all:?}: {errors}");
    out.trim()
        .parse()
        .unwrap_or_else(|_| panic!("{all:?}: {out}{errors}"))
}

/// DFTracer lines with these durations.
fn write_durations(path: &Path, durations: impl Iterator<Item = String>) {
    let lines = (0..).zip(durations).map(|(ts, dur)| {
        format!(
            "{{\"id\":{ts},\"name\":\"r\",\"cat\":\"c\",\"pid\":1,\"tid\":1,\"ts\":{ts},\
             \"dur\":{dur},\"ph\":\"X\",\"args\":{{}}}}\n"
        )
    });
    fs::write(path, format!("[\n{}", lines.collect::<String>())).unwrap();
}

#[test]
fn percentiles_of_durations_below_zero_are_right_in_every_source() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &settings());
    let mut api = server.api();
    for (name, durations, expected) in [
        ("negative", -1000..0, [-991_000.0, -501_000.0, -11_000.0]),
        ("mixed", -500..500, [-491_000.0, -1_000.0, 489_000.0]),
        ("positive", 0..1000, [9_000.0, 499_000.0, 989_000.0]),
    ] {
        let plain = folder.path().join(format!("{name}.pfw"));
        write_durations(&plain, durations.map(|dur| dur.to_string()));
        let indexed = folder.path().join(format!("{name}.indexed.pfw"));
        fs::copy(&plain, &indexed).unwrap();
        assert_eq!(run(&["index", indexed.to_str().unwrap()]).0, 0);
        let storage = api.create_storage(name);
        push(&server, &storage, &plain, "4096");
        let url = server.url();
        let check = |source: &[&str]| {
            let aggregate = "p1:dur,p50:dur,p99:dur";
            let found = row(source, &["dur != 7777", "--aggregate", aggregate]);
            let of_all = row(source, &["--aggregate", aggregate]);
            for (column, expected) in ["p1:dur", "p50:dur", "p99:dur"].iter().zip(expected) {
                for found in [&found, &of_all] {
                    let found = found[*column].as_f64().unwrap_or_else(|| panic!("{found}"));
                    let is_near = (found - expected).abs() <= expected.abs() * 0.011;
                    assert!(
                        is_near,
                        "{name} {source:?} {column}: {found}, not {expected}"
                    );
                }
            }
        };
        check(&[plain.to_str().unwrap()]);
        check(&[indexed.to_str().unwrap()]);
        check(&["--server", &url, "--storage", &storage]);
        api.finalize(&storage);
        wait_for_indexes(&server, &storage);
        check(&["--server", &url, "--storage", &storage]);
    }
}

#[test]
fn parts_of_a_nanosecond_are_compared_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.pfw");
    let durations = ["0", "0.0004", "0.0004", "0.001", "1.5"];
    write_durations(&trace, durations.iter().map(ToString::to_string));
    let source = [trace.to_str().unwrap()];
    for (expression, expected) in [
        ("dur == 0.4ns", 2),
        ("dur == 0.0004", 2),
        ("dur == \"0.4ns\"", 2),
        ("dur < 0.5ns", 3),
        ("dur == 0ns", 1),
        ("dur == 1ns", 1),
        ("dur == 1500ns", 1),
        ("(dur * 2) == 0.8ns", 2),
        ("(dur + 0.6ns) == 1ns", 2),
    ] {
        assert_eq!(counted(&source, expression), expected, "{expression}");
    }
    let (code, _, errors) = run(&["query", source[0], "--every", "1500.5ns"]);
    assert!(
        code == 2 && errors.contains("not a whole number of nanoseconds"),
        "{errors}"
    );
}

#[test]
fn objects_are_fields_by_their_own_path_in_every_kind() {
    let folder = tempfile::tempdir().unwrap();
    let object = json!({"x": 1, "y": {"z": 2}});
    let event = json!({
        "id": 0, "name": "a", "cat": "c", "pid": 1, "tid": 1, "ts": 5, "dur": 1, "ph": "X",
        "args": {"o": object},
    });
    let any = |value: Value| json!({"kvlistValue": {"values": value}});
    let int = |key: &str, value: i64| json!({"key": key, "value": {"intValue": value}});
    let nested = any(json!([int("x", 1), {"key": "y", "value": any(json!([int("z", 2)]))}]));
    let span = json!({
        "traceId": "00000000000000000000000000000001", "spanId": "0000000000000001", "name": "a",
        "startTimeUnixNano": "5", "endTimeUnixNano": "6",
        "attributes": [{"key": "o", "value": nested}],
    });
    let spans = json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]});
    for (name, text) in [
        ("t.pfw", format!("[\n{event}\n")),
        ("t.json", json!({"traceEvents": [event]}).to_string()),
        ("spans.json", spans.to_string()),
    ] {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        let source = [file.to_str().unwrap()];
        for (expression, expected) in [
            ("exists(o)", 1),
            ("o is null", 0),
            ("o is not null", 1),
            ("o.y.z == 2", 1),
            ("o contains \"z\"", 1),
            ("o == 1", 0),
        ] {
            assert_eq!(
                counted(&source, expression),
                expected,
                "{name}: {expression}"
            );
        }
        let found = row(&source, &["--fields", "o"])["o"].clone();
        let found: Value = match &found {
            Value::String(text) => serde_json::from_str(text).unwrap(),
            found => found.clone(),
        };
        assert_eq!(found, object, "{name}");
    }
}

#[test]
fn a_unit_that_nobody_knows_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &settings());
    for (unit, end, is_known) in [("NS", 7, true), ("ns", 7, true), ("PS", 7000, false)] {
        let trace = folder.path().join(format!("{unit}.pfw"));
        let declared = json!({
            "id": 0, "name": "CM", "cat": "dftracer", "pid": 1, "tid": 1, "ph": "M",
            "args": {"name": "time_metric", "value": unit},
        });
        let event = json!({
            "id": 1, "name": "a", "cat": "c", "pid": 1, "tid": 1, "ts": 5, "dur": 7, "ph": "X",
            "args": {},
        });
        fs::write(&trace, format!("[\n{declared}\n{event}\n")).unwrap();
        let expression = format!("dur == {end}ns");
        let stored = server.api().create_storage(unit);
        push(&server, &stored, &trace, "4096");
        let url = server.url();
        for source in [
            &[trace.to_str().unwrap()][..],
            &["--server", &url, "--storage", &stored],
        ] {
            let all = [&["query"], source, &[&expression, "--count"]].concat();
            let (code, out, errors) = run(&all);
            assert_eq!(out.trim(), "1", "{all:?}");
            assert_eq!(code, i32::from(!is_known), "{all:?}: {errors}");
            assert_eq!(errors.contains("cannot be read"), !is_known, "{errors}");
        }
    }
}
