//! Crates without an active maintainer, and those that secrecy depends on, are imported by one
//! module each, so that each can be replaced in one change.

use super::Finding;
use super::source::{Source, word_at};

/// The import name, and the only module that may use it: a file, or a folder ending in `/`. Two
/// programs that need the same crate have one module each.
const SEALS: &[(&str, &[&str])] = &[
    ("sled", &["storage-core/src/catalog"]),
    ("tokio_uring", &["storage-core/src/io/uring"]),
    ("bincode", &["storage-format/src/"]),
    ("subtle", &["server/src/secrets"]),
    (
        "rustls",
        &[
            "server/src/tls",
            "client/src/http/tls",
            "object-tier/src/settings",
        ],
    ),
    ("rustls_native_certs", &["client/src/http/tls"]),
    ("tokio_rustls", &["server/src/tls"]),
];

/// Uses outside the module, and a second module of the same crate.
pub(super) fn findings(sources: &[Source]) -> Vec<Finding> {
    SEALS
        .iter()
        .flat_map(|(name, places)| seal_findings(sources, name, places))
        .collect()
}

fn seal_findings(sources: &[Source], name: &str, places: &[&str]) -> Vec<Finding> {
    let path = format!("{name}::");
    let uses = |line: &String| {
        line.contains(&path) && word_at(line, name).is_some()
            || word_at(line, "use").is_some() && word_at(line, name).is_some()
    };
    let users = sources.iter().filter_map(|source| {
        let line = source.code.iter().position(uses)?;
        Some((source, line + 1))
    });
    let mut home: Option<&str> = None;
    let mut findings = Vec::new();
    for (source, line) in users {
        let in_place = places.iter().any(|place| source.path.starts_with(place));
        match home {
            _ if !in_place => {
                let place = places.join(" and ");
                let what = format!("{name} is sealed in {place}: use it through that module");
                findings.push(Finding::new(&source.path, line, what));
            }
            // A folder ending in `/` is a crate: any file of it may use the name, but only one.
            Some(home) if places.iter().all(|place| place.ends_with('/')) => {
                let what = format!("{name} is imported by {home} already: one module is enough");
                findings.push(Finding::new(&source.path, line, what));
            }
            _ => home = Some(&source.path),
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::sources;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let found: Vec<String> = findings(&sources(files))
            .into_iter()
            .map(|finding| finding.to_string())
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_sealed_crate_has_one_module() {
        check(
            &[
                ("storage-core/src/catalog.rs", "use sled::Db;"),
                (
                    "storage-core/src/catalog/labels.rs",
                    "fn f(a: &sled::Tree) {}",
                ),
                (
                    "storage-format/src/body.rs",
                    "bincode::serde::encode_to_vec(a)",
                ),
                (
                    "server/src/main.rs",
                    "// sled::Db is not used here\nlet sledge = 1;",
                ),
            ],
            &[],
        );
        let what = "is sealed in storage-core/src/catalog: use it through that module";
        check(
            &[("server/src/main.rs", "fn f() {}\nuse sled;")],
            &[&format!("server/src/main.rs:2: sled {what}")],
        );
        let what = "is sealed in server/src/tls and client/src/http/tls and \
                    object-tier/src/settings: use it through that module";
        check(
            &[
                ("client/src/http/tls.rs", "use rustls::ClientConfig;"),
                ("server/src/tls/files.rs", "use rustls::pki_types::pem;"),
                ("server/src/gate.rs", "fn f(a: rustls::Error) {}"),
            ],
            &[&format!("server/src/gate.rs:1: rustls {what}")],
        );
        let what = "bincode is imported by storage-format/src/a.rs already: one module is enough";
        check(
            &[
                ("storage-format/src/a.rs", "use bincode::Encode;"),
                ("storage-format/src/b.rs", "use bincode::Decode;"),
            ],
            &[&format!("storage-format/src/b.rs:1: {what}")],
        );
    }
}
