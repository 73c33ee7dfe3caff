//! Validation of `log.level`.
//!
//! The log library takes a word that is not a level for the name of a module, so that a misspelled
//! level would silence the log.

use tracing_subscriber::EnvFilter;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Whether `text` is a level, or a list of levels and `module=level`.
pub(super) fn is_log_filter(text: &str) -> bool {
    let has_level = |directive: &str| {
        let level = match directive.rsplit_once('=') {
            Some((module, level)) if !module.is_empty() => level,
            Some(_) => return false,
            None => directive,
        };
        LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level))
    };
    text.split(',').all(has_level) && EnvFilter::try_new(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_log_filter;

    #[test]
    fn misspelled_levels_are_refused() {
        for text in [
            "info",
            "OFF",
            "info,server=debug",
            "warn,server::gate=trace",
        ] {
            assert!(is_log_filter(text), "{text}");
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
            assert!(!is_log_filter(text), "{text}");
        }
    }
}
