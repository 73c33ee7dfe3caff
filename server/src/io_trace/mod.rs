//! Tracing of the server's I/O: starting it, storing it like any other trace, and stopping it.
//!
//! The engine's tracer records operations, and `drain` encodes them into packets of kind
//! `io-trace`. The collector pushes these as agent `tracehold` through the regular writer, or
//! stores them in a ring next to the data files until the trace ends. Operations on the storage of
//! the trace itself are not recorded, so a trace never feeds itself.

mod collector;
mod control;
mod drain;
mod error;
mod request;
mod status;
mod trace_storage;

pub(crate) use control::IoTracing;
pub(crate) use drain::EarlyTrace;
pub(crate) use error::IoTraceError;
pub(crate) use request::{NAME, TraceRequest};
pub(crate) use status::{Mode, State, Status};
