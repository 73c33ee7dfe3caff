//! Paths that documents and comments name: each must lead to a file or folder of the repository.

use std::collections::BTreeSet;

use super::Finding;
use super::source::Text;

/// A path with one of these is a pattern, not a path.
const PLACEHOLDERS: &[char] = &['<', '>', '{', '}', '*', '…', '$', ' '];

/// Abbreviations that the documents use for several names.
const VARIABLES: &[&str] = &["NAME", "vN"];

/// Paths in backquotes that lead nowhere. The changelog also names what is gone.
pub(super) fn findings(texts: &[Text]) -> Vec<Finding> {
    let known = known(texts);
    texts
        .iter()
        .filter(|text| text.path != "CHANGELOG.md")
        .flat_map(|text| text_findings(text, &known))
        .collect()
}

/// Every file and every folder that contains one, without a final slash.
fn known(texts: &[Text]) -> BTreeSet<&str> {
    let mut known = BTreeSet::new();
    for text in texts {
        known.insert(text.path.as_str());
        for (end, _) in text.path.match_indices('/') {
            known.insert(&text.path[..end]);
        }
    }
    known
}

fn text_findings(text: &Text, known: &BTreeSet<&str>) -> Vec<Finding> {
    let is_document = text.path.ends_with(".md");
    if !is_document && !text.path.ends_with(".rs") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in text.content.lines().enumerate() {
        let is_comment = line.trim_start().starts_with("//");
        if !is_document && !is_comment {
            continue;
        }
        for path in quoted(line).filter(|path| is_path(path, known)) {
            if !leads_somewhere(path, &text.path, known) {
                let what = format!("`{path}` does not exist: name where it is now");
                findings.push(Finding::new(&text.path, number + 1, what));
            }
        }
    }
    findings
}

/// The text between backquotes in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether a quoted word means a file of this repository: it begins with a folder of the root, or
/// it is the name of a document.
fn is_path(word: &str, known: &BTreeSet<&str>) -> bool {
    let is_pattern =
        word.contains(PLACEHOLDERS) || VARIABLES.iter().any(|name| word.contains(name));
    let in_folder = word
        .split_once('/')
        .is_some_and(|(folder, _)| known.contains(folder));
    let is_document = word.ends_with(".md") && !word.starts_with('.');
    !is_pattern && (in_folder || is_document)
}

/// From the root, or from the folder of the text that names it.
fn leads_somewhere(path: &str, named_in: &str, known: &BTreeSet<&str>) -> bool {
    let path = path.trim_end_matches('/');
    let folder = named_in.rsplit_once('/').map_or("", |(folder, _)| folder);
    known.contains(path) || known.contains(format!("{folder}/{path}").as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, content: &str, expected: &[&str]) {
        let texts = [
            Text::new("server/src/gate.rs", ""),
            Text::new("docs/http.md", ""),
            Text::new("docs/decisions/0001-a.md", ""),
            Text::new(path, content),
        ];
        let found: Vec<String> = findings(&texts)
            .into_iter()
            .map(|finding| format!("{}: {}", finding.line, finding.what))
            .collect();
        let expected: Vec<String> = expected
            .iter()
            .map(|path| format!("1: `{path}` does not exist: name where it is now"))
            .collect();
        assert_eq!(found, expected, "of {content:?}");
    }

    #[test]
    fn a_path_that_is_gone_is_found() {
        check(
            "ARCHITECTURE.md",
            "see `server/src/door.rs`",
            &["server/src/door.rs"],
        );
        check(
            "server/src/a.rs",
            "/// In `server/src/door/`.",
            &["server/src/door/"],
        );
        check("docs/a.md", "see `api.md`", &["api.md"]);
        check(
            "docs/a.md",
            "`decisions/0002-b.md`",
            &["decisions/0002-b.md"],
        );
    }

    #[test]
    fn what_is_there_or_is_no_path_passes() {
        check(
            "ARCHITECTURE.md",
            "`server/src/gate.rs` and `server/src/`",
            &[],
        );
        check(
            "docs/a.md",
            "`http.md`, `docs/http.md`, `decisions/0001-a.md`",
            &[],
        );
        check(
            "docs/a.md",
            "`server/src/<kind>/`, `tests/data`, `a/b`",
            &[],
        );
        check("server/src/a.rs", "let a = \"`server/src/door.rs`\";", &[]);
        check("CHANGELOG.md", "`server/src/door.rs`", &[]);
    }
}
