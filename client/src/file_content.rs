//! Recognition of files by their content.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use trace_kinds::{PREFIX_BYTES, Recognized, recognize};

/// Recognizes a file by its first bytes. Push, decode and analyze share this with queries and
/// indexes, so a file is the same to all of them.
pub(crate) fn recognize_file(path: &Path) -> io::Result<Recognized> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut prefix = Vec::new();
    file.take(PREFIX_BYTES as u64).read_to_end(&mut prefix)?;
    Ok(recognize(&prefix, prefix.len() as u64 >= length))
}

/// Why a command that accepts the files in `accepted` refuses this one.
pub(crate) fn refusal(found: &Recognized, accepted: &str) -> String {
    let hint = found.hint().map(|hint| format!(" ({hint})"));
    let hint = hint.unwrap_or_default();
    format!("this is {found}{hint}; expected {accepted}")
}
