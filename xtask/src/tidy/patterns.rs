//! Code that compiles and does nothing: assertions that cannot fail, placeholders.

use super::Finding;
use super::source::{Source, word_at};

/// Markers of unfinished work. In a comment they need an issue number: `TODO(#12)`.
const PLACEHOLDERS: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];

/// Stubs.
const STUBS: &[&str] = &["todo!", "unimplemented!"];

/// Checks every line of every source.
pub(super) fn findings(sources: &[Source]) -> Vec<Finding> {
    sources.iter().flat_map(source_findings).collect()
}

fn source_findings(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, what: &str| {
        findings.push(Finding::new(&source.path, line + 1, what));
    };
    for (number, code) in source.code.iter().enumerate() {
        let trimmed = code.trim();
        if is_dead_matches(&source.code, number) {
            find(
                number,
                "`matches!` as a statement asserts nothing: use assert!(matches!(…))",
            );
        }
        let compact: String = trimmed.chars().filter(|c| !c.is_whitespace()).collect();
        if compact.contains("assert!(true") {
            find(number, "this assertion cannot fail");
        }
        if trimmed.contains("#[ignore") && !has_issue(&source.lines[number]) {
            find(
                number,
                "an ignored test needs the number of the issue that re-enables it: (#12)",
            );
        }
        if STUBS.iter().any(|stub| trimmed.contains(stub)) {
            find(number, "stubs are not allowed");
        }
        if has_placeholder(code, &source.lines[number]) {
            find(number, "unfinished work needs an issue number: TODO(#12)");
        }
    }
    findings
}

/// Whether a comment contains a marker; literals may contain any word.
fn has_placeholder(code: &str, line: &str) -> bool {
    let Some(comment) = line.find("//") else {
        return false;
    };
    // A `//` inside a literal is blank in the masked code, and so is a comment; a literal is
    // recognized by the quote that follows.
    let in_literal = line[comment..].contains('"') && !code.trim().is_empty();
    let found = PLACEHOLDERS
        .iter()
        .any(|word| word_at(&line[comment..], word).is_some());
    found && !in_literal && !has_issue(line)
}

fn has_issue(line: &str) -> bool {
    let digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    line.match_indices("(#")
        .any(|(at, mark)| digit(&line[at + mark.len()..]))
}

/// Whether `matches!(…);` is a statement. It may span several lines.
fn is_dead_matches(code: &[String], number: usize) -> bool {
    if !code[number].trim_start().starts_with("matches!(") {
        return false;
    }
    let before = code[..number]
        .iter()
        .rev()
        .map(|line| line.trim())
        .find(|line| !line.is_empty());
    let begins_statement = before.is_none_or(|line| line.ends_with([';', '{', '}']));
    let mut depth = 0_i32;
    for line in &code[number..] {
        for (at, c) in line.char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => continue,
            }
            if depth == 0 {
                return begins_statement && line[at + 1..].trim_start().starts_with(';');
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: &str, expected: &[usize]) {
        let found = findings(&[Source::new("a/src/b.rs", content)]);
        let lines: Vec<usize> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expected, "of {content:?}: {found:?}");
    }

    #[test]
    fn a_bare_matches_asserts_nothing() {
        check("fn f() {\n    matches!(a, B);\n}", &[2]);
        check(
            "fn f() {\n    matches!(\n        g(a),\n        B\n    );\n}",
            &[2],
        );
        check("fn f() {\n    assert!(matches!(a, B));\n}", &[]);
        check("fn f() -> bool {\n    matches!(a, B)\n}", &[]);
        check(
            "fn f() -> bool {\n    let x =\n        matches!(a, B);\n    x\n}",
            &[],
        );
    }

    #[test]
    fn an_assertion_of_true_is_reported() {
        check("assert!( true );", &[1]);
        check("assert!(true_enough);\nassert!(a);", &[1]);
        check("\"assert!(true)\";", &[]);
    }

    #[test]
    fn unfinished_work_needs_an_issue() {
        check("// TODO later", &[1]);
        check("let a = 1; // FIXME", &[1]);
        check("// TODO(#12) later", &[]);
        check("let a = \"// TODO\";", &[]);
        check(&format!("{}()", ["to", "do!"].concat()), &[1]);
        check("#[ignore]\nfn f() {}", &[1]);
        check("#[ignore = \"slow (#7)\"]\nfn f() {}", &[]);
    }
}
