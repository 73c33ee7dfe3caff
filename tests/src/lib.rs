//! What the end-to-end cases, the crash run and the benchmarks share.
//!
//! The cases themselves are one binary, `tests/tests/main.rs`. Everything here works on the real
//! programs from outside: it starts `traceholdd` on a free port, speaks HTTP to it over plain
//! sockets, kills it, starts it again, and compares bytes.
//!
//! A fault of the harness or of the server under test is a panic with the server's log below it:
//! nobody recovers from a failed test.

mod agent;
mod api;
mod corpora;
mod crash;
mod http;
mod load;
mod model;
mod multipart;
mod payload;
mod power;
mod programs;
mod server;
pub mod spans;

pub use agent::{Agent, Receipt};
pub use api::{Api, Problem};
pub use corpora::{corpora, own_traces, tools};
pub use crash::{CrashPlan, CrashReport, crash, crash_settings};
pub use http::{Connection, Request, Response};
pub use load::{Body, Load, LoadReport, Pace};
pub use model::{ModelPlan, ModelReport, run_model};
pub use multipart::{Part, parts};
pub use payload::{Random, packet, payload};
pub use power::{check_image, record_power};
pub use programs::{
    opentelemetry_python, run_tracehold, tables_python, tracehold, traceholdd, without,
};
pub use server::{Server, Settings, small_disk_settings};
