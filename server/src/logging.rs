//! Logging: structured lines on standard error.

use thiserror::Error;
use tracing_subscriber::EnvFilter;

use crate::access_log::ACCESS;
use crate::config::{LogConfig, LogFormat};

/// Modules of other projects, and their level unless `log.level` names them. What sled says the
/// server reports in its own words, with file and remedy; the others say at `debug` what every
/// connection does, and hide what the server says.
const QUIET: [(&str, &str); 9] = [
    ("sled", "off"),
    ("hyper", "info"),
    ("hyper_util", "info"),
    ("h2", "info"),
    ("rustls", "info"),
    ("mio", "info"),
    ("tokio_util", "info"),
    ("tower_http", "info"),
    ("object_store", "warn"),
];

/// The log cannot be set up.
#[derive(Debug, Error)]
#[error("setting log.level: {0:?} is not a level or filter; use error, warn, info, debug or trace")]
pub struct LogError(String);

/// Writes the events of the process to standard error, as `log` configures.
pub fn start(log: &LogConfig) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(filter_of(log)).map_err(|_| LogError(log.level.clone()))?;
    let is_seen_by_people = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = tracing_subscriber::fmt()
        .with_ansi(is_seen_by_people)
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match log.format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    Ok(())
}

/// The filter for `log`: its own directives, and others for modules that it does not name.
fn filter_of(log: &LogConfig) -> String {
    let names = |module: &str| {
        let mut directives = log.level.split(',');
        directives.any(|directive| {
            let rest = directive.strip_prefix(module);
            rest.is_some_and(|rest| rest.starts_with(['=', ':']))
        })
    };
    let quiet = QUIET.iter().filter(|(module, _)| !names(module));
    let mut filter: String = quiet
        .map(|(module, level)| format!("{module}={level},"))
        .collect();
    if !names(ACCESS) {
        let level = if log.access { "info" } else { "off" };
        filter.push_str(&format!("{ACCESS}={level},"));
    }
    filter + &log.level
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_names_a_module_decides_about_it() {
        let filter = |level: &str, access| {
            filter_of(&LogConfig {
                level: level.to_owned(),
                access,
                ..LogConfig::default()
            })
        };
        for (level, access, part, is_there) in [
            ("debug", false, "sled=off", true),
            ("debug", false, "hyper=info", true),
            ("debug", false, "access=off", true),
            ("warn", true, "access=info", true),
            ("info,hyper=debug", false, "hyper=info", false),
            ("info,sled::pagecache=info", false, "sled=off", false),
            ("info,access=off", true, "access=info", false),
            ("h2=trace", false, "h2=info", false),
        ] {
            let filter = filter(level, access);
            assert_eq!(filter.contains(part), is_there, "{filter}");
            assert!(filter.ends_with(level) && EnvFilter::try_new(&filter).is_ok());
        }
    }
}
