//! Words that no file of the repository may contain: paths of one machine, hosts of package
//! registries, notes about who or what wrote a text, and phrases for which plain English has a
//! shorter word.

use super::Finding;
use super::source::Text;

/// The words in two halves, so that this list does not match itself.
const WORDS: &[(&str, &str, &str)] = &[
    ("/wor", "k/main", "a path of one machine"),
    ("/wor", "k/shared", "a path of one machine: say ../shared"),
    ("/wor", "k/wt-", "a path of one machine"),
    ("/roo", "t/", "a path of one machine"),
    ("/hom", "e/", "a path of one machine"),
    ("index.", "crates.io", "the host of a package registry"),
    ("static.", "crates.io", "the host of a package registry"),
    ("deb.", "debian.org", "the host of a package registry"),
    ("pypi.", "org", "the host of a package registry"),
    ("registry.", "npmjs.org", "the host of a package registry"),
    ("co-authored", "-by:", "the history records the author"),
    ("generated", " with [", "the history records the author"),
    ("ended", " well", "say finished, completed or succeeded"),
    ("left", " out", "say skipped, ignored or omitted"),
    ("made", " anew", "say rebuilt"),
    ("told", " of ", "say reported or given"),
    ("stands", " in ", "say contains or is in"),
    (" lies", " in ", "say is in"),
    ("lies", " behind", "say follows"),
    ("goes", " past", "say bypasses or skips"),
    ("by the", " way of", "say through, or name what is done"),
];

/// Cargo writes these files and names its registry in them.
const EXEMPT: &[&str] = &["Cargo.lock", "fuzz/Cargo.lock"];

/// Checks every line of every text, ignoring case.
pub(super) fn findings(texts: &[Text]) -> Vec<Finding> {
    texts
        .iter()
        .filter(|text| !EXEMPT.contains(&text.path.as_str()))
        .flat_map(text_findings)
        .collect()
}

fn text_findings(text: &Text) -> Vec<Finding> {
    text.line_findings(|line| {
        let lower = line.to_lowercase();
        let words = WORDS.iter();
        let mut words = words.map(|(start, end, why)| ([*start, *end].concat(), why));
        let (word, why) = words.find(|(word, _)| lower.contains(word))?;
        Some(format!("{word:?} is not allowed here: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check_lines;

    fn check(path: &str, content: &str, expected: &[usize]) {
        check_lines(findings, path, content, expected);
    }

    #[test]
    fn every_word_of_the_list_is_reported() {
        for (start, end, _) in WORDS {
            check("docs/a.md", &format!("fine\nsee {start}{end} there"), &[2]);
            check(
                "docs/a.md",
                &format!("see {}{end}", start.to_uppercase()),
                &[1],
            );
        }
    }

    #[test]
    fn other_words_pass() {
        check("docs/a.md", "../shared/corpora, the network, homework", &[]);
        check("Cargo.lock", &["index.", "crates.io"].concat(), &[]);
    }
}
