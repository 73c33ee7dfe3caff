//! Where the object store is, and how it is used.

use std::{sync::Arc, time::Duration};

use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, Checksum},
};

use crate::{Bucket, TierError};

/// Where the object store is. Credentials that are not given come from the environment
/// (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`), a web identity token file,
/// or the metadata service of the machine.
#[derive(Clone, Default)]
pub struct StoreSettings {
    /// `s3://bucket/prefix`, or `memory://` for tests.
    pub url: String,
    /// The URL of an S3-compatible server; AWS without one.
    pub endpoint: Option<String>,
    /// The region; `us-east-1` without one.
    pub region: Option<String>,
    /// The access key, if it is not taken from the environment.
    pub access_key: Option<String>,
    /// The secret key that belongs to it.
    pub secret_key: Option<String>,
    /// Requests at once, of all storages.
    pub requests_max: usize,
    /// How long one request may take.
    pub timeout: Duration,
}

/// Without the secret.
impl std::fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreSettings")
            .field("url", &self.url)
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl StoreSettings {
    /// Opens the bucket. Nothing is requested yet.
    ///
    /// # Errors
    /// When a setting cannot be used; the message names it.
    pub fn open(&self) -> Result<Bucket, TierError> {
        let refused = |what: String| TierError::Settings(what);
        let (bucket, prefix) = match self.url.split_once("://") {
            Some(("memory", prefix)) => {
                let store = Arc::new(object_store::memory::InMemory::new());
                return Ok(Bucket::new(store, prefix, self.requests_max));
            }
            Some(("s3", rest)) => rest.split_once('/').unwrap_or((rest, "")),
            _ => {
                let url = &self.url;
                return Err(refused(format!(
                    "the URL `{url}` is not `s3://bucket/prefix`"
                )));
            }
        };
        let store = self
            .s3(bucket)
            .map_err(|error| refused(error.to_string()))?;
        Ok(Bucket::new(store, prefix, self.requests_max))
    }

    fn s3(&self, bucket: &str) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
        // The client of the store has no provider of its own; an error says that there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let is_plain = |url: &String| url.starts_with("http://");
        let options = ClientOptions::new()
            .with_timeout(self.timeout)
            .with_connect_timeout(self.timeout.min(Duration::from_secs(5)))
            .with_pool_max_idle_per_host(self.requests_max);
        let retries = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(50),
                max_backoff: Duration::from_secs(5),
                base: 2.0,
            },
            max_retries: 4,
            retry_timeout: self.timeout.saturating_mul(4),
        };
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_region(self.region.as_deref().unwrap_or("us-east-1"))
            .with_retry(retries)
            .with_checksum_algorithm(Checksum::SHA256)
            .with_client_options(options);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
        }
        builder = builder.with_allow_http(self.endpoint.as_ref().is_some_and(is_plain));
        if let (Some(access), Some(secret)) = (&self.access_key, &self.secret_key) {
            builder = builder
                .with_access_key_id(access)
                .with_secret_access_key(secret);
        }
        Ok(Arc::new(builder.build()?))
    }
}
