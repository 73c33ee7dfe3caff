//! Tracing of the server's own I/O: started, kept in a storage like any other trace, and stopped.
//!
//! The engine's tracer records; the gatherer drains it into packets of the kind `io-trace`, and the
//! collector pushes them, as agent `tracehold`, through the ordinary writer, or keeps them in a
//! ring beside the data files until the trace ends. What happens in the storage of the trace itself
//! is not recorded, so a trace never feeds itself.

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
