//! The limits `--from` and `--to` of queries mean the same everywhere, or are refused.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use harness::{Agent, Api, Server, without};
use serde_json::json;

use crate::queries::{mount, push, run, settings};

/// A DFTracer trace in microseconds, two hours around an instant.
fn trace(folder: &Path, middle: i64) -> String {
    let hour = 3_600_000_000;
    let lines = [middle - hour, middle, middle + hour].map(|ts| {
        format!(
            "{{\"id\":1,\"name\":\"read\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":1,\"ts\":{ts},\
             \"dur\":5,\"ph\":\"X\",\"args\":{{}}}}\n"
        )
    });
    let path = folder.join("hours.pfw");
    std::fs::write(&path, lines.concat()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The number of events of a query, or its error.
fn count(source: &[&str], limits: &[&str]) -> Result<String, String> {
    let (code, out, errors) = run(&[&["query"], source, limits, &["--count"]].concat());
    match code {
        0 | 1 => Ok(out.trim().to_owned()),
        _ => Err(errors),
    }
}

#[test]
fn a_limit_without_a_unit_is_refused_where_units_differ() {
    let folder = tempfile::tempdir().unwrap();
    let us = 1_795_222_800_000_000;
    let file = trace(folder.path(), us);
    let blocks = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/io_small.trace");
    let blocks = blocks.to_str().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = server.api().create_storage("trace");
    push(&server, &storage, Path::new(&file), "4096");
    let url = server.url();
    let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
    let mounted = folder.path().join("mount");
    server.api().finalize(&storage);
    mount(&server, &storage, &mounted);
    let mounted = ["--dir", mounted.to_str().unwrap()];
    let (bare, nanos) = (us.to_string(), (us * 1_000).to_string());
    for source in [&[file.as_str()][..], &stored, &mounted] {
        for name in ["--from", "--to"] {
            let error = count(source, &[name, &bare]).unwrap_err();
            for part in [
                &name[2..],
                "1970-01-21T18:40:22.8Z",
                "2026-11-21T01:00:00Z",
                "1795222800000000us",
            ] {
                assert!(error.contains(part), "{source:?}: {error}");
            }
        }
        let time = [
            bare.clone() + "us",
            nanos.clone(),
            nanos.clone() + "ns",
            "0".to_owned(),
        ];
        let counts = time.map(|time| count(source, &["--from", &time]).unwrap());
        assert_eq!(counts, ["2", "2", "2", "3"], "{source:?}");
    }
    // Nanoseconds of one, microseconds of the other.
    let both = [file.as_str(), blocks];
    let error = count(&both, &["--from", &nanos]).unwrap_err();
    assert!(error.contains("others in nanoseconds"), "{error}");
    assert!(count(&both, &["--from", &format!("{nanos}ns")]).is_ok());
    let copy = |time: &str| {
        let words = [
            "storage", "copy", "--server", &url, &storage, "--from", time,
        ];
        let (code, out, errors) = run(&words);
        (code, out + &errors)
    };
    let (code, said) = copy(&bare);
    assert!(code == 2 && said.contains("1795222800000000us"), "{said}");
    assert_eq!(copy(&format!("{bare}us")).0, 0);
    // The number is nanoseconds over HTTP, unless a person wrote it.
    let path = format!("/storages/{storage}/query");
    let mut api = server.api();
    let mut body = json!({ "from": us, "count": true });
    assert_eq!(api.done("POST", &path, Some(&body))["count"], 3);
    body["bare_times"] = json!(["from"]);
    let check_refused = |api: &mut Api| {
        let refused = api.refused("POST", &path, Some(&body));
        let found = (refused.status, refused.code.as_str());
        assert_eq!(found, (400, "query_malformed"));
    };
    check_refused(&mut api);
    // Nor is it counted from a cached result.
    api.finalize(&storage);
    let plain = json!({ "from": us, "count": true });
    let begin = Instant::now();
    while api.metric("tracehold_query_cached_total") == 0.0 {
        assert_eq!(api.done("POST", &path, Some(&plain))["count"], 3);
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "it is not cached"
        );
    }
    check_refused(&mut api);
    // The trace is printed with the same limits.
    for name in ["--from", "--to"] {
        let decode = |time: &str| run(&["decode", &file, "-o", "counter", name, time]);
        let (code, printed, told) = decode(&bare);
        assert_eq!((code, printed.as_str()), (2, ""), "{told}");
        assert!(told.contains("1795222800000000us"), "{told}");
        let events = if name == "--from" {
            "2 Event"
        } else {
            "1 Event"
        };
        for time in [bare.clone() + "us", nanos.clone(), nanos.clone() + "ns"] {
            let (code, printed, told) = decode(&time);
            assert!(
                code == 0 && printed.contains(events),
                "{time}: {printed} {told}"
            );
        }
    }
}

/// Streams of different kinds, one of which cannot be decoded and so has no times at all.
#[test]
fn a_limit_without_a_unit_is_refused_in_a_storage_of_several_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let us = 1_795_222_800_000_000;
    let file = trace(folder.path(), us);
    let server = Server::start(&folder.path().join("data"), &settings());
    let mut api = server.api();
    let storage = api.create_storage("trace");
    push(&server, &storage, Path::new(&file), "4096");
    Agent::register(&mut api, "a");
    for (stream, kind) in [("spans", "otlp"), ("events", "ctf")] {
        Agent::declare_stream(&mut api, "a", stream, kind, "none");
        Agent::new(&storage, "a", stream).push(&mut api, 0, b"\xff\xff not a packet");
    }
    let url = server.url();
    let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
    for time in [us.to_string(), (us * 1_000).to_string()] {
        let error = count(&stored, &["--from", &time]).unwrap_err();
        assert!(error.contains("others in nanoseconds"), "{error}");
    }
    let counted = count(&stored, &["--from", &format!("{us}us")]);
    assert_eq!(counted.as_deref(), Ok("2"));
}

