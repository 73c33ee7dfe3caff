//! The settings of the server; every limit is named with its unit.
//!
//! `config/default.toml` documents each setting for operators and is compiled in; a test compares
//! it with the `Default`s here.

mod access;
mod audit;
mod data_folder;
mod engine;
mod invalid;
mod labels;
mod layers;
mod limits;
mod list;
mod log_filter;
mod names;
mod object_store;
mod otlp;
mod query;
mod quota;
mod retention;
mod seal;
mod settings;
#[cfg(test)]
mod tests;
mod tls;

pub(crate) use access::{AccessConfig, Network, TOKENS_FILE, name_and_role};
pub(crate) use audit::AuditConfig;
pub use layers::{ConfigError, ConfigErrors, Overrides};
pub(crate) use list::items;
pub(crate) use object_store::{Durability, ObjectStoreConfig};
pub(crate) use otlp::OtlpListen;
pub(crate) use query::QueryConfig;
pub(crate) use retention::RetentionConfig;
pub(crate) use seal::SealSettings;
#[cfg(test)]
pub(crate) use settings::Io;
pub(crate) use settings::{
    BenchConfig, HttpConfig, IngestConfig, IoTraceConfig, LogFormat, TraceAtStart,
};
pub use settings::{Config, LogConfig};
pub(crate) use tls::{ClientCertificates, TlsConfig};
