//! The client of S3. Without a file, credentials come from `AWS_ACCESS_KEY_ID`,
//! `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`, a web identity token file, or the metadata
//! service of the machine.

use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, Checksum};

use super::{Opened, StoreSettings};
use crate::Credentials;

pub(super) fn open(settings: &StoreSettings, bucket: &str) -> Opened {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_region(settings.region.as_deref().unwrap_or("us-east-1"))
        .with_retry(settings.retries())
        .with_checksum_algorithm(Checksum::SHA256)
        .with_client_options(settings.client_options());
    if let Some(server) = settings.server() {
        builder = builder.with_endpoint(server);
    }
    if let Some(Credentials::Keys { access, secret }) = &settings.credentials {
        builder = builder
            .with_access_key_id(access)
            .with_secret_access_key(secret);
    }
    Ok(Arc::new(builder.build()?))
}
