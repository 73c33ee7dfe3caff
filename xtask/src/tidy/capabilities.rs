//! What code may touch outside of its arguments: the clock, random numbers, and files.
//!
//! Each row names functions and where they may be called. The rules read text: they see calls by
//! their usual names, not a function that is passed on under another one.

use super::Finding;
use super::source::{Source, word_at};

/// Functions that only some modules may call.
struct Capability {
    /// What is called, as it is written; each a word or a path.
    calls: &'static [&'static str],
    /// Paths, as prefixes, to which the rule applies; everywhere when it is empty.
    applies_to: &'static [&'static str],
    /// Paths, as prefixes, where the call is allowed.
    allowed_in: &'static [&'static str],
    /// What to do instead.
    instead: &'static str,
}

const CAPABILITIES: &[Capability] = &[
    Capability {
        calls: &[
            "SystemTime::now",
            "Timestamp::now",
            "Zoned::now",
            "Uuid::now_v7",
        ],
        applies_to: &[],
        allowed_in: &[
            "client/src/clock.rs",
            "object-tier/src/clock.rs",
            "query-engine/src/clock.rs",
            "recording/src/clock.rs",
            "server/src/clock.rs",
            "storage-core/src/clock.rs",
            "xtask/",
        ],
        instead: "read the wall clock through the `clock` module of the crate",
    },
    Capability {
        calls: &["Uuid::new_v4", "getrandom", "rand", "fastrand"],
        applies_to: &[],
        // Secrets come from the library that protects them.
        allowed_in: &[
            "client/src/seal/keys.rs",
            "object-tier/src/clock.rs",
            "object-tier/src/nonce.rs",
            "server/src/secrets.rs",
            "storage-core/src/clock.rs",
        ],
        instead: "draw random numbers through the `clock` module of `storage-core`",
    },
    // Timeouts and latencies. What decodes, indexes or queries does not depend on time at all.
    Capability {
        calls: &["Instant::now"],
        applies_to: &[],
        allowed_in: &[
            "client/src/",
            "io-trace/src/tracer.rs",
            "object-tier/src/clock.rs",
            "server/src/",
            "storage-core/src/",
            "xtask/",
        ],
        instead: "this code does not depend on time: let the caller pass it",
    },
    Capability {
        calls: &[
            "std::fs",
            "std::net",
            "std::process",
            "tokio::fs",
            "tokio::net",
        ],
        applies_to: &[
            "chunk-index/src/",
            "ctf/src/",
            "io-trace/src/",
            "query-language/src/",
            "recording/src/",
            "row-formats/src/",
            "storage-format/src/",
            "trace-kinds/src/",
        ],
        allowed_in: &[],
        instead: "this crate opens no file: let the caller pass bytes, or a reader",
    },
    Capability {
        calls: &["tokio::fs", "std::fs"],
        applies_to: &["server/src/routes/"],
        allowed_in: &[],
        instead: "a handler does no file I/O: call the engine",
    },
    Capability {
        calls: &[
            "fs::write",
            "File::create",
            "File::create_new",
            "OpenOptions",
        ],
        applies_to: &["storage-core/src/"],
        allowed_in: &[
            // The lock file of a data folder, which is empty.
            "storage-core/src/engine/folder_lock.rs",
            "storage-core/src/io/",
        ],
        instead: "files are written by `io` and the I/O thread only",
    },
    // A test lets each of them fail, and forgets them when the power fails.
    Capability {
        calls: &[
            "fs::create_dir",
            "fs::remove_dir_all",
            "fs::remove_file",
            "fs::rename",
            "renameat_with",
        ],
        applies_to: &["storage-core/src/"],
        allowed_in: &[
            // The folder of sled.
            "storage-core/src/catalog.rs",
            // The data folder itself.
            "storage-core/src/engine/start.rs",
            "storage-core/src/io/",
        ],
        instead: "names are changed by `io` only",
    },
];

