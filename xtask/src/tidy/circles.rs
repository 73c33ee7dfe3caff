//! Files of one crate do not import each other in a circle.
//!
//! A file depends on another when it names one of its items: in a `use` or in a path such as
//! `super::leaf::Leaf`. Two things are not dependencies:
//!
//! * A re-export (`pub use leaf::Leaf`) and a declaration (`mod leaf;`). A file that imports the
//!   re-exported name depends on the file that defines it.
//! * Names that a file takes from a module that contains it. `mod.rs` is the shared ground of its
//!   folder: it may define a type, and call the children that use this type.
//!
//! Calls of methods are not seen, nor is code for tests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Finding;
use super::imports::{Import, Path, imports};
use super::source::Source;

/// One finding for each circle.
pub(super) fn findings(sources: &[Source]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources {
        if let Some((name, _)) = source.path.split_once("/src/") {
            crates.entry(name).or_default().push(source);
        }
    }
    let crates = crates.into_iter();
    crates
        .flat_map(|(name, sources)| crate_findings(name, &sources))
        .collect()
}

fn crate_findings(name: &str, sources: &[&Source]) -> Vec<Finding> {
    let graph = Graph::new(name, sources);
    let circles = graph.circles();
    let describe = |circle: &BTreeSet<usize>| {
        let walk = graph.walk(circle);
        let what = format!(
            "imports form a circle ({} files): {}; move what they share into a file of its own",
            circle.len(),
            graph.describe(&walk),
        );
        Finding::new(&graph.sources[walk[0]].path, 0, what)
    };
    circles.iter().map(describe).collect()
}

/// The files of a crate, and which of them each one depends on.
struct Graph<'a> {
    sources: Vec<&'a Source>,
    /// The file of each module.
    modules: BTreeMap<Path, usize>,
    /// What a module imports: the name, and the path from the root of the crate; `None` for a name
    /// of another crate.
    names: BTreeMap<(Path, String), Option<Path>>,
    /// The files that each file depends on, and one name that it takes from each.
    edges: Vec<BTreeMap<usize, String>>,
}

