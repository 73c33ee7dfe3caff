//! The client of Google Cloud Storage. Without a file, credentials come from
//! `GOOGLE_APPLICATION_CREDENTIALS` or `GOOGLE_SERVICE_ACCOUNT`, which name files, or the metadata
//! service of the machine.

use std::sync::Arc;

use object_store::gcp::GoogleCloudStorageBuilder;

use super::{Opened, StoreSettings, refused};
use crate::Credentials;

pub(super) fn open(settings: &StoreSettings, bucket: &str) -> Opened {
    let mut builder = match &settings.credentials {
        None => GoogleCloudStorageBuilder::from_env(),
        // As for Azure: not beside those of the environment.
        Some(Credentials::ServiceAccount(key)) => {
            GoogleCloudStorageBuilder::new().with_service_account_key(key)
        }
        Some(_) => return Err(refused("GCS", "these are not credentials of Google".into())),
    };
    if let Some(server) = settings.server() {
        builder = builder.with_base_url(server);
    }
    let builder = builder
        .with_bucket_name(bucket)
        .with_retry(settings.retries())
        .with_client_options(settings.client_options());
    Ok(Arc::new(builder.build()?))
}
