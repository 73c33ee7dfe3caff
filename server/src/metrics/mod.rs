//! Metrics for Prometheus, in base units (bytes, seconds).
//!
//! Hot paths use counters that are looked up once at startup; a request neither hashes nor locks.

mod connections;
mod engine;
mod io_trace;
mod jobs;
mod maker;
mod process;
mod queries;
mod recorder;
mod responses;
mod retention;
mod route_group;
mod server;
mod spans;
mod storages;
mod tier;

pub(crate) use connections::{ConnectionState, Port, StateGauges};
pub(crate) use engine::render_engine;
pub(crate) use io_trace::render_io_trace;
pub(crate) use process::render_process;
pub(crate) use recorder::render_recorder;
pub(crate) use route_group::{OTLP_EXPORT, RouteGroup};
pub(crate) use server::{Metrics, RangeOutcome};
pub(crate) use storages::render_storages;
pub(crate) use tier::render_tier;
