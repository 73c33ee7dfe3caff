//! What the client trusts and presents on HTTPS. rustls is used by this module only.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::ClientError;

/// Files for HTTPS; all are optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file with the authorities that are trusted, instead of those of the system.
    pub ca: Option<PathBuf>,
    /// PEM file with the certificate of this client, for servers that ask for one.
    pub certificate: Option<PathBuf>,
    /// PEM file with its private key.
    pub key: Option<PathBuf>,
}

/// The settings for connections; the files are read only if they are for HTTPS, so that plain HTTP
/// works where no certificates are installed.
pub(super) fn config(files: &TlsFiles, is_encrypted: bool) -> Result<ClientConfig, ClientError> {
    let invalid = |error: rustls::Error| ClientError::input(format!("TLS: {error}"));
    let roots = match (&files.ca, is_encrypted) {
        (_, false) => RootCertStore::empty(),
        (Some(file), true) => authorities(file)?,
        (None, true) => system_authorities()?,
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(invalid)?
        .with_root_certificates(roots);
    match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) if is_encrypted => {
            let chain = certificates(certificate)?;
            let private = PrivateKeyDer::from_pem_file(key)
                .map_err(|_| malformed(key, "an unencrypted private key"))?;
            builder
                .with_client_auth_cert(chain, private)
                .map_err(invalid)
        }
        (Some(_), None) | (None, Some(_)) => Err(ClientError::input(
            "a client certificate needs both its file and that of its key: --client-certificate \
             and --client-key",
        )),
        _ => Ok(builder.with_no_client_auth()),
    }
}

/// Whether one side refused the other in a handshake: a repetition would end in the same way.
pub(super) fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        let within = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        if cause.is::<rustls::Error>() || within.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return true;
        }
        next = cause.source();
    }
    false
}

fn authorities(file: &Path) -> Result<RootCertStore, ClientError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(file)? {
        roots
            .add(authority)
            .map_err(|_| malformed(file, "certificates"))?;
    }
    Ok(roots)
}

/// The authorities of the system; some of them may be of no use here, but not all.
fn system_authorities() -> Result<RootCertStore, ClientError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (taken, _) = roots.add_parsable_certificates(found.certs);
    if taken == 0 {
        return Err(ClientError::input(
            "this system has no certificates of authorities: install them, or name a file with \
             --ca-file",
        ));
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    // The errors of the parser say nothing about the file.
    std::fs::metadata(file).map_err(|source| ClientError::file(file, source))?;
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let all: Vec<_> = all.map_err(|_| malformed(file, "certificates"))?;
    if all.is_empty() {
        return Err(malformed(file, "certificates"));
    }
    Ok(all)
}

fn malformed(file: &Path, wanted: &str) -> ClientError {
    ClientError::input(format!("{}: expected PEM with {wanted}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_of_a_handshake_are_final() {
        let alert = || rustls::Error::HandshakeNotComplete;
        assert!(is_refused(&alert()));
        assert!(is_refused(&io::Error::other(alert())));
        let wrapped = ClientError::file(Path::new("x"), io::Error::other(alert()));
        assert!(is_refused(&wrapped));
        assert!(!is_refused(&io::Error::from(
            io::ErrorKind::ConnectionReset
        )));
        assert!(!is_refused(&io::Error::other("cut")));
    }
}