#[test]
fn a_limit_can_be_relative_to_now() {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_micros()).unwrap();
    let file = trace(folder.path(), now);
    let check = |limits: &[&str], expected: &str| {
        let found = count(&[&file], limits);
        assert_eq!(found.as_deref(), Ok(expected), "{limits:?}");
    };
    check(&["--from", "-30m"], "2");
    check(&["--from=-30m"], "2");
    check(&["--from", "-2h"], "3");
    check(&["--to", "-1m"], "1");
    check(&["--from", "-1h30m", "--to", "-30m"], "1");
    let error = count(&[&file], &["--from", "-30x"]).unwrap_err();
    assert!(
        error.contains("a duration before now such as -1h"),
        "{error}"
    );
    let error = count(&[&file], &["--from", "-30m", "--to", "-1h"]).unwrap_err();
    assert!(error.contains("--from is after --to"), "{error}");
    check(&["--from", "2026-01-01", "--to", "2026-01-01"], "0");
}

/// Streams and packets begin and end in the window; the numbers are those of `babeltrace2`.
#[test]
fn messages_in_a_window_are_counted_as_babeltrace_counts_them() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/lttng/uid/0/64-bit");
    let trace = trace.to_str().unwrap();
    for option in ["--begin", "--end"] {
        let (code, _, told) = run(&["decode", trace, "-o", "dummy", option, "-1"]);
        assert_eq!((code, told.as_str()), (0, ""), "{option}");
    }
    for (window, expected) in [
        ("1,2", [0, 2, 2, 0, 0, 0, 0, 0]),
        ("-1,2", [0, 2, 2, 0, 0, 0, 0, 0]),
        ("1795242148.0229,1795242148.023", [319, 2, 2, 3, 3, 0, 0, 0]),
        ("1795242149,1795242150", [0; 8]),
    ] {
        let (code, printed, told) = run(&["decode", trace, "-o", "counter", "--timerange", window]);
        assert_eq!((code, told.as_str()), (0, ""), "{window}");
        let counts = |text: &str| -> Vec<u64> {
            let numbers = text
                .lines()
                .map(|line| line.split_whitespace().next().unwrap());
            numbers.map(|number| number.parse().unwrap()).collect()
        };
        let mut found = counts(&printed);
        assert_eq!(
            found.pop(),
            Some(expected.iter().sum()),
            "{window}: {printed}"
        );
        assert_eq!(found, expected, "{window}: {printed}");
        let theirs = Command::new("babeltrace2")
            .args(["--timerange", window, trace, "-c", "sink.utils.counter"])
            .output();
        match theirs {
            Ok(theirs) => {
                let text = String::from_utf8(theirs.stdout).unwrap();
                assert_eq!(counts(&text)[..8], expected, "{window}: {text}");
            }
            Err(_) => without("babeltrace2"),
        }
    }
}
