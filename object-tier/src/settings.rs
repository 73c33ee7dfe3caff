//! Where the object store is, and how it is used.

#[cfg(feature = "azure")]
mod azure;
#[cfg(feature = "gcp")]
mod gcp;
mod s3;

use std::{sync::Arc, time::Duration};

use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use crate::{Bucket, Credentials, Location, Service, TierError};

/// Where the object store is. Credentials that are not given come from the environment, from a
/// file that it names, or from the metadata service of the machine, as each service has them.
#[derive(Clone, Default)]
pub struct StoreSettings {
    /// `s3://bucket/prefix`, as [`Location`] reads it, or `memory://` for tests.
    pub url: String,
    /// The URL of the server; that of the service itself without one.
    pub endpoint: Option<String>,
    /// The region of S3; `us-east-1` without one.
    pub region: Option<String>,
    /// The credentials, if they are not taken from the environment.
    pub credentials: Option<Credentials>,
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
        if let Some(prefix) = self.url.strip_prefix("memory://") {
            let store = Arc::new(object_store::memory::InMemory::new());
            return Ok(Bucket::new(store, prefix, self.requests_max));
        }
        let location = Location::parse(&self.url)
            .map_err(|error| TierError::Settings(format!("its URL {error}")))?;
        // The client of the store has no provider of its own; an error says that there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let store = self
            .client(location.service, &location.bucket)
            .map_err(|error| TierError::Settings(error.to_string()))?;
        Ok(Bucket::new(store, &location.prefix, self.requests_max))
    }

    fn client(&self, service: Service, bucket: &str) -> Opened {
        match service {
            Service::S3 => s3::open(self, bucket),
            #[cfg(feature = "azure")]
            Service::Azure => azure::open(self, bucket),
            #[cfg(feature = "gcp")]
            Service::Gcp => gcp::open(self, bucket),
            // No location has a service that is not there.
            #[cfg(not(all(feature = "azure", feature = "gcp")))]
            _ => Err(object_store::Error::NotImplemented {
                operation: "a client".into(),
                implementer: format!("{service:?}"),
            }),
        }
    }

    /// The server of the settings, without the slash that programs put between it and a path.
    fn server(&self) -> Option<&str> {
        self.endpoint
            .as_deref()
            .map(|url| url.trim_end_matches('/'))
    }

    fn client_options(&self) -> ClientOptions {
        let is_plain = |url: &str| url.starts_with("http://");
        ClientOptions::new()
            .with_timeout(self.timeout)
            .with_connect_timeout(self.timeout.min(Duration::from_secs(5)))
            .with_pool_max_idle_per_host(self.requests_max)
            .with_allow_http(self.server().is_some_and(is_plain))
    }

    fn retries(&self) -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(50),
                max_backoff: Duration::from_secs(5),
                base: 2.0,
            },
            max_retries: 4,
            retry_timeout: self.timeout.saturating_mul(4),
        }
    }
}

type Opened = Result<Arc<dyn ObjectStore>, object_store::Error>;

/// Why settings cannot be used, in our words.
#[cfg(any(feature = "azure", feature = "gcp"))]
fn refused(store: &'static str, what: String) -> object_store::Error {
    object_store::Error::Generic {
        store,
        source: what.into(),
    }
}

#[cfg(test)]
mod tests;
