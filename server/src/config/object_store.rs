//! Section `[object_store]`.

use std::time::Duration;

use object_tier::{Credentials, Location, LocationError, StoreSettings};
use serde::{Deserialize, Serialize};

use super::invalid::InvalidSetting;

/// The largest packet that a record of a chain has room for.
const CHAINED_BYTES_MAX: u64 = 64 << 20;

/// When a packet is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// When it is on the disk.
    #[default]
    Local,
    /// When it is in the object store, too.
    Object,
}

/// Section `[object_store]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ObjectStoreConfig {
    /// `s3://bucket/prefix`, `azure://container/prefix` or `gs://bucket/prefix`; empty: there is no
    /// object store.
    pub url: String,
    /// URL of the server; empty: that of the service.
    pub endpoint: String,
    /// The region of S3.
    pub region: String,
    /// File with credentials, in the format of the service; empty: environment or metadata of the
    /// machine.
    pub credentials_file: String,
    /// Name of this node in the store; empty: the name of the host and the port.
    pub node: String,
    /// URL under which clients and other nodes reach this one; empty: from `http.listen`.
    pub node_url: String,
    /// `local`: a packet is acknowledged when it is on the disk of this node. `object`: when it is
    /// in the object store as well, so that it survives the node.
    pub durability: Durability,
    /// Time between two records of packets of a storage with `durability = "object"`, unless 8 MiB
    /// wait.
    pub append_interval_ms: u64,
    /// Only storages with this label are uploaded; empty: all.
    pub upload_label: String,
    /// The events of storages with this label are in Delta Lake tables of the store; empty: none.
    pub table_label: String,
    /// Time after the upload after which data files are evicted; 0 = never.
    pub evict_after_seconds: u64,
    /// Bytes of data files here beyond which those of the oldest storages are evicted; 0 = never.
    pub local_bytes_max: u64,
    /// Bytes of evicted storages that are kept once they were fetched.
    pub cache_bytes_max: u64,
    /// Bytes that readers in order may have in memory before they are sent, all of them together.
    pub read_ahead_bytes_max: u64,
    /// Requests at once, of all readers and uploads together.
    pub requests_max: u32,
    /// How long one request may take.
    pub request_seconds: u64,
    /// Interval at which storages of other nodes are looked for, and a sign of life is given.
    pub check_seconds: u64,
    /// Age at which objects that no seal names are removed.
    pub grace_seconds: u64,
}

impl Default for ObjectStoreConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            endpoint: String::new(),
            region: "us-east-1".to_owned(),
            credentials_file: String::new(),
            node: String::new(),
            node_url: String::new(),
            durability: Durability::Local,
            append_interval_ms: 250,
            upload_label: String::new(),
            table_label: String::new(),
            evict_after_seconds: 0,
            local_bytes_max: 0,
            cache_bytes_max: 10 << 30,
            read_ahead_bytes_max: 256 << 20,
            requests_max: 64,
            request_seconds: 30,
            check_seconds: 5,
            grace_seconds: 86_400,
        }
    }
}

impl ObjectStoreConfig {
    /// Whether there is an object store.
    pub fn is_on(&self) -> bool {
        !self.url.is_empty()
    }

    /// The settings that contradict each other; packets may have up to `packet_bytes_max`.
    pub(super) fn invalid(&self, packet_bytes_max: u64) -> Option<InvalidSetting> {
        let has_scheme = |url: &str| url.starts_with("http://") || url.starts_with("https://");
        let location = self.is_on().then(|| Location::parse(&self.url));
        if let Some(Err(LocationError { what, remedy })) = location {
            let key = "object_store.url".to_owned();
            return Some(InvalidSetting { key, what, remedy });
        }
        let (key, what, remedy) = if !self.endpoint.is_empty() && !has_scheme(&self.endpoint) {
            (
                "endpoint",
                format!("is {:?}, which is not a URL", self.endpoint),
                "set it to http://HOST:PORT or https://HOST",
            )
        } else if !self.node_url.is_empty() && !has_scheme(&self.node_url) {
            (
                "node_url",
                format!("is {:?}, which is not a URL", self.node_url),
                "set it to http://HOST:PORT or https://HOST",
            )
        } else if !self.credentials_file.is_empty() && !self.is_on() {
            (
                "credentials_file",
                "is set, and there is no object store".to_owned(),
                "set object_store.url, or remove object_store.credentials_file",
            )
        } else if self.durability == Durability::Object && !self.is_on() {
            (
                "durability",
                "is object, and there is no object store".to_owned(),
                "set object_store.url, or durability to local",
            )
        } else if self.durability == Durability::Object && packet_bytes_max > CHAINED_BYTES_MAX {
            (
                "durability",
                format!("is object, and ingest.packet_bytes_max is {packet_bytes_max}"),
                "set ingest.packet_bytes_max to 67108864 (64 MiB) or less",
            )
        } else {
            return None;
        };
        Some(InvalidSetting {
            key: format!("object_store.{key}"),
            what,
            remedy: remedy.to_owned(),
        })
    }

    /// The settings of the client of the store, with the credentials of the file if there is one.
    ///
    /// # Errors
    /// When the file cannot be read, or has no credentials.
    #[expect(
        clippy::disallowed_methods,
        reason = "credentials are a file of the operator, not of the data folder"
    )]
    pub(crate) fn store(&self) -> Result<StoreSettings, String> {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let credentials = match given(&self.credentials_file) {
            Some(file) => {
                let location = Location::parse(&self.url).map_err(|error| error.to_string())?;
                let text = std::fs::read_to_string(&file)
                    .map_err(|error| format!("cannot read {file}: {error}"))?;
                let found = Credentials::parse(location.service, &text);
                Some(found.map_err(|problem| format!("{file} {problem}"))?)
            }
            None => None,
        };
        Ok(StoreSettings {
            url: self.url.clone(),
            endpoint: given(&self.endpoint),
            region: given(&self.region),
            credentials,
            requests_max: usize::try_from(self.requests_max).unwrap_or(usize::MAX),
            timeout: Duration::from_secs(self.request_seconds),
        })
    }
}
