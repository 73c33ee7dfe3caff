//! Rust text with comments and literals blanked out, so that rules see only code.
//!
//! This is not a parser: it recognizes comments (nested ones too), string, raw string, byte string
//! and character literals, and matching braces. That suffices to count lines, to find the end of a
//! function, and to distinguish test code.

use std::ops::Range;

use super::Finding;

/// A text file of the repository.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    /// The path from the root of the repository, with forward slashes.
    pub path: String,
    /// The content.
    pub content: String,
}

impl Text {
    pub(crate) fn new(path: &str, content: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            content: content.into(),
        }
    }

    /// One finding for each line of which `check` says what is wrong.
    pub(crate) fn line_findings(
        &self,
        mut check: impl FnMut(&str) -> Option<String>,
    ) -> Vec<Finding> {
        let lines = self.content.split('\n').zip(1..);
        let finding = |(line, number)| Some(Finding::new(&self.path, number, check(line)?));
        lines.filter_map(finding).collect()
    }
}

/// A Rust file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The path from the root of the repository, with forward slashes.
    pub path: String,
    /// The original lines.
    pub lines: Vec<String>,
    /// The same lines, with spaces instead of comments and literals.
    pub code: Vec<String>,
    /// Lines (from 0) that are compiled only for tests.
    pub tests: Vec<Range<usize>>,
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub name: String,
    /// Lines from 0, including the signature and the closing brace.
    pub lines: Range<usize>,
}

impl Source {
    pub(crate) fn new(path: &str, content: &str) -> Self {
        let code: Vec<String> = mask(content).lines().map(str::to_owned).collect();
        let mut tests = test_modules(&code);
        if is_test_file(path) {
            tests.push(0..code.len());
        }
        let lines = content.lines().map(str::to_owned).collect();
        Self {
            path: path.to_owned(),
            lines,
            code,
            tests,
        }
    }

    /// Whether a line (from 0) is compiled only for tests.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&line))
    }

    /// The number of these lines that contain code: comments and blank lines are not counted.
    pub(crate) fn code_lines(&self, range: Range<usize>) -> usize {
        self.code[range]
            .iter()
            .filter(|line| !line.trim().is_empty())
            .count()
    }

    /// All functions with a body, including nested ones.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for (start, line) in self.code.iter().enumerate() {
            let Some(column) = word_at(line, "fn") else {
                continue;
            };
            let name: String = line[column + 2..]
                .trim_start()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            // `fn(u8)` is a type, and a signature that ends in `;` has no body.
            if name.is_empty() {
                continue;
            }
            if let Some(end) = block_end(&self.code, start, column) {
                functions.push(Function {
                    name,
                    lines: start..end + 1,
                });
            }
        }
        functions
    }
}

