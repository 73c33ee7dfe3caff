//! The Tracehold server: HTTP for the engine of `storage-core`.
//!
//! Every request passes these modules in order:
//!
//! | module | responsibility |
//! | --- | --- |
//! | `tls` | certificates and handshakes |
//! | `connection` | accepting, limits of time and number, ambiguous framing |
//! | `gate` | what applies to every request: id, rules of HTTP, panics, problems, metrics, log |
//! | `access` | who may do what: tokens, shares, users of a proxy, and the rule of each route |
//! | `audit` | the log of changes, whose lines seal each other |
//! | `changes` | requests that change state, completed even when the client hangs up |
//! | `routes` | one file per noun: reads the request, calls the engine, builds the response |
//! | `grpc` | calls of gRPC: frames of messages, statuses, deadlines |
//! | `ingest` | bodies of packets: admission, decoding, splitting, facts |
//! | `io_trace` | the trace of the server's I/O: starting, storing, stopping |
//! | `query` | queries over storages, with streamed results |
//! | `range` | byte ranges: one pure plan, and bodies of known length |
//!
//! `error` is the only mapping from errors to HTTP, `problem` the only form of a refusal, `config`
//! the only place of limits. *Invariant:* the server opens no files but its
//! configuration and certificates; the engine hands out those that may be read.

mod access;
mod access_log;
mod app;
mod app_state;
mod audit;
mod authority;
mod background;
mod base64;
mod bundling;
mod change_feed;
mod changes;
mod chunk_indexes;
mod clock;
mod config;
mod connection;
mod derived_files;
mod error;
mod event_files;
mod file_limit;
#[cfg(fuzzing)]
pub mod fuzzing;
mod gate;
mod grpc;
mod ingest;
mod io_trace;
mod jobs;
mod leaf_sidecars;
mod logging;
mod media_type;
mod metrics;
mod named_files;
mod open_files;
mod origin;
mod plain_text;
mod problem;
mod provenance;
mod query;
mod range;
mod receipts;
mod request_body;
mod request_id;
mod retention;
mod routes;
mod rpc_status;
mod seal_key;
mod secrets;
mod service_manager;
mod stored_file;
mod stored_leaves;
mod tier;
mod tls;
mod watched_tasks;

pub use access::{OfflineError, TokensError, create_operator_token};
pub use app::{Addresses, AppError, run};
pub use audit::{AuditDamage, AuditError, DamagedAudit, verify_audit};
pub use config::{Config, ConfigError, ConfigErrors, LogConfig, Overrides};
pub use logging::{LogError, start as start_logging};
pub use named_files::check_named_files;
pub use tls::TlsError;
