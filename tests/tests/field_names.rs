//! Names of fields in backquotes mean the same wherever a field is named, on the command line and
//! over HTTP; and what is no field is refused.

use std::fs;

use harness::Server;
use serde_json::{Value, json};

use crate::queries::{push, run, settings};

/// The event as a row.
const ROW: &str = "{\"name\":\"a\",\"odd, name\":\"x\",\"dur\":5000}";

/// Arguments of the command line, the same over HTTP, and the lines of the result.
struct Case {
    options: &'static [&'static str],
    body: Value,
    lines: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            options: &["--fields", "`name`,`odd, name`, dur"],
            body: json!({ "fields": ["`name`", "odd, name", "dur"] }),
            lines: &[ROW],
        },
        Case {
            options: &["--fields", "`name`", "--fields", "`odd, name`,dur"],
            body: json!({ "fields": ["name", "`odd, name`", " dur "] }),
            lines: &[ROW],
        },
        Case {
            options: &["--fields", "` led`"],
            body: json!({ "fields": ["` led`"] }),
            lines: &["{\" led\":3}"],
        },
        Case {
            options: &["--aggregate", "sum:`i`, max:`odd, name`,`min:odd, name`"],
            body: json!({ "aggregate": "sum:`i`, max:`odd, name`,`min:odd, name`" }),
            lines: &["{\"sum:i\":7,\"max:odd, name\":\"x\",\"min:odd, name\":\"x\"}"],
        },
        Case {
            options: &["--histogram", "`i`", "--order-by", "`i_from`"],
            body: json!({ "histogram": "`i`", "order_by": "`i_from`" }),
            lines: &["{\"i_from\":4,\"count\":1}"],
        },
        Case {
            options: &["--histogram", "` led`"],
            body: json!({ "histogram": "` led`" }),
            lines: &["{\" led_from\":2,\"count\":1}"],
        },
        Case {
            options: &["--group-by", "`odd, name`", "--aggregate", "count:`i`"],
            body: json!({ "group_by": "`odd, name`", "aggregate": "count:`i`" }),
            lines: &["{\"odd, name\":\"x\",\"count:i\":1}"],
        },
    ]
}

#[test]
fn names_in_backquotes_are_the_same_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.pfw");
    let args = "{\"odd, name\":\"x\",\"i\":7,\" led\":3}";
    let line = format!(
        "{{\"name\":\"a\",\"cat\":\"c\",\"pid\":1,\"tid\":2,\"ts\":1,\"dur\":5,\"ph\":\"X\",\
         \"args\":{args}}}\n"
    );
    fs::write(&path, line).unwrap();
    let file = path.to_str().unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = server.api().create_storage("names");
    push(&server, &storage, &path, "4096");
    let url = server.url();
    let http = format!("/storages/{storage}/query");
    for case in cases() {
        let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
        for source in [&[file][..], &stored] {
            let words = [&["query"], source, &["--format", "ndjson"], case.options].concat();
            let (code, out, errors) = run(&words);
            let lines: Vec<&str> = out.lines().collect();
            assert_eq!(
                (code, &lines[..], &*errors),
                (0, case.lines, ""),
                "{words:?}"
            );
        }
        let answer = server.api().call("POST", &http, Some(&case.body));
        let text = String::from_utf8(answer.body.clone()).unwrap();
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.contains("summary"))
            .collect();
        assert_eq!(lines, case.lines, "{}", case.body);
    }
    for options in [
        ["--fields", ""],
        ["--fields", "dur,"],
        ["--fields", "`dur` desc"],
        ["--fields", "`dur"],
        ["--histogram", " "],
        ["--aggregate", "sum:`dur"],
    ] {
        let (code, out, errors) = run(&[&["query", file], &options[..]].concat());
        assert_eq!((code, &*out), (2, ""), "{options:?} {errors}");
        assert!(errors.contains("expected a"), "{options:?} {errors}");
    }
    for body in [json!({ "fields": [""] }), json!({ "histogram": "`i" })] {
        let answer = server.api().call("POST", &http, Some(&body));
        assert_eq!(answer.status, 400, "{body} {}", answer.brief());
    }
}

/// A field whose value is an object is there, and the note names one of its members.
#[test]
fn an_object_is_no_missing_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.pfw");
    let line = |args: &str| {
        format!(
            "{{\"name\":\"a\",\"cat\":\"c\",\"pid\":1,\"tid\":2,\"ts\":1,\"dur\":5,\"ph\":\"X\",\
             \"args\":{args}}}\n"
        )
    };
    let lines = [
        "{\"nest\":{\"to\":{\"x\":1}},\"empty\":{}}",
        "{\"a.b\":1,\"list\":[1]}",
    ];
    fs::write(&path, lines.map(line).concat()).unwrap();
    let file = path.to_str().unwrap();
    let missing = "none of the first 2 events has the field args.";
    for (query, note) in [
        (
            "nest == 'x'",
            "the field args.nest is an object; one of its members is args.nest.to.x\n",
        ),
        ("empty == 'x'", ""),
        ("list == 'x'", ""),
        ("nest.to.x == 2", ""),
        ("a == 'x'", &format!("{missing}a, but args.a.b\n")),
        (
            "nosuchfield == 'x'",
            &format!("{missing}nosuchfield; `tracehold fields` lists all\n"),
        ),
    ] {
        let (code, out, errors) = run(&["query", file, query]);
        assert_eq!((code, &*out, &*errors), (1, "", note), "{query}");
    }
}

/// A text with a record as an example is no trace of the folder that it is in.
#[test]
fn a_text_with_an_example_in_a_folder_is_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let line =
        "{\"name\":\"a\",\"cat\":\"c\",\"pid\":1,\"tid\":2,\"ts\":1,\"dur\":5,\"ph\":\"X\"}\n";
    let traces = folder.path().join("traces");
    fs::create_dir(&traces).unwrap();
    let texts = [
        ("notes.md", format!("# Notes\n\n{line}"), 0),
        ("links.md", format!("[a link](b)\n{line}"), 0),
        ("lines", line.to_owned(), 1),
        ("array", format!("\n[\n{line}"), 1),
        ("records", format!("[ {line}]"), 1),
        // Its name says what it is, and its first line is damaged.
        ("torn.pfw", format!("orn\n{line}"), 1),
    ];
    for (name, text, _) in &texts {
        fs::write(traces.join(name), text).unwrap();
    }
    let count = |path: &std::path::Path| {
        let (_, out, _) = run(&["query", path.to_str().unwrap(), "--count"]);
        out.trim().to_owned()
    };
    assert_eq!(count(&traces), "4");
    for (name, ..) in &texts {
        // What is named is read.
        assert_eq!(count(&traces.join(name)), "1", "{name}");
    }
    let (code, out, errors) = run(&["index", traces.to_str().unwrap()]);
    assert!(code <= 1, "{out} {errors}");
    assert!(!traces.join("notes.md.idx").exists());
    assert!(traces.join("lines.idx").exists());
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = server.api().create_storage("folder");
    push(&server, &storage, &traces, "4096");
    let stored = ["query", "--server", &server.url(), "--storage", &storage];
    let (_, out, errors) = run(&[&stored[..], &["--count"]].concat());
    assert_eq!(out.trim(), "4", "{errors}");
}