impl<'a> Graph<'a> {
    fn new(name: &str, sources: &[&'a Source]) -> Self {
        let root = format!("{name}/src/");
        let has_library = sources
            .iter()
            .any(|source| source.path == format!("{root}lib.rs"));
        let mut graph = Self {
            sources: Vec::new(),
            modules: BTreeMap::new(),
            names: BTreeMap::new(),
            edges: Vec::new(),
        };
        for source in sources {
            let path = &source.path[root.len()..];
            // The programs of a crate that is also a library are crates of their own.
            let is_program = has_library && (path == "main.rs" || path.starts_with("bin/"));
            if !is_program {
                graph.modules.insert(module(path), graph.sources.len());
                graph.sources.push(source);
            }
        }
        let modules = graph.modules.clone();
        let imports: Vec<(&Path, Vec<Import>)> = modules
            .iter()
            .map(|(module, &file)| (module, imports(graph.sources[file])))
            .collect();
        for (module, imports) in &imports {
            for import in imports {
                if let Some(name) = &import.name {
                    let target = graph.absolute(module, import);
                    graph
                        .names
                        .insert(((*module).clone(), name.clone()), target);
                }
            }
        }
        graph.edges = vec![BTreeMap::new(); graph.sources.len()];
        for (module, imports) in &imports {
            for import in imports.iter().filter(|import| !import.is_export) {
                graph.add_edge(module, import);
            }
        }
        graph
    }

    fn add_edge(&mut self, module: &Path, import: &Import) {
        let target = self.absolute(module, import);
        let target = target.and_then(|path| self.definition(&path, 0));
        if let Some(target) = target
            && !module.starts_with(&target)
        {
            let name = import.path[import.path.len() - 1].clone();
            self.edges[self.modules[module]]
                .entry(self.modules[&target])
                .or_insert(name);
        }
    }

    /// The path from the root of the crate; `None` when it leads into another crate.
    fn absolute(&self, module: &Path, import: &Import) -> Option<Path> {
        let mut segments = import.path.iter();
        let mut base = module.clone();
        // Inside an inline module the first `super` is the file itself.
        let mut inline = import.inline_depth;
        let mut rest: Vec<String> = Vec::new();
        match segments.next()?.as_str() {
            "crate" => base.clear(),
            "self" => {}
            "super" => ascend(&mut base, &mut inline)?,
            first => {
                let child = [module.as_slice(), &[first.to_owned()]].concat();
                if !self.modules.contains_key(&child) {
                    let named = self.names.get(&(module.clone(), first.to_owned()))?;
                    base = named.clone()?;
                } else {
                    rest.push(first.to_owned());
                }
            }
        }
        for segment in segments {
            if segment == "super" {
                ascend(&mut base, &mut inline)?;
            } else {
                rest.push(segment.clone());
            }
        }
        base.extend(rest);
        Some(base)
    }

    /// The module whose file defines what the path names, through re-exports; `None` for a module
    /// as such, and for names of other crates.
    fn definition(&self, path: &Path, depth: usize) -> Option<Path> {
        const EXPORTS_MAX: usize = 16;
        let length = (0..=path.len())
            .rev()
            .find(|&length| self.modules.contains_key(&path[..length]))?;
        let (module, rest) = path.split_at(length);
        let (item, inside) = rest.split_first()?;
        match self.names.get(&(module.to_vec(), item.clone())) {
            None => Some(module.to_vec()),
            Some(None) => None,
            Some(Some(_)) if depth == EXPORTS_MAX => None,
            Some(Some(target)) => {
                let target = [target.as_slice(), inside].concat();
                self.definition(&target, depth + 1)
            }
        }
    }

    /// Files that reach each other, grouped.
    fn circles(&self) -> Vec<BTreeSet<usize>> {
        let reached: Vec<BTreeSet<usize>> = (0..self.edges.len())
            .map(|file| self.reached(file))
            .collect();
        let mut circles: Vec<BTreeSet<usize>> = Vec::new();
        for file in 0..reached.len() {
            let is_known = circles.iter().any(|circle| circle.contains(&file));
            if reached[file].contains(&file) && !is_known {
                let circle = reached[file].iter().copied();
                circles.push(
                    circle
                        .filter(|&other| reached[other].contains(&file))
                        .collect(),
                );
            }
        }
        circles
    }

    fn reached(&self, file: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut open = vec![file];
        while let Some(file) = open.pop() {
            let new = self.edges[file].keys().copied();
            open.extend(new.filter(|&next| reached.insert(next)));
        }
        reached
    }

    /// The shortest way from the first file of a circle back to it.
    fn walk(&self, circle: &BTreeSet<usize>) -> Vec<usize> {
        let first = *circle.first().expect("a circle has files");
        let mut queue = VecDeque::from([vec![first]]);
        let mut seen = BTreeSet::new();
        while let Some(walk) = queue.pop_front() {
            let last = walk[walk.len() - 1];
            for &next in self.edges[last].keys().filter(|next| circle.contains(next)) {
                let mut walk = walk.clone();
                walk.push(next);
                if next == first {
                    return walk;
                }
                if seen.insert(next) {
                    queue.push_back(walk);
                }
            }
        }
        vec![first]
    }

    /// `a.rs -> b.rs (B) -> a.rs (A)`: each file with a name that the file before takes from it.
    fn describe(&self, walk: &[usize]) -> String {
        let mut text = self.short_name(walk[0]).to_owned();
        for pair in walk.windows(2) {
            let name = &self.edges[pair[0]][&pair[1]];
            text.push_str(&format!(" -> {} ({name})", self.short_name(pair[1])));
        }
        text
    }

    fn short_name(&self, file: usize) -> &str {
        let path = &self.sources[file].path;
        path.split_once("/src/").map_or(path, |(_, name)| name)
    }
}

/// `store/leaf.rs` and `store/leaf/mod.rs` are the module `store::leaf`.
fn module(path: &str) -> Path {
    let mut module: Path = path
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    module.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    module
}

fn ascend(base: &mut Path, inline: &mut usize) -> Option<()> {
    match inline.checked_sub(1) {
        Some(less) => *inline = less,
        None => {
            base.pop()?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, content)| Source::new(&format!("a/src/{path}"), content))
            .collect();
        let found: Vec<String> = findings(&sources)
            .into_iter()
            .map(|finding| {
                let (_, walk) = finding.what.split_once("files): ").unwrap();
                walk.split_once(';').unwrap().0.to_owned()
            })
            .collect();
        assert_eq!(found, expected, "of {files:?}");
    }

