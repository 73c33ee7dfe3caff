//! The engine's own counters, in the text format of Prometheus.

use std::io::Write;

use storage_core::{Counters, LATENCY_BOUNDS_SECONDS, Latency};

/// Appends everything the engine counts.
pub(crate) fn render_engine(counters: &Counters, text: &mut Vec<u8>) {
    let c = counters;
    for (name, kind, help, value) in [
        (
            "packets_arrived_total",
            "counter",
            "Packets pushed and not refused at once.",
            &c.packets_arrived,
        ),
        (
            "packets_durable_total",
            "counter",
            "Packets made durable.",
            &c.packets_durable,
        ),
        (
            "packets_repeated_total",
            "counter",
            "Packets that were known already.",
            &c.packets_repeated,
        ),
        (
            "packets_failed_total",
            "counter",
            "Packets taken and then not written.",
            &c.packets_failed,
        ),
        (
            "packet_raw_bytes_total",
            "counter",
            "Bytes of durable packets as sent.",
            &c.raw_bytes,
        ),
        (
            "packet_stored_bytes_total",
            "counter",
            "Bytes of durable packets as stored.",
            &c.stored_bytes,
        ),
        (
            "written_bytes_total",
            "counter",
            "Bytes of frames written.",
            &c.written_bytes,
        ),
        (
            "write_errors_total",
            "counter",
            "Writes that failed.",
            &c.write_errors,
        ),
        (
            "files_published_total",
            "counter",
            "Small files put into place.",
            &c.files_published,
        ),
        (
            "index_parts_total",
            "counter",
            "Index parts written.",
            &c.index_parts,
        ),
        (
            "channels_open",
            "gauge",
            "Data files open for writing.",
            &c.channels_open,
        ),
        (
            "in_flight_bytes",
            "gauge",
            "Packet bytes between arrival and receipt.",
            &c.in_flight_bytes,
        ),
        (
            "waiting_for_room",
            "gauge",
            "Requests that wait for room for their packets.",
            &c.waiting_for_room,
        ),
        (
            "serializer_jobs",
            "gauge",
            "Jobs waiting for or with a serializer.",
            &c.serializer_jobs,
        ),
        (
            "refused_busy_total",
            "counter",
            "Pushes refused for lack of room.",
            &c.refused_busy,
        ),
        (
            "refused_disk_low_total",
            "counter",
            "Pushes refused for lack of disk.",
            &c.refused_disk_low,
        ),
        (
            "disk_free_bytes",
            "gauge",
            "Free bytes of the data folder's file system.",
            &c.disk_free_bytes,
        ),
        (
            "disk_low",
            "gauge",
            "1 while ingest is stopped for lack of disk.",
            &c.disk_low,
        ),
        (
            "index_cache_bytes",
            "gauge",
            "Index blocks kept in memory.",
            &c.index_cache_bytes,
        ),
        (
            "index_cache_hits_total",
            "counter",
            "Index blocks found in memory.",
            &c.index_cache_hits,
        ),
        (
            "index_cache_misses_total",
            "counter",
            "Index blocks read from disk.",
            &c.index_cache_misses,
        ),
    ] {
        line(text, name, kind, help, value.get());
    }
    render_dropped(c, text);
    histogram(
        text,
        "write_seconds",
        "Writes, from submission to completion.",
        &c.writes,
    );
    histogram(text, "sync_seconds", "Syncs of data files.", &c.syncs);
}

/// What agents that do not wait for the disk gave away.
fn render_dropped(c: &Counters, text: &mut Vec<u8>) {
    for (name, kind, help, value) in [
        (
            "packets_dropped_total",
            "counter",
            "Packets whose agents did not wait, and that were not kept.",
            &c.packets_dropped,
        ),
        (
            "dropped_bytes_total",
            "counter",
            "Bytes of these packets.",
            &c.dropped_bytes,
        ),
        (
            "droppable_bytes",
            "gauge",
            "Bytes of packets that may be dropped now.",
            &c.droppable_bytes,
        ),
    ] {
        line(text, name, kind, help, value.get());
    }
}

fn line(text: &mut Vec<u8>, name: &str, kind: &str, help: &str, value: u64) {
    put(
        text,
        format_args!(
            "# HELP tracehold_storage_{name} {help}\n# TYPE tracehold_storage_{name} {kind}\n\
             tracehold_storage_{name} {value}\n",
        ),
    );
}

fn histogram(text: &mut Vec<u8>, name: &str, help: &str, latency: &Latency) {
    let snapshot = latency.snapshot();
    put(
        text,
        format_args!(
            "# HELP tracehold_storage_{name} {help}\n# TYPE tracehold_storage_{name} histogram\n"
        ),
    );
    let bounds = LATENCY_BOUNDS_SECONDS.map(|bound| bound.to_string());
    let bounds = bounds.iter().map(String::as_str).chain(["+Inf"]);
    let mut cumulated = 0;
    for (bound, count) in bounds.zip(snapshot.buckets) {
        cumulated += count;
        put(
            text,
            format_args!("tracehold_storage_{name}_bucket{{le=\"{bound}\"}} {cumulated}\n"),
        );
    }
    put(
        text,
        format_args!(
            "tracehold_storage_{name}_sum {}\ntracehold_storage_{name}_count {cumulated}\n",
            snapshot.sum_seconds,
        ),
    );
}

fn put(text: &mut Vec<u8>, line: std::fmt::Arguments<'_>) {
    text.write_fmt(line)
        .expect("writing to memory does not fail");
}

#[cfg(test)]
mod tests {
    use storage_core::Counters;

    use super::render_engine;

    #[test]
    fn counters_and_histograms_are_whole() {
        let mut text = Vec::new();
        render_engine(&Counters::default(), &mut text);
        let text = String::from_utf8(text).unwrap();
        for line in [
            "tracehold_storage_packets_durable_total 0",
            "tracehold_storage_sync_seconds_bucket{le=\"0.00005\"} 0",
            "tracehold_storage_sync_seconds_bucket{le=\"+Inf\"} 0",
            "tracehold_storage_sync_seconds_count 0",
        ] {
            assert!(
                text.lines().any(|each| each == line),
                "{line} is missing in\n{text}"
            );
        }
    }
}
