//! Recognition of files by their content.

use std::path::Path;

use query_engine::ReadError;
use trace_kinds::Recognized;

use crate::ClientError;

/// Recognizes a file by its first bytes. Push, decode and analyze share this with queries and
/// indexes, so a file is the same to all of them.
pub(crate) fn recognize_file(path: &Path) -> Result<Recognized, ClientError> {
    query_engine::recognize_file(path).map_err(|error| refused(path, error))
}

/// As [`recognize_file`], for a file that was found in a folder and not named.
pub(crate) fn recognize_found(path: &Path) -> Result<Recognized, ClientError> {
    query_engine::recognize_found(path).map_err(|error| refused(path, error))
}

/// Refuses everything but regular files, without opening it: opening a FIFO blocks.
pub(crate) fn check_regular(path: &Path) -> Result<(), ClientError> {
    let metadata = query_engine::regular_file(path);
    metadata.map(|_| ()).map_err(|error| refused(path, error))
}

fn refused(path: &Path, error: ReadError) -> ClientError {
    match error {
        ReadError::Fetch { source, .. } => ClientError::file(path, source),
        error => ClientError::input(error.to_string()),
    }
}

/// Why a command that accepts the files in `accepted` refuses this one.
pub(crate) fn refusal(found: &Recognized, accepted: &str) -> String {
    let hint = found.hint().map(|hint| format!(" ({hint})"));
    let hint = hint.unwrap_or_default();
    format!("this is {found}{hint}; expected {accepted}")
}
