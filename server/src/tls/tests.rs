//! Handshakes with the certificates of `tests/data/tls`, and files that change.

use std::net::SocketAddr;
use std::path::Path;

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsConnector;

use super::*;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/tls/");

fn data(name: &str) -> String {
    format!("{DATA}{name}")
}

fn config(name: &str) -> TlsConfig {
    TlsConfig {
        certificate_file: data(&format!("{name}.pem")),
        key_file: data(&format!("{name}.key")),
        ..TlsConfig::default()
    }
}

fn asking(client_certificates: ClientCertificates) -> TlsConfig {
    TlsConfig {
        client_certificates,
        client_ca_file: data("authority.pem"),
        ..config("server")
    }
}

/// A client with the certificate of this name that offers these protocols.
fn client(name: Option<&str>, protocols: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(data("authority.pem"));
    roots.add(authority.unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut client = match name {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let chain = CertificateDer::from_pem_file(data(&format!("{name}.pem"))).unwrap();
            let key = PrivateKeyDer::from_pem_file(data(&format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(vec![chain], key).unwrap()
        }
    };
    client.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    TlsConnector::from(Arc::new(client))
}

/// One handshake: the protocol that the server chose, and the certificate that the client saw.
async fn shake(tls: &Tls, client: TlsConnector) -> (io::Result<Option<Vec<u8>>>, Option<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let client = tokio::spawn(async move {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = client.connect(name, stream).await.ok()?;
        let (_, session) = stream.get_ref();
        Some(session.peer_certificates()?.first()?.to_vec())
    });
    let (stream, _) = listener.accept().await.unwrap();
    let accepted = tls.accept(stream).await;
    let accepted = accepted.map(|stream| stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec));
    (accepted, client.await.unwrap())
}

/// Certificates for tests of connections.
pub(crate) fn tls() -> Arc<Tls> {
    loaded(&config("server"))
}

/// A connection after its handshake.
pub(crate) async fn connect(address: SocketAddr) -> tokio_rustls::client::TlsStream<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    client(None, &[]).connect(name, stream).await.unwrap()
}

fn certificate(name: &str) -> Vec<u8> {
    let file = data(&format!("{name}.pem"));
    CertificateDer::from_pem_file(file).unwrap().to_vec()
}

fn loaded(config: &TlsConfig) -> Arc<Tls> {
    Tls::load(config).unwrap().unwrap()
}

#[tokio::test]
async fn a_client_chooses_among_the_offered_protocols() {
    assert!(Tls::load(&TlsConfig::default()).unwrap().is_none());
    let tls = loaded(&config("server"));
    for (offered, wanted) in [
        (&[][..], Some("")),
        (&["http/1.1"][..], Some("http/1.1")),
        (&["http/1.1", "h2"][..], Some("h2")),
        (&["unknown", "http/1.1"][..], Some("http/1.1")),
        (&["unknown"][..], None),
    ] {
        let (chosen, _) = shake(&tls, client(None, offered)).await;
        let chosen = chosen.ok().map(Option::unwrap_or_default);
        assert_eq!(chosen.as_deref(), wanted.map(str::as_bytes), "{offered:?}");
    }
}

#[tokio::test]
async fn client_certificates_are_checked_as_configured() {
    use ClientCertificates::{Off, Optional, Required};
    for (mode, name, is_accepted) in [
        (Off, None, true),
        (Off, Some("stranger"), true),
        (Optional, None, true),
        (Optional, Some("client"), true),
        (Optional, Some("stranger"), false),
        (Required, None, false),
        (Required, Some("client"), true),
        (Required, Some("stranger"), false),
        // A certificate of the authority, but not for clients.
        (Required, Some("server"), false),
    ] {
        let config = match mode {
            Off => config("server"),
            Optional | Required => asking(mode),
        };
        let (protocol, _) = shake(&loaded(&config), client(name, &[])).await;
        assert_eq!(protocol.is_ok(), is_accepted, "{mode:?} {name:?}");
    }
}

#[expect(clippy::disallowed_methods, reason = "a test replaces files")]
fn put(from: &str, to: &Path) {
    let bytes = std::fs::read(data(from)).unwrap();
    std::fs::write(to, bytes).unwrap();
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a test replaces files")]
async fn new_files_are_taken_and_bad_ones_are_not() {
    let folder = TempDir::new().unwrap();
    let (pem, key) = (folder.path().join("a.pem"), folder.path().join("a.key"));
    put("server.pem", &pem);
    put("server.key", &key);
    let tls = loaded(&TlsConfig {
        certificate_file: pem.to_str().unwrap().to_owned(),
        key_file: key.to_str().unwrap().to_owned(),
        ..TlsConfig::default()
    });
    let presents = async |name: &str| {
        let (_, seen) = shake(&tls, client(None, &[])).await;
        assert_eq!(seen, Some(certificate(name)), "{name}");
    };
    presents("server").await;
    assert!(matches!(tls.reload(), Reload::Unchanged));

    // The certificate is written before its key: the pair does not match, and says so once.
    put("renewed.pem", &pem);
    let Reload::Refused(error) = tls.reload() else {
        panic!("a key of another certificate");
    };
    assert!(error.to_string().contains("a.key"), "{error}");
    assert!(matches!(tls.reload(), Reload::Unchanged));
    presents("server").await;

    put("renewed.key", &key);
    assert!(matches!(tls.reload(), Reload::Taken));
    presents("renewed").await;

    for (path, bytes) in [
        (&pem, &b""[..]),
        (&pem, b"-----BEGIN CERTIFICATE-----\nAAAA"),
        (&key, b"\xff\xfe"),
    ] {
        std::fs::write(path, bytes).unwrap();
        let refused = tls.reload();
        assert!(matches!(refused, Reload::Refused(_)), "{refused:?}");
        presents("renewed").await;
    }
    std::fs::remove_file(&pem).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&pem).status();
    assert!(made.unwrap().success());
    // Nobody writes into it, and nobody waits for that.
    assert!(matches!(tls.reload(), Reload::Refused(_)));
    std::fs::remove_file(&pem).unwrap();
    assert!(matches!(tls.reload(), Reload::Unchanged));
    put("server.pem", &pem);
    put("server.key", &key);
    assert!(matches!(tls.reload(), Reload::Taken));
    presents("server").await;
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test writes its files")]
fn errors_name_the_file_and_never_its_bytes() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("secret.key");
    std::fs::write(&file, "-----BEGIN secret-bytes-----\n").unwrap();
    let file = file.to_str().unwrap().to_owned();
    let absent = format!("{file}.absent");
    for (config, name) in [
        (
            TlsConfig {
                key_file: file.clone(),
                ..config("server")
            },
            &file,
        ),
        (
            TlsConfig {
                certificate_file: absent.clone(),
                ..config("server")
            },
            &absent,
        ),
        (
            TlsConfig {
                client_ca_file: file.clone(),
                ..asking(ClientCertificates::Required)
            },
            &file,
        ),
    ] {
        let Err(error) = Tls::load(&config) else {
            panic!("{config:?} is accepted");
        };
        let text = error.to_string();
        assert!(
            text.contains(name.as_str()) && !text.contains("secret-bytes"),
            "{text}"
        );
    }
}
