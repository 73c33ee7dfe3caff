//! Runs the transcripts (```` ```console ````) of documents, and compares what they print.
//!
//! In an expected line, `…` is any text; alone on a line, it is any lines. Of some documents, a
//! part runs before the server starts, with the settings (```` ```toml ````) of the document.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use harness::{Server, Settings, python_client_python, tracehold, without};

use crate::document_blocks::{Block, blocks};

/// Between the outputs of two commands.
const MARK: &str = "--- next command ---";
/// Programs that transcripts use, beside those of every shell.
const PROGRAMS: [&str; 3] = ["curl", "jq", "babeltrace2"];

/// A command of a document and what it prints.
#[derive(Debug)]
struct Example {
    command: String,
    output: Vec<String>,
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The commands of a transcript, in order.
fn examples(transcript: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut is_command = false;
    for line in transcript.lines() {
        if is_command || line.starts_with("$ ") {
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
        } else {
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

/// Where the transcripts of a document run: beside the data of the repository.
struct Place<'a> {
    folder: &'a Path,
    data: &'a Path,
}

impl Place<'_> {
    /// A text of a document, with the folders of the test for those of an installed server.
    fn localized(&self, text: &str) -> String {
        let folder = self.folder.to_str().unwrap();
        text.replace("/var/lib/tracehold", self.data.to_str().unwrap())
            .replace("/etc/tracehold", folder)
    }

    fn run(&self, script: &str, server: &str) -> Output {
        let programs = tracehold();
        let python = python_client_python().unwrap_or_default();
        let folders = [
            programs.parent().unwrap(),
            python.parent().unwrap_or(Path::new("")),
        ];
        let folders = folders.map(|folder| folder.display().to_string()).join(":");
        let path = std::env::var("PATH").unwrap();
        Command::new("bash")
            .args(["-c", &format!("exec 2>&1\n{script}")])
            .current_dir(self.folder)
            .env("PATH", format!("{folders}:{path}"))
            .env("TRACEHOLD_SERVER", server)
            .output()
            .unwrap()
    }

    /// Runs transcripts in one shell, and compares what they print.
    fn check(&self, document: &str, transcripts: &[&Block], server: &str) {
        let texts = transcripts.iter().map(|block| self.localized(&block.text));
        let examples: Vec<Example> = texts.flat_map(|text| examples(&text)).collect();
        let script: String = examples
            .iter()
            .map(|example| format!("{}\necho '{MARK}'\n", example.command))
            .collect();
        let ran = self.run(&script, server);
        let printed = String::from_utf8(ran.stdout).unwrap();
        // `…` would hide it.
        assert!(
            !printed.contains("error: unexpected argument"),
            "{document}: {printed}"
        );
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
}

/// Whether the programs of a document are there; in CI they are.
fn has_programs(transcripts: &[&Block]) -> bool {
    let uses = |program: &str| {
        let call = format!("{program} ");
        transcripts.iter().any(|block| block.text.contains(&call))
    };
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let missing = PROGRAMS
        .iter()
        .find(|program| uses(program) && !is_there(program));
    if let Some(program) = missing {
        without(program);
    }
    missing.is_none() && (!uses("python3") || python_client_python().is_some())
}

/// Runs the transcripts of a document; those before the block with the line `settings` without a
/// server.
fn check_with(document: &str, settings: Option<&str>) {
    let blocks = blocks(&fs::read_to_string(root().join(document)).unwrap());
    let is_settings = |block: &Block| settings.is_some_and(|line| block.text.contains(line));
    let start = blocks.iter().position(is_settings);
    assert_eq!(
        start.is_some(),
        settings.is_some(),
        "{document}: {settings:?}"
    );
    let (before, after) = blocks.split_at(start.unwrap_or(0));
    let [before, after] = [before, after].map(|blocks| {
        let transcripts = blocks.iter().filter(|block| block.kind == "console");
        transcripts.collect::<Vec<_>>()
    });
    assert!(!after.is_empty(), "{document} has no transcript");
    if !has_programs(&after) {
        return;
    }
    let (folder, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(place.path().join("tests")).unwrap();
    let traces = place.path().join("tests/data");
    std::os::unix::fs::symlink(root().join("tests/data"), traces).unwrap();
    let data = folder.path().join("data");
    let place = Place {
        folder: place.path(),
        data: &data,
    };
    place.check(document, &before, "");
    let config = start
        .map(|at| &blocks[at])
        .filter(|block| block.kind == "toml");
    let config = config.map_or_else(String::new, |block| place.localized(&block.text));
    let server = Server::start(folder.path(), &Settings::with_config(&config));
    place.check(document, &after, &server.url());
}

/// A test for each document, and the list of them.
macro_rules! documents {
    ($($name:ident $document:literal $settings:expr;)*) => {
        /// The documents whose transcripts run.
        pub(crate) const TRANSCRIPTS: &[&str] = &[$($document),*];

        $(#[test]
        fn $name() {
            check_with($document, $settings);
        })*
    };
}

documents! {
    the_first_page_prints_what_it_says "README.md" None;
    tokens_are_made_as_the_page_says "docs/authentication.md" Some("tracehold storage create");
    a_backup_is_made_and_restored_as_the_page_says "docs/backup.md" None;
    the_api_answers_as_the_page_says "docs/http.md" None;
    the_server_is_traced_as_the_page_says "docs/io-trace.md" None;
    queries_print_what_the_page_says "docs/query.md" None;
    recordings_are_made_as_the_page_says "docs/recording.md" None;
    traces_of_rocksdb_are_analyzed_as_the_page_says "docs/rocksdb-analysis.md" None;
    seals_are_verified_as_the_page_says "docs/seals.md" Some("at_finalization = true");
    storages_are_copied_as_the_page_says "docs/storages.md" None;
    the_tour_prints_what_it_says "docs/tour.md" None;
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
