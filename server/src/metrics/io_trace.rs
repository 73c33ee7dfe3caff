//! The I/O trace, in the text format of Prometheus.

use std::io::Write;

use crate::io_trace::{State, Status};

/// Appends the counts of the current or last trace.
pub(crate) fn render_io_trace(status: &Status, text: &mut Vec<u8>) {
    let is_running = u64::from(status.state == State::Running);
    for (name, help, value) in [
        ("running", "1 while the server's I/O is traced.", is_running),
        (
            "records",
            "Operations recorded by the current or last I/O trace.",
            status.drained.recorded,
        ),
        (
            "dropped_records",
            "Operations dropped because a buffer of the I/O trace was full.",
            status.drained.dropped_total(),
        ),
        (
            "overwritten_records",
            "Operations overwritten in the ring of the I/O trace.",
            status.overwritten,
        ),
        (
            "bytes",
            "Bytes of packets of the current or last I/O trace.",
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
