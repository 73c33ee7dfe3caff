//! Every invariant in `ARCHITECTURE.md` names what checks it.
//!
//! A paragraph that states invariants says `checked by` and then, in backticks, names of tests,
//! files of tidy, or paths of sources such as fuzz targets and jobs. All of them must exist.

use std::collections::BTreeSet;

use super::Finding;
use super::source::{Source, Text};

const DOCUMENT: &str = "ARCHITECTURE.md";

/// How a paragraph begins its invariants, and how it names their checks.
const STATEMENT: &str = "*Invariant";
const CHECKED_BY: &str = "checked by ";

/// Invariants without a check, and checks that do not exist.
pub(super) fn findings(texts: &[Text], sources: &[Source]) -> Vec<Finding> {
    let functions: BTreeSet<String> = sources
        .iter()
        .flat_map(Source::functions)
        .map(|function| function.name)
        .collect();
    let exists = |name: &str| {
        let in_tidy = format!("xtask/src/tidy/{name}");
        functions.contains(name)
            || sources
                .iter()
                .any(|source| source.path == name || source.path == in_tidy)
    };
    let documents = texts.iter().filter(|text| text.path == DOCUMENT);
    documents
        .flat_map(|document| document_findings(&document.content, exists))
        .collect()
}

fn document_findings(content: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut line = 1;
    for paragraph in content.split("\n\n") {
        // Names may be on the next line.
        let text = paragraph.replace('\n', " ");
        let names = checks(&text);
        if text.contains(STATEMENT) && names.is_empty() {
            let what = "an invariant needs a check: (checked by `test_name`, `tidy_file.rs`)";
            findings.push(Finding::new(DOCUMENT, line, what));
        }
        for name in names.into_iter().filter(|name| !exists(name)) {
            let what = format!("the check {name} does not exist");
            findings.push(Finding::new(DOCUMENT, line, what));
        }
        line += paragraph.matches('\n').count() + 2;
    }
    findings
}

/// The names in backticks between `checked by` and the closing parenthesis.
fn checks(paragraph: &str) -> Vec<&str> {
    let lists = paragraph.split(CHECKED_BY).skip(1);
    lists
        .filter_map(|list| list.split(')').next())
        .flat_map(|list| list.split('`').skip(1).step_by(2))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: &str, expected: &[&str]) {
        let sources = [
            Source::new("xtask/src/tidy/floors.rs", ""),
            Source::new("a/src/b.rs", "#[test]\nfn nothing_is_lost() {}"),
        ];
        let found: Vec<String> = findings(&[Text::new(DOCUMENT, content)], &sources)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found, expected, "of {content:?}");
    }

    #[test]
    fn an_invariant_names_its_checks() {
        let statement = "Some text.\n\n*Invariant:* nothing is lost";
        check(
            &format!("{statement} (checked by\n`nothing_is_lost`, `floors.rs`, `a/src/b.rs`)."),
            &[],
        );
        let what = "an invariant needs a check: (checked by `test_name`, `tidy_file.rs`)";
        check(
            &format!("{statement}."),
            &[&format!("{DOCUMENT}:3: {what}")],
        );
        check(
            &format!("{statement} (checked by `all_is_well`, `gates.rs`)."),
            &[
                &format!("{DOCUMENT}:3: the check all_is_well does not exist"),
                &format!("{DOCUMENT}:3: the check gates.rs does not exist"),
            ],
        );
        check("It is `fast`, and checked by nobody.", &[]);
    }
}
