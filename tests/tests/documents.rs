//! Runs the transcripts (```` ```console ````) of documents, and compares what they print.
//!
//! In an expected line, `…` is any text; alone on a line, it is any lines.

use std::fs;
use std::path::Path;
use std::process::Command;

use harness::{Server, tracehold, without};

/// Between the outputs of two commands.
const MARK: &str = "--- next command ---";

/// A command of a document and what it prints.
#[derive(Debug)]
struct Example {
    command: String,
    output: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The commands of all transcripts of a document, in order.
fn examples(document: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut is_transcript = false;
    let mut is_command = false;
    for line in document.lines() {
        if line.starts_with("```") {
            is_transcript = line == "```console";
        } else if is_transcript && (is_command || line.starts_with("$ ")) {
            let text = line.strip_prefix("$ ").unwrap_or(line);
            if is_command {
                let example = examples.last_mut().unwrap();
                example.command.push('\n');
                example.command.push_str(text);
            } else {
                let (command, output) = (text.to_owned(), Vec::new());
                examples.push(Example { command, output });
            }
            is_command = text.ends_with('\\');
        } else if is_transcript {
            let example = examples
                .last_mut()
                .expect("a transcript begins with a command");
            example.output.push(line.to_owned());
        }
    }
    examples
}

/// Whether a line is as expected.
fn is_like(line: &str, expected: &str) -> bool {
    let mut parts = expected.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        last = Some(part);
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    last.map_or(rest.is_empty(), |last| {
        last.is_empty() || line.ends_with(last)
    })
}

/// Whether lines are as expected.
fn are_like(lines: &[&str], expected: &[String]) -> bool {
    match (expected.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((any, more)), _) if any == "…" => {
            (0..=lines.len()).any(|skipped| are_like(&lines[skipped..], more))
        }
        (Some((first, more)), Some((line, lines))) => is_like(line, first) && are_like(lines, more),
        _ => false,
    }
}

/// Runs the transcripts of a document in one shell, beside the data of the repository.
fn check(document: &str) {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let examples = examples(&text);
    assert!(!examples.is_empty(), "{document} has no transcript");
    let (_folder, server, _) = Server::fresh();
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("tests")).unwrap();
    let data = place.path().join("tests/data");
    std::os::unix::fs::symlink(root().join("tests/data"), data).unwrap();
    let programs = tracehold();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", programs.parent().unwrap().display());
    let script: String = examples
        .iter()
        .map(|example| format!("{}\necho '{MARK}'\n", example.command))
        .collect();
    let ran = Command::new("bash")
        .args(["-c", &format!("exec 2>&1\n{script}")])
        .current_dir(place.path())
        .env("PATH", path)
        .env("TRACEHOLD_SERVER", server.url())
        .output()
        .unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    let outputs: Vec<&str> = printed.split(&format!("{MARK}\n")).collect();
    assert_eq!(outputs.len(), examples.len() + 1, "{document}: {printed}");
    for (example, output) in examples.iter().zip(outputs) {
        let lines: Vec<&str> = output.lines().collect();
        assert!(
            are_like(&lines, &example.output),
            "{document}: `{}` printed\n{output}",
            example.command
        );
    }
}

#[test]
fn the_tour_prints_what_it_says() {
    check("docs/tour.md");
}

#[test]
fn a_backup_is_made_and_restored_as_the_page_says() {
    check("docs/backup.md");
}

#[test]
fn capacity_is_measured_as_the_page_says() {
    let page = fs::read_to_string(root().join("docs/capacity.md")).unwrap();
    let script = "deploy/measure-capacity.py";
    assert!(page.contains(&format!("python3 {script} target/release")));
    let programs = tracehold();
    let own = root().join("tests/data/io_small.trace");
    let ran = Command::new("python3")
        .arg(root().join(script))
        .arg(programs.parent().unwrap())
        .args(["--events", "1200", "--kind"])
        .arg(format!("rocksdb-io={}", own.display()))
        .output();
    let Ok(ran) = ran else {
        without("python3");
        return;
    };
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    let table = String::from_utf8(ran.stdout).unwrap();
    let rows = table.lines().skip(2).map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let numbers = cells[3..9].iter().map(|cell| cell.parse().unwrap());
        (cells[1], cells[2], numbers.collect::<Vec<f64>>())
    });
    let rows: Vec<_> = rows.collect();
    let kinds: Vec<&str> = rows.iter().map(|row| row.0).collect();
    assert_eq!(kinds, ["dft", "chrome", "otlp", "rocksdb-io"], "{table}");
    for (kind, events, numbers) in rows {
        assert!(events == "1200" || kind == "rocksdb-io", "{table}");
        // As sent, as stored, derived, memory, processor, time of the push.
        assert!(numbers.iter().all(|number| *number > 0.0), "{table}");
        assert!(numbers[1] < numbers[0], "{table}");
        assert!(page.contains(&format!("| `{kind}` |")), "{kind}");
    }
}

#[test]
fn expected_lines_have_gaps() {
    for (line, expected, is_like_it) in [
        ("a b c", "a b c", true),
        ("a b c", "a … c", true),
        ("a b c", "… c", true),
        ("a b c", "a …", true),
        ("a b c", "a …x", false),
        ("a b c", "b …", false),
        ("a b cc", "… c", false),
        ("c c", "…c", true),
    ] {
        assert_eq!(is_like(line, expected), is_like_it, "{line} {expected}");
    }
    let lines = ["x", "y", "z"];
    assert!(are_like(&lines, &["…".into(), "z".into()]));
    assert!(!are_like(&lines, &["…".into(), "y".into()]));
    assert!(!are_like(&lines, &["x".into()]));
}
