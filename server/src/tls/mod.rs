//! TLS of the listener: certificates from files, replaced while the server runs.
//!
//! rustls is used by this module only (`docs/decisions/0067-tls-by-rustls.md`). A connection
//! presents its certificate once, at the handshake: a new pair of files concerns connections that
//! are accepted after it was taken.

mod files;
#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::TlsAcceptor;

use crate::config::{ClientCertificates, TlsConfig};
use files::Contents;

/// A connection after its handshake.
pub(crate) type Encrypted = tokio_rustls::server::TlsStream<TcpStream>;

/// The protocols that are offered (ALPN), the preferred one first. What a client speaks shows in
/// its first bytes, whatever it chose.
const OFFERED: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Why the certificates cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("tls: cannot read {file}: {source}; check [tls] and the permissions of the file")]
    Unreadable {
        /// The file.
        file: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file does not contain what it should.
    #[error("tls: {file}: {what}; it must be PEM with {wanted}")]
    Malformed {
        /// The file.
        file: String,
        /// What is wrong.
        what: String,
        /// What the file must contain.
        wanted: &'static str,
    },
    /// Certificate and key cannot be used together.
    #[error(
        "tls: {certificate} and {key} cannot be used: {what}; the key must be that of the first \
         certificate"
    )]
    Pair {
        /// The file with the certificates.
        certificate: String,
        /// The file with the key.
        key: String,
        /// What is wrong.
        what: String,
    },
}

/// The outcome of reading the files again.
#[derive(Debug)]
enum Reload {
    /// They are those that were tried last.
    Unchanged,
    /// New connections use them.
    Taken,
    /// They cannot be used; what was used before still is.
    Refused(TlsError),
}

/// The certificates of the listener.
pub(crate) struct Tls {
    config: TlsConfig,
    current: RwLock<Arc<ServerConfig>>,
    /// What was read last, whether or not it could be used; `None` if it could not be read.
    tried: Mutex<Option<Contents>>,
}

impl Tls {
    /// Reads the files of `config`; `None` if it names none. Blocks.
    pub(crate) fn load(config: &TlsConfig) -> Result<Option<Arc<Self>>, TlsError> {
        if !config.is_on() {
            return Ok(None);
        }
        let contents = Contents::read(config)?;
        Ok(Some(Arc::new(Self {
            config: config.clone(),
            current: RwLock::new(Arc::new(server_config(config, &contents)?)),
            tried: Mutex::new(Some(contents)),
        })))
    }

    /// Performs the handshake. The caller limits the time.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<Encrypted> {
        let current = Arc::clone(&self.current.read());
        TlsAcceptor::from(current).accept(stream).await
    }

    /// Reads the files again. Blocks.
    fn reload(&self) -> Reload {
        let mut tried = self.tried.lock();
        let contents = match Contents::read(&self.config) {
            Ok(contents) => contents,
            // Reported once, until they can be read again.
            Err(_) if tried.is_none() => return Reload::Unchanged,
            Err(error) => {
                *tried = None;
                return Reload::Refused(error);
            }
        };
        if tried.as_ref() == Some(&contents) {
            return Reload::Unchanged;
        }
        let outcome = match server_config(&self.config, &contents) {
            Ok(config) => {
                *self.current.write() = Arc::new(config);
                Reload::Taken
            }
            Err(error) => Reload::Refused(error),
        };
        *tried = Some(contents);
        outcome
    }

    /// Takes new files within `tls.reload_seconds`, or at once after SIGHUP. Never ends by itself.
    pub(crate) async fn keep_current(self: Arc<Self>) -> io::Result<()> {
        let mut hangup = signal(SignalKind::hangup())?;
        let pause = Duration::from_secs(self.config.reload_seconds);
        loop {
            let is_requested = tokio::select! {
                Some(()) = hangup.recv() => true,
                () = tokio::time::sleep(pause) => false,
            };
            let this = Arc::clone(&self);
            let reload = tokio::task::spawn_blocking(move || this.reload()).await;
            match reload.map_err(io::Error::other)? {
                Reload::Taken => {
                    let certificate = self.config.certificate_file.as_str();
                    tracing::info!(certificate, "new connections use the new certificate");
                }
                Reload::Refused(error) => {
                    tracing::error!(%error, "the certificate in use before remains in use");
                }
                Reload::Unchanged if is_requested => {
                    tracing::info!("received SIGHUP; the certificate files have not changed");
                }
                Reload::Unchanged => {}
            }
        }
    }
}

/// The settings of handshakes with these certificates.
fn server_config(config: &TlsConfig, contents: &Contents) -> Result<ServerConfig, TlsError> {
    let pair = |error: rustls::Error| TlsError::Pair {
        certificate: config.certificate_file.clone(),
        key: config.key_file.clone(),
        what: error.to_string(),
    };
    let chain = contents.chain(config)?;
    let key = contents.key(config)?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(pair)?;
    let builder = match client_verifier(config, contents)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut server = builder.with_single_cert(chain, key).map_err(pair)?;
    server.alpn_protocols = OFFERED.map(<[u8]>::to_vec).into();
    Ok(server)
}

/// What checks the certificates of clients, if they are asked for one.
fn client_verifier(
    config: &TlsConfig,
    contents: &Contents,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    if config.client_certificates == ClientCertificates::Off {
        return Ok(None);
    }
    let malformed = |what: String| TlsError::Malformed {
        file: config.client_ca_file.clone(),
        what,
        wanted: files::AUTHORITIES,
    };
    let mut roots = RootCertStore::empty();
    for authority in contents.client_authorities(config)? {
        roots
            .add(authority)
            .map_err(|error| malformed(error.to_string()))?;
    }
    let provider = Arc::new(ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match config.client_certificates {
        ClientCertificates::Required => builder,
        ClientCertificates::Optional | ClientCertificates::Off => builder.allow_unauthenticated(),
    };
    let verifier = builder.build();
    Ok(Some(
        verifier.map_err(|error| malformed(error.to_string()))?,
    ))
}
