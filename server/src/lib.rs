//! The Tracehold server: HTTP in front of the engine of `storage-core`.
//!
//! A request passes these rooms in order, and no other way:
//!
//! | room | what is decided there |
//! | --- | --- |
//! | `connection` | accepting, limits in time and number, ambiguous framing |
//! | `gate` | what holds for every request: id, HTTP's own rules, panics, problems, metrics, log |
//! | `routes` | one file a noun: reads the request, asks the engine, shapes the answer |
//! | `ingest` | bodies of packets: admission by bytes, decoding, cutting, facts |
//! | `io_trace` | the trace of the server's own I/O: when it runs, and where it goes |
//! | `query` | queries over storages, and their answers while they come |
//! | `range` | byte ranges: one pure plan, and bodies of known length |
//!
//! `error` is the only mapping from errors of the engine to HTTP, `problem` the only shape of a
//! refusal, `config` the only place of operating bounds. *Invariant:* no file is opened here; the
//! engine hands out what may be read.

mod app;
mod app_state;
mod chunk_indexes;
mod clock;
mod config;
mod connection;
mod derived_files;
mod error;
mod gate;
mod ingest;
mod io_trace;
mod jobs;
mod logging;
mod metrics;
mod open_files;
mod problem;
mod provenance;
mod query;
mod range;
mod receipts;
mod request_body;
mod request_id;
mod routes;
mod stored_leaves;

pub use app::{AppError, run};
pub use config::{Config, ConfigError, LogConfig, Overrides};
pub use logging::{LogError, start as start_logging};
