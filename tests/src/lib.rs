//! The harness of the end-to-end tests, the crash run and the benchmarks.
//!
//! The tests are one binary, `tests/tests/main.rs`. The harness uses the real programs from
//! outside: it starts `traceholdd` on a free port, sends HTTP over plain sockets, kills the server,
//! restarts it, and compares bytes.
//!
//! A fault of the harness or of the server under test is a panic, and the server's log is printed:
//! a failed test does not recover.

mod agent;
mod api;
mod corpora;
mod crash;
mod fault;
mod http;
mod http2;
mod load;
mod model;
mod multipart;
mod object_store;
mod payload;
mod power;
mod programs;
mod server;
pub mod spans;
mod terminal;

pub use agent::{Agent, Batch, Receipt};
pub use api::{Api, Problem};
pub use corpora::{corpora, small_traces, tools};
pub use crash::{CrashPlan, CrashReport, crash, crash_settings};
pub use fault::{
    FailingDisk, FailingKind, FaultCount, FaultPlan, FaultReport, check_failing_disk,
    run_cluster_faults, run_faults,
};
pub use http::{Connection, Request, Response};
pub use http2::Http2Streams;
pub use load::{Body, Load, LoadReport, Pace, PreparedLoad};
pub use model::{ModelPlan, ModelReport, model_settings, run_model};
pub use multipart::{Part, parts};
pub use object_store::{ObjectStore, StoreFault, StoreProxy};
pub use payload::{Random, packet, payload};
pub use power::{check_image, record_power};
pub use programs::{
    lake_python, object_store_python, openapi_node_modules, openapi_python,
    opentelemetry_node_modules, opentelemetry_python, page_node_modules, perfetto_ui,
    python_client_python, ray_python, run_tracehold, run_tracehold_piped, spark_python,
    tables_python, tracehold, traceholdd, viztracer_python, without,
};
pub use server::{OtlpAddresses, Server, Settings, small_disk_settings};
pub use terminal::Terminal;
