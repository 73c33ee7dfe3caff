//! Every file belongs to a program, and the root of a crate is a table of contents.

use super::Finding;
use super::source::{Source, word_at};

/// Files that cargo finds by name.
const ROOTS: &[&str] = &["main.rs", "lib.rs", "mod.rs", "build.rs"];

/// Folders in which every file is a program.
const PROGRAMS: &[&str] = &[
    "/bin/",
    "/examples/",
    "/benches/",
    "fuzz_targets/",
    "/tests/",
];

/// Files that no `mod` declares, and crate roots that contain code.
pub(super) fn findings(sources: &[Source]) -> Vec<Finding> {
    let dead = sources
        .iter()
        .filter(|source| is_dead(source, sources))
        .map(|source| {
            Finding::new(
                &source.path,
                0,
                "no `mod` declares this file: it belongs to no program",
            )
        });
    let busy = sources
        .iter()
        .filter(|source| source.path.ends_with("/src/lib.rs"));
    let busy = busy.flat_map(|source| {
        let functions = source
            .functions()
            .into_iter()
            .map(|function| function.lines.start);
        functions.filter(|&line| !source.is_test(line)).map(|line| {
            let what = "the root of a crate is a table of contents: move this to a module";
            Finding::new(&source.path, line + 1, what)
        })
    });
    dead.chain(busy).collect()
}

fn is_dead(source: &Source, sources: &[Source]) -> bool {
    let (folder, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    if ROOTS.contains(&file) || PROGRAMS.iter().any(|place| source.path.contains(place)) {
        return false;
    }
    let name = file.trim_end_matches(".rs");
    let parents = [
        format!("{folder}/mod.rs"),
        format!("{folder}/lib.rs"),
        format!("{folder}/main.rs"),
        format!("{folder}.rs"),
    ];
    let names_it = |line: &String| {
        word_at(line, "mod").is_some() && word_at(line, name).is_some() && line.contains(';')
    };
    let parents = sources
        .iter()
        .filter(|parent| parents.contains(&parent.path));
    !parents
        .into_iter()
        .any(|parent| parent.code.iter().any(names_it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::sources;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let found: Vec<String> = findings(&sources(files))
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_undeclared_file_is_reported() {
        check(
            &[
                ("a/src/lib.rs", "mod packet;\npub(crate) mod tree;"),
                ("a/src/packet.rs", "mod tests;"),
                ("a/src/packet/tests.rs", ""),
                ("a/src/packet/lost.rs", ""),
                ("a/src/tree/mod.rs", "// mod leaf;"),
                ("a/src/tree/leaf.rs", ""),
                ("a/src/bin/tool.rs", "fn main() {}"),
            ],
            &["a/src/packet/lost.rs", "a/src/tree/leaf.rs"],
        );
    }

    #[test]
    fn a_crate_root_contains_no_functions() {
        check(&[("a/src/lib.rs", "fn f() {}")], &["a/src/lib.rs"]);
        check(
            &[("a/src/lib.rs", "#[cfg(test)]\nmod tests { fn f() {} }")],
            &[],
        );
        check(&[("a/src/main.rs", "fn main() {}")], &[]);
    }
}
