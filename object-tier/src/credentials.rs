//! What a file of credentials has. Nothing here is ever shown.

use crate::Service;

/// Credentials from a file; without them a client takes those of its environment.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Of S3.
    Keys {
        /// The access key.
        access: String,
        /// The secret key that belongs to it.
        secret: String,
    },
    /// Of Azure: names of its variables of the environment, in lower case, with their values.
    Variables(Vec<(String, String)>),
    /// Of Google: the JSON text of the key of a service account.
    ServiceAccount(String),
}

/// Its kind only.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keys { .. } => "Keys",
            Self::Variables(_) => "Variables",
            Self::ServiceAccount(_) => "ServiceAccount",
        })
    }
}

impl Credentials {
    /// Reads the text of a file as those who run the service write it.
    ///
    /// # Errors
    /// What the file lacks.
    pub fn parse(service: Service, text: &str) -> Result<Self, &'static str> {
        match service {
            Service::S3 => keys(text)
                .ok_or("has no aws_access_key_id and aws_secret_access_key in a section [default]"),
            Service::Azure => variables(text).ok_or(
                "is no list of lines NAME=VALUE with names such as AZURE_STORAGE_ACCOUNT_KEY",
            ),
            Service::Gcp => service_account(text).ok_or(
                "is not the key of a service account in JSON, with client_email and private_key",
            ),
        }
    }
}

/// The keys of the section `[default]`, or of a file without sections.
fn keys(text: &str) -> Option<Credentials> {
    let (mut is_default, mut access, mut secret) = (true, None, None);
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            is_default = section.trim_end_matches(']').trim() == "default";
        } else if let Some((key, value)) = line.split_once('=').filter(|_| is_default) {
            let value = Some(value.trim().to_owned());
            match key.trim() {
                "aws_access_key_id" => access = value,
                "aws_secret_access_key" => secret = value,
                _ => {}
            }
        }
    }
    let (access, secret) = access.zip(secret)?;
    Some(Credentials::Keys { access, secret })
}

/// Lines as in a file of the environment. One that is none of them is no comment either: a file
/// of another kind must not pass for one without credentials.
fn variables(text: &str) -> Option<Credentials> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let variable = |line: &str| {
        let (name, value) = line.split_once('=')?;
        let name = name.trim().to_ascii_lowercase();
        let value = value.trim();
        let unquoted = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        let value = unquoted.unwrap_or(value).to_owned();
        name.starts_with("azure_").then_some((name, value))
    };
    let found: Option<Vec<_>> = lines.map(variable).collect();
    found
        .filter(|found| !found.is_empty())
        .map(Credentials::Variables)
}

fn service_account(text: &str) -> Option<Credentials> {
    let key: serde_json::Value = serde_json::from_str(text).ok()?;
    let has = |name: &str| key.get(name).is_some_and(serde_json::Value::is_string);
    (has("client_email") && has("private_key"))
        .then(|| Credentials::ServiceAccount(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(service: Service, text: &str) -> Option<Credentials> {
        Credentials::parse(service, text).ok()
    }

    #[test]
    fn keys_are_those_of_the_default_section() {
        let file = "[other]\naws_access_key_id=x\naws_secret_access_key=y\n\n[default]\n\
                    aws_access_key_id = AK\n# a note\naws_secret_access_key = a=b\nregion=eu\n";
        let keys = Credentials::Keys {
            access: "AK".to_owned(),
            secret: "a=b".to_owned(),
        };
        assert_eq!(found(Service::S3, file), Some(keys));
        let half = "[default]\naws_access_key_id = AK\n";
        assert_eq!(found(Service::S3, half), None);
    }

    #[test]
    fn variables_are_lines_of_an_environment() {
        let file = "# of the store\nAZURE_STORAGE_ACCOUNT_NAME=traces\n\n\
                    azure_storage_account_key = \"a2V5==\"\n";
        let variables = [
            ("azure_storage_account_name", "traces"),
            ("azure_storage_account_key", "a2V5=="),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let variables = Credentials::Variables(variables.into());
        assert_eq!(found(Service::Azure, file), Some(variables));
        for other in ["", "# nothing\n", "a2V5==\n", "[default]\nx=y\n"] {
            assert_eq!(found(Service::Azure, other), None, "{other:?}");
        }
    }

    #[test]
    fn a_service_account_has_an_address_and_a_key() {
        let file = r#"{"type": "service_account", "client_email": "a@b", "private_key": "k"}"#;
        let key = Credentials::ServiceAccount(file.to_owned());
        assert_eq!(found(Service::Gcp, file), Some(key));
        for other in ["", "{}", r#"{"client_email": "a@b"}"#, "client_email=x"] {
            assert_eq!(found(Service::Gcp, other), None, "{other:?}");
        }
    }

    #[test]
    fn nothing_shows_a_secret() {
        let secret = || "very-secret".to_owned();
        for credentials in [
            Credentials::Keys {
                access: secret(),
                secret: secret(),
            },
            Credentials::Variables(vec![(secret(), secret())]),
            Credentials::ServiceAccount(secret()),
        ] {
            let settings = crate::StoreSettings {
                credentials: Some(credentials),
                ..crate::StoreSettings::default()
            };
            assert!(!format!("{settings:?}").contains("very-secret"));
            assert!(!format!("{:?}", settings.credentials).contains("very-secret"));
        }
    }
}
