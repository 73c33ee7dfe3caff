//! Tokens of a data folder that no server uses: the first one, and one for who lost all others.

use std::path::Path;

use storage_core::change_document;
use thiserror::Error;

use super::token::{NewToken, Role};
use super::tokens::{TokenList, TokensError};
use crate::clock::now_ns;
use crate::config::TOKENS_FILE;

/// Why no token could be created.
#[derive(Debug, Error)]
pub enum OfflineError {
    /// The data folder cannot be used.
    #[error(transparent)]
    DataFolder(#[from] migrations::MigrationError),
    /// A server uses the folder, or the tokens cannot be changed.
    #[error("{0}; while the server runs, use `tracehold token create`")]
    Tokens(#[from] TokensError),
}

/// Creates an operator's token in this data folder, and returns the text for its owner; blocks.
/// `lasts` is in nanoseconds.
///
/// # Errors
/// When a server uses the folder, or a file cannot be written.
pub fn create_operator_token(
    data_dir: &Path,
    name: String,
    lasts: Option<i64>,
) -> Result<String, OfflineError> {
    migrations::migrate(data_dir)?;
    let now = now_ns();
    let new = NewToken {
        name,
        role: Role::Operator,
        agents: Vec::new(),
        storages: Vec::new(),
        expires: lasts.map(|lasts| now.saturating_add(lasts)),
    };
    let created = change_document(data_dir, TOKENS_FILE, |document| {
        let mut list = TokenList::parse(document.as_deref())?;
        let (_, text) = list.create(new, now, false)?;
        Ok::<_, TokensError>((list.to_document(), text))
    });
    Ok(created?)
}
