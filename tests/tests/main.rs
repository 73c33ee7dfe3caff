//! The end-to-end suite: the real programs on real input, and on every kind of failure.
//!
//! One binary, one module per promise. What the modules share is in the library (`tests/src`).
#![allow(
    clippy::unwrap_used,
    reason = "a test fails at the first unexpected result"
)]

mod ambiguous_requests;
mod api_description;
mod archived_indexes;
mod archives;
mod audit;
mod backup;
mod bad_metadata;
mod clock_jumps;
mod configuration;
mod copies;
mod crashes;
mod damaged_files;
mod damaged_storages;
mod disk_low;
mod disk_probe;
mod downloads;
mod droppable_packets;
mod encrypted;
mod exports;
mod fairness;
mod finalization;
mod foreign_files;
mod formats;
mod hang_ups;
mod http2;
mod incomplete_results;
mod invalid_requests;
mod io_trace;
mod io_trace_crash;
mod io_trace_reading;
mod labels;
mod leaf_bundles;
mod many_agents;
mod memory_bombs;
mod model;
mod monitoring;
mod mounted;
mod operation;
mod otlp_grpc;
mod packet_times;
mod page;
mod provenance;
mod proxies;
mod python_client;
mod queries;
mod quotas;
mod random_arithmetic;
mod random_queries;
mod random_results;
mod random_sources;
mod ranges;
mod real_traces;
mod recording;
mod recovering;
mod repair;
mod restart;
mod result_forms;
mod retention;
mod server_traps;
mod shares;
mod shutdown;
mod slow_senders;
mod span_limits;
mod standing_recording;
mod tables;
mod temporary_files;
mod terminals;
mod time_limits;
mod tokens;
mod traps;
mod truncated_responses;
mod write_status;
