//! Logging: structured lines on standard error.

use thiserror::Error;
use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// Modules whose lines repeat what the server reports in its own words, with file and remedy.
const SILENT: &str = "sled=off";

/// The log cannot be set up.
#[derive(Debug, Error)]
#[error("setting log.level: {0:?} is not a level or filter; use error, warn, info, debug or trace")]
pub struct LogError(String);

/// Writes the events of the process to standard error, as `log` configures.
pub fn start(log: &LogConfig) -> Result<(), LogError> {
    // A filter that names such a module shows its lines.
    let filter = if log.level.contains("sled") {
        log.level.clone()
    } else {
        format!("{SILENT},{}", log.level)
    };
    let filter = EnvFilter::try_new(filter).map_err(|_| LogError(log.level.clone()))?;
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
