//! Sizes: files, functions, lines.

use super::Finding;
use super::source::Source;

/// Lines of code of a file without its tests; comments and blank lines are not counted.
const FILE_LINES_MAX: usize = 500;

/// Lines of code of a function outside tests, including its signature.
const FUNCTION_LINES_MAX: usize = 70;

/// Characters in a line.
const LINE_CHARS_MAX: usize = 100;

/// A file or function that may exceed its budget. The list may only shrink.
struct Exception {
    path: &'static str,
    /// The function; empty for the file.
    function: &'static str,
    /// The budget that applies instead.
    lines: usize,
    reason: &'static str,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        path: "ctf/src/event/interpreter.rs",
        function: "execute",
        lines: 130,
        reason: "one match over the operations, the hot loop of the event reader",
    },
    Exception {
        path: "ctf/src/procedure/compiler.rs",
        function: "field",
        lines: 80,
        reason: "one match over the shapes of fields",
    },
    Exception {
        path: "server/src/metrics/server.rs",
        function: "default",
        lines: 85,
        reason: "one entry a metric",
    },
];

/// File names that say nothing about the domain.
const NAMES_BANNED: &[&str] = &["utils", "util", "helpers", "common", "manager", "misc"];

/// Everything over budget, and exceptions that are no longer needed.
pub(super) fn findings(sources: &[Source]) -> Vec<Finding> {
    findings_with(sources, EXCEPTIONS)
}

fn findings_with(sources: &[Source], exceptions: &[Exception]) -> Vec<Finding> {
    let mut needed = vec![false; exceptions.len()];
    let mut findings = Vec::new();
    for source in sources {
        for size in sizes(source) {
            if size.lines <= size.budget {
                continue;
            }
            let exception = exceptions.iter().position(|exception| {
                exception.path == source.path && exception.function == size.function
            });
            if let Some(index) = exception {
                needed[index] = true;
            }
            let budget = exception.map_or(size.budget, |index| exceptions[index].lines);
            if size.lines > budget {
                findings.push(Finding::new(
                    &source.path,
                    size.line,
                    size.complaint(budget),
                ));
            }
        }
        findings.extend(wide_lines(source));
        findings.extend(bad_name(source));
    }
    for (exception, _) in exceptions.iter().zip(needed).filter(|(_, needed)| !needed) {
        let what = format!("exception no longer needed: {:?}", exception.reason);
        findings.push(Finding::new(exception.path, 0, what));
    }
    findings
}

struct Size {
    function: String,
    line: usize,
    lines: usize,
    budget: usize,
}

impl Size {
    fn complaint(&self, budget: usize) -> String {
        let what = match self.function.as_str() {
            "" => "the file".to_owned(),
            name => format!("fn {name}"),
        };
        format!(
            "{what} has {} lines of code, {budget} are allowed: split it by noun",
            self.lines
        )
    }
}

fn sizes(source: &Source) -> Vec<Size> {
    let code = (0..source.code.len()).filter(|&line| !source.is_test(line));
    let lines = code
        .filter(|&line| !source.code[line].trim().is_empty())
        .count();
    let file = Size {
        function: String::new(),
        line: 0,
        lines,
        budget: FILE_LINES_MAX,
    };
    let functions = source.functions().into_iter();
    let functions = functions.filter(|function| !source.is_test(function.lines.start));
    let functions = functions.map(|function| Size {
        line: function.lines.start + 1,
        lines: source.code_lines(function.lines),
        function: function.name,
        budget: FUNCTION_LINES_MAX,
    });
    [file].into_iter().chain(functions).collect()
}

fn wide_lines(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in source.lines.iter().enumerate() {
        let chars = width(line, &source.code[number]);
        if chars > LINE_CHARS_MAX {
            let what = format!("{chars} characters, {LINE_CHARS_MAX} are allowed");
            findings.push(Finding::new(&source.path, number + 1, what));
        }
    }
    findings
}

/// The number of characters, except those of literals and of rows in Markdown tables, which cannot
/// be wrapped.
fn width(line: &str, code: &str) -> usize {
    let trimmed = line.trim_start();
    if !trimmed.starts_with("//") {
        return line
            .chars()
            .zip(code.chars())
            .filter(|(as_is, masked)| as_is == masked)
            .count();
    }
    if trimmed
        .trim_start_matches(['/', '!'])
        .trim_start()
        .starts_with('|')
    {
        0
    } else {
        line.chars().count()
    }
}

fn bad_name(source: &Source) -> Option<Finding> {
    let is_banned = |part: &str| NAMES_BANNED.contains(&part.trim_end_matches(".rs"));
    let part = source.path.split('/').find(|part| is_banned(part))?;
    Some(Finding::new(
        &source.path,
        0,
        format!("{part:?} is not a noun of the domain"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> String {
        "let a = 1;\n".repeat(count)
    }

    fn check(path: &str, content: &str, exceptions: &[Exception], expected: &[&str]) {
        let found: Vec<String> = findings_with(&[Source::new(path, content)], exceptions)
            .into_iter()
            .map(|finding| finding.to_string())
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn budgets_count_code_only() {
        let comments = "// why\n\n".repeat(600);
        check(
            "a/src/b.rs",
            &format!("{comments}{}", lines(FILE_LINES_MAX)),
            &[],
            &[],
        );
        let what = "a/src/b.rs: the file has 501 lines of code, 500 are allowed: split it by noun";
        check("a/src/b.rs", &lines(FILE_LINES_MAX + 1), &[], &[what]);
        check("a/tests/b.rs", &lines(FILE_LINES_MAX + 1), &[], &[]);
    }

    #[test]
    fn functions_have_a_budget() {
        let function = |count| format!("fn f() {{\n{}}}\n", lines(count));
        check("a/src/b.rs", &function(68), &[], &[]);
        let what = "a/src/b.rs:1: fn f has 71 lines of code, 70 are allowed: split it by noun";
        check("a/src/b.rs", &function(69), &[], &[what]);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(100));
        check("a/src/b.rs", &tests, &[], &[]);
    }

    #[test]
    fn an_exception_has_a_budget_and_must_be_needed() {
        let function = |count| format!("fn f() {{\n{}}}\n", lines(count));
        let reason = "one table of moves";
        let exception = || {
            [Exception {
                path: "a/src/b.rs",
                function: "f",
                lines: 80,
                reason,
            }]
        };
        check("a/src/b.rs", &function(78), &exception(), &[]);
        let what = "a/src/b.rs:1: fn f has 81 lines of code, 80 are allowed: split it by noun";
        check("a/src/b.rs", &function(79), &exception(), &[what]);
        let what = "a/src/b.rs: exception no longer needed: \"one table of moves\"";
        check("a/src/b.rs", &function(3), &exception(), &[what]);
    }

    #[test]
    fn wide_lines_and_vague_names_are_reported() {
        let wide = format!("// {}\n", "x".repeat(98));
        check(
            "a/src/b.rs",
            &wide,
            &[],
            &["a/src/b.rs:1: 101 characters, 100 are allowed"],
        );
        check(
            "a/src/b.rs",
            &format!("//! | {} |\n", "x".repeat(98)),
            &[],
            &[],
        );
        let row = format!("(\"{}\", 1),\n", "x".repeat(98));
        check("a/tests/b.rs", &row, &[], &[]);
        check("a/src/b.rs", &row, &[], &[]);
        let what = "a/src/utils.rs: \"utils.rs\" is not a noun of the domain";
        check("a/src/utils.rs", "", &[], &[what]);
    }
}
