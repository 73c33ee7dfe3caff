//! What the buffer and the recordings count, in the text format of Prometheus.

use std::io::Write;

use recording::{Recorder, RecordingCounts, RecordingState};

/// Appends everything the recorder counts. Recordings are summed up: each one's own counts are in
/// `GET /api/v1/recordings`.
pub(crate) fn render_recorder(recorder: &Recorder, text: &mut Vec<u8>) {
    let buffer = recorder.buffer_status();
    let recordings = recorder.recordings();
    let in_state = |state| recordings.iter().filter(|each| each.state == state).count() as u64;
    let sum = |field: fn(&RecordingCounts) -> u64| -> u64 {
        recordings.iter().map(|each| field(&each.counts)).sum()
    };
    for (name, help, value) in [
        ("buffer_packets", "Packets in the buffer.", buffer.packets),
        ("buffer_bytes", "Memory of the buffer.", buffer.bytes),
        (
            "buffer_evicted_packets",
            "Packets that had to leave the buffer since the start.",
            buffer.evicted,
        ),
        (
            "recordings_on",
            "Recordings that record.",
            in_state(RecordingState::On),
        ),
        (
            "recordings_scheduled",
            "Recordings that wait.",
            in_state(RecordingState::Scheduled),
        ),
        (
            "recorded_packets",
            "Packets that came to the recordings that are listed.",
            sum(|counts| counts.packets),
        ),
        (
            "recorded_derived_packets",
            "Packets of clones, spans, exceptions and aggregates of the recordings that are listed.",
            sum(|counts| counts.derived_packets),
        ),
        (
            "recorded_derived_refused_packets",
            "Derived packets that their storage refused.",
            sum(|counts| counts.derived_refused),
        ),
    ] {
        writeln!(
            text,
            "# HELP tracehold_{name} {help}\n# TYPE tracehold_{name} gauge\ntracehold_{name} {value}"
        )
        .expect("writing to memory does not fail");
    }
}
