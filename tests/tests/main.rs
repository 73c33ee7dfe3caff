//! The end-to-end suite: the real programs on real input, and on every kind of failure.
//!
//! One binary, one module per promise. What the modules share is in the library (`tests/src`).
#![allow(
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it must be"
)]

mod archived_indexes;
mod archives;
mod bad_input;
mod broken_answers;
mod copies;
mod crashes;
mod disk_low;
mod durability_of_choice;
mod exported;
mod fairness;
mod formats;
mod io_trace;
mod io_trace_crash;
mod io_trace_reading;
mod labels;
mod many_agents;
mod model;
mod mounted;
mod provenance;
mod queries;
mod ranges;
mod real_traces;
mod recording;
mod restart;
mod shutdown;
mod smuggling;
mod times_of_packets;
mod traps;
mod traps_of_servers;
mod write_status;
