//! The client of Azure Blob Storage. Without a file, credentials come from the variables
//! `AZURE_STORAGE_…` of the environment, a federated token file, or the managed identity of the
//! machine.

use std::sync::Arc;

use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use super::{Opened, StoreSettings, refused};
use crate::Credentials;

const STORE: &str = "MicrosoftAzure";

pub(super) fn open(settings: &StoreSettings, container: &str) -> Opened {
    let environment = MicrosoftAzureBuilder::from_env();
    let named = environment.get_config_value(&AzureConfigKey::AccountName);
    let mut builder = match &settings.credentials {
        None => environment,
        // Of several credentials a client takes the one it likes best: those of the environment
        // must not be among them.
        Some(Credentials::Variables(variables)) => from_file(variables)?,
        Some(_) => return Err(refused(STORE, "these are not credentials of Azure".into())),
    };
    if builder
        .get_config_value(&AzureConfigKey::AccountName)
        .is_none()
    {
        let account = named.or_else(|| settings.server().and_then(account_of));
        builder = builder.with_account(account.ok_or_else(|| {
            let what = "which storage account? Set AZURE_STORAGE_ACCOUNT_NAME, or the endpoint to \
                        https://ACCOUNT.blob.core.windows.net";
            refused(STORE, what.into())
        })?);
    }
    if let Some(server) = settings.server() {
        builder = builder.with_endpoint(server.to_owned());
    }
    let builder = builder
        .with_container_name(container)
        .with_retry(settings.retries())
        .with_client_options(settings.client_options());
    Ok(Arc::new(builder.build()?))
}

fn from_file(variables: &[(String, String)]) -> Result<MicrosoftAzureBuilder, object_store::Error> {
    let mut builder = MicrosoftAzureBuilder::new();
    for (name, value) in variables {
        builder = builder.with_config(name.parse()?, value);
    }
    Ok(builder)
}

/// The account whose server has this URL: the first label of the host, or, of an emulator, the
/// first segment of the path.
fn account_of(server: &str) -> Option<String> {
    let (_, rest) = server.split_once("://")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let account = match host.split_once(".blob.") {
        Some((account, _)) => account,
        None => path.split('/').next()?,
    };
    (!account.is_empty()).then(|| account.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_server_names_its_account() {
        for (server, account) in [
            ("https://traces.blob.core.windows.net", Some("traces")),
            (
                "http://127.0.0.1:10000/devstoreaccount1",
                Some("devstoreaccount1"),
            ),
            ("http://127.0.0.1:10000", None),
            ("traces", None),
        ] {
            assert_eq!(account_of(server).as_deref(), account, "{server}");
        }
    }
}