/// Calls outside of the modules that may make them. Tests, examples and fuzz targets are free.
pub(super) fn findings(sources: &[Source]) -> Vec<Finding> {
    let is_free = |source: &&Source| {
        let path = &source.path;
        !path.starts_with("tests/") && !path.starts_with("fuzz/") && !path.contains("/examples/")
    };
    let sources = sources.iter().filter(is_free);
    sources
        .flat_map(|source| CAPABILITIES.iter().flat_map(|row| row.findings(source)))
        .collect()
}

impl Capability {
    fn findings(&self, source: &Source) -> Vec<Finding> {
        let begins = |prefixes: &[&str]| prefixes.iter().any(|it| source.path.starts_with(it));
        let applies = self.applies_to.is_empty() || begins(self.applies_to);
        if !applies || begins(self.allowed_in) {
            return Vec::new();
        }
        let mut findings = Vec::new();
        for (number, code) in source.code.iter().enumerate() {
            if source.is_test(number) {
                continue;
            }
            for call in self.calls.iter().filter(|call| is_called(code, call)) {
                let what = format!("{call}: {}", self.instead);
                findings.push(Finding::new(&source.path, number + 1, what));
            }
        }
        findings
    }
}

/// The call as it is written, or as a `use` of several names writes it: `use std::{fmt, fs}`.
fn is_called(code: &str, call: &str) -> bool {
    if !call.contains("::") {
        // The name of a crate or a type, not of a variable or a field.
        let path = format!("{call}::");
        return code.contains(&path) && word_at(code, call).is_some()
            || word_at(code, "use").is_some() && word_at(code, call).is_some();
    }
    let grouped = call.split_once("::").is_some_and(|(root, name)| {
        code.contains(&format!("use {root}::{{")) && word_at(code, name).is_some()
    });
    grouped || word_at(code, call).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, content: &str, expected: &[&str]) {
        let found: Vec<String> = findings(&[Source::new(path, content)])
            .into_iter()
            .map(|finding| {
                let (call, _) = finding.what.split_once(": ").unwrap();
                format!("{} {call}", finding.line)
            })
            .collect();
        assert_eq!(found, expected, "of {path}: {content:?}");
    }

    #[test]
    fn clocks_and_random_numbers_have_their_modules() {
        let clock = "fn now() -> SystemTime {\n    SystemTime::now()\n}";
        check("storage-core/src/clock.rs", clock, &[]);
        check("storage-core/src/scan.rs", clock, &["2 SystemTime::now"]);
        check("server/src/jobs.rs", "Uuid::now_v7();", &["1 Uuid::now_v7"]);
        check("server/src/jobs.rs", "let s = \"Uuid::now_v7\";", &[]);
        check("client/src/push.rs", "Uuid::new_v4()", &["1 Uuid::new_v4"]);
        check("client/src/push.rs", "use rand::Rng;", &["1 rand"]);
        check("client/src/push.rs", "let operand = strand;", &[]);
    }

    #[test]
    fn decoding_does_not_depend_on_time() {
        check("ctf/src/a.rs", "Instant::now()", &["1 Instant::now"]);
        check("server/src/a.rs", "Instant::now()", &[]);
        check("ctf/examples/a.rs", "Instant::now()", &[]);
        let tests = "#[cfg(test)]\nmod tests { fn f() { Instant::now() } }";
        check("ctf/src/a.rs", tests, &[]);
    }

    #[test]
    fn decoders_and_handlers_open_no_file() {
        check("ctf/src/a.rs", "use std::fs::File;", &["1 std::fs"]);
        check("ctf/src/a.rs", "use std::{fmt, fs};", &["1 std::fs"]);
        check("ctf/src/a.rs", "use std::fmt;", &[]);
        check("ctf-folder/src/a.rs", "use std::fs::File;", &[]);
        let read = "tokio::fs::read(path).await";
        check("server/src/routes/a.rs", read, &["1 tokio::fs"]);
    }

    #[test]
    fn storages_are_written_by_the_disk_interface() {
        let write = "std::fs::write(path, bytes)";
        check("storage-core/src/io/staged.rs", write, &[]);
        check("storage-core/src/labels/mod.rs", write, &["1 fs::write"]);
        check("storage-core/src/a.rs", "StagedFile::create(path)", &[]);
    }
}
