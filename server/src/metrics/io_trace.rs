//! The trace of our own I/O, in the text format of Prometheus.

use std::io::Write;

use crate::io_trace::{State, Status};

/// Appends what the trace that runs, or the last one, counts.
pub(crate) fn render_io_trace(status: &Status, text: &mut Vec<u8>) {
    let is_running = u64::from(status.state == State::Running);
    for (name, help, value) in [
        (
            "running",
            "1 while the server's own I/O is traced.",
            is_running,
        ),
        (
            "records",
            "Operations recorded by the last I/O trace.",
            status.drained.recorded,
        ),
        (
            "dropped_records",
            "Operations the last I/O trace had no room for.",
            status.drained.dropped_total(),
        ),
        (
            "overwritten_records",
            "Operations the last I/O trace gave up for later ones.",
            status.overwritten,
        ),
        (
            "bytes",
            "Bytes of packets of the last I/O trace.",
            status.bytes,
        ),
    ] {
        writeln!(
            text,
            "# HELP tracehold_io_trace_{name} {help}\n# TYPE tracehold_io_trace_{name} gauge\n\
             tracehold_io_trace_{name} {value}"
        )
        .expect("writing to memory does not fail");
    }
}
