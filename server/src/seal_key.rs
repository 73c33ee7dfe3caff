//! The key that signs seals.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use storage_core::{EngineConfig, SealConfig};
use storage_format::seal::SigningKey;
use thiserror::Error;

use crate::config::{Config, SealSettings};

/// No key is longer.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The key cannot be used.
#[derive(Debug, Error)]
pub enum SealKeyError {
    /// Its file cannot be read.
    #[error("seal.key_file: {file}: {source}; check the path and its permissions")]
    Unreadable {
        /// The path as given.
        file: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Its file contains something else.
    #[error(
        "seal.key_file: {file}: it has no unencrypted ed25519 private key (PEM, PKCS#8); make one \
         with `tracehold seal keygen`"
    )]
    Malformed {
        /// The path as given.
        file: String,
    },
}

/// The configuration of the engine, with the key.
pub(crate) fn engine_of(config: &Config) -> Result<EngineConfig, SealKeyError> {
    let mut engine = config.engine();
    engine.seal = load(&config.seal)?;
    Ok(engine)
}

/// How finalization seals; `None` if it does not.
fn load(settings: &SealSettings) -> Result<Option<SealConfig>, SealKeyError> {
    if !settings.at_finalization {
        return Ok(None);
    }
    let file = settings.key_file.as_str();
    if file.is_empty() {
        return Ok(Some(SealConfig::default()));
    }
    let unreadable = |source| SealKeyError::Unreadable {
        file: file.to_owned(),
        source,
    };
    // The error must not contain bytes of the file.
    let text = read(file).map_err(unreadable)?;
    let key = SigningKey::from_pem(&text).map_err(|_| SealKeyError::Malformed {
        file: file.to_owned(),
    })?;
    tracing::info!(key = %key.public().id(), "finalized storages are sealed and signed");
    let key = Some(Arc::new(key));
    Ok(Some(SealConfig { key }))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a key is no data of storages; it is read once, before the server serves"
)]
fn read(file: &str) -> io::Result<String> {
    let opened = std::fs::File::open(file)?;
    if opened.metadata()?.mode() & 0o077 != 0 {
        tracing::warn!(
            file,
            "other users of this machine may read the key that signs seals"
        );
    }
    let mut bytes = Vec::new();
    opened.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
