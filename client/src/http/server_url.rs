use std::fmt::{self, Write};
use std::str::FromStr;

use uuid::Uuid;

use crate::ClientError;

/// Address of a server: scheme, host, port, and a path prefix if it is behind a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    /// Without a trailing slash.
    base: String,
}

impl ServerUrl {
    /// Whether connections to it are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.base.starts_with("https://")
    }

    /// Address of `segments` joined by slashes, each percent-encoded.
    pub fn at(&self, segments: &[&str]) -> String {
        let mut url = self.base.clone();
        for segment in segments {
            url.push('/');
            push_encoded(&mut url, segment);
        }
        url
    }

    /// Address below `/api/v1`.
    pub fn api(&self, segments: &[&str]) -> String {
        let mut all = vec!["api", "v1"];
        all.extend_from_slice(segments);
        self.at(&all)
    }
}

/// Appends `text` percent-encoded as one path segment or query value. Unreserved characters of
/// RFC 3986 are not encoded.
pub(super) fn push_encoded(url: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                url.push(char::from(byte));
            }
            _ => write!(url, "%{byte:02X}").expect("writing to a string cannot fail"),
        }
    }
}

/// Appends the parameters that have a value.
pub(super) fn with_query(mut url: String, parameters: &[(&str, Option<&str>)]) -> String {
    let mut separator = '?';
    for (name, value) in parameters {
        if let Some(value) = value {
            url.push(separator);
            url.push_str(name);
            url.push('=');
            push_encoded(&mut url, value);
            separator = '&';
        }
    }
    url
}

impl FromStr for ServerUrl {
    type Err = ClientError;

    fn from_str(text: &str) -> Result<Self, ClientError> {
        let wrong = |why: &str| {
            ClientError::input(format!(
                "server URL {text:?}: {why}; expected a URL such as http://127.0.0.1:7117"
            ))
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(wrong("no scheme"));
        };
        let scheme = scheme.to_ascii_lowercase();
        if scheme != "http" && scheme != "https" {
            return Err(wrong("only http and https are supported"));
        }
        let host = rest.split('/').next().unwrap_or_default();
        if host.is_empty() || rest.contains(['?', '#', ' ']) {
            return Err(wrong("the host is missing, or it has a query or fragment"));
        }
        Ok(Self {
            base: format!("{scheme}://{}", rest.trim_end_matches('/')),
        })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

/// Address of one storage's files: `http://HOST:PORT/storage/ID`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageUrl {
    /// The server.
    pub server: ServerUrl,
    /// Id of the storage.
    pub id: Uuid,
}

impl FromStr for StorageUrl {
    type Err = ClientError;

    fn from_str(text: &str) -> Result<Self, ClientError> {
        let wrong = || {
            ClientError::input(format!(
                "storage URL {text:?}: expected http://HOST:PORT/storage/ID"
            ))
        };
        let (server, id) = text
            .trim_end_matches('/')
            .rsplit_once("/storage/")
            .ok_or_else(wrong)?;
        Ok(Self {
            server: server.parse()?,
            id: id.parse().map_err(|_| wrong())?,
        })
    }
}

impl fmt::Display for StorageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/storage/{}", self.server, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_stay_segments() {
        let server: ServerUrl = "HTTP://host:1/prefix/".parse().unwrap();
        assert_eq!(
            server.api(&["agents", "a/b c", "é"]),
            "http://host:1/prefix/api/v1/agents/a%2Fb%20c/%C3%A9"
        );
        let encrypted: ServerUrl = "HTTPS://host".parse().unwrap();
        assert!(encrypted.is_encrypted() && !server.is_encrypted());
        assert_eq!(encrypted.to_string(), "https://host");
    }

    #[test]
    fn wrong_urls_say_what_a_right_one_is() {
        for text in [
            "",
            "host:1",
            "http://",
            "http:///x",
            "http://h/?a",
            "ftp://h",
        ] {
            let error = text.parse::<ServerUrl>().unwrap_err().to_string();
            assert!(error.contains("http://127.0.0.1:7117"), "{text}: {error}");
        }
    }

    #[test]
    fn a_storage_url_is_server_and_id() {
        let text = "http://h:7/p/storage/01890a5d-ac96-774b-bcce-b302099a8057";
        let url: StorageUrl = format!("{text}/").parse().unwrap();
        assert_eq!(url.server.to_string(), "http://h:7/p");
        assert_eq!(url.to_string(), text);
        for wrong in ["http://h/storage/x", "http://h/storages/1", "/storage/1"] {
            assert!(wrong.parse::<StorageUrl>().is_err(), "{wrong}");
        }
    }
}
