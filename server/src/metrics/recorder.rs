//! The counts of the buffer and the recordings, in the text format of Prometheus.

use std::io::Write;

use recording::{Recorder, RecordingCounts, RecordingState};

/// Appends the counts of the recorder, summed over recordings. `GET /api/v1/recordings` has those
/// of each recording.
pub(crate) fn render_recorder(recorder: &Recorder, text: &mut Vec<u8>) {
    let buffer = recorder.buffer_status();
    let recordings = recorder.recordings();
    let in_state = |state| recordings.iter().filter(|each| each.state == state).count() as u64;
    let sum = |field: fn(&RecordingCounts) -> u64| -> u64 {
        recordings.iter().map(|each| field(&each.counts)).sum()
    };
    for (name, help, value) in [
        ("buffer_packets", "Packets in the buffer.", buffer.packets),
        (
            "buffer_bytes",
            "Bytes of packets in the buffer.",
            buffer.bytes,
        ),
        (
            "buffer_evicted_packets",
            "Packets evicted from the buffer since the start.",
            buffer.evicted,
        ),
        (
            "recordings_on",
            "Recordings that are on.",
            in_state(RecordingState::On),
        ),
        (
            "recordings_suspended",
            "Recordings that are suspended because the disk is low.",
            in_state(RecordingState::Suspended),
        ),
        (
            "recordings_scheduled",
            "Scheduled recordings.",
            in_state(RecordingState::Scheduled),
        ),
        (
            "recorded_packets",
            "Packets received by the listed recordings.",
            sum(|counts| counts.packets),
        ),
        (
            "recorded_derived_packets",
            "Derived packets of the listed recordings.",
            sum(|counts| counts.derived_packets),
        ),
        (
            "recorded_derived_refused_packets",
            "Derived packets refused by their storage.",
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
