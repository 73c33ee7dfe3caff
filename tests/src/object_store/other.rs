//! Azurite, and our imitation of Google Cloud Storage.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use super::{ACCESS_KEY, BUCKET, SECRET_KEY, quiet};
use crate::programs::{azurite, python3};

/// What speaks at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    S3,
    Azure,
    Google,
    /// Without credentials.
    OpenGoogle,
}

const ACCOUNT: &str = "traces";
/// The key of the account: 64 bytes in base64.
const ACCOUNT_KEY: &str =
    "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0cw==";

impl Dialect {
    /// The URL of the bucket, and that of the server at this address.
    pub(super) fn urls(self, address: SocketAddr) -> (String, String) {
        let server = format!("http://{address}");
        match self {
            Self::S3 => (format!("s3://{BUCKET}/cluster"), server),
            Self::Azure => (
                format!("azure://{BUCKET}/cluster"),
                format!("{server}/{ACCOUNT}"),
            ),
            Self::Google | Self::OpenGoogle => (format!("gs://{BUCKET}/cluster"), server),
        }
    }

    /// Credentials as the environment has them.
    pub(super) fn environment(self) -> Vec<(String, String)> {
        let variables: &[(&str, &str)] = match self {
            Self::S3 => &[
                ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
                ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
            ],
            Self::Azure => &[("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY)],
            Self::Google => &[("GOOGLE_BEARER_TOKEN", SECRET_KEY)],
            Self::OpenGoogle => &[("GOOGLE_SKIP_SIGNATURE", "true")],
        };
        let variables = variables.iter();
        variables
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// The same in the file that the service has for them.
    pub(super) fn credentials_file(self) -> String {
        match self {
            Self::S3 => format!(
                "[default]\naws_access_key_id = {ACCESS_KEY}\n\
                 aws_secret_access_key = {SECRET_KEY}\n"
            ),
            Self::Azure => format!("AZURE_STORAGE_ACCOUNT_KEY={ACCOUNT_KEY}\n"),
            // Nobody here gives tokens for such a key: so the store asks for none.
            Self::Google | Self::OpenGoogle => format!(
                "{{\"client_email\": \"traces@example.com\", \"private_key\": {SECRET_KEY:?}, \
                 \"private_key_id\": \"1\", \"disable_oauth\": true}}"
            ),
        }
    }

    /// Starts the server.
    pub(super) fn start(self, folder: &Path, address: SocketAddr) -> Option<Child> {
        let port = address.port().to_string();
        let mut command = match self {
            Self::S3 => return None,
            Self::Azure => {
                let mut command = quiet(azurite()?.to_str()?);
                command
                    .args(["--inMemoryPersistence", "--skipApiVersionCheck", "--silent"])
                    .args(["--disableTelemetry", "--blobHost", "127.0.0.1"])
                    .args(["--blobPort", &port])
                    .env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{ACCOUNT_KEY}"));
                command
            }
            Self::Google | Self::OpenGoogle => {
                let mut command = quiet(python3());
                let arguments = ["serve", &port, self.token()];
                command.arg(script("google_store.py")).args(arguments);
                command
            }
        };
        let child = command.current_dir(folder).spawn();
        Some(child.expect("the store was installed"))
    }

    /// The token without which Google answers nothing.
    fn token(self) -> &'static str {
        match self {
            Self::Google => SECRET_KEY,
            _ => "",
        }
    }

    /// Makes the bucket.
    pub(super) fn make_bucket(self, address: SocketAddr) -> bool {
        self.ask("create", address).is_some()
    }

    /// The keys of all objects.
    pub(super) fn keys(self, address: SocketAddr) -> Option<String> {
        self.ask("keys", address)
    }

    fn ask(self, what: &str, address: SocketAddr) -> Option<String> {
        let port = address.port().to_string();
        let mut command = Command::new(python3());
        match self {
            Self::S3 => return None,
            Self::Azure => command.arg(script("azure_store.py")).args([
                what,
                &port,
                ACCOUNT,
                ACCOUNT_KEY,
                BUCKET,
            ]),
            // Its bucket is always there.
            Self::Google | Self::OpenGoogle => {
                command
                    .arg(script("google_store.py"))
                    .args(["keys", &port, self.token()])
            }
        };
        let output = command.output().expect("Python runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data")
        .join(name)
}
