//! The blocks of code in documents: each is run or checked by a test, or is in a list that says why
//! it is not.

use std::fs;
use std::path::Path;

use harness::{run_tracehold, traceholdd};

use crate::documents::{TRANSCRIPTS, root};

/// A block of code.
#[derive(Debug)]
pub(crate) struct Block {
    /// What is written behind the fence.
    pub kind: String,
    pub text: String,
}

impl Block {
    fn first_line(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}

/// The blocks of a document, in order.
pub(crate) fn blocks(document: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for line in document.lines() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            is_inside = !is_inside;
            if is_inside {
                blocks.push(Block {
                    kind: kind.trim().to_owned(),
                    text: String::new(),
                });
            }
        } else if is_inside {
            let text = &mut blocks.last_mut().unwrap().text;
            text.push_str(line);
            text.push('\n');
        }
    }
    blocks
}

/// Documents with blocks of Python that the tests of the Python client and of tables in an object
/// store run, by kind.
const PYTHON: &[(&str, &[&str])] = &[
    ("clients/python/README.md", &["python"]),
    ("docs/object-store.md", &["python", "python spark"]),
    ("docs/python.md", &["python", "python spark", "python ray"]),
];

/// Blocks that no test of the suite runs: document, kind, how the block begins, and why.
const EXCEPTIONS: &[(&str, &str, &str, &str)] = &[
    ("README.md", "sh", "cargo ", "builds the programs"),
    (
        "clients/python/README.md",
        "sh",
        "pip install",
        "nothing is published yet",
    ),
    (
        "clients/python/README.md",
        "sh",
        "python3 -m venv",
        "installs a peer, as `cargo xtask test` does",
    ),
    (
        "docs/authentication.md",
        "sh",
        "tracehold storage list --server https",
        "the server is one of yours; `encrypted.rs` has one with certificates",
    ),
    (
        "docs/capacity.md",
        "sh",
        "python3 deploy/measure-capacity.py",
        "`documents.rs` runs it with fewer events",
    ),
    ("docs/format.md", "text", "<data-dir>/", "a list of files"),
    (
        "docs/install.md",
        "sh",
        "",
        "`cargo xtask dist --check` runs it as root",
    ),
    (
        "docs/install.md",
        "sh bundle",
        "tar -xzf",
        "`cargo xtask dist --check` runs it as root",
    ),
    (
        "docs/object-store.md",
        "text",
        "s/<storage>/",
        "a list of keys",
    ),
    (
        "docs/opentelemetry.md",
        "sh",
        "opentelemetry-instrument",
        "the application is yours; `otlp_grpc.rs` starts one in the same way",
    ),
    (
        "docs/python.md",
        "sh",
        "pip install",
        "nothing is published yet",
    ),
    (
        "docs/python.md",
        "text",
        "%tracehold",
        "for notebooks; `test_jupyter.py` runs such cells",
    ),
    (
        "docs/storages.md",
        "text",
        "tracehold storage create NAME",
        "forms of commands, with names in capitals",
    ),
    ("docs/testing.md", "sh", "SIMULATION_SEEDS", "takes long"),
    ("docs/testing.md", "sh", "cargo install", "takes long"),
    (
        "docs/tuning.md",
        "sh",
        "",
        "`cargo xtask dist --check` runs it as root",
    ),
    (
        "docs/uninstall.md",
        "sh",
        "",
        "`cargo xtask dist --check` runs it as root",
    ),
    (
        "docs/upgrade.md",
        "sh",
        "",
        "`cargo xtask dist --check` runs it as root",
    ),
];

/// The documents for users, with their blocks.
fn documents() -> Vec<(String, Vec<Block>)> {
    let mut names = vec![
        "README.md".to_owned(),
        "clients/python/README.md".to_owned(),
    ];
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if Path::new(&name)
            .extension()
            .is_some_and(|ending| ending == "md")
        {
            names.push(format!("docs/{name}"));
        }
    }
    names.sort();
    let read = |name: String| {
        let text = fs::read_to_string(root().join(&name)).unwrap();
        (name, blocks(&text))
    };
    names.into_iter().map(read).collect()
}

/// Whether a test runs or checks the block.
fn is_tested(document: &str, kind: &str) -> bool {
    match kind {
        "console" => TRANSCRIPTS.contains(&document),
        // The tests below, and one of `monitoring.rs`.
        "toml" | "query" => true,
        "yaml" => document == "docs/monitoring.md",
        _ => PYTHON
            .iter()
            .any(|(name, kinds)| *name == document && kinds.contains(&kind)),
    }
}

#[test]
fn every_block_of_code_is_tested_or_excepted() {
    let mut used = vec![false; EXCEPTIONS.len()];
    let mut untested = Vec::new();
    for (document, blocks) in documents() {
        for block in blocks
            .iter()
            .filter(|block| !is_tested(&document, &block.kind))
        {
            let found = EXCEPTIONS.iter().position(|(name, kind, beginning, _)| {
                (*name, *kind) == (&document, &block.kind) && block.text.starts_with(beginning)
            });
            match found {
                Some(at) => used[at] = true,
                None => untested.push(format!(
                    "{document}: {}: {}",
                    block.kind,
                    block.first_line()
                )),
            }
        }
    }
    assert!(
        untested.is_empty(),
        "make them transcripts, or say in EXCEPTIONS why not:\n{}",
        untested.join("\n")
    );
    let unused = EXCEPTIONS.iter().zip(used).filter(|(_, is_used)| !is_used);
    let unused: Vec<_> = unused.map(|(exception, _)| exception).collect();
    assert!(unused.is_empty(), "no block is so: {unused:?}");
}

#[test]
fn settings_in_documents_are_settings() {
    let folder = tempfile::tempdir().unwrap();
    let mut count = 0;
    for (document, blocks) in documents() {
        for block in blocks.iter().filter(|block| block.kind == "toml") {
            let path = folder.path().join("config.toml");
            fs::write(&path, &block.text).unwrap();
            // The files that they name are the reader's.
            let checked = std::process::Command::new(traceholdd())
                .args(["--print-config", "--config"])
                .arg(&path)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&checked.stderr);
            assert!(
                checked.status.success(),
                "{document}: {}\n{said}",
                block.text
            );
            count += 1;
        }
    }
    assert!(count > 0, "no document has settings");
}

#[test]
fn expressions_in_documents_are_expressions() {
    let trace = root().join("tests/data/trace-0-of-1.pfw.gz");
    let mut count = 0;
    for (document, blocks) in documents() {
        let queries = blocks.iter().filter(|block| block.kind == "query");
        for expression in queries.flat_map(|block| block.text.lines()) {
            let words = ["query", trace.to_str().unwrap(), expression, "--count"];
            let output = run_tracehold(&words.map(str::to_owned));
            let said = String::from_utf8_lossy(&output.stderr);
            // 1 is a query without a match.
            let is_answered =
                matches!(output.status.code(), Some(0 | 1)) && !output.stdout.is_empty();
            assert!(is_answered, "{document}: {expression}\n{said}");
            count += 1;
        }
    }
    assert!(count > 0, "no document has expressions");
}

#[test]
fn blocks_are_found() {
    let found = blocks("a\n```sh\nx\n\ny\n```\n```\nz\n```\n  ```python ray\nw\n  ```\n");
    let found = found.iter().map(|block| (&*block.kind, &*block.text));
    let found: Vec<_> = found.collect();
    assert_eq!(
        found,
        [("sh", "x\n\ny\n"), ("", "z\n"), ("python ray", "w\n")]
    );
}
