//! The files with certificates and keys.

use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;
use crate::config::{ClientCertificates, TlsConfig};

/// No certificate chain and no list of authorities is longer.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What the file with the certificate contains.
const CHAIN: &str = "the certificate of the server, followed by those of its issuers";
/// What the file with the key contains.
const KEY: &str = "an unencrypted private key (PKCS#8, PKCS#1 or SEC1)";
/// What the file with the authorities contains.
pub(super) const AUTHORITIES: &str = "the certificates of the authorities of clients";

/// The bytes of the files. Not `Debug`, because of the key.
#[derive(PartialEq, Eq)]
pub(super) struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Vec<u8>,
}

impl Contents {
    /// Reads the files that `config` names.
    pub(super) fn read(config: &TlsConfig) -> Result<Self, TlsError> {
        let client_ca = match config.client_certificates {
            ClientCertificates::Off => Vec::new(),
            ClientCertificates::Optional | ClientCertificates::Required => {
                read(&config.client_ca_file)?
            }
        };
        Ok(Self {
            certificate: read(&config.certificate_file)?,
            key: read(&config.key_file)?,
            client_ca,
        })
    }

    /// The certificate of the server and its issuers.
    pub(super) fn chain(
        &self,
        config: &TlsConfig,
    ) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        certificates(&self.certificate, &config.certificate_file, CHAIN)
    }

    /// The key of the server.
    pub(super) fn key(&self, config: &TlsConfig) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| malformed(&config.key_file, &error, KEY))
    }

    /// The authorities of clients.
    pub(super) fn client_authorities(
        &self,
        config: &TlsConfig,
    ) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        certificates(&self.client_ca, &config.client_ca_file, AUTHORITIES)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "certificates are no data of storages; they are read at the start and on the blocking \
              pool"
)]
fn read(file: &str) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Unreadable {
        file: file.to_owned(),
        source,
    };
    // Opening a FIFO would wait for its writer, and no certificate would be read again.
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(file)
        .map_err(unreadable)?;
    if !opened.metadata().map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::other("it is no regular file")));
    }
    let mut bytes = Vec::new();
    let read = opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(unreadable(io::Error::other(format!(
            "it has more than {FILE_BYTES_MAX} bytes"
        ))));
    }
    Ok(bytes)
}

fn certificates(
    bytes: &[u8],
    file: &str,
    wanted: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let all = all.map_err(|error| malformed(file, &error, wanted))?;
    if all.is_empty() {
        return Err(malformed(file, &pem::Error::NoItemsFound, wanted));
    }
    Ok(all)
}

/// The error must not contain bytes of the file, which may be a key.
fn malformed(file: &str, error: &pem::Error, wanted: &'static str) -> TlsError {
    let what = match error {
        pem::Error::NoItemsFound => "it contains none",
        _ => "it is not valid PEM",
    };
    TlsError::Malformed {
        file: file.to_owned(),
        what: what.to_owned(),
        wanted,
    }
}