/// Marks files that their parent declares as a module for tests: `#[cfg(test)] mod model;`.
pub(crate) fn mark_test_modules(sources: &mut [Source]) {
    let prefixes: Vec<String> = sources.iter().flat_map(test_module_paths).collect();
    for source in sources {
        let in_module = |prefix: &String| {
            let rest = source.path.strip_prefix(prefix.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        if prefixes.iter().any(in_module) {
            source.tests.push(0..source.code.len());
        }
    }
}

/// The paths, without extension, of files that are modules for tests.
fn test_module_paths(source: &Source) -> Vec<String> {
    let (folder, file) = source.path.rsplit_once('/').unwrap_or_default();
    let children = match file {
        "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
        _ => source.path.trim_end_matches(".rs").to_owned(),
    };
    let pairs = source.code.windows(2);
    pairs
        .filter(|pair| pair[0].trim() == "#[cfg(test)]")
        .filter_map(|pair| {
            let declaration = pair[1].trim().strip_suffix(';')?;
            let name = declaration.rsplit_once("mod ")?.1;
            Some(format!("{children}/{name}"))
        })
        .collect()
}

fn is_test_file(path: &str) -> bool {
    let folders = ["tests/", "benches/", "fuzz/"];
    let in_folder =
        |folder: &&str| path.starts_with(*folder) || path.contains(&format!("/{folder}"));
    folders.iter().any(in_folder) || path.ends_with("/tests.rs")
}

/// The column of a word that is not part of a longer one.
pub(crate) fn word_at(line: &str, word: &str) -> Option<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .map(|(column, _)| column)
        .find(|&column| {
            let before = line[..column].chars().next_back();
            let after = line[column + word.len()..].chars().next();
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        })
}

/// The ranges of modules marked `#[cfg(test)]`.
fn test_modules(code: &[String]) -> Vec<Range<usize>> {
    let mut modules: Vec<Range<usize>> = Vec::new();
    for (start, line) in code.iter().enumerate() {
        let Some(column) = line.find("#[cfg(test)]") else {
            continue;
        };
        if modules.last().is_some_and(|module| module.contains(&start)) {
            continue;
        }
        if let Some(end) = block_end(code, start, column) {
            modules.push(start..end + 1);
        }
    }
    modules
}

/// The line of the brace that closes the first block from here on, or `None` if a `;` outside of
/// brackets comes first.
fn block_end(code: &[String], line: usize, column: usize) -> Option<usize> {
    let mut braces = 0_usize;
    let mut brackets = 0_usize;
    for (number, text) in code.iter().enumerate().skip(line) {
        let text = if number == line {
            &text[column..]
        } else {
            text.as_str()
        };
        for c in text.chars() {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                '{' => braces += 1,
                '}' => {
                    braces = braces.saturating_sub(1);
                    if braces == 0 && brackets == 0 {
                        return Some(number);
                    }
                }
                ';' if braces == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

/// Replaces comments and the content of literals by spaces; line ends stay.
fn mask(content: &str) -> String {
    let chars: Vec<char> = content.chars().collect();
    let mut masked = String::with_capacity(content.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match skipped(&chars, at) {
            Some(end) => end,
            None => {
                masked.push(chars[at]);
                at += 1;
                continue;
            }
        };
        masked.extend(
            chars[at..end]
                .iter()
                .map(|&c| if c == '\n' { '\n' } else { ' ' }),
        );
        at = end;
    }
    masked
}

/// The end of the comment or literal that starts here.
fn skipped(chars: &[char], at: usize) -> Option<usize> {
    let next = chars.get(at + 1).copied();
    match (chars[at], next) {
        ('/', Some('/')) => Some(find(chars, at, '\n')),
        ('/', Some('*')) => Some(block_comment_end(chars, at)),
        ('"', _) => Some(quoted_end(chars, at + 1, '"')),
        ('r' | 'b' | 'c', _) if !follows_name(chars, at) => prefixed_literal_end(chars, at),
        ('\'', Some('\\')) => Some(quoted_end(chars, at + 1, '\'')),
        // A lifetime has no closing quote two characters later.
        ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => Some(at + 3),
        _ => None,
    }
}

fn follows_name(chars: &[char], at: usize) -> bool {
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_')
}

/// `r"…"`, `r#"…"#`, `b"…"`, `br#"…"#`, `c"…"`, `b'x'`.
fn prefixed_literal_end(chars: &[char], at: usize) -> Option<usize> {
    let mut cursor = at;
    while cursor < at + 2 && matches!(chars.get(cursor), Some('r' | 'b' | 'c')) {
        cursor += 1;
    }
    let is_raw = chars[at..cursor].contains(&'r');
    let hashes = chars[cursor..].iter().take_while(|&&c| c == '#').count();
    match chars.get(cursor + hashes) {
        Some('"') if is_raw => Some(raw_end(chars, cursor + hashes + 1, hashes)),
        Some('"') if hashes == 0 => Some(quoted_end(chars, cursor + 1, '"')),
        Some('\'') if hashes == 0 && chars[at] == 'b' => Some(quoted_end(chars, cursor + 1, '\'')),
        _ => None,
    }
}

fn find(chars: &[char], from: usize, wanted: char) -> usize {
    chars[from..]
        .iter()
        .position(|&c| c == wanted)
        .map_or(chars.len(), |offset| from + offset)
}

fn quoted_end(chars: &[char], mut at: usize, quote: char) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

fn raw_end(chars: &[char], from: usize, hashes: usize) -> usize {
    let closes = |at: usize| {
        chars[at] == '"' && chars[at + 1..].iter().take_while(|&&c| c == '#').count() >= hashes
    };
    (from..chars.len())
        .find(|&at| closes(at))
        .map_or(chars.len(), |at| at + 1 + hashes)
}

fn block_comment_end(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    chars.len()
}

/// Rust files with this path and content.
#[cfg(test)]
pub(crate) fn sources(files: &[(&str, &str)]) -> Vec<Source> {
    let files = files.iter();
    files
        .map(|(path, content)| Source::new(path, content))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_mask(content: &str, expected: &str) {
        assert_eq!(mask(content), expected, "of {content:?}");
    }

    #[test]
    fn comments_and_literals_are_blank() {
        check_mask("a // b\nc", "a     \nc");
        check_mask("a /* b /* c */ d */ e", "a                   e");
        check_mask(r#"f("a\"b", c)"#, "f(      , c)");
        check_mask(r##"f(r#"a"b"#, c)"##, "f(        , c)");
        check_mask("f(b\"ab\", b'x', 'y', '\\n')", "f(     ,     ,    ,     )");
        check_mask("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)");
        check_mask("for b in bar", "for b in bar");
    }

    #[test]
    fn functions_end_at_their_brace() {
        let text = "trait T { fn a(&self); }\nfn b(x: [u8; 3]) {\n  \"}\";\n}\n\
                    struct S { f: fn(u8) -> u8 }\nfn c() {}\n";
        let functions = Source::new("x/src/lib.rs", text).functions();
        let found: Vec<(&str, Range<usize>)> = functions
            .iter()
            .map(|f| (f.name.as_str(), f.lines.clone()))
            .collect();
        assert_eq!(found, [("b", 1..4), ("c", 5..6)]);
    }

    #[test]
    fn test_modules_are_recognized() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n";
        let source = Source::new("x/src/lib.rs", text);
        let tests: Vec<bool> = (0..6).map(|line| source.is_test(line)).collect();
        assert_eq!(tests, [false, true, true, true, true, false]);
        assert!(Source::new("x/tests/a.rs", text).is_test(0));
        // The module is in another file, whose path shows that it is a test.
        assert!(!Source::new("x/src/a.rs", "#[cfg(test)]\nmod tests;\nfn f() {}").is_test(2));
        assert!(Source::new("x/src/a/tests.rs", text).is_test(0));
    }

    #[test]
    fn files_declared_for_tests_are_recognized() {
        let check = |parent: &str, child: &str, expected: bool| {
            let declaration = "mod a;\n#[cfg(test)]\npub(crate) mod model;\n";
            let mut sources = [
                Source::new(parent, declaration),
                Source::new(child, "fn f() {}"),
            ];
            mark_test_modules(&mut sources);
            assert_eq!(sources[1].is_test(0), expected, "of {parent} and {child}");
        };
        check("x/src/io/mod.rs", "x/src/io/model.rs", true);
        check("x/src/io.rs", "x/src/io/model/disk.rs", true);
        check("x/src/lib.rs", "x/src/model.rs", true);
        check("x/src/lib.rs", "x/src/models.rs", false);
        check("x/src/lib.rs", "x/src/a.rs", false);
    }
}
