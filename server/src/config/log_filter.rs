//! Validation of `log.level`.
//!
//! The log library takes a word that is not a level for the name of a module, so that a misspelled
//! level would silence the log, and believes any name of a module.

use tracing_subscriber::EnvFilter;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The modules of this program, by their crates, and the target of the access log.
const OWN: [&str; 20] = [
    "access",
    "audit_log",
    "chunk_index",
    "client",
    "ctf",
    "ctf_folder",
    "io_analysis",
    "io_trace",
    "migrations",
    "object_tier",
    "query_engine",
    "query_language",
    "recording",
    "row_formats",
    "server",
    "storage_core",
    "storage_format",
    "trace_kinds",
    "tracehold",
    "traceholdd",
];

/// Those of other projects that write to the log.
const FOREIGN: [&str; 14] = [
    "axum",
    "h2",
    "hyper",
    "hyper_util",
    "mio",
    "object_store",
    "reqwest",
    "rustls",
    "sled",
    "tokio",
    "tokio_util",
    "tower",
    "tower_http",
    "want",
];

/// What is wrong with a filter: it is a level, or a list of levels and `module=level`.
pub(super) fn fault_of(text: &str) -> Option<String> {
    let not_a_filter = || format!("is {text:?}, which is not a level or filter");
    if EnvFilter::try_new(text).is_err() {
        return Some(not_a_filter());
    }
    for directive in text.split(',') {
        let (module, level) = match directive.rsplit_once('=') {
            Some((module, level)) => (Some(module), level),
            None => (None, directive),
        };
        let is_level = LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level));
        if !is_level || module == Some("") {
            return Some(not_a_filter());
        }
        let first = module.map(|module| module.split([':', '[']).next().unwrap_or_default());
        if let Some(first) = first.filter(|first| !first.is_empty())
            && !OWN.contains(&first)
            && !FOREIGN.contains(&first)
        {
            return Some(format!(
                "names {first:?}, which is no module that writes to the log"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_levels_and_modules_are_refused() {
        for text in [
            "info",
            "OFF",
            "info,server=debug",
            "warn,server::gate=trace",
            "debug,hyper=debug,access=off",
            "[span]=debug",
        ] {
            assert_eq!(fault_of(text), None, "{text}");
        }
        for text in [
            "",
            "inof",
            "info,",
            "server",
            "server=",
            "=info",
            "info,server=loud",
            "info, server=debug",
            "6",
        ] {
            let fault = fault_of(text).unwrap();
            assert!(fault.contains("not a level or filter"), "{fault}");
        }
        for text in [
            "info,serverr=debug",
            "serve::gate=debug",
            "storage-core=info",
        ] {
            let fault = fault_of(text).unwrap();
            assert!(fault.contains("no module"), "{fault}");
        }
    }

    #[test]
    fn every_crate_of_the_project_may_be_named() {
        let manifest = include_str!("../../../Cargo.toml");
        let members = manifest.split_once("members = [").unwrap().1;
        let members = members.split_once(']').unwrap().0;
        for member in members.split('"').skip(1).step_by(2) {
            let is_known = OWN.contains(&member.replace('-', "_").as_str());
            assert_eq!(is_known, !["tests", "xtask"].contains(&member), "{member}");
        }
    }
}
