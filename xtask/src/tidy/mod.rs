//! `cargo xtask tidy`: the rules of this repository that the compiler does not check.
//!
//! Each rule is one file: data at the top, one function from sources to findings, and its tests.

mod binaries;
mod budgets;
mod capabilities;
mod characters;
mod circles;
mod floors;
mod golden;
mod imports;
mod invariants;
mod manifests;
mod modules;
mod patterns;
mod references;
mod seals;
mod source;
mod words;

use std::fmt;
use std::path::Path;

use crate::failure::{Failure, Outcome};
use crate::process::{command, output, root};
use binaries::File;
use source::{Source, Text};

/// One violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The path from the root of the repository.
    pub path: String,
    /// The line, from 1; 0 for the entire file.
    pub line: usize,
    /// What is wrong and what to do.
    pub what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// Applies every rule; `--bless` first records new golden files.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    let root = root();
    match arguments {
        [] => {}
        [word] if word == "--bless" => golden::bless(&root)?,
        _ => {
            return Err(Failure::Usage(format!(
                "tidy accepts --bless, not {arguments:?}"
            )));
        }
    }
    let mut findings = findings(&root)?;
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(Failure::Found {
            what: "violations of the rules of the repository",
            count,
        }),
    }
}

fn findings(root: &Path) -> Outcome<Vec<Finding>> {
    let (files, texts) = files(root)?;
    let mut sources: Vec<Source> = texts
        .iter()
        .filter(|text| text.path.ends_with(".rs"))
        .map(|text| Source::new(&text.path, &text.content))
        .collect();
    source::mark_test_modules(&mut sources);
    let metadata = [
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--offline",
    ];
    let metadata = output(&mut crate::process::cargo(&metadata))?;
    Ok([
        floors::findings(&metadata)?,
        manifests::findings(&texts),
        binaries::findings(&files),
        budgets::findings(&sources),
        modules::findings(&sources),
        circles::findings(&sources),
        capabilities::findings(&sources),
        characters::findings(&texts),
        invariants::findings(&texts, &sources),
        patterns::findings(&sources),
        seals::findings(&sources),
        references::findings(&texts),
        words::findings(&texts),
        golden::findings(root)?,
    ]
    .concat())
}

/// The paths of all files that are tracked by git or could be added, each followed by a NUL.
fn listing() -> Outcome<String> {
    let list = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    output(&mut command("git", &list))
}

/// Every file that is tracked by git or could be added, and the content of those that are text.
fn files(root: &Path) -> Outcome<(Vec<File>, Vec<Text>)> {
    let list = listing()?;
    let (mut files, mut texts) = (Vec::new(), Vec::new());
    for path in list.split_terminator('\0') {
        let full = root.join(path);
        // A deleted file is listed until the deletion is committed.
        if !full.is_file() {
            continue;
        }
        let bytes = std::fs::read(&full).map_err(|source| Failure::File { path: full, source })?;
        let length = bytes.len() as u64;
        let text = String::from_utf8(bytes).ok();
        files.push(File {
            path: path.to_owned(),
            length,
            is_text: text.is_some(),
        });
        texts.extend(text.map(|content| Text::new(path, content)));
    }
    Ok((files, texts))
}

/// Checks which lines of a text a rule reports.
#[cfg(test)]
fn check_lines(rule: fn(&[Text]) -> Vec<Finding>, path: &str, content: &str, expected: &[usize]) {
    let found = rule(&[Text::new(path, content)]);
    let lines: Vec<usize> = found.iter().map(|finding| finding.line).collect();
    assert_eq!(lines, expected, "of {content:?}: {found:?}");
}
