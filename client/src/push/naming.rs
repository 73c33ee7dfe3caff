use std::path::Path;

use storage_format::checksum::crc32c;
use storage_format::limits::ID_BYTES_MAX;

/// The name of this host; `localhost` if it is unknown.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

/// A valid agent or stream id for any text; the same text always gives the same id.
///
/// Invalid characters become `_`. The end of a text that is too long becomes a checksum.
pub(super) fn id_text(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut id: String = text
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .collect();
    if id.is_empty() || id.starts_with(['.', '-']) {
        id.insert(0, '_');
    }
    if id.len() > ID_BYTES_MAX {
        let sum = format!("-{:08x}", crc32c(text.as_bytes()));
        id.truncate(ID_BYTES_MAX - sum.len());
        id.push_str(&sum);
    }
    id
}

/// The components of a relative path, joined by dots.
pub(super) fn dotted(path: &Path) -> String {
    let parts = path
        .components()
        .map(|part| part.as_os_str().to_string_lossy());
    parts.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage_format::{AgentId, StreamId};

    fn check(text: &str, expected: &str) {
        let id = id_text(text);
        assert_eq!(id, expected);
        assert!(
            id.parse::<AgentId>().is_ok() && id.parse::<StreamId>().is_ok(),
            "{id}"
        );
    }

    #[test]
    fn any_text_becomes_an_id() {
        check("chan_0", "chan_0");
        check("", "_");
        check(".hidden", "_.hidden");
        check("-x", "_-x");
        check("a/b c\u{e9}", "a_b_c_");
        let long = "x".repeat(200);
        check(
            &long,
            &format!("{}-{:08x}", "x".repeat(119), crc32c(long.as_bytes())),
        );
    }
}