    #[test]
    fn a_circle_of_imports_is_reported() {
        check(
            &[
                ("lib.rs", "mod b; mod c; mod d;"),
                ("b.rs", "use crate::c::C;\nuse std::fmt;"),
                ("c.rs", "use super::d::{self, D};\npub struct C;"),
                ("d.rs", "fn f() -> crate::b::B { todo }"),
            ],
            &["b.rs -> c.rs (C) -> d.rs (D) -> b.rs (B)"],
        );
        check(
            &[
                ("lib.rs", "mod b; mod c;"),
                ("b.rs", "use crate::c;\nfn f() { c::g() }"),
                ("c.rs", "mod inside { use super::super::b::B; }"),
            ],
            &["b.rs -> c.rs (g) -> b.rs (B)"],
        );
    }

    #[test]
    fn imports_in_one_direction_pass() {
        check(
            &[
                ("lib.rs", "mod b; mod c; pub use b::B; pub use c::C;"),
                ("b.rs", "use crate::C;\npub struct B;"),
                (
                    "c.rs",
                    "pub struct C;\n#[cfg(test)]\nmod tests { use crate::b::B; }",
                ),
            ],
            &[],
        );
        check(
            &[
                ("lib.rs", "mod b; mod c;"),
                ("b.rs", "use crate::c::C; // use of b"),
                (
                    "c.rs",
                    "mod inside { use super::D; }\nstruct D;\nuse other::b::B;",
                ),
            ],
            &[],
        );
    }

    #[test]
    fn a_re_export_leads_to_the_file_that_defines_the_name() {
        check(
            &[
                ("lib.rs", "mod b; mod c;"),
                (
                    "b/mod.rs",
                    "mod leaf; mod root;\npub(crate) use leaf::{Leaf, Stem as Trunk};",
                ),
                (
                    "b/leaf.rs",
                    "use crate::c::C;\npub struct Leaf; pub struct Stem;",
                ),
                ("b/root.rs", "pub struct Root;"),
                ("c.rs", "use crate::b::Trunk;\npub struct C;"),
            ],
            &["b/leaf.rs -> c.rs (C) -> b/leaf.rs (Trunk)"],
        );
    }

    #[test]
    fn a_child_may_use_what_its_parent_defines() {
        let parent = "mod leaf;\npub struct Tree;\nfn f() { leaf::grow() }";
        check(
            &[
                ("lib.rs", "mod tree;"),
                ("tree/mod.rs", parent),
                ("tree/leaf.rs", "use super::Tree;\npub fn grow() {}"),
            ],
            &[],
        );
        // Through a file of another folder it is a circle all the same.
        check(
            &[
                ("lib.rs", "mod tree; mod c;"),
                ("tree/mod.rs", parent),
                ("tree/leaf.rs", "use crate::c::C;\npub fn grow() {}"),
                ("c.rs", "use crate::tree::Tree;\npub struct C;"),
            ],
            &["tree/mod.rs -> tree/leaf.rs (grow) -> c.rs (C) -> tree/mod.rs (Tree)"],
        );
    }
}
