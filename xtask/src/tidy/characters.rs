//! Characters that nobody sees: control characters, marks without width, and marks that turn the
//! direction of text, so that a reader sees other code than the compiler.

use super::Finding;
use super::source::Text;

/// Endings and names of files that people read. Inputs of tests may contain anything.
const READ_BY_PEOPLE: &[&str] = &[
    ".css",
    ".html",
    ".js",
    ".json",
    ".md",
    ".py",
    ".rs",
    ".service",
    ".sh",
    ".sums",
    ".toml",
    ".yaml",
    ".yml",
    "Dockerfile",
    "Cargo.lock",
    ".ci/run",
];

/// One finding for each line with such a character.
pub(super) fn findings(texts: &[Text]) -> Vec<Finding> {
    let is_read = |text: &&Text| {
        READ_BY_PEOPLE
            .iter()
            .any(|ending| text.path.ends_with(ending))
    };
    let is_input = |text: &&Text| text.path.contains("/corpus/") || text.path.contains("/golden/");
    let texts = texts.iter().filter(|text| is_read(text) && !is_input(text));
    texts.flat_map(text_findings).collect()
}

fn text_findings(text: &Text) -> Vec<Finding> {
    text.line_findings(|line| {
        let invisible = u32::from(line.chars().find(|&c| is_invisible(c))?);
        Some(format!(
            "invisible character U+{invisible:04X}: write it as an escape"
        ))
    })
}

fn is_invisible(c: char) -> bool {
    c != '\t' && c.is_control()
        || matches!(
            c,
            '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{2069}'
                | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check_lines;

    fn check(path: &str, content: &str, expected: &[usize]) {
        check_lines(findings, path, content, expected);
    }

    #[test]
    fn invisible_characters_are_reported() {
        check("a/src/b.rs", "fine\nb'\0'\n", &[2]);
        check("docs/a.md", "fine\r\n", &[1]);
        check("config/a.toml", "\u{feff}a = 1", &[1]);
        check("a/src/b.rs", "// \u{202e}", &[1]);
    }

    #[test]
    fn visible_text_and_test_inputs_pass() {
        check("a/src/b.rs", "\tlet a = \"é → 語\"; // …\n", &[]);
        check("fuzz/corpus/frame/a.json", "\0", &[]);
        check("tests/data/bc_small.trace", "\0", &[]);
    }
}
