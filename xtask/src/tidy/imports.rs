//! The paths that a Rust file names: the leaves of its `use` declarations, and paths in its code.

use super::source::Source;

/// Names from left to right, as between `::`.
pub(crate) type Path = Vec<String>;

/// One path of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    /// As written: it may begin with `crate`, `self`, `super` or a name.
    pub path: Path,
    /// The name that a `use` gives it in this file.
    pub name: Option<String>,
    /// Whether it is a re-export: `pub use`.
    pub is_export: bool,
    /// How many inline modules contain it.
    pub inline_depth: usize,
}

/// All paths outside tests. A `use` of a tree counts once for each leaf.
pub(crate) fn imports(source: &Source) -> Vec<Import> {
    // The library of the test harness is code like any other.
    let is_harness = source.path.starts_with("tests/src/");
    let lines = source.code.iter().enumerate();
    let code: Vec<&str> = lines
        .filter(|(number, _)| is_harness || !source.is_test(*number))
        .map(|(_, line)| line.as_str())
        .collect();
    Reader {
        tokens: tokens(&code.join("\n")),
        at: 0,
    }
    .read()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Name(String),
    Separator,
    Other(char),
}

fn tokens(code: &str) -> Vec<Token> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let length = if is_name(c) {
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            tokens.push(Token::Name(rest[..end].to_owned()));
            end
        } else if rest.starts_with("::") {
            tokens.push(Token::Separator);
            2
        } else {
            if !c.is_whitespace() {
                tokens.push(Token::Other(c));
            }
            c.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
}

impl Reader {
    fn read(mut self) -> Vec<Import> {
        let mut imports = Vec::new();
        let mut depth = 0_usize;
        let mut inline: Vec<usize> = Vec::new();
        while self.at < self.tokens.len() {
            match &self.tokens[self.at] {
                Token::Other('{') => depth += 1,
                Token::Other('}') => {
                    depth = depth.saturating_sub(1);
                    inline.pop_if(|begin| *begin == depth);
                }
                Token::Name(word) if word == "mod" && self.opens_module() => inline.push(depth),
                Token::Name(word) if word == "use" => {
                    let is_export = self.follows_pub();
                    self.at += 1;
                    let mut leaves = Vec::new();
                    self.read_tree(&Vec::new(), &mut leaves);
                    imports.extend(leaves.into_iter().map(|(path, name)| Import {
                        path,
                        name,
                        is_export,
                        inline_depth: inline.len(),
                    }));
                    continue;
                }
                Token::Name(_) if !self.follows_separator() => {
                    let path = self.read_path();
                    if path.len() > 1 {
                        imports.push(Import {
                            path,
                            name: None,
                            is_export: false,
                            inline_depth: inline.len(),
                        });
                    }
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
        imports
    }

    fn token(&self, at: usize) -> Option<&Token> {
        self.tokens.get(at)
    }

    /// `mod name {`.
    fn opens_module(&self) -> bool {
        self.token(self.at + 2) == Some(&Token::Other('{'))
    }

    fn follows_separator(&self) -> bool {
        self.at > 0
            && matches!(
                self.tokens[self.at - 1],
                Token::Separator | Token::Other('.')
            )
    }

    /// Whether the `use` here is a `pub use` or a `pub(crate) use`.
    fn follows_pub(&self) -> bool {
        let mut at = self.at;
        if at > 0 && self.tokens[at - 1] == Token::Other(')') {
            while at > 0 && self.tokens[at - 1] != Token::Other('(') {
                at -= 1;
            }
            at = at.saturating_sub(1);
        }
        at > 0 && self.tokens[at - 1] == Token::Name("pub".to_owned())
    }

    /// Names with separators between them; stops at the first other token.
    fn read_path(&mut self) -> Path {
        let mut path = Vec::new();
        while let Some(Token::Name(name)) = self.token(self.at) {
            path.push(name.clone());
            self.at += 1;
            let goes_on = self.token(self.at) == Some(&Token::Separator)
                && matches!(self.token(self.at + 1), Some(Token::Name(_)));
            if !goes_on {
                break;
            }
            self.at += 1;
        }
        path
    }

    /// One tree of a `use`: `a::b`, `a::b as c`, `a::{b, c::d}`, `a::*`.
    fn read_tree(&mut self, prefix: &Path, leaves: &mut Vec<(Path, Option<String>)>) {
        if self.token(self.at) == Some(&Token::Separator) {
            self.at += 1;
        }
        let path = [prefix.clone(), self.read_path()].concat();
        if self.token(self.at) == Some(&Token::Separator) {
            self.at += 1;
        }
        match self.token(self.at) {
            Some(Token::Other('{')) => {
                self.at += 1;
                while !matches!(self.token(self.at), None | Some(Token::Other('}'))) {
                    let before = self.at;
                    self.read_tree(&path, leaves);
                    if self.token(self.at) == Some(&Token::Other(',')) || self.at == before {
                        self.at += 1;
                    }
                }
                self.at += 1;
            }
            Some(Token::Other('*')) => {
                self.at += 1;
                leaves.push(([path, vec!["*".to_owned()]].concat(), None));
            }
            _ => {
                let mut path = path;
                // `a::b::{self}` names `a::b`.
                path.pop_if(|last| last == "self");
                let name = self.read_alias().or_else(|| path.last().cloned());
                leaves.push((path, name));
            }
        }
    }

    fn read_alias(&mut self) -> Option<String> {
        if self.token(self.at) != Some(&Token::Name("as".to_owned())) {
            return None;
        }
        let Some(Token::Name(name)) = self.token(self.at + 1).cloned() else {
            return None;
        };
        self.at += 2;
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: &str, expected: &[(&str, Option<&str>, bool, usize)]) {
        let found: Vec<(String, Option<String>, bool, usize)> =
            imports(&Source::new("a/src/b.rs", content))
                .into_iter()
                .map(|import| {
                    let path = import.path.join("::");
                    (path, import.name, import.is_export, import.inline_depth)
                })
                .collect();
        let found: Vec<(&str, Option<&str>, bool, usize)> = found
            .iter()
            .map(|(path, name, is_export, depth)| {
                (path.as_str(), name.as_deref(), *is_export, *depth)
            })
            .collect();
        assert_eq!(found, expected, "of {content:?}");
    }

    #[test]
    fn a_tree_counts_once_for_each_leaf() {
        check(
            "use a::{b, c::{self, D as E},\n f::*};",
            &[
                ("a::b", Some("b"), false, 0),
                ("a::c", Some("c"), false, 0),
                ("a::c::D", Some("E"), false, 0),
                ("a::f::*", None, false, 0),
            ],
        );
    }

    #[test]
    fn exports_and_inline_modules_are_marked() {
        check(
            "pub(crate) use a::B;\npub use c::D;\nmod e { use super::F; }\nuse g::H;",
            &[
                ("a::B", Some("B"), true, 0),
                ("c::D", Some("D"), true, 0),
                ("super::F", Some("F"), false, 1),
                ("g::H", Some("H"), false, 0),
            ],
        );
    }

    #[test]
    fn paths_in_code_count_too() {
        check(
            "fn f(a: &super::b::C<d::E>) -> G { self.h(i::<J>(k::l())) } // m::n",
            &[
                ("super::b::C", None, false, 0),
                ("d::E", None, false, 0),
                ("k::l", None, false, 0),
            ],
        );
    }
}
