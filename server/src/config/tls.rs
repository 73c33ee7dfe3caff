//! Section `[tls]`.

use serde::{Deserialize, Serialize};

use super::invalid::InvalidSetting;

/// Section `[tls]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// File with the certificate of the server and those of its issuers; empty: no TLS.
    pub certificate_file: String,
    /// File with its private key.
    pub key_file: String,
    /// Whether clients present a certificate.
    pub client_certificates: ClientCertificates,
    /// File with the authorities that issue the certificates of clients.
    pub client_ca_file: String,
    /// Time after which changed files are noticed.
    pub reload_seconds: u64,
}

/// Whether clients present a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientCertificates {
    /// They are not asked for one.
    Off,
    /// One that is presented must be valid.
    Optional,
    /// A connection without a valid one is refused.
    Required,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            certificate_file: String::new(),
            key_file: String::new(),
            client_certificates: ClientCertificates::Off,
            client_ca_file: String::new(),
            reload_seconds: 10,
        }
    }
}

impl TlsConfig {
    /// Whether the listener speaks TLS.
    pub fn is_on(&self) -> bool {
        !self.certificate_file.is_empty()
    }

    /// The settings that contradict each other.
    pub(super) fn invalid(&self) -> Option<InvalidSetting> {
        let invalid = |key: &str, what: &str, remedy: &str| InvalidSetting {
            key: key.to_owned(),
            what: what.to_owned(),
            remedy: remedy.to_owned(),
        };
        let asks_clients = self.client_certificates != ClientCertificates::Off;
        if self.is_on() && self.key_file.is_empty() {
            return Some(invalid(
                "tls.key_file",
                "is empty, but tls.certificate_file is set",
                "set it to the file with the private key of the certificate",
            ));
        }
        if !self.is_on() && (asks_clients || !self.key_file.is_empty()) {
            return Some(invalid(
                "tls.certificate_file",
                "is empty, but other settings of [tls] are set",
                "set it to the file with the certificate, or remove the others",
            ));
        }
        if asks_clients && self.client_ca_file.is_empty() {
            return Some(invalid(
                "tls.client_ca_file",
                "is empty, but tls.client_certificates is not off",
                "set it to the file with the authorities of the certificates of clients",
            ));
        }
        if !asks_clients && !self.client_ca_file.is_empty() {
            return Some(invalid(
                "tls.client_certificates",
                "is off, but tls.client_ca_file is set",
                "set it to optional or required, or remove tls.client_ca_file",
            ));
        }
        None
    }
}
